"""What the backend needs of a device, over the CUDA driver. Imports cuda-python."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from ...base.error import TallowError
from ..gpu_backend.driver.gpu_driver import GpuDriver
from .context import Context
from .kernels import Nvrtc
from .memory import CudaBuffer, CudaHostBuffer
from .module import CudaModule
from .result import check, cuda, start_driver
from .stream import CudaStream

if TYPE_CHECKING:
    from .loader import AsyncLoader

# CU_IPC_HANDLE_SIZE, and CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
_HANDLE_BYTES: Final = 64
_LAZY_PEER_ACCESS: Final = 1


def device_count() -> int:
    """How many devices there are; 0 where the driver or devices are missing."""
    try:
        start_driver()
        return int(check("cuDeviceGetCount", cuda.cuDeviceGetCount()))
    except TallowError:
        return 0


def runtime_version() -> str:
    """The newest CUDA that the driver serves, such as 13.0; BackendUnavailable where there is no driver."""
    start_driver()
    version = int(check("cuDriverGetVersion", cuda.cuDriverGetVersion()))
    return f"{version // 1000}.{version % 1000 // 10}"


class Driver(GpuDriver):
    """A device over the CUDA driver, in its primary context. What CUDA refuses raises CudaError.

    The stream is one of its own, made with CU_STREAM_NON_BLOCKING. In `wait_for` and `let_wait`, 0 and 1 are CUDA's
    legacy default stream and 2 is the default stream of the calling thread.
    """

    opens_in_captures = True
    runtime_libraries = ("cuda",)
    device: Context
    queue: CudaStream

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        device = Context(ordinal)
        self.device = device
        self.queue = CudaStream(device)
        self.label = device.label
        self.name = device.name
        major, minor = (device.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.identify(Nvrtc.targets, f"sm_{major}{minor}", device.attribute("WARP_SIZE"))
        self.multiprocessors = device.attribute("MULTIPROCESSOR_COUNT")
        self.concurrent_blocks = self.multiprocessors if device.attribute("COOPERATIVE_LAUNCH") else 1
        self.compiler = Nvrtc()

    def _new_buffer(self, nbytes: int) -> CudaBuffer:
        return CudaBuffer(self.device, nbytes)

    def host_buffer(self, nbytes: int) -> CudaHostBuffer:
        return CudaHostBuffer(self.device, nbytes)

    def shared_handle(self, address: int) -> bytes:
        handle = self.device.call("cuIpcGetMemHandle", address)
        return ctypes.string_at(handle.getPtr(), _HANDLE_BYTES)

    def open_shared(self, handle: bytes) -> int:
        found = cuda.CUipcMemHandle()
        ctypes.memmove(found.getPtr(), handle, _HANDLE_BYTES)
        return int(self.device.call("cuIpcOpenMemHandle", found, _LAZY_PEER_ACCESS))

    def close_shared(self, address: int) -> None:
        self.device.call("cuIpcCloseMemHandle", address)

    def load(self, code: bytes, name: str) -> CudaModule:
        return CudaModule(self.device, code, name)

    def new_stream(self) -> CudaStream:
        return CudaStream(self.device)

    def _stream_at(self, address: int) -> CudaStream:
        return self.queue if address == self.stream else CudaStream.wrap(self.device, address)

    def open_loader(self) -> AsyncLoader:
        # Few programs load files, and threads and pinned memory take a while to import.
        from .loader import AsyncLoader

        return AsyncLoader(self.device)
