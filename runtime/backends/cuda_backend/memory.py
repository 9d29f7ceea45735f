"""Device memory and pinned memory of the host. All sizes and offsets are in bytes."""

from __future__ import annotations

from typing import Final

from ..gpu_backend.driver.buffer import DeviceBuffer, HostBuffer
from .context import Context
from .result import check, cuda
from .stream import CudaStream

# CU_MEMHOSTALLOC_PORTABLE: pinned for every device.
_PORTABLE: Final = 1


class CudaHostBuffer(HostBuffer[Context]):
    """Pinned memory, by cuMemHostAlloc: see `HostBuffer`."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: Context, nbytes: int) -> int:
        made = cuda.cuMemHostAlloc(nbytes, _PORTABLE)
        return int(check("cuMemHostAlloc", made, f"{nbytes} pinned bytes for {device.label}"))

    @staticmethod
    def _free(device: Context, address: int) -> None:
        with device.activated():
            check("cuMemFreeHost", cuda.cuMemFreeHost(address), device.label)


class CudaBuffer(DeviceBuffer[Context, CudaStream]):
    """Device memory, by cuMemAlloc: see `DeviceBuffer`."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: Context, nbytes: int) -> int:
        return int(check("cuMemAlloc", cuda.cuMemAlloc(nbytes), f"{nbytes} bytes on {device.label}"))

    @staticmethod
    def _free(device: Context, address: int) -> None:
        with device.activated():
            check("cuMemFree", cuda.cuMemFree(address), device.label)

    @staticmethod
    def _null_stream(device: Context) -> CudaStream:
        return CudaStream.null(device)
