"""Tensors of f32 on buffers: what weights are loaded into, and what shares its memory with `tallow.Tensor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ...dtype import Array, DType
from ..backends.gpu_backend.driver.buffer import host_memory
from ..backends.gpu_backend.driver.device import Device
from ..backends.gpu_backend.driver.error import DriverError
from ..backends.gpu_backend.ops import memory
from ..backends.rocm_backend.hip.device import HipDevice
from ..backends.rocm_backend.hip.objects import HipBuffer, HipStream
from ..base.error import DeviceMismatch, InvalidArgument, ShapeMismatch, describe
from ..core.argument import array, integer
from ..core.layout import Layout
from ..core.shape import Shape

if TYPE_CHECKING:
    from ...backends import RocmDevice
    from ..backends.gpu_backend.driver.gpu_driver import GpuDriver
    from ..backends.gpu_backend.memory.storage import Memory
    from ..tensor import Tensor

_ITEMSIZE: Final = DType.F32.itemsize


class DeviceTensor:
    """Elements of f32 in row-major order on a `HipBuffer`; sizes and offsets are in bytes.

    It shares the memory of the buffer and keeps it alive; closing the buffer closes the tensor too, and its use then
    raises `HipClosed`. Work on it is done in the stream of the device's tensors, so it is in order with theirs. Only
    copies to and from the host wait. Offsets must be multiples of 4, and regions lie inside of what they are in: else
    `InvalidArgument`, before anything is enqueued. What the runtime refuses raises `HipError`.
    """

    __slots__ = ("__weakref__", "buffer", "shape", "storage")

    def __init__(self, device: RocmDevice, buffer: HipBuffer, shape: Shape) -> None:
        """Hold a buffer of just the size of the elements; the class methods make one of what there is."""
        self.buffer = buffer
        self.shape = shape
        self.storage = device.storage_class(device, DType.F32, shape.elem_count, buffer)

    @classmethod
    def empty(cls, shape: Iterable[int], device: HipDevice | int = 0) -> Self:
        """A tensor of zeros in memory of its own. Raises `OutOfMemory`."""
        shape, rocm = Shape(shape), rocm_device(device)
        return cls._sharing(rocm, rocm.make(memory.zeros, shape, DType.F32).memory, 0, shape)

    @classmethod
    def from_host(cls, source: Array, device: HipDevice | int = 0) -> Self:
        """A tensor with a copy of a float32 array, and its shape. Raises `OutOfMemory`."""
        elements = _float32("DeviceTensor.from_host", "source", source)
        rocm = rocm_device(device)
        return cls._sharing(rocm, rocm.upload(elements, DType.F32).memory, 0, Shape(elements.shape))

    @classmethod
    def from_mmap(cls, mapped: Any, offset: int, shape: Iterable[int], device: HipDevice | int = 0) -> Self:
        """A tensor with a copy of the elements at `offset` of a mapped file, or of any other buffer on the host.

        Raises `OutOfMemory`. The file may be closed afterwards.
        """
        operation, shape = "DeviceTensor.from_mmap", Shape(shape)
        content = np.frombuffer(host_memory(operation, mapped, writable=False), np.uint8)
        _require_region(operation, offset, _nbytes(shape), content.nbytes)
        elements = content[offset : offset + _nbytes(shape)].view(np.float32)
        rocm = rocm_device(device)
        return cls._sharing(rocm, rocm.upload(elements, DType.F32).memory, 0, shape)

    @classmethod
    def from_buffer(cls, buffer: HipBuffer, shape: Iterable[int], offset: int = 0) -> Self:
        """A tensor that shares a buffer's memory from `offset` on.

        It waits, on the device, for what is in the null stream, where work on buffers is enqueued by default. What
        another stream still does to the buffer must be waited for first.
        """
        shape = Shape(shape)
        _require_aligned("DeviceTensor.from_buffer", buffer, offset)
        _require_region("DeviceTensor.from_buffer", offset, _nbytes(shape), buffer.nbytes)
        rocm = rocm_device(buffer.device)
        rocm.driver.wait_for(0)
        return cls._sharing(rocm, buffer, offset, shape)

    @classmethod
    def from_pool(cls, pool: HipBuffer, offset: int, shape: Iterable[int]) -> Self:
        """`from_buffer` for one buffer from which many tensors are cut."""
        return cls.from_buffer(pool, shape, offset)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """A tensor that shares the elements of a `tallow.Tensor`, which has f32 in row-major order on rocm.

        Raises `InvalidArgument` for any other.
        """
        from ...backends import RocmStorage
        from ..tensor import Tensor

        inner = tensor.storage.inner if isinstance(tensor, Tensor) else None
        if not (isinstance(inner, RocmStorage) and inner.dtype is DType.F32 and tensor.is_contiguous()):
            reason = (
                "it shares the elements of a contiguous Tensor of f32 on rocm alone; use to(), to_dtype() or copy()"
            )
            raise InvalidArgument("DeviceTensor.from_tensor", reason)
        inner.share()
        return cls._sharing(inner.device, inner.memory, tensor.layout.start_offset * _ITEMSIZE, tensor.shape)

    @classmethod
    def _sharing(cls, rocm: RocmDevice, memory: Memory, offset: int, shape: Shape) -> Self:
        """A tensor on a region of memory, which is the buffer's own or a storage's."""
        if isinstance(memory, HipBuffer):
            buffer = memory.view(offset, _nbytes(shape))
        else:
            driver, address = rocm.driver, memory.address + offset
            buffer = HipBuffer.wrap(driver.device, address, _nbytes(shape), _give_back, driver, memory)
        return cls(rocm, buffer, shape)

    def to_tensor(self) -> Tensor:
        """A `tallow.Tensor` that shares the elements; nothing is copied or waited for."""
        from ...storage import Storage
        from ..tensor import Tensor

        return Tensor.from_storage(Storage(self.storage), Layout.contiguous(self.shape))

    def to_host(self) -> Array:
        """A copy of the elements as a float32 array, once they are there; errors of kernels come up here."""
        elements = np.empty(self.shape, np.float32)
        self.storage.device.read(elements, self.address)
        return elements

    def copy_from_host(self, source: Array) -> None:
        """Copy a float32 array of the same shape to the tensor; returns when the array may change again.

        Raises `ShapeMismatch` for another shape.
        """
        elements = _float32("DeviceTensor.copy_from_host", "source", source)
        if elements.shape != self.shape:
            shapes = self.shape, Shape(elements.shape)
            raise ShapeMismatch("DeviceTensor.copy_from_host", shapes, "give an array of the tensor's shape")
        self.storage.device.driver.copy_to_device(self.address, elements)

    def copy_from_buffer(self, source: HipBuffer, offset: int = 0) -> None:
        """Enqueue a copy of all elements from those at `offset` of a buffer: see `copy_from_region`."""
        self._copy("DeviceTensor.copy_from_buffer", source, offset, 0, self.nbytes)

    def copy_from_region(self, source: HipBuffer, source_offset: int, nbytes: int, offset: int = 0) -> None:
        """Enqueue a copy of `nbytes` bytes at `source_offset` of a buffer to those at `offset` here.

        The regions must not overlap. The copy waits, on the device, for what is in the null stream of the buffer's
        device, where that is this one; what another stream still writes there must be waited for first.
        """
        self._copy("DeviceTensor.copy_from_region", source, source_offset, offset, nbytes)

    def _copy(self, operation: str, source: HipBuffer, source_offset: int, offset: int, nbytes: int) -> None:
        _require_aligned(operation, source, source_offset)
        _require_region(operation, source_offset, nbytes, source.nbytes)
        _require_region(operation, offset, nbytes, self.nbytes)
        driver = self.storage.device.driver
        stream = HipStream.wrap(self.device, driver.stream)
        driver.wait_for(0)
        self.buffer.copy_from(source, offset=offset, source_offset=source_offset, nbytes=nbytes, stream=stream)

    @property
    def device(self) -> Device:
        """The device of the buffer."""
        return self.buffer.device

    @property
    def address(self) -> int:
        """The device address of the first element; `HipClosed` after the buffer was closed."""
        return self.buffer.address

    @property
    def nbytes(self) -> int:
        """The size of all elements."""
        return self.buffer.nbytes

    def __len__(self) -> int:
        """The number of elements."""
        return self.storage.length

    def __repr__(self) -> str:
        return f"<DeviceTensor of shape {self.shape} on {self.device.label}>"


def rocm_device(device: Device | int) -> RocmDevice:
    """The device as tensors know it. Raises what `HipDevice` raises."""
    # Imported late: the driver of that device depends on this module's package.
    from ...backends import RocmDevice

    return RocmDevice(device.ordinal if isinstance(device, Device) else integer("HipDevice", "ordinal", device))


def require_device(operation: str, device: Device, *tensors: DeviceTensor) -> None:
    """Raise `InvalidArgument` for what is no `DeviceTensor`, `DeviceMismatch` for one of another device."""
    for tensor in tensors:
        if not isinstance(tensor, DeviceTensor):
            raise InvalidArgument(
                operation, f"{describe(tensor)} is no DeviceTensor; make one with from_tensor or from_host"
            )
        if tensor.device != device:
            raise DeviceMismatch(operation, (device.label, tensor.device.label))


def _give_back(driver: GpuDriver, _memory: Memory) -> None:
    """Let go of memory of the device's tensors, which serve the next ones at once."""
    # Work on buffers is enqueued in the null stream by default.
    try:
        driver.wait_for(0)
    except DriverError:
        driver.synchronize_device()


