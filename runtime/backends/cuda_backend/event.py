"""Events: marks in a stream that other streams and the host can wait for, and that measure time."""

from __future__ import annotations

from typing import Any

from ..gpu_backend.driver.protocols import StreamHandle
from ..gpu_backend.driver.stream import Event
from .context import Context
from .result import check, cuda


class CudaEvent(Event):
    """A mark in a stream: see `Event`. What CUDA refuses raises `CudaError`."""

    __slots__ = ()

    device: Context

    def __init__(self, device: Context, *, timing: bool = True, blocking: bool = False) -> None:
        known = cuda.CUevent_flags
        flags = 0 if timing else known.CU_EVENT_DISABLE_TIMING
        if blocking:
            flags |= known.CU_EVENT_BLOCKING_SYNC
        self.device = device
        self.timing = timing
        with device.activated():
            self._handle = check("cuEventCreate", cuda.cuEventCreate(flags), device.label)
            self._own(_destroy, device, self._handle)

    def _record(self, stream: StreamHandle) -> None:
        with self.device.activated():
            check("cuEventRecord", cuda.cuEventRecord(self.handle, stream.handle), self.device.label)

    def query(self) -> bool:
        with self.device.activated():
            result = cuda.cuEventQuery(self.handle)
        return is_ready("cuEventQuery", result, self.device.label)

    def synchronize(self) -> None:
        with self.device.activated():
            check("cuEventSynchronize", cuda.cuEventSynchronize(self.handle), self.device.label)

    def _elapsed_ms(self, start: Any, stop: Any) -> float:
        with self.device.activated():
            elapsed = cuda.cuEventElapsedTime(start, stop)
        return float(check("cuEventElapsedTime", elapsed, self.device.label))


def is_ready(call: str, result: tuple[Any, ...], label: str) -> bool:
    """What a query found."""
    if result[0].name == "CUDA_ERROR_NOT_READY":
        return False
    check(call, result, label)
    return True


def _destroy(device: Context, handle: Any) -> None:
    with device.activated():
        check("cuEventDestroy", cuda.cuEventDestroy(handle), device.label)
