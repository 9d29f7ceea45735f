"""Uploads that run beside the host, over the CUDA driver."""

from ..gpu_backend.driver.loader import Loader
from .context import Context
from .memory import CudaHostBuffer
from .stream import CudaStream


class AsyncLoader(Loader[Context, CudaStream]):
    """Copies host memory to a device beside the host: see `Loader`."""

    def _new_stream(self) -> CudaStream:
        return CudaStream(self.device)

    def _new_host_buffer(self, nbytes: int) -> CudaHostBuffer:
        return CudaHostBuffer(self.device, nbytes)
