"""Streams: the queues in which a device does its work in order."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from ..gpu_backend import fork
from ..gpu_backend.resource import Resource
from ..gpu_backend.stream import Direction
from .context import Context
from .event import CudaEvent
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


class CudaStream(Resource):
    """A queue of work on a device, which runs beside the device's default stream.

    Leaving a `with` block waits for the stream and closes it. What CUDA refuses raises `CudaError`.
    """

    __slots__ = ("_handle", "device")

    def __init__(self, device: Context) -> None:
        with device.activated():
            created = cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self._handle: Any = check("cuStreamCreate", created, device.label)
        self.device = device
        self._own(_destroy, device, self._handle)

    @classmethod
    def wrap(cls, device: Context, address: int) -> CudaStream:
        """A stream of the device that somebody else made: closing what this returns only ends its own use.

        0 and 1 are CUDA's legacy default stream, 2 is the default stream of the calling thread.
        """
        stream = cls.__new__(cls)
        stream._handle = cuda.CUstream(address or _LEGACY)
        stream.device = device
        # Without a finaliser, since its end gives nothing back.
        stream._held = [(_keep, ())]
        return stream

    @classmethod
    def null(cls, device: Context) -> CudaStream:
        """The device's legacy default stream, which is always there."""
        return cls.wrap(device, _LEGACY)

    @property
    def handle(self) -> Any:
        """cuda-python's stream; `Closed` after `close()`."""
        if fork.lost or not self._held:
            self.require_open()
        return self._handle

    @property
    def address(self) -> int:
        """The `CUstream` as a number."""
        return int(self.handle)

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy. Either end is an address, or a buffer on the host."""
        call, function = _COPIES[direction]
        with self.device.activated():
            copied = function(target, origin, nbytes, self.handle)
        if copied[0]:
            check(call, copied, f"{nbytes} bytes {direction.between(self.device.label)}")

    def copy_between(
        self, target: int, target_device: Context, origin: int, origin_device: Context, nbytes: int
    ) -> None:
        """Enqueue a copy from one device to another, of which one is the stream's.

        It takes the direct way between them where there is one, else the driver leads it through the host. It waits
        for what is enqueued here alone: order it behind other work of either device by events.
        """
        self.device.let_reach(origin_device if self.device == target_device else target_device)
        ends = target, target_device.handle, origin, origin_device.handle
        with self.device.activated():
            copied = cuda.cuMemcpyPeerAsync(*ends, nbytes, self.handle)
        check("cuMemcpyPeerAsync", copied, f"{nbytes} bytes from {origin_device.label} to {target_device.label}")

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        """Enqueue the setting of `count` items to an unsigned number of 1, 2 or 4 bytes."""
        call, function = _FILLS[itemsize]
        with self.device.activated():
            filled = function(address, value, count, self.handle)
        if filled[0]:
            check(call, filled, f"{count * itemsize} bytes on {self.device.label}")

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued in the stream is done; errors of kernels come up here."""
        with self.device.activated():
            check("cuStreamSynchronize", cuda.cuStreamSynchronize(self.handle), self.device.label)

    def query(self) -> bool:
        """Whether everything enqueued in the stream is done."""
        with self.device.activated():
            result = cuda.cuStreamQuery(self.handle)
        if result[0].name == "CUDA_ERROR_NOT_READY":
            return False
        check("cuStreamQuery", result, self.device.label)
        return True

    def record(self, event: CudaEvent | None = None) -> CudaEvent:
        """Record an event here and return it; without one given, a new one that has no timing."""
        return (CudaEvent(self.device, timing=False) if event is None else event).record(self)

    def wait(self, event: CudaEvent) -> None:
        """Let what is enqueued here from now on wait for the event, which may be on another device."""
        with self.device.activated():
            check("cuStreamWaitEvent", cuda.cuStreamWaitEvent(self.handle, event.handle, 0), self.device.label)

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
        return f"<CudaStream on {self.device.label}>"


def _destroy(device: Context, handle: Any) -> None:
    with device.activated():
        check("cuStreamDestroy", cuda.cuStreamDestroy(handle), device.label)


def _keep() -> None:
    """Leave a stream alone that somebody else made."""
