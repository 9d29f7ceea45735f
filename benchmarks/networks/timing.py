"""Times of several variants that take turns, so that a busy machine and changing clocks slow all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.cpu.measure import rest
from benchmarks.gpu.machine import without_garbage_collection

_TURNS = 5
# Seconds of a turn, of calls that wait for each other on the device alone.
_TURN = 0.02
# Seconds of a variant, after which fewer turns are enough.
_BUDGET, _MIN_TURNS = 1.0, 2


class Times(NamedTuple):
    """Seconds of a call: the median of turns on the clock, the least of all turns by all threads of the process."""

    wall: float
    processor: float


class _Variant:
    def __init__(self, call: Callable[[], object], synchronize: Callable[[], object]) -> None:
        self._call = call
        self._synchronize = synchronize
        self._walls: list[float] = []
        self._processors: list[float] = []
        call()
        synchronize()
        self._spent = self._measure(1)
        self._calls = max(1, min(200, int(_TURN / self._spent)))

    def take_turn(self) -> None:
        if len(self._walls) >= _MIN_TURNS and self._spent > _BUDGET:
            return
        rest()
        if self._calls > 1:
            # Others have used the caches meanwhile.
            self._call()
            self._synchronize()
        self._spent += self._calls * self._measure(self._calls, is_counted=True)

    def _measure(self, calls: int, *, is_counted: bool = False) -> float:
        wall, processor = perf_counter(), process_time()
        for _ in range(calls):
            self._call()
        self._synchronize()
        wall, processor = (perf_counter() - wall) / calls, (process_time() - processor) / calls
        if is_counted:
            self._walls.append(wall)
            self._processors.append(processor)
        return wall

    @property
    def times(self) -> Times:
        return Times(median(self._walls), min(self._processors))


def time_in_turns(calls: Mapping[str, Callable[[], object]], synchronize: Callable[[], object]) -> dict[str, Times]:
    """The times of each call."""
    with without_garbage_collection():
        variants = {name: _Variant(call, synchronize) for name, call in calls.items()}
        for _ in range(_TURNS):
            for variant in variants.values():
                variant.take_turn()
    return {name: variant.times for name, variant in variants.items()}
