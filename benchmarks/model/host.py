"""The host's time in a decode step: how often each op of tallow's is called, and how long that takes."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path
from typing import NamedTuple

from . import decoder
from .variants import Call

_STEPS = 50
_CALLER = decoder.__file__


class OpTime(NamedTuple):
    """An op in one step: its calls, and the seconds in all of them, with everything that they call."""

    name: str
    calls: float
    seconds: float


def op_times(call: Call, steps: int = _STEPS) -> list[OpTime]:
    """The ops that the decoder calls, those that take most first. The profiler makes each call slower."""
    call()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(steps):
        call()
    profiler.disable()
    times = []
    for (file, _, name), (*_, callers) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        # Of what the decoder itself calls: calls, and the time with what those call.
        own = [numbers for (caller, *_), numbers in callers.items() if caller == _CALLER]
        if own and Path(file) != Path(_CALLER) and "tallow" in file:
            times.append(OpTime(name, sum(n[0] for n in own) / steps, sum(n[3] for n in own) / steps))
    return sorted(times, key=lambda op: op.seconds, reverse=True)
