"""Streams: the queues in which a device does its work in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..gpu_backend.driver.stream import Direction, Stream
from .context import Context
from .event import CudaEvent, is_ready
from .graph import CudaGraph
from .result import check, cuda

# The handle that stands for the default stream of all threads, which others also write as 0.
_LEGACY: Final = 1

_COPIES: Final[dict[Direction, tuple[str, Any]]] = {
    Direction.TO_DEVICE: ("cuMemcpyHtoDAsync", cuda.cuMemcpyHtoDAsync),
    Direction.TO_HOST: ("cuMemcpyDtoHAsync", cuda.cuMemcpyDtoHAsync),
    Direction.WITHIN_DEVICE: ("cuMemcpyDtoDAsync", cuda.cuMemcpyDtoDAsync),
}
_FILLS: Final[dict[int, tuple[str, Any]]] = {
    1: ("cuMemsetD8Async", cuda.cuMemsetD8Async),
    2: ("cuMemsetD16Async", cuda.cuMemsetD16Async),
    4: ("cuMemsetD32Async", cuda.cuMemsetD32Async),
}


class CudaStream(Stream[CudaEvent]):
    """A queue of work on a device, which runs beside the device's default stream: see `Stream`.

    What CUDA refuses raises `CudaError`.
    """

    __slots__ = ()

    device: Context

    def __init__(self, device: Context) -> None:
        self.device = device
        self.own_handle = device.call("cuStreamCreate", cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._own(device.call, "cuStreamDestroy", self.own_handle)

    @classmethod
    def wrap(cls, device: Context, address: int) -> CudaStream:
        """A stream of the device that somebody else made: closing what this returns only ends its own use.

        0 and 1 are CUDA's legacy default stream, 2 is the default stream of the calling thread.
        """
        return cls._borrow(device, cuda.CUstream(address or _LEGACY))

    @classmethod
    def null(cls, device: Context) -> CudaStream:
        """The device's legacy default stream, which is always there."""
        return cls.wrap(device, _LEGACY)

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        call, function = _COPIES[direction]
        with self.device.activated():
            copied = function(target, origin, nbytes, self.handle)
        if copied[0]:
            check(call, copied, f"{nbytes} bytes {direction.between(self.device.label)}")

    def upload(self, copies: Sequence[tuple[int, int, int]], event: CudaEvent) -> None:
        # The context is asked for once: each call gives other threads a turn, of which a loader has many.
        with self.device.activated():
            try:
                for target, origin, nbytes in copies:
                    copied = cuda.cuMemcpyHtoDAsync(target, origin, nbytes, self.handle)
                    check("cuMemcpyHtoDAsync", copied, f"{nbytes} bytes from the host to {self.device.label}")
            finally:
                check("cuEventRecord", cuda.cuEventRecord(event.handle, self.handle), self.device.label)

    def _let_reach(self, peer: Context) -> None:
        self.device.let_reach(peer)

    def _copy_between(
        self, target: int, target_device: Context, origin: int, origin_device: Context, nbytes: int, about: str
    ) -> None:
        ends = target, target_device.handle, origin, origin_device.handle
        self.device.call("cuMemcpyPeerAsync", *ends, nbytes, self.handle, about=about)

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        call, function = _FILLS[itemsize]
        with self.device.activated():
            filled = function(address, value, count, self.handle)
        if filled[0]:
            check(call, filled, f"{count * itemsize} bytes on {self.device.label}")

    def synchronize(self) -> None:
        self.device.call("cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        with self.device.activated():
            result = cuda.cuStreamQuery(self.handle)
        return is_ready("cuStreamQuery", result, self.device.label)

    def begin_capture(self) -> None:
        # Relaxed, so that other threads and this one may allocate and load what they need meanwhile.
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.device.call("cuStreamBeginCapture", self.handle, mode)

    def end_capture(self) -> CudaGraph:
        return CudaGraph(self.device, self.device.call("cuStreamEndCapture", self.handle))

    def abandon_capture(self) -> None:
        with self.device.activated():
            cuda.cuGraphDestroy(check("cuStreamEndCapture", cuda.cuStreamEndCapture(self.handle), self.device.label))

    def new_event(self, *, timing: bool = False, blocking: bool = False) -> CudaEvent:
        return CudaEvent(self.device, timing=timing, blocking=blocking)

    def wait(self, event: CudaEvent) -> None:
        self.device.call("cuStreamWaitEvent", self.handle, event.handle, 0)
