"""Events: marks in a stream that other streams and the host can wait for, and that measure time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ...error import InvalidArgument
from .device import HipDevice
from .error import check, failure, hip
from .resource import HipResource

if TYPE_CHECKING:
    from .stream import HipStream


class HipEvent(HipResource):
    """A mark in a stream; it counts as done until it is recorded for the first time.

    `timing=False` makes an event cheaper that only orders things. `blocking=True` lets the host sleep in `synchronize`
    where it would spin.
    """

    __slots__ = ("_handle", "device", "timing")

    def __init__(self, device: HipDevice, *, timing: bool = True, blocking: bool = False) -> None:
        flags = (0 if timing else hip.hipEventDisableTiming) | (hip.hipEventBlockingSync if blocking else 0)
        with device.activated():
            self._handle: Any = check("hipEventCreateWithFlags", hip.hipEventCreateWithFlags(flags), device.label)
        self.device = device
        self.timing = timing
        self._own(_destroy, self._handle)

    @property
    def handle(self) -> Any:
        """hip-python's event; `HipClosed` after `close()`."""
        self.require_open()
        return self._handle

    def record(self, stream: HipStream) -> Self:
        """Mark the point that the stream has reached with everything enqueued so far."""
        if stream.device != self.device:
            reason = f"the event is on {self.device.label}, the stream on {stream.device.label}; make it on that device"
            raise InvalidArgument("HipEvent.record", reason)
        check("hipEventRecord", stream.call(hip.hipEventRecord, self.handle), self.device.label)
        return self

    def query(self) -> bool:
        """Whether the mark has been passed."""
        (status,) = hip.hipEventQuery(self.handle)
        if status.name == "hipErrorNotReady":
            return False
        if status:
            raise failure("hipEventQuery", status, self.device.label)
        return True

    def synchronize(self) -> None:
        """Wait on the host until the mark has been passed."""
        check("hipEventSynchronize", hip.hipEventSynchronize(self.handle), self.device.label)

    def elapsed_ms(self, stop: HipEvent) -> float:
        """Wait for `stop` and return the milliseconds from this mark to it.

        Both need `timing` (`InvalidArgument`) and to have been recorded (`HipError`).
        """
        if not (self.timing and stop.timing):
            raise InvalidArgument("HipEvent.elapsed_ms", "both events must be made with timing=True")
        start = self.handle
        stop.synchronize()
        return float(check("hipEventElapsedTime", hip.hipEventElapsedTime(start, stop.handle), self.device.label))

    def __repr__(self) -> str:
        return f"<HipEvent on {self.device.label}>"


def _destroy(handle: Any) -> None:
    check("hipEventDestroy", hip.hipEventDestroy(handle))
