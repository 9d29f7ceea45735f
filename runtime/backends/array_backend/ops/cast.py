"""Conversions between dtypes, each rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....dtype import DType
from ....host import cast as host
from .. import transfer


def convert(library: Any, x: Any, source: DType, target: DType) -> Any:
    """The elements of `x`, of dtype `source`, in dtype `target`.

    Float to integer truncates and saturates, NaN to 0; integer to integer wraps; to a float rounds to nearest even; to
    bool is True for what is not 0; to complex has no imaginary part.
    """
    transfer.native(library, target)
    if source is target:
        return x
    if target.kind == "bool":
        return widen(library, x, source) != 0
    if target.is_complex:
        parts = x if source.is_complex else convert(library, x, source, target.real)
        return library.astype(parts, library.DTYPES[target])
    if source.kind == "bool":
        x, source = widen(library, x, source), source.compute
    if source.is_float:
        wide = widen(library, x, source)
        return narrow(library, wide, target) if target.is_float else _saturated(library, wide, target)
    if target.is_float:
        return narrow(library, _integer_to_float(library, x, source, target), target)
    return wrap(library, library.astype(x, library.DTYPES[target]), target)


def scalar(library: Any, value: complex, dtype: DType, device: Any) -> Any:
    """A Python number in `dtype`, converted as `convert` does, as an array of one element."""
    return transfer.from_numpy(library, host.scalar(value, dtype), dtype, device)


def widen(library: Any, x: Any, dtype: DType) -> Any:
    """The elements, of `dtype`, in its compute dtype: the array itself where these are the same."""
    compute = dtype.compute
    if compute is dtype:
        return x
    if transfer.is_of_bits(library, dtype):
        return _values(library, x, dtype)
    return library.astype(x, library.DTYPES[compute])


def accumulating(library: Any, dtype: DType) -> Any:
    """The library's dtype in which numbers of a floating-point dtype are added up; None where it has no such."""
    return library.DTYPES.get(DType.F64.complex if dtype.is_complex else DType.F64)


def widest(library: Any, array: Any, dtype: DType) -> Any:
    """The elements as they are computed."""
    wide = widen(library, array, dtype)
    return library.astype(wide, library.DTYPES[DType.F64]) if DType.F64 in library.DTYPES else wide


def narrow(library: Any, x: Any, dtype: DType) -> Any:
    """An array of f32 or f64, or of complex numbers of these, rounded once to a `dtype` of the same kind.

    The array itself where that is its dtype.
    """
    own = library.DTYPES[dtype]
    if x.dtype == own:
        return x
    if not dtype.is_of_numpy and transfer.is_of(library, x, DType.F64):
        x = _round_to_odd(library, x)
    if transfer.is_of_bits(library, dtype):
        return _codes(library, x, dtype)
    if dtype.is_float and dtype.format.specials:
        # Saturated first: what is above the largest number has no rule of its own in any library.
        limit = library.constant(dtype.format.max, x)
        x = library.minimum(library.maximum(x, -limit), limit)
    return library.astype(x, own)


def wrap(library: Any, x: Any, dtype: DType) -> Any:
    """Wrap integers stored in a wider type modulo 2**n; return others as they are."""
    return x & (2 ** (8 * dtype.itemsize) - 1) if dtype.is_integer and transfer.is_widened(library, dtype) else x


def _values(library: Any, codes: Any, dtype: DType) -> Any:
    """The values of the bit patterns of a short float in f32."""
    table = host.values_of(dtype)
    positions = library.astype(library.reshape(codes, (-1,)), library.DTYPES[DType.I64]) & len(table) - 1
    values = library.take(library.from_numpy(table, library.device_of(codes)), positions, 0)
    return library.reshape(values, codes.shape)


