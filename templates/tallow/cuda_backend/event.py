"""Events: marks in a stream that other streams and the host can wait for, and that measure time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..error import InvalidArgument
from ..gpu_backend.resource import Resource
from .context import Context
from .result import check, cuda

if TYPE_CHECKING:
    from .stream import CudaStream


class CudaEvent(Resource):
    """A mark in a stream; it counts as done until it is recorded for the first time.

    `timing=False` makes an event cheaper that only orders things. `blocking=True` lets the host sleep in `synchronize`
    where it would spin. What CUDA refuses raises `CudaError`.
    """

    __slots__ = ("_handle", "device", "timing")

    def __init__(self, device: Context, *, timing: bool = True, blocking: bool = False) -> None:
        known = cuda.CUevent_flags
        flags = 0 if timing else known.CU_EVENT_DISABLE_TIMING
        if blocking:
            flags |= known.CU_EVENT_BLOCKING_SYNC
        with device.activated():
            self._handle: Any = check("cuEventCreate", cuda.cuEventCreate(flags), device.label)
        self.device = device
        self.timing = timing
        self._own(_destroy, device, self._handle)

    @property
    def handle(self) -> Any:
        """cuda-python's event; `Closed` after `close()`."""
        self.require_open()
        return self._handle

    def record(self, stream: CudaStream) -> Self:
        """Mark the point that the stream has reached with everything enqueued so far."""
        if stream.device != self.device:
            reason = f"the event is on {self.device.label}, the stream on {stream.device.label}; make it on that device"
            raise InvalidArgument("CudaEvent.record", reason)
        with self.device.activated():
            check("cuEventRecord", cuda.cuEventRecord(self.handle, stream.handle), self.device.label)
        return self

    def query(self) -> bool:
        """Whether the mark has been passed."""
        with self.device.activated():
            result = cuda.cuEventQuery(self.handle)
        if result[0].name == "CUDA_ERROR_NOT_READY":
            return False
        check("cuEventQuery", result, self.device.label)
        return True

    def synchronize(self) -> None:
        """Wait on the host until the mark has been passed."""
        with self.device.activated():
            check("cuEventSynchronize", cuda.cuEventSynchronize(self.handle), self.device.label)

    def elapsed_ms(self, stop: CudaEvent) -> float:
        """Wait for `stop` and return the milliseconds from this mark to it.

        Both need `timing` (`InvalidArgument`) and to have been recorded (`CudaError`).
        """
        if not (self.timing and stop.timing):
            raise InvalidArgument("CudaEvent.elapsed_ms", "both events must be made with timing=True")
        start = self.handle
        stop.synchronize()
        with self.device.activated():
            elapsed = cuda.cuEventElapsedTime(start, stop.handle)
        return float(check("cuEventElapsedTime", elapsed, self.device.label))

    def __repr__(self) -> str:
        return f"<CudaEvent on {self.device.label}>"


def _destroy(device: Context, handle: Any) -> None:
    with device.activated():
        check("cuEventDestroy", cuda.cuEventDestroy(handle), device.label)
