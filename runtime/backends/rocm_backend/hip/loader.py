"""Uploads that run beside the host, over HIP."""

from typing import ClassVar

from ...gpu_backend.driver.loader import Loader
from .device import HipDevice
from .error import HipClosed
from .memory import HipHostBuffer
from .stream import HipStream


class AsyncLoader(Loader[HipDevice, HipStream]):
    """Copies host memory to a device beside the host: see `Loader`. A use after `close()` raises `HipClosed`."""

    closed_error: ClassVar = HipClosed

    def _new_stream(self) -> HipStream:
        return HipStream(self.device)

    def _new_host_buffer(self, nbytes: int) -> HipHostBuffer:
        return HipHostBuffer(self.device, nbytes)