def _codes(library: Any, x: Any, dtype: DType) -> Any:
    """The bit patterns of a short float nearest to f32 numbers, as `FloatFormat.codes` finds them."""
    of = dtype.format
    i32, own = library.DTYPES[DType.I32], library.DTYPES[dtype]
    bits = library.bitcast(x, i32)
    size = bits & 0x7FFFFFFF
    # Normal numbers: fewer bits, to nearest even, and another bias of the exponent.
    lost = 23 - of.fraction
    normal = ((size + ((1 << lost - 1) - 1) + ((size >> lost) & 1)) >> lost) - (127 - of.bias << of.fraction)
    normal = library.minimum(normal, library.constant(of.highest, normal))
    # Multiples of the unit below: adding 1.5 * 2**23 in such units rounds to them.
    magic = 1.5 * 2.0 ** (24 - of.bias - of.fraction)
    small = library.bitcast(library.bitcast(size, x.dtype) + magic, i32) & ((2 << of.fraction) - 1)
    code = library.where(size < (128 - of.bias << 23), small, normal)
    sign = (bits >> 31 & 1) << of.bits - 1
    if of.specials == "fnuz":
        sign = library.where(code == 0, library.constant(0, sign), sign)
        code = library.where(library.isnan(x), library.constant(1 << of.bits - 1, code), code | sign)
    else:
        code = library.where(library.isnan(x), library.constant((1 << of.bits - 1) - 1, code), code) | sign
    # Codes of 16 bits are stored as signed integers.
    return library.astype(code if of.bits == 8 else code - ((code >> 15) << 16), own)


def _round_to_odd(library: Any, x: Any) -> Any:
    """f64 to f32 such that a later rounding to fewer bits is as if from the f64 (Boldo and Melquiond 2005).

    An inexact result is that one of its two neighbours whose last bit is 1.
    """
    i32, f32 = library.DTYPES[DType.I32], library.DTYPES[DType.F32]
    nearest = library.astype(x, f32)
    bits = library.bitcast(nearest, i32)
    is_even_and_inexact = (library.astype(nearest, x.dtype) != x) & ((bits & 1) == 0)
    # Patterns grow with the magnitude, of either sign.
    is_above = library.abs(library.astype(nearest, x.dtype)) > library.abs(x)
    step = library.where(is_above, library.constant(-1, bits), library.constant(1, bits))
    is_kept = library.isnan(x) | ~is_even_and_inexact
    return library.bitcast(library.where(is_kept, bits, bits + step), f32)


def _integer_to_float(library: Any, x: Any, source: DType, target: DType) -> Any:
    """A float array from which rounding to `target` is as if from the integers."""
    if target is DType.F64:
        return library.astype(x, library.DTYPES[target])
    if target.compute is not target and target.format.max > 2.0**24:
        # Rounded to odd, to as many bits as f32 has or fewer: then the rounding to f32 loses nothing.
        x = x if source.itemsize == DType.I64.itemsize else library.astype(x, library.DTYPES[DType.I64])
        exact, size = x, library.where(x < 0, ~x, x)
        for least, lost in ((24, 14), (38, 28), (52, 42)):
            sticky = library.astype((exact & ((1 << lost) - 1)) != 0, exact.dtype)
            x = library.where(size >= (1 << least), ((exact >> lost) | sticky) << lost, x)
    # Others end below the numbers that f32 rounds.
    return library.astype(x, library.DTYPES[DType.F32])


def _truncated(library: Any, x: Any, target: DType) -> Any:
    """Floats of integers that `target` has, as a type that has them too and to which libraries convert."""
    is_long = target.kind == "unsigned" and target.itemsize == DType.I64.itemsize
    return x if is_long else library.astype(x, library.DTYPES[DType.I64])


def _saturated(library: Any, x: Any, target: DType) -> Any:
    """An f32 or f64 array as integers: truncated, saturated, NaN to 0."""
    limits = np.iinfo(target.numpy)
    real = np.float64 if transfer.is_of(library, x, DType.F64) else np.float32
    lowest, highest = real(limits.min), real(limits.max)
    # The greatest i64, for one, is no float; what rounds up to 2**63 is beyond the range of a defined cast.
    top = highest if int(highest) <= limits.max else np.nextafter(highest, real(0))
    inside = library.minimum(library.maximum(x, library.constant(float(lowest), x)), library.constant(float(top), x))
    inside = library.where(library.isnan(x), library.constant(0, x), library.trunc(inside))
    own = library.DTYPES[target]
    result = library.astype(_truncated(library, inside, target), own)
    if top == highest:
        return result
    return library.where(x >= library.constant(float(highest), x), library.constant(int(limits.max), result), result)
