"""What streams and events of every vendor share, and what copies under way need kept."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ....base.error import InvalidArgument
from . import capture, slow_path
from .error import DriverError
from .resource import Resource


class Direction(Enum):
    """From where to where bytes are copied."""

    TO_DEVICE = auto()
    TO_HOST = auto()
    WITHIN_DEVICE = auto()

    def between(self, label: str) -> str:
        """What errors say of a copy on the device that has this label."""
        return f"{_ROUTES[self]} {label}"


_ROUTES = {
    Direction.TO_DEVICE: "from the host to",
    Direction.TO_HOST: "to the host from",
    Direction.WITHIN_DEVICE: "within",
}


class Event(Resource, ABC):
    """A mark in a stream; it counts as done until it is recorded for the first time.

    `timing=False` makes an event cheaper that only orders things. `blocking=True` lets the host sleep in `synchronize`
    where it would spin.
    """

    __slots__ = ("_handle", "device", "timing")

    device: Any
    timing: bool
    _handle: Any

    @property
    def handle(self) -> Any:
        """The binding's event; `Closed` after `close()`."""
        self.require_open()
        return self._handle

    def record(self, stream: Any) -> Self:
        """Mark the point that a stream of the device has reached with everything enqueued so far."""
        if stream.device != self.device:
            reason = f"the event is on {self.device.label}, the stream on {stream.device.label}; make it on that device"
            raise InvalidArgument(f"{type(self).__name__}.record", reason)
        self._record(stream)
        return self

    @abstractmethod
    def _record(self, stream: Any) -> None:
        """Mark the point that the stream has reached."""

    @abstractmethod
    def query(self) -> bool:
        """Whether the mark has been passed."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait on the host until the mark has been passed."""

    def elapsed_ms(self, stop: Self) -> float:
        """Wait for `stop` and return the milliseconds from this mark to it.

        Both need `timing` (`InvalidArgument`) and to have been recorded (`DriverError`).
        """
        if not (self.timing and stop.timing):
            raise InvalidArgument(f"{type(self).__name__}.elapsed_ms", "both events must be made with timing=True")
        start = self.handle
        stop.synchronize()
        return self._elapsed_ms(start, stop.handle)

    @abstractmethod
    def _elapsed_ms(self, start: Any, stop: Any) -> float:
        """The milliseconds from one handle's mark to another's."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"


class Recorded(Resource, ABC):
    """Work that a stream was given while it was captured, to be enqueued as one: see `Stream.end_capture`."""

    __slots__ = ("_handle", "device")

    device: Any
    _handle: Any

    @abstractmethod
    def launch(self, stream: Any) -> None:
        """Enqueue all of it, in a stream of the device that it was captured on."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"


Mark = TypeVar("Mark", bound=Event)


class Stream(Resource, ABC, Generic[Mark]):
    """A queue of work on a device. Leaving a `with` block waits for it and closes it."""

    __slots__ = ("device", "own_handle")

    device: Any
    own_handle: Any
    """The binding's stream itself."""

    @classmethod
    def _borrow(cls, device: Any, handle: Any) -> Self:
        """A stream that somebody else made."""
        stream = cls.__new__(cls)
        stream.device = device
        stream.own_handle = handle
        # Without a finaliser, since its end gives nothing back.
        stream._held = [(_keep, ())]
        return stream

    @property
    def handle(self) -> Any:
        """The binding's stream, or that of the capture of this thread; `Closed` after `close()`."""
        # Spelt out, because every launch comes by here and a call would cost it a tenth of a microsecond.
        if slow_path.required or not self._held:
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

    @abstractmethod
    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy. Either end is an address, or a buffer on the host."""

    @abstractmethod
    def upload(self, copies: Sequence[tuple[int, int, int]], event: Mark) -> None:
        """Enqueue copies from pinned memory, each a target, an origin and bytes, and mark the event behind them.

        The event is marked behind those that were enqueued before one was refused too.
        """

    def copy_between(self, target: int, target_device: Any, origin: int, origin_device: Any, nbytes: int) -> None:
        """Enqueue a copy from one device to another, of which one is the stream's.

        It takes the direct way between them where there is one; else the driver leads it through the host. It waits for
        what is enqueued here alone: order it behind other work of either device by events.
        """
        self._let_reach(origin_device if self.device == target_device else target_device)
        about = f"{nbytes} bytes from {origin_device.label} to {target_device.label}"
        self._copy_between(target, target_device, origin, origin_device, nbytes, about)

    @abstractmethod
    def _let_reach(self, peer: Any) -> None:
        """Let the device reach the memory of another directly, where it can."""

    @abstractmethod
    def _copy_between(
        self, target: int, target_device: Any, origin: int, origin_device: Any, nbytes: int, about: str
    ) -> None:
        """Enqueue a copy; `about` is what errors say of it."""

    @abstractmethod
    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        """Enqueue the setting of `count` items to an unsigned number of 1, 2 or 4 bytes."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait on the host until everything enqueued in the stream is done; errors of kernels come up here."""

    @abstractmethod
    def query(self) -> bool:
        """Whether everything enqueued in the stream is done."""

    def record(self, event: Mark | None = None) -> Mark:
        """Record an event here and return it; without one given, a new one that has no timing."""
        return (self.new_event() if event is None else event).record(self)

    @abstractmethod
    def begin_capture(self) -> None:
        """Record from now on what is enqueued here, and do not do it.

        Until `end_capture`, neither the stream nor the device may be waited for, by any thread, nor may another stream
        wait for this one.
        """

    @abstractmethod
    def end_capture(self) -> Recorded:
        """Make the work that was recorded, of which there is some, ready to be enqueued as often as one likes."""

    @abstractmethod
    def abandon_capture(self) -> None:
        """Forget what was recorded."""

    @abstractmethod
    def new_event(self, *, timing: bool = False, blocking: bool = False) -> Mark:
        """An event of the device; `blocking` lets the host sleep while it waits for it."""

    @abstractmethod
    def wait(self, event: Mark) -> None:
        """Let what is enqueued here from now on wait for the event, which may be on another device."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # After an exception of the block its own error matters more than one of the work that it left behind.
            if kind is None and not self.closed:
                self.synchronize()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"


def _keep() -> None:
    """Leave a stream alone that somebody else made."""


@contextlib.contextmanager
def settled(stream: Stream[Any]) -> Iterator[None]:
    """Wait for a stream where the block, which marks or orders what was enqueued there, fails: then that is done."""
    try:
        yield
    except DriverError:
        stream.synchronize()
        raise


_under_way: dict[tuple[object, int], deque[tuple[Event, object]]] = {}
_lock = threading.RLock()


def keep_until_done(stream: Stream[Any], memory: object) -> None:
    """Keep memory alive until a stream has done what it was given so far; `let_go` finds that out."""
    let_go()
    with settled(stream):
        event = stream.record()
    with _lock:
        _under_way.setdefault((stream.device, stream.address), deque()).append((event, memory))


def let_go() -> None:
    """Keep no longer what streams have done by now."""
    with _lock:
        for key, kept in list(_under_way.items()):
            while kept and _is_done(kept[0][0]):
                kept.popleft()
            if not kept:
                del _under_way[key]


def _is_done(event: Event) -> bool:
    try:
        return event.query()
    except DriverError as error:
        # A device that is lost copies nothing any more.
        return error.permanent
