"""What the backend needs of a device, over HIP. Imports hip-python."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeAlias

from ..error import TallowError
from .kernels import Hiprtc
from ..gpu_backend.error import InvalidKernel
from ..gpu_backend.gpu_driver import Direction, Function, GpuDriver
from .hip import HipBuffer, HipDevice, HipError, HipEvent, HipModule, HipStream
from .hip import device_count as hip_device_count
from .hip import runtime_version as hip_runtime_version
from .hip.stream import DEVICE_TO_HOST, HOST_TO_DEVICE, WITHIN_DEVICE

Module: TypeAlias = HipModule

_KINDS: Final[dict[Direction, Any]] = {
    Direction.TO_DEVICE: HOST_TO_DEVICE,
    Direction.TO_HOST: DEVICE_TO_HOST,
    Direction.WITHIN_DEVICE: WITHIN_DEVICE,
}


def device_count() -> int:
    """How many devices there are; 0 where the runtime or devices are missing."""
    try:
        return hip_device_count()
    except TallowError:
        return 0


def runtime_version() -> str:
    """The version of the HIP runtime, such as 7.1.25424; BackendUnavailable where there is none."""
    return ".".join(map(str, hip_runtime_version()))


class Driver(GpuDriver[Module]):
    """A device over HIP. What HIP refuses raises HipError."""

    def __init__(self, ordinal: int) -> None:
        super().__init__()
        device = HipDevice(ordinal)
        properties = device.properties
        self.device = device
        self.hip_stream = HipStream(device)
        self._buffers: dict[int, HipBuffer] = {}
        self.label = device.label
        self.name = properties.name
        self.target = properties.target
        self.wave_size = properties.wave_size
        self.multiprocessors = properties.multi_processor_count
        self.stream = self.hip_stream.address
        self.compiler = Hiprtc()

    def _allocate(self, nbytes: int) -> int:
        buffer = HipBuffer(self.device, nbytes)
        self._buffers[buffer.address] = buffer
        return buffer.address

    def free(self, address: int) -> None:
        self._buffers[address].close()
        del self._buffers[address]

    def memory_info(self) -> tuple[int, int]:
        return self.device.memory()

    def _copy(self, target: int, origin: int, nbytes: int, direction: Direction) -> None:
        self.hip_stream.copy(target, origin, nbytes, _KINDS[direction])

    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        if nbytes:
            self.hip_stream.fill(address, value, nbytes)

    def load(self, code: bytes, name: str) -> Module:
        return HipModule(self.device, code, name)

    def function(self, module: Module, name: str, block: int, argument_size: int) -> Function:
        try:
            kernel = module.kernel(name, argument_size)
        except HipError as error:
            if error.name == "hipErrorNotFound":
                raise InvalidKernel(name, f"{module.name} does not have it; build that again") from error
            raise
        # Python's own partial, since it calls faster than a method does.
        return partial(kernel.enqueue, self.hip_stream, block)

    def synchronize(self) -> None:
        self.hip_stream.synchronize()

    def synchronize_device(self) -> None:
        self.device.synchronize()

    def _new_event(self) -> HipEvent:
        return HipEvent(self.device, timing=False)

    def _order_by(self, event: HipEvent, first: int, second: int) -> None:
        event.record(self._stream_at(first))
        self._stream_at(second).wait(event)

    def _stream_at(self, address: int) -> HipStream:
        return self.hip_stream if address == self.stream else HipStream.wrap(self.device, address)
