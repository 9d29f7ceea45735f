"""Bandwidth and latency of the collectives, compared with torch.distributed.

Bus bandwidth is that of nccl-tests: the bytes that cross the slowest link, over the time of a call. Of all_reduce it is
2 (n - 1) / n times the bytes of a rank; of all_gather and reduce_scatter (n - 1) / n times those of all ranks; of
broadcast the bytes themselves. Calls of both libraries take turns in one process, each on its own stream.

Averaging gradients is timed in a stack of square layers: gradients alone, the same with averages behind them, and
`average_gradients`, whose calls are running while gradients are worked out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tallow as tl
from tallow import Device, DType, Tensor
from tallow import distributed as dist

from .ranks import join_torch, slowest_seconds, torch_synchronize

SIZES = tuple(1 << power for power in range(10, 31, 2))
LATENCY_SIZES = tuple(1 << power for power in range(10, 16))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# Turns of each library, of which the median counts, and how long one takes at least.
TURNS = 5
SECONDS = 0.02
MAX_CALLS = 500
# Of the stack whose gradients are averaged.
LAYERS = 12


def bus_factor(op: str, ranks: int) -> float:
    """The bytes on a link by a byte of the call's size."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "broadcast": 1.0}[op]


class Ours:
    """tallow's calls."""

    name = "tallow"

    def __init__(self, device: Device) -> None:
        self.device = device

    def prepare(self, op: str, count: int, dtype: str) -> Callable[[], object]:
        """A call whose larger side has `count` elements."""
        local_count = count // dist.init().size if op == "all_gather" else count
        x = tl.ones(local_count, dtype=dtype, device=self.device)
        call: Callable[[Tensor], Tensor] = getattr(dist, op)
        return lambda: call(x)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.device.synchronize()


class Torch:
    """torch.distributed's calls."""

    name = "torch"

    def __init__(self, device: Device) -> None:
        self.device = join_torch(device)
        import torch

        self.torch: Any = torch

    def prepare(self, op: str, count: int, dtype: str) -> Callable[[], object]:
        """A call whose larger side has `count` elements."""
        torch, ranks = self.torch, dist.init().size
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        x = torch.ones(count, dtype=kind, device=self.device)
        part = torch.ones(count // ranks, dtype=kind, device=self.device)
        calls = {
            "all_reduce": lambda: torch.distributed.all_reduce(x),
            "all_gather": lambda: torch.distributed.all_gather_into_tensor(x, part),
            "reduce_scatter": lambda: torch.distributed.reduce_scatter_tensor(part, x),
            "broadcast": lambda: torch.distributed.broadcast(x, 0),
        }
        return calls[op]

    def synchronize(self) -> None:
        """Wait for the device."""
        torch_synchronize(self.device)


def measure(libraries: list[Ours | Torch], op: str, nbytes: int, dtype: str) -> dict[str, float]:
    """The median seconds of a call by each library, which take turns."""
    count = nbytes // DType(dtype).itemsize
    prepared = {library.name: library.prepare(op, count, dtype) for library in libraries}
    calls = 1
    for library in libraries:
        # The first calls connect the ranks.
        slowest_seconds(prepared[library.name], 3, library.synchronize)
        once = slowest_seconds(prepared[library.name], 3, library.synchronize)
        calls = max(calls, min(MAX_CALLS, int(SECONDS / once) + 1))
    taken: dict[str, list[float]] = {library.name: [] for library in libraries}
    for _ in range(TURNS):
        for library in libraries:
            taken[library.name].append(slowest_seconds(prepared[library.name], calls, library.synchronize))
    return {name: statistics.median(times) for name, times in taken.items()}


def table(libraries: list[Ours | Torch], dtypes: Sequence[str], most: int) -> Iterator[str]:
    """The lines of a table of bus bandwidth, in GB/s, and the time of a call."""
    names = [library.name for library in libraries]
    ranks = dist.init().size
    yield "| call | dtype | bytes | " + " | ".join(f"{name} us | {name} GB/s" for name in names) + " | share |"
    yield "| --- | --- " + "| ---: " * (2 * len(names) + 2) + "|"
    for op in OPS:
        for dtype in dtypes:
            for nbytes in sorted({*SIZES, *(LATENCY_SIZES if op == "all_reduce" else ())}):
                if nbytes > most:
                    continue
                taken = measure(libraries, op, nbytes, dtype)
                speeds = {name: nbytes * bus_factor(op, ranks) / taken[name] / 1e9 for name in names}
                cells = " | ".join(f"{1e6 * taken[name]:.1f} | {speeds[name]:.2f}" for name in names)
                share = f"{taken[names[-1]] / taken['tallow']:.2f}" if len(names) > 1 else "-"
                yield f"| {op} | {dtype} | {nbytes} | {cells} | {share} |"


def averages(device: Device, width: int, rows: int) -> Iterator[str]:
    """The lines of a table of a step: how long gradients take, and how much longer with their means over the ranks."""
    weights = [tl.Var(tl.randn((width, width), std=width**-0.5, device=device)) for _ in range(LAYERS)]
    x = tl.randn((rows, width), device=device)

    def loss() -> Tensor:
        y = x
        for weight in weights:
            y = (y @ weight).tanh()
        return y.sqr().mean()

    def behind() -> list[Tensor]:
        grads = loss().backward()
        return [dist.all_reduce(grads[weight], "mean") for weight in weights]

    variants: dict[str, Callable[[], object]] = {
        "gradients": lambda: loss().backward(),
        "means behind them": behind,
        "means meanwhile": lambda: dist.average_gradients(loss(), weights, bucket_bytes=4 * width * width),
    }
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(TURNS + 1):
        for name, call in variants.items():
            once = slowest_seconds(call, 10, device.synchronize)
            # In the first turn ranks connect and kernels are compiled.
            taken[name] += [once] if turn else []
    yield f"a step of {LAYERS} layers of {width} x {width} and {rows} rows, f32, in ms"
    yield ""
    yield f"| {' | '.join(variants)} |"
    yield "| ---: " * len(variants) + "|"
    yield "| " + " | ".join(f"{1e3 * statistics.median(times):.2f}" for times in taken.values()) + " |"


def latency_of_one() -> float:
    """The seconds of a call of a group of one."""
    alone = dist.init().split(dist.init().rank)
    x = tl.ones(1)
    started = time.perf_counter()
    for _ in range(100_000):
        dist.all_reduce(x, group=alone)
    return (time.perf_counter() - started) / 100_000


def report(backend: str, dtypes: Sequence[str], most: int) -> Iterator[str]:
    """All lines, for the ranks of this process's group."""
    device = dist.device(backend)
    libraries: list[Ours | Torch] = [Ours(device)]
    try:
        libraries.append(Torch(device))
    except ImportError:
        yield "PyTorch is not installed, so tallow is measured alone"
    yield f"{dist.init().size} ranks, {backend}, NumPy {np.__version__}, tallow {tl.__version__}"
    yield f"a call of a group of one: {1e9 * latency_of_one():.0f} ns"
    yield ""
    # A weight has the sixteenth part of the largest size, and a product as many rows as columns.
    width = int((most // 64) ** 0.5)
    yield from averages(device, width, width)
    yield ""
    yield from table(libraries, dtypes, most)
