"""Calls as lines on stderr: what TALLOW_TRACE asks for."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from typing import Final

from ..backends.profiler import CallRecord, LaunchRecord
from ..base.error import InvalidArgument
from .session import session
from .summary import Summary, microseconds, painted

_VARIABLE: Final = "TALLOW_TRACE"
_LEVELS: Final = {"1": 1, "2": 2}
_YELLOW: Final = 33
_RED: Final = 31
_DIM: Final = 2


class Trace:
    """Prints each call, or its launches and allocations as well, and a summary at the end of the process."""

    waits = True

    def __init__(self, level: int, *, has_colours: bool) -> None:
        self._level = level
        self._has_colours = has_colours
        self._summary = Summary()

    def add(self, call: CallRecord, allocated: int | None) -> None:
        """Print a call that has ended."""
        self._summary.add(call, allocated)
        # One write for all lines, so that those of other threads do not come between.
        sys.stderr.write("".join([f"{line}\n" for line in self._lines(call)]))

    def _lines(self, call: CallRecord) -> Iterator[str]:
        marks = "" if call.is_planned else self._painted("  no plan", _YELLOW)
        if call.is_captured:
            marks += self._painted("  captured", _YELLOW)
        if call.error is not None:
            marks += self._painted(f"  {call.error}", _RED)
        time = call.device_ns if call.has_stream else call.duration_ns
        shown = "" if call.is_captured else f"  {microseconds(time)} us"
        yield f"tallow: {call.device}  {call.title}{shown}{marks}{self._painted(f'  {call.line}', _DIM)}"
        if self._level > 1:
            for allocation in call.allocations:
                yield f"tallow:     allocate {allocation.nbytes} bytes"
            for launch in call.launches:
                yield f"tallow:     {_described(launch)}"

    def _painted(self, text: str, colour: int) -> str:
        return painted(text, colour, self._has_colours)

    def finish(self) -> None:
        """Print the summary."""
        session.stop(self)
        sys.stderr.write(f"{self._summary.text(has_colours=self._has_colours)}\n")


def _described(launch: LaunchRecord) -> str:
    grid = "" if launch.grid is None else f" on {launch.grid} blocks"
    time = "" if launch.duration_ns is None else f"  {microseconds(launch.duration_ns)} us"
    speed = f"  {launch.nbytes / launch.duration_ns:.1f} GB/s" if launch.nbytes and launch.duration_ns else ""
    return f"{launch.kind} {launch.name}{grid}  {launch.nbytes} bytes{time}{speed}"


def start(level: str) -> None:
    """Print calls from now on until the process ends. InvalidArgument for a level that there is not."""
    if level not in _LEVELS:
        reason = (
            f"'{level}' is not a level; use 1 for calls, 2 for their launches and allocations too, or 0 for nothing"
        )
        raise InvalidArgument(_VARIABLE, reason)
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    trace = Trace(_LEVELS[level], has_colours=has_colours)
    session.start(trace)
    atexit.register(trace.finish)
