"""Streams: the queues in which a device does its work in order."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple

from ...error import InvalidArgument
from ...gpu_backend import fork
from ...gpu_backend.stream import Direction
from .device import HipDevice
from .error import check, failure, hip
from .event import HipEvent
from .peer import let_reach
from .resource import HipResource

_KINDS: Final[dict[Direction, Any]] = {
    Direction.TO_DEVICE: hip.hipMemcpyKind.hipMemcpyHostToDevice,
    Direction.TO_HOST: hip.hipMemcpyKind.hipMemcpyDeviceToHost,
    Direction.WITHIN_DEVICE: hip.hipMemcpyKind.hipMemcpyDeviceToDevice,
}
_FILLS: Final[dict[int, tuple[str, Any]]] = {
    1: ("hipMemsetD8Async", hip.hipMemsetD8Async),
    2: ("hipMemsetD16Async", hip.hipMemsetD16Async),
    4: ("hipMemsetD32Async", hip.hipMemsetD32Async),
}


class HipPriorities(NamedTuple):
    """The range of stream priorities of a device; lower numbers go first."""

    least: int
    greatest: int


class HipStream(HipResource):
    """A queue of work on a device.

    `priority` is in `HipStream.priorities(device)`, by default 0. A stream runs beside the device's null stream unless
    `blocking` makes the two wait for each other. Leaving a `with` block waits for the stream and closes it.
    """

    __slots__ = ("_handle", "device", "is_null", "priority")

    def __init__(self, device: HipDevice, *, priority: int = 0, blocking: bool = False) -> None:
        least, greatest = HipStream.priorities(device)
        if not greatest <= priority <= least:
            reason = f"priority {priority} is out of range; use one from {greatest} (first) to {least} (last)"
            raise InvalidArgument("HipStream", reason)
        flags = 0 if blocking else hip.hipStreamNonBlocking
        with device.activated():
            created = hip.hipStreamCreateWithPriority(flags, priority)
            self._handle: Any = check("hipStreamCreateWithPriority", created, device.label)
        self.device = device
        self.priority = priority
        self.is_null = False
        self._own(_destroy, self._handle)

    @classmethod
    def wrap(cls, device: HipDevice, address: int) -> HipStream:
        """A stream of the device that somebody else made: closing what this returns only ends its own use."""
        stream = cls.__new__(cls)
        # An object even of the null pointer, because hip-python takes a microsecond to convert None at every call.
        stream._handle = hip.ihipStream_t.fromObj(address)
        stream.device = device
        stream.priority = 0
        # hipStreamLegacy and hipStreamPerThread, which are 1 and 2, are of the current device too.
        stream.is_null = address <= 2
        # Without a finaliser, since its end gives nothing back.
        stream._held = [(_keep, ())]
        return stream

    @classmethod
    def null(cls, device: HipDevice) -> HipStream:
        """The device's null stream, which is always there."""
        return cls.wrap(device, 0)

    @staticmethod
    def priorities(device: HipDevice) -> HipPriorities:
        """The priorities that streams of the device can have."""
        with device.activated():
            found = check("hipDeviceGetStreamPriorityRange", hip.hipDeviceGetStreamPriorityRange(), device.label)
        return HipPriorities(*found)

    @property
    def handle(self) -> Any:
        """hip-python's stream; `HipClosed` after `close()`. The null stream is that of the thread's current device."""
        # Spelt out, because every launch comes by here and a call would cost it a tenth of a microsecond.
        if fork.lost or not self._held:
            self.require_open()
        return self._handle

    @property
    def address(self) -> int:
        """The `hipStream_t` as a number, for libraries called through ctypes; 0 for the null stream."""
        return int(self.handle)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of hip-python whose last argument is the stream."""
        handle = self.handle
        if self.is_null:
            with self.device.activated():
                return function(*arguments, handle)
        return function(*arguments, handle)

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy. Either end is an address, or a buffer on the host."""
        # Without `call` where that is not needed: small copies are many, and it takes a tenth of their time.
        if self.is_null:
            (status,) = self.call(hip.hipMemcpyAsync, target, origin, nbytes, _KINDS[direction])
        else:
            (status,) = hip.hipMemcpyAsync(target, origin, nbytes, _KINDS[direction], self.handle)
        if status:
            raise failure("hipMemcpyAsync", status, f"{nbytes} bytes {direction.between(self.device.label)}")

    def copy_between(
        self, target: int, target_device: HipDevice, origin: int, origin_device: HipDevice, nbytes: int
    ) -> None:
        """Enqueue a copy from one device to another, of which one is the stream's.

        It takes the direct way between them where there is one, else the runtime leads it through the host. It waits
        for what is enqueued here alone: order it behind other work of either device by events.
        """
        let_reach(self.device, origin_device if self.device == target_device else target_device)
        devices = target_device.ordinal, origin_device.ordinal
        copied = self.call(hip.hipMemcpyPeerAsync, target, devices[0], origin, devices[1], nbytes)
        check("hipMemcpyPeerAsync", copied, f"{nbytes} bytes from {origin_device.label} to {target_device.label}")

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        """Enqueue the setting of `count` items to an unsigned number of 1, 2 or 4 bytes."""
        call, function = _FILLS[itemsize]
        # hipMemsetD32Async takes its pattern as a signed int.
        pattern = value - (1 << 32) if itemsize == 4 and value >= 1 << 31 else value
        if self.is_null:
            (status,) = self.call(function, address, pattern, count)
        else:
            (status,) = function(address, pattern, count, self.handle)
        if status:
            raise failure(call, status, f"{count * itemsize} bytes on {self.device.label}")

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued in the stream is done; errors of kernels come up here."""
        check("hipStreamSynchronize", self.call(hip.hipStreamSynchronize), self.device.label)

    def query(self) -> bool:
        """Whether everything enqueued in the stream is done."""
        (status,) = self.call(hip.hipStreamQuery)
        if status.name == "hipErrorNotReady":
            return False
        if status:
            raise failure("hipStreamQuery", status, self.device.label)
        return True

    def record(self, event: HipEvent | None = None) -> HipEvent:
        """Record an event here and return it; without one given, a new one that has no timing."""
        return (HipEvent(self.device, timing=False) if event is None else event).record(self)

    def wait(self, event: HipEvent) -> None:
        """Let what is enqueued here from now on wait for the event, which may be on another device."""
        mark = event.handle
        waiting = self.call(lambda stream: hip.hipStreamWaitEvent(stream, mark, 0))
        check("hipStreamWaitEvent", waiting, self.device.label)

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
        return f"<HipStream{' null' if self.is_null else ''} on {self.device.label}>"


def _destroy(handle: Any) -> None:
    check("hipStreamDestroy", hip.hipStreamDestroy(handle))


def _keep() -> None:
    """Leave a stream alone that somebody else made."""
