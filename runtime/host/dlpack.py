"""DLPack's capsules, in the structs of its dlpack.h: what they say of a tensor is read, and said anew."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from ...dtype import Array, DType
from ..base.error import UnsupportedDType

NAME: Final = b"dltensor"
TAKEN: Final = b"used_dltensor"
# The protocol since its version 1.0, whose struct has the version first and the tensor last.
_VERSIONED: Final = b"dltensor_versioned"
_BEHIND: Final = 32
_UNSIGNED: Final = 1

FromAddress = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DeviceOf(ctypes.Structure):
    """Where a tensor is."""

    _fields_ = (("type", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class DataType(ctypes.Structure):
    """The type of its elements."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))

    @property
    def dtype(self) -> DType | None:
        """The DType of the elements; None where there is none."""
        facts = self.code, self.bits
        return next((dtype for dtype in DType if dtype.dlpack == facts), None) if self.lanes == 1 else None


class TensorOf(ctypes.Structure):
    """The tensor of a capsule."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DeviceOf),
        ("rank", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class ManagedTensor(ctypes.Structure):
    """A tensor, and how to give it back."""

    _fields_ = (("tensor", TensorOf), ("context", ctypes.c_void_p), ("deleter", FromAddress))


def _of_python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface, with types of our own: those of `ctypes.pythonapi` belong to everybody."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


is_named = _of_python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
content = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
rename = _of_python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


def said_by(capsule: Any) -> TensorOf | None:
    """The tensor of a capsule of either version, which may be changed; None if the capsule has no tensor any more."""
    if is_named(capsule, NAME):
        return TensorOf.from_address(content(capsule, NAME))
    return TensorOf.from_address(content(capsule, _VERSIONED) + _BEHIND) if is_named(capsule, _VERSIONED) else None


def exported(array: Array, dtype: DType, **options: Any) -> Any:
    """A capsule of an array's elements. NumPy exports those of dtypes that it lacks as integers of their size."""
    if dtype.is_of_numpy:
        return array.__dlpack__(**options)
    if dtype.dlpack is None:
        raise UnsupportedDType("dlpack", dtype, "cpu", "DLPack has no such type; convert with to_dtype first")
    capsule = array.view(f"u{dtype.itemsize}").__dlpack__(**options)
    said = said_by(capsule)
    assert said is not None, "the array is there"
    said.dtype = DataType(*dtype.dlpack, 1)
    return capsule


class _Capsule:
    """A capsule, as NumPy asks for one."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def imported(source: Any) -> Array:
    """An array that shares the elements of another library's tensor, which NumPy may lack the dtype of."""
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError):
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = source.__dlpack__()
        said = said_by(capsule)
        dtype = None if said is None else said.dtype.dtype
        if said is None or dtype is None or dtype.is_of_numpy:
            raise
        said.dtype = DataType(_UNSIGNED, said.dtype.bits, 1)
        return np.from_dlpack(_Capsule(capsule, source.__dlpack_device__())).view(dtype.numpy)
