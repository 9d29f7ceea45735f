"""`tallow.profile`: what the calls inside of a block do."""

from __future__ import annotations

import json
import os
import threading
from time import perf_counter_ns
from typing import Final, Self

from ..backends.profiler import AllocationRecord, CallRecord, LaunchRecord
from ..base.error import InvalidArgument
from ..files.content import checked_path, written
from .chrome import MemorySample, events
from .session import session
from .summary import Summary

_OP: Final = "profile"


class Profile:
    """A context manager that records the calls in its block, and prints as tables: the result of `profile`."""

    waits = False

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else checked_path(_OP, path)
        # With the bytes in use of the device's memory at the end. Threads append to one list, so that pairs stay pairs.
        self._calls: list[tuple[CallRecord, int | None]] = []
        self._threads: dict[int, str] = {}
        self._begin_ns = 0

    def __enter__(self) -> Self:
        if self._begin_ns:
            raise InvalidArgument(_OP, "the block of this profile was entered before; make another one")
        self._begin_ns = perf_counter_ns()
        session.start(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        session.stop(self)
        if self._path is None:
            return
        try:
            self._write(self._path)
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"the profile of the block was not written: {failure}")

    def add(self, call: CallRecord, allocated: int | None) -> None:
        """Note a call that has ended; see `session.Sink`."""
        self._threads.setdefault(call.thread, threading.current_thread().name)
        self._calls.append((call, allocated))

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of all calls, in the order in which they ended."""
        return tuple([call for call, _ in tuple(self._calls)])

    @property
    def launches(self) -> tuple[LaunchRecord, ...]:
        """The launches of kernels, calls of libraries and copies of all calls."""
        return tuple([launch for call in self.calls for launch in call.launches])

    @property
    def allocations(self) -> tuple[AllocationRecord, ...]:
        """The memory that the calls allocated."""
        return tuple([allocation for call in self.calls for allocation in call.allocations])

    @property
    def memory(self) -> tuple[MemorySample, ...]:
        """The memory of its device that was in use at the end of each call, where that is known."""
        return tuple(
            [
                MemorySample(call.start_ns + call.duration_ns, call.device, allocated)
                for call, allocated in tuple(self._calls)
                if allocated is not None
            ]
        )

    def __repr__(self) -> str:
        return self.text()

    def text(self, *, has_colours: bool = False) -> str:
        """Return tables of the calls, of the kernels and of the memory."""
        summary = Summary()
        for call, allocated in tuple(self._calls):
            summary.add(call, allocated)
        return summary.text(has_colours=has_colours)

    def _write(self, path: str) -> None:
        described = {
            "displayTimeUnit": "ns",
            "traceEvents": list(events(self.calls, self.memory, dict(self._threads), self._begin_ns)),
        }
        with written(_OP, path) as stream:
            stream.write(json.dumps(described).encode())
