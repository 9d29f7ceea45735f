"""Events: marks in a stream that other streams and the host can wait for, and that measure time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...gpu_backend.driver.stream import Event
from .device import HipDevice
from .error import check, failure, hip
from .resource import HipResource


class CallingStream(Protocol):
    """A stream in which functions of hip-python enqueue: see `HipStream`."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function whose last argument is the stream."""
        ...


class HipEvent(HipResource, Event):
    """A mark in a stream: see `Event`."""

    __slots__ = ()

    device: HipDevice

    def __init__(self, device: HipDevice, *, timing: bool = True, blocking: bool = False) -> None:
        flags = (0 if timing else hip.hipEventDisableTiming) | (hip.hipEventBlockingSync if blocking else 0)
        with device.activated():
            self._handle = check("hipEventCreateWithFlags", hip.hipEventCreateWithFlags(flags), device.label)
            self._own(_destroy, self._handle)
        self.device = device
        self.timing = timing

    def _record(self, stream: CallingStream) -> None:
        check("hipEventRecord", stream.call(hip.hipEventRecord, self.handle), self.device.label)

    def query(self) -> bool:
        (status,) = hip.hipEventQuery(self.handle)
        if status.name == "hipErrorNotReady":
            return False
        if status:
            raise failure("hipEventQuery", status, self.device.label)
        return True

    def synchronize(self) -> None:
        check("hipEventSynchronize", hip.hipEventSynchronize(self.handle), self.device.label)

    def _elapsed_ms(self, start: Any, stop: Any) -> float:
        return float(check("hipEventElapsedTime", hip.hipEventElapsedTime(start, stop), self.device.label))


def _destroy(handle: Any) -> None:
    check("hipEventDestroy", hip.hipEventDestroy(handle))
