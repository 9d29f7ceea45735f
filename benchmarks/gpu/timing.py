"""Times on the device and on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter

import torch

from .libraries import Libraries
from .machine import without_garbage_collection

Call = Callable[[], object]

_ROUNDS = 7
_MIN_ROUNDS = 3
# Seconds on a library's rounds, after which the least number of rounds is enough.
_BUDGET = 0.15
# Seconds that a round shall take, so that the resolution of events does not matter, and launches that it may take: the
# queue of a stream holds about a thousand kernels, and some ops are a dozen of them.
_ROUND_SECONDS = 2e-3
_MAX_LAUNCHES = 64
# How long the device is kept busy while calls are enqueued, in cycles of a fast clock, and at most.
_CYCLES_PER_SECOND = 2e9
_MAX_CYCLES = int(0.02 * _CYCLES_PER_SECOND)
_HOST_ROUNDS = 5
_HOST_CALLS = 200


@dataclass(frozen=True)
class _Round:
    launches: int
    # The device spins for so long first. Without that, the time of a small op would be that of enqueueing it.
    busy_cycles: int


def device_seconds(calls: Mapping[str, Call]) -> dict[str, float]:
    """The median time that one call of each library takes on the device. They take turns: clocks change with time."""
    with without_garbage_collection():
        rounds = {name: _plan(call) for name, call in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        deadline = perf_counter() + _BUDGET * len(calls)
        for number in range(_ROUNDS):
            if number >= _MIN_ROUNDS and perf_counter() > deadline:
                break
            for name, call in calls.items():
                times[name].append(_measure(call, rounds[name]))
    return {name: median(measured) for name, measured in times.items()}


def host_seconds(calls: Mapping[str, Call]) -> dict[str, float]:
    """The median time that the host takes to enqueue one call of each library."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    with without_garbage_collection():
        for _ in range(_HOST_ROUNDS):
            for name, call in calls.items():
                torch.cuda.synchronize()
                times[name].append(_enqueue(call, _HOST_CALLS))
    torch.cuda.synchronize()
    return {name: median(measured) for name, measured in times.items()}


def copy_rates(libraries: Libraries, nbytes: int) -> dict[str, float]:
    """GB/s of a copy within the device, bytes read and bytes written, by who copies."""
    source, target = (torch.ones(nbytes, dtype=torch.uint8, device=libraries.torch_device) for _ in range(2))
    driver = libraries.device.inner.driver  # type: ignore[union-attr]
    addresses = target.data_ptr(), source.data_ptr()
    seconds = device_seconds(
        {
            "PyTorch's copy_": lambda: target.copy_(source),
            "the driver's copy": lambda: driver.copy(*addresses, nbytes),
        }
    )
    return {name: 2 * nbytes / taken / 1e9 for name, taken in seconds.items()}


def _plan(call: Call) -> _Round:
    call()
    torch.cuda.synchronize()
    host = _enqueue(call, 3)
    torch.cuda.synchronize()
    device = _measure(call, _Round(1, _cycles(host)))
    launches = min(max(ceil(_ROUND_SECONDS / device), 1), _MAX_LAUNCHES)
    return _Round(launches, _cycles(host * launches))


def _cycles(seconds: float) -> int:
    return min(int((1.5 * seconds + 2e-5) * _CYCLES_PER_SECOND), _MAX_CYCLES)


def _enqueue(call: Call, count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count


def _measure(call: Call, plan: _Round) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(plan.busy_cycles)
    start.record()
    for _ in range(plan.launches):
        call()
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    # A division by the time follows, and events may not tell the shortest ones apart.
    return max(milliseconds / 1e3 / plan.launches, 1e-9)
