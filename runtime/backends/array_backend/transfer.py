"""Elements between a library and NumPy. Dtypes that NumPy lacks, or the library, go as their bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....dtype import Array, DType
from ...base.error import UnsupportedDType
from ...host.array import normalised

# What has the bits of a dtype that a library and NumPy do not both know.
_BITS: Final = {1: "u8", 2: "i16"}


def native(library: Any, dtype: DType, op: str = "dtype") -> Any:
    """The library's dtype; UnsupportedDType of `op` where it lacks it."""
    if dtype in library.LACKING:
        raise UnsupportedDType(op, dtype, library.NAME, library.LACKING[dtype])
    return library.DTYPES[dtype]


def is_of(library: Any, x: Any, dtype: DType) -> bool:
    """Whether an array is of a dtype, which the library may lack."""
    return dtype in library.DTYPES and bool(x.dtype == library.DTYPES[dtype])


def is_widened(library: Any, dtype: DType) -> bool:
    """Whether the library has i64 in the place of a shorter integer: then its numbers are in range after each op."""
    return dtype is not DType.I64 and bool(library.DTYPES[dtype] == library.DTYPES[DType.I64])


def to_numpy(library: Any, data: Any, dtype: DType) -> Array:
    """A copy of the elements of an array."""
    if not dtype.is_of_numpy:
        bits = DType(_BITS[dtype.itemsize])
        pattern = data if data.dtype == library.DTYPES[bits] else library.bitcast(data, library.DTYPES[bits])
        return np.array(library.to_numpy(pattern)).view(dtype.numpy)
    return np.array(library.to_numpy(data), dtype.numpy)


def from_numpy(library: Any, array: Array, dtype: DType, device: Any) -> Any:
    """A flat array of the elements of one of NumPy's, which has the dtype's type."""
    own = native(library, dtype)
    array = normalised(np.ascontiguousarray(array).reshape(-1))
    if dtype.is_of_numpy:
        return library.from_numpy(array.astype(np.int64) if is_widened(library, dtype) else array, device)
    bits = DType(_BITS[dtype.itemsize])
    pattern = library.from_numpy(array.view(bits.numpy), device)
    return pattern if own == library.DTYPES[bits] else library.bitcast(pattern, own)


def from_bytes(library: Any, content: bytearray, dtype: DType, device: Any) -> Any:
    """The same of the bytes of elements."""
    return from_numpy(library, np.frombuffer(content, dtype.numpy), dtype, device)