def _nbytes(shape: Shape) -> int:
    return shape.elem_count * _ITEMSIZE


def _float32(operation: str, name: str, source: Array) -> Array:
    values = array(operation, name, source)
    if values.dtype != np.float32 or not values.dtype.isnative:
        raise InvalidArgument(
            operation, f"{name} must have dtype float32, not {values.dtype}; use astype(numpy.float32)"
        )
    return np.ascontiguousarray(values).reshape(values.shape)


def _require_aligned(operation: str, buffer: HipBuffer, offset: int) -> None:
    if not isinstance(buffer, HipBuffer):
        raise InvalidArgument(operation, f"{describe(buffer)} is no HipBuffer; make one with HipBackend.buffer")
    if (buffer.address + integer(operation, "offset", offset)) % _ITEMSIZE:
        reason = f"offset {offset} of {buffer!r} is at no multiple of {_ITEMSIZE} bytes"
        raise InvalidArgument(operation, f"{reason}; align the elements of f32")


def _require_region(operation: str, offset: int, nbytes: int, size: int) -> None:
    start, length = integer(operation, "offset", offset), integer(operation, "nbytes", nbytes)
    if start % _ITEMSIZE or length % _ITEMSIZE:
        reason = f"offset {start} and size {length} must be multiples of {_ITEMSIZE} bytes, the size of an element"
        raise InvalidArgument(operation, reason)
    if start < 0 or length < 0 or start + length > size:
        reason = f"{length} bytes at offset {start} reach outside the {size} bytes that are there"
        raise InvalidArgument(operation, f"{reason}; give a region inside of them")
