"""What the backend needs of a device, over HIP: memory, code, launches and the one stream. Imports hip-python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..dtype import Array
from ..error import OutOfMemory, TallowError
from . import compiler
from .error import InvalidKernel
from .hip import HipBuffer, HipDevice, HipError, HipModule, HipStream, check
from .hip import device_count as hip_device_count
from .hip import runtime_version as hip_runtime_version
from .hip.error import hip

if TYPE_CHECKING:
    from .allocator import CachingAllocator
    from .libraries import Blas, Images

Module: TypeAlias = HipModule
# Python's own partial, since it calls faster than a method does.
Function: TypeAlias = Callable[[int, bytes], None]

_HOST_TO_DEVICE: Final[Any] = hip.hipMemcpyKind.hipMemcpyHostToDevice
_DEVICE_TO_HOST: Final[Any] = hip.hipMemcpyKind.hipMemcpyDeviceToHost
_DEVICE_TO_DEVICE: Final[Any] = hip.hipMemcpyKind.hipMemcpyDeviceToDevice


def device_count() -> int:
    """How many devices there are; 0 where the runtime or devices are missing."""
    try:
        return hip_device_count()
    except TallowError:
        return 0


def runtime_version() -> str:
    """The version of the HIP runtime, such as 7.1.25424; BackendUnavailable where there is none."""
    return ".".join(map(str, hip_runtime_version()))


class Driver:
    """One device and a stream on it. Addresses are plain numbers, sizes are bytes.

    Raises BackendUnavailable where there is no runtime or no device, InvalidArgument for an ordinal that no device
    has, and HipError from every call that HIP refuses.
    """

    def __init__(self, ordinal: int) -> None:
        device = HipDevice(ordinal)
        properties = device.properties
        self._device = device
        self._stream = HipStream(device)
        # Each frees its memory at the end of the interpreter, whoever still uses it.
        self._buffers: dict[int, HipBuffer] = {}
        self.label = device.label
        self.name = properties.name
        self.target = properties.target
        self.wave_size = properties.wave_size
        self.multiprocessors = properties.multi_processor_count

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` > 0 of new memory; OutOfMemory where there is not enough."""
        try:
            buffer = HipBuffer(self._device, nbytes)
        except HipError as error:
            if error.out_of_memory:
                raise OutOfMemory(self.label, nbytes) from error
            raise
        self._buffers[buffer.address] = buffer
        return buffer.address

    def free(self, address: int) -> None:
        """Give memory back, once the device has done what it was given."""
        self._buffers.pop(address).close()

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""
        return self._device.memory()

    def copy_to_device(self, address: int, array: Array) -> None:
        """Copy a contiguous array to device memory; returns when the array may change again."""
        self._copy_and_wait(address, _address_of(array), array.nbytes, _HOST_TO_DEVICE)

    def copy_to_host(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory; returns when it is full."""
        self._copy_and_wait(_address_of(array), address, array.nbytes, _DEVICE_TO_HOST)

    def _copy_and_wait(self, target: int, origin: int, nbytes: int, kind: Any) -> None:
        if nbytes:
            check("hipMemcpyAsync", hip.hipMemcpyAsync(target, origin, nbytes, kind, self._stream.handle), self.label)
        self._stream.synchronize()

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        """Enqueue a copy within the device; the regions do not overlap."""
        if nbytes:
            stream = self._stream.handle
            check("hipMemcpyAsync", hip.hipMemcpyAsync(target, origin, nbytes, _DEVICE_TO_DEVICE, stream), self.label)

    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to `value`, from 0 to 255."""
        if nbytes:
            check("hipMemsetD8Async", hip.hipMemsetD8Async(address, value, nbytes, self._stream.handle), self.label)

    def zero(self, address: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to 0."""
        self.fill_bytes(address, 0, nbytes)

    @property
    def compile_options(self) -> tuple[str, ...]:
        """What `compile` tells the compiler."""
        return compiler.compile_options(self.target)

    @property
    def compiler_version(self) -> str:
        """The version of the compiler; BackendUnavailable where there is none."""
        return compiler.compiler_version()

    def compile(self, source: str, name: str, headers: dict[str, str]) -> bytes:
        """The code object of a source for this device; `headers` are texts by the name that sources include.

        Raises CompilationFailed, or BackendUnavailable where there is no compiler.
        """
        return compiler.compile_code(source, name, headers, self.target)

    def load(self, code: bytes, name: str) -> Module:
        """Load a code object; `name` is how errors call it. Raises InvalidArgument where it is cut short."""
        return HipModule(self._device, code, name)

    def function(self, module: Module, name: str, block: int, argument_size: int) -> Function:
        """What enqueues a kernel: called with a number of blocks of `block` threads and the bytes of its struct."""
        try:
            kernel = module.kernel(name, argument_size)
        except HipError as error:
            if error.name == "hipErrorNotFound":
                raise InvalidKernel(name, f"{module.name} does not have it; build that again") from error
            raise
        return partial(kernel.enqueue, self._stream, block)

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; errors of kernels come up here."""
        self._stream.synchronize()

    def open_libraries(self, allocator: CachingAllocator) -> tuple[Blas | None, Images | None]:
        """hipBLAS and MIOpen, each None where it is not there."""
        from . import miopen, rocblas

        return rocblas.open_blas(self._device, self._stream), miopen.open_miopen(self._device, self._stream, allocator)


def _address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
