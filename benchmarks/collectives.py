"""Bandwidth and latency of the collectives, beside torch.distributed: `python -m benchmarks.collectives`, as ranks.

    python -m tallow.launch -n 2 benchmarks/collectives.py --backend cuda --output build/benchmarks/collectives.md

Bus bandwidth is that of nccl-tests: the bytes that cross the slowest link, over the time of a call. Of all_reduce it is
2 (n - 1) / n times the bytes of a rank; of all_gather and reduce_scatter (n - 1) / n times those of all ranks; of
broadcast the bytes themselves. Calls of both libraries take turns in one process, each on its own stream.

Averaging gradients is timed in a stack of square layers: gradients alone, the same with averages behind them, and
`average_gradients`, whose calls are under way while gradients are worked out.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tallow as tl
from tallow import Device, DType, Tensor
from tallow import distributed as dist

SIZES = tuple(1 << power for power in range(10, 31, 2))
LATENCY_SIZES = tuple(1 << power for power in range(10, 16))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# Turns of each library, of which the median counts, and how long one takes at least.
TURNS = 5
SECONDS = 0.02
MOST_CALLS = 500
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
        given = count // dist.init().size if op == "all_gather" else count
        x = tl.ones(given, dtype=dtype, device=self.device)
        call: Callable[[Tensor], Tensor] = getattr(dist, op)
        return lambda: call(x)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.device.synchronize()


class Torch:
    """torch.distributed's calls."""

    name = "torch"

    def __init__(self, device: Device) -> None:
        import torch

        group = dist.init()
        self.torch: Any = torch
        kind = "cuda" if device.backend in ("cuda", "rocm") else "cpu"
        self.device = torch.device(kind, device.ordinal) if kind == "cuda" else torch.device("cpu")
        port = group.exchange("port", _free_port() if group.rank == 0 else None)[0]
        store = torch.distributed.TCPStore("127.0.0.1", port, group.size, group.rank == 0)
        if kind == "cuda":
            torch.cuda.set_device(self.device)
        torch.distributed.init_process_group(
            "nccl" if kind == "cuda" else "gloo", store=store, rank=group.rank, world_size=group.size
        )

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
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def seconds(library: Ours | Torch, call: Callable[[], object], calls: int) -> float:
    """The seconds of one of so many calls, on the slowest rank."""
    library.synchronize()
    dist.barrier()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    library.synchronize()
    mine = (time.perf_counter() - started) / calls
    return max(dist.init().exchange("seconds", mine))


def measure(libraries: list[Ours | Torch], op: str, nbytes: int, dtype: str) -> dict[str, float]:
    """The median seconds of a call by each library, which take turns."""
    count = nbytes // DType(dtype).itemsize
    prepared = {library.name: library.prepare(op, count, dtype) for library in libraries}
    calls = 1
    for library in libraries:
        # The first calls connect the ranks.
        seconds(library, prepared[library.name], 3)
        once = seconds(library, prepared[library.name], 3)
        calls = max(calls, min(MOST_CALLS, int(SECONDS / once) + 1))
    taken: dict[str, list[float]] = {library.name: [] for library in libraries}
    for _ in range(TURNS):
        for library in libraries:
            taken[library.name].append(seconds(library, prepared[library.name], calls))
    return {name: statistics.median(times) for name, times in taken.items()}


def table(libraries: list[Ours | Torch], dtypes: list[str], most: int) -> Iterator[str]:
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
        made = x
        for weight in weights:
            made = (made @ weight).tanh()
        return made.sqr().mean()

    def behind() -> list[Tensor]:
        grads = loss().backward()
        return [dist.all_reduce(grads[weight], "mean") for weight in weights]

    ways: dict[str, Callable[[], object]] = {
        "gradients": lambda: loss().backward(),
        "means behind them": behind,
        "means meanwhile": lambda: dist.average_gradients(loss(), weights, bucket_bytes=4 * width * width),
    }
    ours = Ours(device)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, call in ways.items():
            once = seconds(ours, call, 10)
            # In the first turn ranks connect and kernels are compiled.
            taken[name] += [once] if turn else []
    yield f"a step of {LAYERS} layers of {width} x {width} and {rows} rows, f32, in ms"
    yield ""
    yield f"| {' | '.join(ways)} |"
    yield "| ---: " * len(ways) + "|"
    yield "| " + " | ".join(f"{1e3 * statistics.median(times):.2f}" for times in taken.values()) + " |"


def latency_of_one() -> float:
    """The seconds of a call of a group of one."""
    alone = dist.init().split(dist.init().rank)
    x = tl.ones(1)
    started = time.perf_counter()
    for _ in range(100_000):
        dist.all_reduce(x, group=alone)
    return (time.perf_counter() - started) / 100_000


def main() -> None:
    """Measure, and have rank 0 write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", help="the backend of the devices, one for each rank (cuda)")
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"], help="the dtypes (f32 bf16)")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest size in bytes (1 GiB)")
    parser.add_argument("--output", type=Path, help="a file for the table, which is printed too")
    options = parser.parse_args()
    group = dist.init()
    device = dist.device(options.backend)
    libraries: list[Ours | Torch] = [Ours(device)]
    try:
        libraries.append(Torch(device))
    except ImportError:
        print("PyTorch is not installed, so tallow is measured alone", flush=True)
    alone = latency_of_one()
    lines = [
        f"{group.size} ranks, {options.backend}, NumPy {np.__version__}, tallow {tl.__version__}",
        f"a call of a group of one: {1e9 * alone:.0f} ns",
        "",
    ]
    if group.rank == 0:
        print("\n".join(lines), flush=True)
    # A weight has the sixteenth part of the largest size, and a product as many rows as columns.
    width = int((options.most // 64) ** 0.5)
    for line in (*averages(device, width, width), "", *table(libraries, options.dtypes, options.most)):
        lines.append(line)
        if group.rank == 0:
            print(line, flush=True)
    if group.rank == 0 and options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
