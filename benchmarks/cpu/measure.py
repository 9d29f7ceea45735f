"""How a case is checked and timed, and what machine it is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import tallow as tl

from benchmarks.processor import cores, processor

from .cases import Call, Case
from .results import Machine

_TURNS = 4
_TURN = 0.015
# Seconds of a measurement, which has several calls if these are short: reading processor time takes 0.3 us.
_MEASUREMENT, _RESOLUTION = 5e-5, 1e-6
_PAUSE = 0.01
# Pauses before a turn at most, and the share of one for which threads may work that are asleep.
_MAX_PAUSES, _AWAKE = 20, 0.1
# Seconds of a call that needs fewer turns.
_LONG, _TURNS_OF_LONG = 0.2, 2
# Of the largest element of the result.
_TOLERANCE_OF_HALVES = 2e-2


def time_in_turns(calls: Mapping[str, Call], *, of_processor: bool = False) -> dict[str, float]:
    """The median time of each call in seconds; they take turns of several calls, so that a busy machine slows all.

    Processor time is affected less by other processes. In the pauses before a turn the threads of another library,
    which wait for more work for a while, fall asleep.
    """
    clock = process_time if of_processor else perf_counter
    times: dict[str, list[float]] = {library: [] for library in calls}
    for turn in range(_TURNS):
        if turn >= _TURNS_OF_LONG and any(map(_is_long, times.values())):
            break
        for library, call in calls.items():
            taken = times[library]
            rest()
            repeats = 1
            if not _is_long(taken):
                # Others have used the caches meanwhile.
                start = clock()
                call()
                repeats = max(int(_MEASUREMENT / max(clock() - start, _RESOLUTION)), 1)
            end, count = perf_counter() + _TURN, len(taken)
            while len(taken) == count or perf_counter() < end:
                start = clock()
                for _ in range(repeats):
                    call()
                taken.append((clock() - start) / repeats)
    return {library: statistics.median(taken) for library, taken in times.items()}


def rest() -> None:
    for _ in range(_MAX_PAUSES):
        start = process_time()
        sleep(_PAUSE)
        if process_time() - start < _AWAKE * _PAUSE:
            return


def _is_long(taken: Sequence[float]) -> bool:
    return bool(taken) and min(taken) > _LONG


def differing(case: Case) -> list[str]:
    """The libraries whose result is not tallow's: integers are compared exactly, others by the dtype of tallow's.

    Random numbers differ by their nature, and NumPy returns nothing where it writes in place.
    """
    if case.name.startswith("rand"):
        return []
    ours, *theirs = ((library, call()) for library, call in case.calls.items())
    return [
        library for library, result in theirs if result is not None and not _is_close(ours[1], result, case.tolerance)
    ]


def _is_close(ours: tl.Tensor, theirs: Any, tolerance: float) -> bool:
    if hasattr(theirs, "is_floating_point"):
        # NumPy has no bf16.
        theirs = (theirs.float() if theirs.is_floating_point() else theirs).numpy()
    actual, expected = (ours.to_dtype(tl.DType.F32) if ours.dtype.is_float else ours).numpy(), np.asarray(theirs)
    if actual.shape != expected.shape:
        return False
    if not ours.dtype.is_inexact:
        return bool(np.array_equal(actual, expected))
    tolerance = _TOLERANCE_OF_HALVES if ours.dtype.itemsize == 2 else tolerance
    most = float(np.abs(expected).max())
    return bool(np.allclose(actual, expected, rtol=tolerance, atol=tolerance * most))


def this_machine(torch: Any) -> Machine:
    """The machine at hand, with PyTorch's module or None."""
    cpu: Any = tl.Device.cpu().inner
    versions = {
        "tallow": tl.__version__,
        "NumPy": np.__version__,
        "PyTorch": torch and torch.__version__,
        "oneDNN": None if cpu.onednn is None else version("onednn-cpu-gomp"),
    }
    return Machine(processor(), cores(), versions, cpu.kernels is not None)
