"""Streams: the queues in which a device does its work in order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from ...error import InvalidArgument
from ...gpu_backend import fork
from .device import HipDevice
from .error import check, failure, hip
from .event import HipEvent
from .resource import HipResource


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
    def null(cls, device: HipDevice) -> HipStream:
        """The device's null stream, which is always there: closing what this returns only ends its own use."""
        stream = cls.__new__(cls)
        # A wrapper around the null pointer, because hip-python takes a microsecond to convert None at every call.
        stream._handle = hip.ihipStream_t.fromObj(None)
        stream.device = device
        stream.priority = 0
        stream.is_null = True
        stream._own(_keep)
        return stream

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

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """A `with` block that gives the handle; in it the device is current if HIP needs that: for the null stream."""
        return self._activated() if self.is_null else contextlib.nullcontext(self.handle)

    @contextlib.contextmanager
    def _activated(self) -> Iterator[Any]:
        handle = self.handle
        with self.device.activated():
            yield handle

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued in the stream is done; errors of kernels come up here."""
        with self.current() as handle:
            check("hipStreamSynchronize", hip.hipStreamSynchronize(handle), self.device.label)

    def query(self) -> bool:
        """Whether everything enqueued in the stream is done."""
        with self.current() as handle:
            (status,) = hip.hipStreamQuery(handle)
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
        with self.current() as handle:
            check("hipStreamWaitEvent", hip.hipStreamWaitEvent(handle, mark, 0), self.device.label)

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
    """Leave the null stream alone: it is the runtime's."""
