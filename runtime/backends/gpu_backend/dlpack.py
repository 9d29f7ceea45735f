"""DLPack on the device: tensors that other libraries share without a copy, in the structs of DLPack's dlpack.h."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....dtype import DType
from ...base.error import InvalidArgument, UnsupportedDType
from ...core.layout import Layout
from ...core.shape import Shape
from ...kernels.argument_struct import Address
from . import slow_path
from .ops.copy import fresh
from .ops.operand import Operand
from .release import release_with

if TYPE_CHECKING:
    from .device import GpuDevice
    from .storage import GpuStorage

_NAME: Final = b"dltensor"
_TAKEN: Final = b"used_dltensor"

_FromAddress = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _FromAddress))


def _of_python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface, with types of our own: those of `ctypes.pythonapi` belong to everybody."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_named = _of_python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_content = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _of_python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


class _Lent:
    """What NumPy takes for an array on the host: elements of the same size at the same address."""

    def __init__(self, storage: GpuStorage, layout: Layout, give_back: Callable[[], None]) -> None:
        size = storage.dtype.itemsize
        self.storage = storage
        self.__array_interface__ = {
            "version": 3,
            "data": (storage.memory.address + layout.start_offset * size, False),
            "typestr": f"|u{size}" if size == 1 else f"<{'u' if size <= 8 else 'c'}{size}",
            "shape": tuple(layout.shape),
            "strides": tuple(stride * size for stride in layout.strides),
        }
        release_with(self, give_back)


def export(storage: GpuStorage, layout: Layout, stream: int | None, copy: bool) -> object:
    """A capsule with the elements that `layout` reaches, or a copy of them; it keeps them until its taker is done.

    What `stream`, a handle of the vendor's, is given from now on waits for what is enqueued here; None is the default
    stream, and -1 leaves the order of things to the taker.
    """
    if copy:
        storage, layout = fresh(Operand(storage, layout)), Layout.contiguous(layout.shape)
    facts = storage.dtype.dlpack
    if facts is None:
        raise UnsupportedDType(
            "dlpack", storage.dtype, storage.device.backend, "DLPack has no such type; convert with to_dtype first"
        )
    driver = storage.device.driver
    if stream != -1:
        driver.let_wait(stream or 0)

    def give_back() -> None:
        # The memory may serve again as soon as nobody holds the storage, but the taker may still have work for it.
        # The default streams are there for ever; any other may be gone by now, and with it how to wait for it alone.
        if stream in (None, 0, 1, 2):
            driver.wait_for(stream or 0)
        else:
            driver.synchronize_device()

    # NumPy's capsules are taken apart in C, at any time and by any thread; a function of Python could not be, least of
    # all while an exception is under way. NumPy never looks at the elements, so they may as well be on the device.
    capsule = np.asarray(_Lent(storage, layout, give_back)).__dlpack__()
    tensor = _Tensor.from_address(_content(capsule, _NAME))
    tensor.device = _Device(storage.device.dlpack, storage.device.ordinal)
    tensor.dtype = _DataType(*facts, 1)
    return capsule


class Borrowed:
    """Memory of another library at `address`, given back to it when nobody holds this."""

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, address: Address, nbytes: int, give_back: Callable[[], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        release_with(self, give_back)


def take(device: GpuDevice, source: Any) -> tuple[GpuStorage, Layout]:
    """The elements of another library's tensor, without a copy.

    Raises InvalidArgument for what is no capsule of a tensor or was taken before, memory that is not the device's, a
    dtype that no tensor has, or strides below 0.
    """
    if slow_path.required:
        device.driver.refuse_sharing()
    capsule = source.__dlpack__(stream=device.driver.stream)
    if _is_named(capsule, _TAKEN):
        raise InvalidArgument("from_dlpack", "the capsule was taken before; export the tensor again")
    if not _is_named(capsule, _NAME):
        reason = f"__dlpack__ gave {capsule!r}, which is no capsule called {_NAME.decode()}"
        raise InvalidArgument("from_dlpack", f"{reason}; give a tensor that exports one")
    address = _content(capsule, _NAME)
    managed = _ManagedTensor.from_address(address)
    tensor = managed.tensor
    shape = Shape(tensor.shape[: tensor.rank])
    layout = Layout.contiguous(shape)
    if tensor.strides:
        layout = Layout(shape, tuple(tensor.strides[: tensor.rank]))
    dtype = _dtype_of(tensor.dtype)
    reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, layout.strides, strict=True))
    count = reach if math.prod(shape) else 0
    begin = (tensor.data or 0) + tensor.byte_offset
    _require_memory(device, tensor.device, begin, count)
    # From here on the capsule does nothing at its end, and what it held is ours to give back.
    _rename(capsule, _TAKEN)

    def give_back() -> None:
        # The other library cannot know what is still enqueued here.
        try:
            device.driver.synchronize()
        finally:
            if managed.deleter:
                managed.deleter(address)

    memory = Borrowed(begin, count * dtype.itemsize, give_back)
    return device.storage_class(device, dtype, count, memory), layout


def _require_memory(device: GpuDevice, told: _Device, address: int, count: int) -> None:
    """Refuse what the capsule says is elsewhere, and what is elsewhere whatever it says: kernels would fault."""
    place, own = (told.type, told.ordinal), (device.dlpack, device.ordinal)
    if place != own:
        raise InvalidArgument("from_dlpack", f"the capsule is of device {place} of DLPack, and its source of {own}")
    if count and not device.driver.holds(address):
        reason = f"the capsule's memory, at {address:#x}, is not that of {device.driver.label}, whose it says it is"
        raise InvalidArgument("from_dlpack", f"{reason}; copy the tensor to the device first")


def _dtype_of(given: _DataType) -> DType:
    facts = given.code, given.bits
    found = next((dtype for dtype in DType if dtype.dlpack == facts), None)
    if found is None or given.lanes != 1:
        reason = f"no dtype for DLPack's code {given.code} with {given.bits} bits and {given.lanes} lanes"
        known = ", ".join(dtype.value for dtype in DType)
        raise InvalidArgument("from_dlpack", f"{reason}; convert the tensor to one of {known}")
    return found
