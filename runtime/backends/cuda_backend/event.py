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
        self._handle = device.call("cuEventCreate", flags)
        self._own(device.call, "cuEventDestroy", self._handle)

    def _record(self, stream: StreamHandle) -> None:
        self.device.call("cuEventRecord", self.handle, stream.handle)

    def query(self) -> bool:
        with self.device.activated():
            result = cuda.cuEventQuery(self.handle)
        return is_ready("cuEventQuery", result, self.device.label)

    def synchronize(self) -> None:
        self.device.call("cuEventSynchronize", self.handle)

    def _elapsed_ms(self, start: Any, stop: Any) -> float:
        return float(self.device.call("cuEventElapsedTime", start, stop))


def is_ready(call: str, result: tuple[Any, ...], label: str) -> bool:
    """What a query found."""
    if result[0].name == "CUDA_ERROR_NOT_READY":
        return False
    check(call, result, label)
    return True
