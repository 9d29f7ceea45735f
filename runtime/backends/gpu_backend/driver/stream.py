"""Streams, the queues in which a device does its work in order, their events, and memory that pending copies need."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, ClassVar, Self

from ....base.error import InvalidArgument
from . import capture, slow_path
from .device import Device, unchanged
from .error import DriverError
from .graph import Graph
from .resource import Resource


class Direction(IntEnum):
    """From where to where bytes are copied: the positions of `Device.copies`."""

    TO_DEVICE = 0
    TO_HOST = 1
    WITHIN_DEVICE = 2

    def between(self, label: str) -> str:
        """Return how errors describe a copy on the device that has this label."""
        return f"{_ROUTES[self]} {label}"


_ROUTES = {
    Direction.TO_DEVICE: "from the host to",
    Direction.TO_HOST: "to the host from",
    Direction.WITHIN_DEVICE: "within",
}


class Event(Resource):
    """A mark in a stream; it counts as done until it is recorded for the first time.

    `timing=False` makes an event cheaper that only orders things. `blocking=True` lets the host sleep in `synchronize`
    where it would spin.
    """

    __slots__ = ("_handle", "device", "timing")

    def __init__(self, device: Device, *, timing: bool = True, blocking: bool = False) -> None:
        self.device = device
        self.timing = timing
        # Owned before the device that was current is again, which may fail.
        with device.activated():
            self._handle = device.calls.create_event(timing, blocking, device.label)
            self._own(device.call_in_context, device.calls.destroy_event, self._handle)

    @property
    def handle(self) -> Any:
        """The binding's event; `Closed` after `close()`."""
        self.require_open()
        return self._handle

    def record(self, stream: Stream) -> Self:
        """Mark the point that a stream of the device has reached with everything enqueued so far."""
        if stream.device != self.device:
            reason = f"the event is on {self.device.label}, the stream on {stream.device.label}; make it on that device"
            raise InvalidArgument(f"{type(self).__name__}.record", reason)
        with stream.in_context():
            self.device.calls.record_event(self.handle, stream.handle, self.device.label)
        return self

    def query(self) -> bool:
        """Whether the mark has been passed."""
        return bool(self.device.call_in_context(self.device.calls.query_event, self.handle))

    def synchronize(self) -> None:
        """Wait on the host until the mark has been passed."""
        self.device.call_in_context(self.device.calls.synchronize_event, self.handle)

    def elapsed_ms(self, stop: Self) -> float:
        """Wait for `stop` and return the milliseconds from this mark to it.

        Both need `timing` (`InvalidArgument`) and to have been recorded (`DriverError`).
        """
        if not (self.timing and stop.timing):
            raise InvalidArgument(f"{type(self).__name__}.elapsed_ms", "both events must be created with timing=True")
        start = self.handle
        stop.synchronize()
        return float(self.device.call_in_context(self.device.calls.elapsed, start, stop.handle))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"


