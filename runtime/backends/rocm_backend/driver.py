"""What the backend needs of a device, over HIP. Imports hip-python."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...base.error import TallowError
from ...doctor.finding import Finding
from ..gpu_backend.driver.gpu_driver import GpuDriver
from . import installation
from .hip import AsyncLoader, HipBuffer, HipDevice, HipHostBuffer, HipModule, HipStream
from .hip import device_count as hip_device_count
from .hip import runtime_version as hip_runtime_version
from .hip.memory import HipSharedBuffer, close_shared, open_shared, shared_handle
from .kernels import Hiprtc


def device_count() -> int:
    """How many devices there are; 0 where the runtime or devices are missing."""
    try:
        return hip_device_count()
    except TallowError:
        return 0


def runtime_version() -> str:
    """The version of the HIP runtime, such as 7.1.25424; BackendUnavailable where there is none."""
    return ".".join(map(str, hip_runtime_version()))


class Driver(GpuDriver):
    """A device over HIP. What HIP refuses raises HipError."""

    # Nobody has tried it on AMD hardware.
    opens_in_captures = False
    runtime_libraries = ("amdhip64", "hsa-runtime64")
    device: HipDevice
    queue: HipStream

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        device = HipDevice(ordinal)
        properties = device.properties
        self.device = device
        self.queue = HipStream(device)
        self.label = device.label
        self.name = properties.name
        self.identify(Hiprtc.targets, properties.target, properties.wave_size)
        self.multiprocessors = properties.multi_processor_count
        self.concurrent_blocks = self.multiprocessors if properties.cooperative_launch else 1
        self.compiler = Hiprtc()

    def examine(self) -> Iterator[Finding]:
        yield from installation.examine(self.target)

    def _new_buffer(self, nbytes: int) -> HipBuffer:
        return HipBuffer(self.device, nbytes)

    def allocate_shared(self, nbytes: int) -> int:
        return self._kept(partial(HipSharedBuffer, self.device), nbytes)

    def host_buffer(self, nbytes: int) -> HipHostBuffer:
        return HipHostBuffer(self.device, nbytes)

    def shared_handle(self, address: int) -> bytes:
        return shared_handle(self.device, address)

    def open_shared(self, handle: bytes) -> int:
        return open_shared(self.device, handle)

    def close_shared(self, address: int) -> None:
        close_shared(self.device, address)

    def load(self, code: bytes, name: str) -> HipModule:
        return HipModule(self.device, code, name)

    def new_stream(self) -> HipStream:
        return HipStream(self.device)

    def _stream_at(self, address: int) -> HipStream:
        return self.queue if address == self.stream else HipStream.wrap(self.device, address)

    def open_loader(self) -> AsyncLoader:
        return AsyncLoader(self.device)
