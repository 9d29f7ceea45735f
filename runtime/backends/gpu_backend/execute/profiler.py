"""Runs programs on a GPU for a profiler: step by step, between marks in the stream that have times."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from ....program.builder import OpCall, program_of_fallback
from ....program.program import Allocate, LibraryCall, Program, Step
from ...plan import Plan
from ...profiler import AllocationRecord, CallRecord, DeviceProfiler, LaunchRecord, Listener, Span, Work, program_of
from ..driver import capture
from ..driver.error import DriverError
from ..driver.gpu_driver import GpuDriver
from ..driver.stream import Event
from .program import Results, Run, overlapping

_MAX_PENDING: Final = 1 << 12
# Times between events are f32, whose step is below a microsecond up to 8 seconds.
_LONGEST_MS: Final = 1000.0


class Clock:
    """The times of launches in the stream of a device, from marks that are looked at later."""

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        # Marks that nothing uses at the moment.
        self._marks: list[Event] = []
        self._pending: deque[tuple[LaunchRecord, Event, Event]] = deque()
        self._lock = threading.Lock()

    def mark(self) -> Event:
        """Mark the work that the stream has so far."""
        try:
            mark = self._marks.pop()
        except IndexError:
            mark = self._driver.queue.new_event(timing=True)
        return mark.record(self._driver.queue)

    def note(self, launch: LaunchRecord, begin: Event, end: Event) -> None:
        """Note the marks before a launch and after it."""
        self._pending.append((launch, begin, end))
        if len(self._pending) > _MAX_PENDING:
            self.settle(blocking=False)

    def settle(self, *, blocking: bool) -> None:
        """Wait for the stream and find the times of all launches so far.

        Nothing may be waited for while a graph is captured: where this thread does that, the times are read later. If
        another thread does, they are too, or this one waits for it if it is `blocking`.
        """
        if not self._pending or capture.of(self._driver) is not None:
            return
        # The times of a lost device stay unknown.
        if self._driver.capturing.acquire(blocking=blocking):
            try:
                with suppress(DriverError):
                    self._find_times()
            finally:
                self._driver.capturing.release()

    def _find_times(self) -> None:
        with self._lock:
            last = self.mark()
            last.synchronize()
            now = perf_counter_ns()
            # What is noted meanwhile is marked after the last mark.
            pending = [self._pending.popleft() for _ in range(len(self._pending))]
            anchor, anchor_ns = last, now
            for launch, begin, end in reversed(pending):
                launch.duration_ns = round(begin.elapsed_ms(end) * 1e6)
                elapsed = begin.elapsed_ms(anchor)
                launch.start_ns = anchor_ns - round(elapsed * 1e6)
                if elapsed > _LONGEST_MS:
                    anchor, anchor_ns = begin, launch.start_ns
            self._marks += [mark for _, *marks in pending for mark in marks]
            self._marks.append(last)


class GpuProfiler(DeviceProfiler):
    """An observer that runs the programs of a GPU step by step."""

    has_stream = True

    def __init__(self, device: Any, label: str, listener: Listener) -> None:
        super().__init__(device, label, listener)
        self._driver = driver = device.driver
        self._clock = Clock(driver)
        capture.watch(driver, self._watched)

    def _measured(self, call: OpCall, _plan: Plan, is_known: bool) -> Callable[[CallRecord, Sequence[Any]], Any]:
        facts = self._device.facts
        program = program_of(call, facts)
        work = Work(call, program)
        # A library that refuses the first call leaves it to another op, later ones to a fallback.
        has_run = [is_known]

        def run(record: CallRecord, arguments: Sequence[Any]) -> Results:
            record.is_captured = capture.of(self._driver) is not None
            if program.disjoint and (pairs := overlapping(program, arguments)):
                other = call.program(facts, pairs)
                assert other is not None, "the op has taken this call before"
                return self._run(other, arguments, record, Work(call, other))[0]
            result, refused = self._run(program, arguments, record, work)
            if refused is not None and refused.fallback is not None and has_run[0]:
                other = program_of_fallback(self._device.facts, program.arguments, refused.fallback)
                return self._run(other, arguments, record, Work(call, other))[0]
            has_run[0] = refused is None
            return result

        return run

    def _run(
        self, program: Program, arguments: Sequence[Any], record: CallRecord, work: Work
    ) -> tuple[Results, LibraryCall | None]:
        """Run a program; return its result, and the call that refused, without the memory that the program had."""
        now = perf_counter_ns()
        sizes = [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)]
        record.allocations += [AllocationRecord(nbytes, now) for nbytes in sizes]
        run = Run(self._device, program, arguments, partial(self._take, record, work))
        return run.run(), run.refused

    def _take(self, record: CallRecord, work: Work, step: Step, take: Callable[[], Any]) -> Any:
        """Take a step of a run."""
        return self._enqueued(record, work.record(step), take)

    def _watched(
        self, work: Callable[[], Any], name: str, kind: str | None, *, nbytes: int = 0, grid: int | None = None
    ) -> Any:
        """Record work that is not part of a program: see `capture.Watcher`."""
        operands = (f"{nbytes} bytes",) if nbytes else ()
        record = CallRecord(name, operands, self.label, is_planned=True, has_stream=True)
        record.is_captured = capture.of(self._driver) is not None
        with Span(self, record):
            return work() if kind is None else self._enqueued(record, LaunchRecord(name, kind, nbytes, grid), work)

    def _enqueued(self, record: CallRecord, launch: LaunchRecord, work: Callable[[], Any]) -> Any:
        """Enqueue work between marks, and record it."""
        if record.is_captured:
            result = work()
        else:
            begin = self._clock.mark()
            result = work()
            if result is not False:
                self._clock.note(launch, begin, self._clock.mark())
        # A library that refuses has done nothing.
        if result is not False:
            record.launches.append(launch)
        return result

    def allocated(self) -> int:
        """Return the bytes of the device's memory that storages and graphs hold."""
        return int(self._device.allocator.allocated)

    def settle(self, *, blocking: bool) -> None:
        self._clock.settle(blocking=blocking)

    def close(self) -> None:
        capture.watch(self._driver, None)