class Stream(Resource):
    """A queue of work on a device, concurrent with the device's default stream.

    Leaving a `with` block waits for it and closes it. What the driver refuses raises its `DriverError`.
    """

    __slots__ = ("device", "in_context", "is_null", "own_handle")

    event_class: ClassVar[type[Event]] = Event
    graph_class: ClassVar[type[Graph]] = Graph

    own_handle: Any
    """The binding's stream itself."""
    in_context: Callable[[], contextlib.AbstractContextManager[None]]
    """Makes the device current for the length of a `with` block, where the driver wants that for the stream."""

    def __init__(self, device: Device) -> None:
        with device.activated():
            self._hold(device, device.calls.create_stream(device.label))

    def _hold(self, device: Device, handle: Any) -> None:
        """Take a new stream over."""
        self.device = device
        self.is_null = False
        self.in_context = device.activated if device.calls.NEEDS_CONTEXT else unchanged
        self.own_handle = handle
        self._own(device.call_in_context, device.calls.destroy_stream, self.own_handle)

    @classmethod
    def wrap(cls, device: Device, address: int) -> Self:
        """Return a stream that another library created: closing it only ends its use here.

        0 and 1 are the default stream of all threads, 2 is that of the calling thread.
        """
        stream = cls.__new__(cls)
        stream.device = device
        stream.own_handle = device.calls.stream_at(address)
        # Default streams are those of the current device.
        stream.is_null = address <= 2
        stream.in_context = device.activated if stream.is_null or device.calls.NEEDS_CONTEXT else unchanged
        # Without a finaliser, since its end gives nothing back.
        stream._handles = [(_keep, ())]
        return stream

    @classmethod
    def null(cls, device: Device) -> Self:
        """The device's default stream, which is always there."""
        return cls.wrap(device, 0)

    @property
    def handle(self) -> Any:
        """The binding's stream, or that of the capture of this thread; `Closed` after `close()`."""
        # Spelt out, because every launch comes by here and a call would cost it a tenth of a microsecond.
        if slow_path.required or not self._handles:
            self.require_open()
            captured = capture.of(int(self.own_handle))
            if captured is not None:
                captured.is_empty = False
                return captured.stream.own_handle
        return self.own_handle

    @property
    def address(self) -> int:
        """The vendor's handle as a number, for libraries called through ctypes."""
        return int(self.handle)

    def call(self, function: Callable[..., Any], *arguments: Any, about: str = "") -> Any:
        """Call a function of a driver whose last argument is the stream."""
        with self.in_context():
            return function(*arguments, self.handle, about or self.device.label)

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy. Either end is an address, or a buffer on the host."""
        try:
            with self.in_context():
                self.device.copies[direction](target, origin, nbytes, self.handle)
        except DriverError as error:
            raise error.about(f"{nbytes} bytes {direction.between(self.device.label)}") from None

    def upload(self, copies: Sequence[tuple[int, int, int]], event: Event) -> None:
        """Enqueue copies from pinned memory, each a target, an origin and bytes, and mark the event after them.

        The event is also marked after those that were enqueued before one was refused.
        """
        # The context is set once: each call may switch threads, of which a loader has many.
        with self.in_context():
            calls = self.device.calls
            try:
                for target, origin, nbytes in copies:
                    about = f"{nbytes} bytes from the host to {self.device.label}"
                    calls.copy_to_device(target, origin, nbytes, self.handle, about)
            finally:
                calls.record_event(event.handle, self.handle, self.device.label)

    def copy_between(self, target: int, target_device: Device, origin: int, origin_device: Device, nbytes: int) -> None:
        """Enqueue a copy from one device to another, of which one is the stream's.

        It takes the direct path between them where there is one; else the driver stages it in host memory. It waits for
        what is enqueued here alone: order it after other work of either device by events.
        """
        self.device.let_reach(origin_device if self.device == target_device else target_device)
        ends = target, target_device.context, origin, origin_device.context
        about = f"{nbytes} bytes from {origin_device.label} to {target_device.label}"
        self.call(self.device.calls.copy_between, *ends, nbytes, about=about)

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        """Enqueue the setting of `count` items to an unsigned number of 1, 2 or 4 bytes."""
        try:
            with self.in_context():
                self.device.fills[itemsize](address, value, count, self.handle)
        except DriverError as error:
            raise error.about(f"{count * itemsize} bytes on {self.device.label}") from None

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued in the stream is done; errors of kernels come up here."""
        self.call(self.device.calls.synchronize_stream)

    def query(self) -> bool:
        """Whether everything enqueued in the stream is done."""
        return bool(self.call(self.device.calls.query_stream))

    def record(self, event: Event | None = None) -> Event:
        """Record an event here and return it; by default a new one that has no timing."""
        return (self.new_event() if event is None else event).record(self)

    def begin_capture(self) -> None:
        """Record from now on what is enqueued here, and do not do it.

        Until `end_capture`, neither the stream nor the device may be waited for, by any thread, nor may another stream
        wait for this one.
        """
        self.call(self.device.calls.begin_capture)

    def end_capture(self) -> Graph:
        """Make the work that was recorded, of which there is some, ready to be enqueued as often as one likes."""
        return self.graph_class(self.device, self.call(self.device.calls.end_capture))

    def abandon_capture(self) -> None:
        """Forget what was recorded."""
        graph = self.call(self.device.calls.end_capture)
        with contextlib.suppress(DriverError):
            self.device.call_in_context(self.device.calls.destroy_graph, graph)

    def new_event(self, *, timing: bool = False, blocking: bool = False) -> Event:
        """An event of the device; `blocking` lets the host sleep while it waits for it."""
        return self.event_class(self.device, timing=timing, blocking=blocking)

    def wait(self, event: Event) -> None:
        """Let what is enqueued here from now on wait for the event, which may be on another device."""
        with self.in_context():
            self.device.calls.wait_event(self.handle, event.handle, self.device.label)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # After an exception of the block its own error matters more than one of the work that it left.
            if kind is None and not self.closed:
                self.synchronize()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' null' if self.is_null else ''} on {self.device.label}>"


def _keep() -> None:
    """Do not destroy a stream that another library created."""


@contextlib.contextmanager
def settled(stream: Stream) -> Iterator[None]:
    """Wait for a stream where the block, which marks or orders what was enqueued there, fails: then that is done."""
    try:
        yield
    except DriverError:
        stream.synchronize()
        raise


_under_way: dict[tuple[object, int], deque[tuple[Event, object]]] = {}
_lock = threading.RLock()


def keep_until_done(stream: Stream, memory: object) -> None:
    """Keep memory alive until a stream has done its present work; `release_finished` checks for that."""
    release_finished()
    with settled(stream):
        event = stream.record()
    with _lock:
        _under_way.setdefault((stream.device, stream.address), deque()).append((event, memory))


def release_finished() -> None:
    """Release the memory that streams no longer need."""
    with _lock:
        for key, pending in list(_under_way.items()):
            while pending and _is_done(pending[0][0]):
                pending.popleft()
            if not pending:
                del _under_way[key]


def _is_done(event: Event) -> bool:
    try:
        return event.query()
    except DriverError as error:
        # A device that is lost copies nothing any more.
        return error.permanent
