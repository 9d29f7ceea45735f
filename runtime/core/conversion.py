"""The advice of errors about dtypes: what to convert a tensor to for an op that lacks its dtype."""

from __future__ import annotations

from collections.abc import Collection

from ...dtype import DType
from ...promotion import promoted

# The usual dtypes that may replace an exact operand's or an inexact one's.
_OF_EXACT, _OF_INEXACT = ("i64", "f32", "complex64"), ("f32", "complex64", "i64")


def conversion(dtype: DType, dtypes: Collection[DType]) -> str:
    """Return how to make a tensor of one of several dtypes of one that has another dtype."""
    if dtype.is_complex and not any(other.is_complex for other in dtypes):
        if dtype.real in dtypes:
            return "take real(), imag() or abs() first"
        return f'take real() first, and convert it with to_dtype("{_nearest(dtype.real, dtypes).value}")'
    return f'convert with to_dtype("{_nearest(dtype, dtypes).value}") first'


def _nearest(dtype: DType, dtypes: Collection[DType]) -> DType:
    """The most usual of those to which the dtype is promoted; of all where it is promoted to none."""
    usual = _OF_INEXACT if dtype.is_inexact else _OF_EXACT

    def rank(other: DType) -> tuple[int, int, str]:
        return usual.index(other.value) if other.value in usual else len(usual), other.itemsize, other.value

    return min([other for other in dtypes if promoted(dtype, other) is other] or dtypes, key=rank)
