"""Elements between a library and NumPy. Dtypes that NumPy lacks, or the library, go as their bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....dtype import Array, DType
from ...base.error import UnsupportedDType
from ...host import cast
from ...host.array import normalised

# What has the bits of a dtype that a library and NumPy do not both know.
_BITS: Final = {1: "u8", 2: "i16"}


def native(library: Any, dtype: DType, op: str = "dtype") -> Any:
    """The library's dtype; UnsupportedDType of `op` where it lacks it."""
    if dtype in library.LACKING:
        raise refusal(library, dtype, op)
    return library.DTYPES[dtype]


def refusal(library: Any, dtype: DType, op: str = "dtype") -> UnsupportedDType:
    """The error for a dtype that the library lacks."""
    return UnsupportedDType(op, dtype, library.NAME, library.LACKING[dtype])


def refuse_unheld(library: Any, device: Any) -> None:
    """Add the dtypes whose limits the library changes, or refuses, to those that it lacks."""
    fix = f"let 'setup' of spec/backends/{library.NAME}.yaml enable it, or use another dtype"
    for dtype in library.DTYPES.keys() - library.LACKING.keys():
        numbers = _limits(dtype)
        try:
            array = from_numpy(library, numbers, dtype, device)
            returned = to_numpy(library, array, dtype)
            changed = next((pair for pair in zip(numbers, returned, strict=True) if pair[0] != pair[1]), None)
            if changed is None and array.dtype == library.DTYPES[dtype]:
                continue
            what = "" if changed is None else f", and gives {changed[1]} for {changed[0]}"
            reason = f"the library holds it as {array.dtype}{what}"
        except Exception as error:  # whatever a library raises
            reason = f"the library refuses it, {type(error).__name__}: {error}"
        library.LACKING[dtype] = f"{reason}; {fix}"
        if dtype.is_inexact:
            # Ops compute in f64 where there is one.
            del library.DTYPES[dtype]


def _limits(dtype: DType) -> Array:
    """The numbers of a dtype that a narrower one would change."""
    numpy = dtype.numpy
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        limits = np.iinfo(numpy)
        return np.array([limits.min, limits.max, limits.max // 3], numpy)
    of = dtype.real.format
    real = cast.narrow(np.array([of.max, of.smallest_normal, 1 + of.eps]), dtype.real)
    return (real + 1j * real).astype(numpy) if dtype.is_complex else real


def is_of(library: Any, x: Any, dtype: DType) -> bool:
    """Whether an array is of a dtype, which the library may lack."""
    return dtype in library.DTYPES and bool(x.dtype == library.DTYPES[dtype])


def is_widened(library: Any, dtype: DType) -> bool:
    """Whether the library has i64 instead of a shorter integer: then its numbers are in range after each op."""
    return dtype is not DType.I64 and bool(library.DTYPES[dtype] == library.DTYPES[DType.I64])


def is_of_bits(library: Any, dtype: DType) -> bool:
    """Whether the library stores a short float as an integer of the same bits."""
    bits = DType.named(_BITS.get(dtype.itemsize, "")) if dtype.is_float else None
    return bits is not None and bool(library.DTYPES[dtype] == library.DTYPES[bits])


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
    """Return the array of elements from their bytes."""
    return from_numpy(library, np.frombuffer(content, dtype.numpy), dtype, device)
