"""Conversions between dtypes, each rounded once."""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from ...dtype import Array, DType
from ..base.error import InvalidArgument
from .array import bits


def convert(array: Array, source: DType, target: DType) -> Array:
    """A new array of the elements, of dtype `source`, in dtype `target`.

    Float to integer truncates and saturates, NaN to 0; integer to integer wraps; to a float rounds to nearest even; to
    bool is True for all but 0; to complex has no imaginary part.
    """
    if source is target:
        return bits(array).copy().view(array.dtype)
    if source.is_complex or target.is_complex:
        parts = array if source.is_complex else convert(array, source, target.real)
        with np.errstate(over="ignore", invalid="ignore"):
            return parts.astype(target.numpy)
    if source.is_float:
        wide = widen(array, source)
        if target.kind == "bool":
            return np.asarray(wide != 0)
        return narrow(wide, target) if target.is_float else _saturate(wide, target.numpy)
    if not target.is_of_numpy:
        return narrow(_integer_to_float(array), target)
    with np.errstate(over="ignore"):
        return array.astype(target.numpy)


def scalar(value: complex, dtype: DType) -> Array:
    """A Python number in `dtype`, converted as `convert` does, as an array of one element."""
    if dtype.is_complex:
        with np.errstate(over="ignore"):
            return np.array([value], np.complex128).astype(dtype.numpy)
    if isinstance(value, complex):
        reason = f"{value} has an imaginary part, which {dtype.value} lacks; use a complex dtype"
        raise InvalidArgument("to_dtype", reason)
    if isinstance(value, int) and dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return np.array([min(max(value, int(limits.min)), int(limits.max))], dtype.numpy)
    if dtype.kind == "bool":
        return np.array([value != 0])
    return convert(np.array([value], np.float64), DType.F64, dtype)


def integers(numbers: Iterable[int], dtype: DType) -> Array:
    """Integers of any size in `dtype`, converted as `convert` does."""
    if dtype.is_integer:
        return np.array([number % 2**64 for number in numbers], np.uint64).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.array([number != 0 for number in numbers], np.bool_)
    return convert(np.array([_float(number, dtype.real) for number in numbers]), DType.F64, dtype)


def _float(number: int, dtype: DType) -> float:
    """The number as an f64 from which rounding to the float `dtype` is as if from the integer."""
    lost = abs(number).bit_length() - 53
    if lost > 0 and dtype is not DType.F64:
        # To odd, as below.
        number = (number >> lost | (number % 2**lost != 0)) << lost
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def widen(array: Array, dtype: DType) -> Array:
    """The elements, of `dtype`, in its compute dtype: the array itself where these are the same."""
    if dtype.compute is dtype:
        return array
    if dtype.kind == "bool":
        return array.view(np.uint8)
    # NumPy's conversion of the others, where it has one, is slower than a look-up.
    return array.astype(np.float32) if dtype.value == "bf16" else values_of(dtype).take(bits(array))


def narrow(array: Array, dtype: DType) -> Array:
    """An f32 or f64 array rounded once to the float `dtype`: the array itself where that is its dtype."""
    if array.dtype == np.float64 and not dtype.is_of_numpy:
        array = _round_to_odd(array)
    if dtype.itemsize == 1:
        pattern = bits(array)
        # Rounding to odd again: the upper half of an f32, its last bit set if the lower half is not 0.
        upper = (pattern >> 16).astype(np.uint16)
        upper |= (pattern & 0xFFFF) != 0
        return _float8_from_bf16(dtype).take(upper).view(dtype.numpy)
    if is_structured(dtype.numpy):
        return dtype.format.codes(array).view(dtype.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype.numpy, copy=False)


def astype(array: Array, dtype: Any) -> Array:
    """The elements in another dtype of NumPy: the array itself where that is its own."""
    if array.dtype == np.float16 and dtype == np.float32:
        return widen(array, DType("f16"))
    if is_structured(array.dtype) or is_structured(dtype):
        return convert(array, DType.from_numpy(array.dtype), DType.from_numpy(np.dtype(dtype)))
    return array.astype(dtype, copy=False)


def is_structured(dtype: Any) -> bool:
    """Whether a dtype of NumPy stands for a float that NumPy and ml_dtypes lack, of which they know the bits alone."""
    return isinstance(dtype, np.dtype) and dtype.names is not None


def plain(array: Array) -> Array:
    """The array, or one of f32 where NumPy and ml_dtypes lack its dtype."""
    return convert(array, DType.from_numpy(array.dtype), DType.F32) if is_structured(array.dtype) else array


@cache
def values_of(dtype: DType) -> Array:
    """The value of each bit pattern of an 8-bit or 16-bit float in f32."""
    return dtype.format.values()


@cache
def _float8_from_bf16(dtype: DType) -> Array:
    """The pattern of 8 bits nearest to each bf16 pattern."""
    return dtype.format.codes(values_of(DType.BF16))


def _round_to_odd(array: Array) -> Array:
    """f64 to f32 such that a later rounding to fewer bits is as if from the f64 (Boldo and Melquiond 2005).

    An inexact result is that one of its two neighbours whose last bit is 1.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        nearest = array.astype(np.float32)
        pattern = nearest.view(np.int32)
        is_even_and_inexact = (nearest != array) & (pattern & 1 == 0)
        # Patterns grow with the magnitude, of either sign.
        step = np.where(np.abs(nearest) > np.abs(array), -1, 1).astype(np.int32)
    np.add(pattern, step, out=pattern, where=is_even_and_inexact)
    return nearest


def _integer_to_float(array: Array) -> Array:
    """An f32 or f64 array from which rounding to 24 bits or fewer is as if from the integers."""
    if array.dtype.itemsize <= 2:
        return array.astype(np.float32)
    if array.dtype.itemsize == 8:
        # Beyond 2**53, round to odd at a multiple of 2**11, so that at most 53 bits remain.
        odd = ((array >> 11) | (array & 0x7FF != 0)) << 11
        array = np.where((array >= -(2**53)) & (array <= 2**53), array, odd)
    return array.astype(np.float64)


def _saturate(array: Array, target: np.dtype[Any]) -> Array:
    """An f32 or f64 array as integers: truncated, saturated, NaN to 0."""
    limits = np.iinfo(target)
    lowest, highest = array.dtype.type(limits.min), array.dtype.type(limits.max)
    # The greatest i64, for one, is no f64; what rounds up to 2**63 is beyond the range of a defined cast.
    top = highest if int(highest) <= limits.max else np.nextafter(highest, array.dtype.type(0))
    with np.errstate(invalid="ignore"):
        inside = np.clip(array, lowest, top)
    np.copyto(inside, 0, where=np.isnan(array))
    result = inside.astype(target)
    if top != highest:
        result[array >= highest] = limits.max
    return result
