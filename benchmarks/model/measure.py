"""Runs the variants: logits are compared first, and wrong ones are not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import tallow as tl
from numpy.typing import NDArray

from benchmarks.gpu.machine import described, summary, without_garbage_collection

from .decoder import Decoder
from .results import GRAPHS, PHASES, TOLERANCES, TORCH_GRAPHS, TORCH_VARIANTS, Row
from .variants import Call, Calls, Data, op_by_op, tallow_calls

Logits = NDArray[np.float32]

_MAX_ROUNDS, _MIN_ROUNDS = 50, 5
# Seconds on the rounds of a variant, after which the least number of them is enough.
_BUDGET = 0.4


@dataclass(frozen=True)
class Machine:
    """A device, and what there is beside tallow: `torch` is the module of PyTorch's variants, or None."""

    device: tl.Device
    gpu: dict[str, str]
    torch: Any
    without_torch: str
    synchronize: Callable[[], object]
    free: Callable[[], object]

    def environment(self, command: str) -> dict[str, str]:
        """Return the facts that a reader needs to repeat the run."""
        return described(command, self.gpu, ("tallow", "torch", "triton", "numpy", "cuda.bindings"))


def _without_torch(device: tl.Device) -> str:
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    is_there = device.backend == "cpu" or torch.cuda.is_available()
    return "" if is_there else f"PyTorch {torch.__version__} finds no GPU"


@contextmanager
def opened(label: str) -> Iterator[Machine]:
    """Open a device for all variants that it has."""
    device = tl.Device.parse(label)
    reason = _without_torch(device)
    alone = Machine(device, {"device": device.label}, None, reason, device.synchronize, lambda: None)
    if reason:
        yield alone
        return
    import torch

    from . import torch_variants

    if device.backend == "cpu":
        torch.set_num_threads(tl.get_threads())
        yield replace(alone, torch=torch_variants)
        return
    from benchmarks.gpu.libraries import open_libraries
    from benchmarks.gpu.measure import gpu

    with open_libraries(label) as libraries:
        environment = gpu(libraries.torch_device)
        yield Machine(device, environment, torch_variants, "", torch.cuda.synchronize, libraries.free)


def measure(machine: Machine, data: Data, dtype: str, variants: Sequence[str], report: Callable[[Row], None]) -> None:
    """Check and time the variants on data; whatever goes wrong with one is noted in its rows, and the others go on."""
    batch = data.prompt.shape[0]
    rows = {variant: [Row(phase, variant, dtype, batch) for phase in PHASES] for variant in variants}
    expected = _reference(machine, data)
    calls: dict[str, Calls] = {}
    for variant in variants:
        missing = _missing(machine, variant)
        if missing:
            _note(rows[variant], missing, failed=False)
            continue
        try:
            prepared = (
                machine.torch.torch_calls(variant, data) if variant in TORCH_VARIANTS else tallow_calls(variant, data)
            )
            # In this order: a decode step reads what the prefill has put into the cache.
            for call, row, logits in zip(prepared, rows[variant], expected, strict=True):
                row.difference = _difference(_as_numpy(call()), logits)
                if not row.difference <= TOLERANCES[dtype]:
                    _note([row], f"logits differ by {row.difference:.3g} of their size", failed=True)
            calls[variant] = prepared
        except Exception as error:
            _note(rows[variant], summary(error), failed=True)
    for number in range(len(PHASES)):
        right = {variant: prepared[number] for variant, prepared in calls.items() if not rows[variant][number].reason}
        _time(machine, right, {variant: rows[variant][number] for variant in right})
        for variant in variants:
            report(rows[variant][number])


def _missing(machine: Machine, variant: str) -> str:
    """Why a variant is not there; empty where it is."""
    if variant in TORCH_VARIANTS and machine.without_torch:
        return machine.without_torch
    return "a graph is a GPU's" if variant in (*GRAPHS, *TORCH_GRAPHS) and machine.device.backend == "cpu" else ""


def _reference(machine: Machine, data: Data) -> tuple[Logits, Logits]:
    if machine.torch is not None:
        calls = machine.torch.exact_calls(data)
    else:
        exact = data.to(tl.Device.cpu(), "f32")
        calls = op_by_op(Decoder(exact.config, exact.weights), exact)
    return _as_numpy(calls.prefill()), _as_numpy(calls.decode())


def _time(machine: Machine, calls: Mapping[str, Call], rows: Mapping[str, Row]) -> None:
    """Wall time and host time of calls that take turns, since clocks change with time; then a trace of each."""
    walls: dict[str, list[float]] = {variant: [] for variant in calls}
    hosts: dict[str, list[float]] = {variant: [] for variant in calls}
    deadline = perf_counter() + _BUDGET * len(calls)
    with without_garbage_collection():
        for number in range(_MAX_ROUNDS):
            if number >= _MIN_ROUNDS and perf_counter() > deadline:
                break
            for variant, call in calls.items():
                machine.synchronize()
                start = perf_counter()
                call()
                returned = perf_counter()
                machine.synchronize()
                walls[variant].append(perf_counter() - start)
                hosts[variant].append(returned - start)
    for variant, call in calls.items():
        rows[variant].wall_seconds, rows[variant].host_seconds = median(walls[variant]), median(hosts[variant])
        if machine.torch is not None and machine.device.backend != "cpu":
            try:
                rows[variant].gpu_seconds, rows[variant].launches = machine.torch.trace(call)
            except Exception as error:
                rows[variant].reason = f"no trace: {summary(error)}"


def _difference(actual: Logits, expected: Logits) -> float:
    return float(np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2)))


def _as_numpy(logits: Any) -> Logits:
    if isinstance(logits, tl.Tensor):
        return logits.to_dtype("f32").numpy()
    array: Logits = logits.float().cpu().numpy()
    return array


def _note(rows: Sequence[Row], reason: str, *, failed: bool) -> None:
    for row in rows:
        row.reason, row.failed = reason, failed
