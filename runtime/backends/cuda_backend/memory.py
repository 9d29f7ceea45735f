"""Device memory and pinned memory of the host. All sizes and offsets are in bytes."""

from __future__ import annotations

from typing import Final

from ..gpu_backend.driver.buffer import DeviceBuffer, HostBuffer
from .context import Context
from .stream import CudaStream

# CU_MEMHOSTALLOC_PORTABLE: pinned for every device.
_PORTABLE: Final = 1


class CudaHostBuffer(HostBuffer[Context]):
    """Pinned memory, by cuMemHostAlloc: see `HostBuffer`."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: Context, nbytes: int) -> int:
        about = f"{nbytes} pinned bytes for {device.label}"
        return int(device.call("cuMemHostAlloc", nbytes, _PORTABLE, about=about))

    @staticmethod
    def _free(device: Context, address: int) -> None:
        device.call("cuMemFreeHost", address)


class CudaBuffer(DeviceBuffer[Context, CudaStream]):
    """Device memory, by cuMemAlloc: see `DeviceBuffer`."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: Context, nbytes: int) -> int:
        return int(device.call("cuMemAlloc", nbytes, about=f"{nbytes} bytes on {device.label}"))

    @staticmethod
    def _free(device: Context, address: int) -> None:
        device.call("cuMemFree", address)

    @staticmethod
    def _null_stream(device: Context) -> CudaStream:
        return CudaStream.null(device)
