"""Streams: the queues in which a device does its work in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ....base.error import InvalidArgument
from ...gpu_backend.driver.stream import Direction, Stream
from .device import HipDevice
from .error import check, failure, hip
from .event import HipEvent
from .graph import HipGraph, forget
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


class HipStream(HipResource, Stream[HipEvent]):
    """A queue of work on a device.

    `priority` is in `HipStream.priorities(device)`, by default 0. A stream runs beside the device's null stream unless
    `blocking` makes the two wait for each other. Leaving a `with` block waits for the stream and closes it.
    """

    __slots__ = ("is_null", "priority")

    device: HipDevice

    def __init__(self, device: HipDevice, *, priority: int = 0, blocking: bool = False) -> None:
        least, greatest = HipStream.priorities(device)
        if not greatest <= priority <= least:
            reason = f"priority {priority} is out of range; use one from {greatest} (first) to {least} (last)"
            raise InvalidArgument("HipStream", reason)
        flags = 0 if blocking else hip.hipStreamNonBlocking
        with device.activated():
            created = hip.hipStreamCreateWithPriority(flags, priority)
            self.own_handle = check("hipStreamCreateWithPriority", created, device.label)
            self._own(_destroy, self.own_handle)
        self.device = device
        self.priority = priority
        self.is_null = False

    @classmethod
    def wrap(cls, device: HipDevice, address: int) -> HipStream:
        """A stream of the device that somebody else made: closing what this returns only ends its own use."""
        # An object even of the null pointer, because hip-python takes a microsecond to convert None at every call.
        stream = cls._borrow(device, hip.ihipStream_t.fromObj(address))
        stream.priority = 0
        # hipStreamLegacy and hipStreamPerThread, which are 1 and 2, are of the current device too.
        stream.is_null = address <= 2
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

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of hip-python whose last argument is the stream."""
        handle = self.handle
        if self.is_null:
            with self.device.activated():
                return function(*arguments, handle)
        return function(*arguments, handle)

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        # Without `call` where that is not needed: small copies are many, and it takes a tenth of their time.
        if self.is_null:
            (status,) = self.call(hip.hipMemcpyAsync, target, origin, nbytes, _KINDS[direction])
        else:
            (status,) = hip.hipMemcpyAsync(target, origin, nbytes, _KINDS[direction], self.handle)
        if status:
            raise failure("hipMemcpyAsync", status, f"{nbytes} bytes {direction.between(self.device.label)}")

    def upload(self, copies: Sequence[tuple[int, int, int]], event: HipEvent) -> None:
        try:
            for target, origin, nbytes in copies:
                self.copy(target, origin, nbytes, Direction.TO_DEVICE)
        finally:
            event.record(self)

    def _let_reach(self, peer: HipDevice) -> None:
        let_reach(self.device, peer)

    def _copy_between(
        self, target: int, target_device: HipDevice, origin: int, origin_device: HipDevice, nbytes: int, about: str
    ) -> None:
        devices = target_device.ordinal, origin_device.ordinal
        copied = self.call(hip.hipMemcpyPeerAsync, target, devices[0], origin, devices[1], nbytes)
        check("hipMemcpyPeerAsync", copied, about)

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
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
        check("hipStreamSynchronize", self.call(hip.hipStreamSynchronize), self.device.label)

    def query(self) -> bool:
        (status,) = self.call(hip.hipStreamQuery)
        if status.name == "hipErrorNotReady":
            return False
        if status:
            raise failure("hipStreamQuery", status, self.device.label)
        return True

    def begin_capture(self) -> None:
        # Relaxed, so that other threads and this one may allocate and load what they need meanwhile.
        begun = hip.hipStreamBeginCapture(self.handle, hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed)
        check("hipStreamBeginCapture", begun, self.device.label)

    def end_capture(self) -> HipGraph:
        graph = check("hipStreamEndCapture", hip.hipStreamEndCapture(self.handle), self.device.label)
        return HipGraph(self.device, graph)

    def abandon_capture(self) -> None:
        forget(check("hipStreamEndCapture", hip.hipStreamEndCapture(self.handle), self.device.label))

    def new_event(self, *, timing: bool = False, blocking: bool = False) -> HipEvent:
        return HipEvent(self.device, timing=timing, blocking=blocking)

    def wait(self, event: HipEvent) -> None:
        mark = event.handle
        waiting = self.call(lambda stream: hip.hipStreamWaitEvent(stream, mark, 0))
        check("hipStreamWaitEvent", waiting, self.device.label)

    def __repr__(self) -> str:
        return f"<HipStream{' null' if self.is_null else ''} on {self.device.label}>"


def _destroy(handle: Any) -> None:
    check("hipStreamDestroy", hip.hipStreamDestroy(handle))
