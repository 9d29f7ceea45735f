"""Arithmetic, comparisons and reductions with NumPy's signatures, where the standard's differ or it has none.

Each has NumPy's names of those parameters that it takes; `protocol` refuses the others.
"""

# ruff: noqa: D103 - they do what NumPy's functions of the same names do

from __future__ import annotations

import builtins
import math
from typing import Any

from ....dtype import DType
from ...core.argument import integer
from ...tensor import Tensor
from ...tensor import einsum as _einsum
from ..elementwise import conj
from ..elementwise import round as _round
from ..linear_algebra import cross as _cross
from ..manipulation import Axes, concat
from ..searching import argsort as _argsort
from ..searching import nonzero
from ..searching import sort as _sort
from ..searching import where as _where
from ..statistical import cumulative_prod, cumulative_sum
from .shapes import flat

__all__ = [
    "allclose",
    "amax",
    "amin",
    "angle",
    "argsort",
    "argwhere",
    "around",
    "array_equal",
    "array_repr",
    "array_str",
    "average",
    "bincount",
    "cross",
    "cumprod",
    "cumsum",
    "degrees",
    "dot",
    "einsum",
    "fix",
    "flatnonzero",
    "imag",
    "inner",
    "isclose",
    "iscomplex",
    "iscomplexobj",
    "isneginf",
    "isposinf",
    "isreal",
    "isrealobj",
    "nan_to_num",
    "outer",
    "ptp",
    "radians",
    "round",
    "sort",
    "unique",
    "vdot",
    "where",
]

# A tensor, or a number.
Operand = Any


def _rank(x: Operand) -> int:
    return x.rank if isinstance(x, Tensor) else 0


def _inexact(x: Operand, dtype: DType = DType.F32) -> Any:
    """Convert integers and masks to a dtype of floats, or to f32 where a device lacks it."""
    if not isinstance(x, Tensor) or x.dtype.is_inexact:
        return x
    return x.to_dtype(dtype if x.device.supports(dtype) else DType.F32)


def allclose(
    a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: builtins.bool = False
) -> builtins.bool:
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


def isclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: builtins.bool = False) -> Tensor:
    a, b = _inexact(a, DType.F64), _inexact(b, DType.F64)
    close: Tensor = a == b
    if equal_nan:
        close = close | ((a != a) & (b != b))
    size = abs(b)
    near: Tensor = close | ((abs(a - b) <= size * rtol + atol) & (size < math.inf))
    return near


def array_equal(a1: Tensor, a2: Tensor, equal_nan: builtins.bool = False) -> builtins.bool:
    if tuple(a1.shape) != tuple(a2.shape):
        return False
    same = a1 == a2
    return bool((same | ((a1 != a1) & (a2 != a2)) if equal_nan else same).all())


def amax(a: Tensor, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    return a.max(axis, keepdims)


def amin(a: Tensor, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    return a.min(axis, keepdims)


def ptp(a: Tensor, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    return a.max(axis, keepdims) - a.min(axis, keepdims)


def average(a: Tensor, axis: Axes | None = None, keepdims: builtins.bool = False) -> Tensor:
    return a.mean(axis, keepdims)


def cumsum(a: Tensor, axis: int | None = None, dtype: DType | None = None) -> Tensor:
    x, axis = flat(a, axis)
    return cumulative_sum(x, axis=axis, dtype=dtype)


def cumprod(a: Tensor, axis: int | None = None, dtype: DType | None = None) -> Tensor:
    x, axis = flat(a, axis)
    return cumulative_prod(x, axis=axis, dtype=dtype)


# Every sort is stable, whatever `kind` asks for.
def sort(a: Tensor, axis: int | None = -1, kind: str | None = None, *, stable: builtins.bool | None = None) -> Tensor:
    x, axis = flat(a, axis)
    return _sort(x, axis=axis)


def argsort(
    a: Tensor, axis: int | None = -1, kind: str | None = None, *, stable: builtins.bool | None = None
) -> Tensor:
    x, axis = flat(a, axis)
    return _argsort(x, axis=axis)


def unique(
    ar: Tensor,
    return_index: builtins.bool = False,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    equal_nan: builtins.bool = True,
) -> Tensor | tuple[Tensor, ...]:
    values, indexes, inverse, counts = ar.unique(return_indices=True, return_inverse=True, return_counts=True)
    # Each NaN is one of its own, and they come last.
    nans = int((values != values).to_dtype(DType.I64).sum()) if equal_nan and ar.dtype.is_inexact else 0
    if nans > 1:
        last = values.elem_count - nans
        values, indexes, inverse = values[: last + 1], indexes[: last + 1], inverse.minimum(last)
        counts = concat([counts[:last], counts[last:].sum(0, True)])
    flags = (True, return_index, return_inverse, return_counts)
    chosen = [it for it, flag in zip((values, indexes, inverse, counts), flags, strict=True) if flag]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def argwhere(a: Tensor) -> Tensor:
    return a.nonzero()


def flatnonzero(a: Tensor) -> Tensor:
    return nonzero(a.flatten())[0]


def where(condition: Tensor, x: Operand = None, y: Operand = None) -> Tensor | tuple[Tensor, ...]:
    if x is None and y is None:
        return nonzero(condition)
    return _where(condition != 0 if condition.dtype.is_inexact else condition, x, y)


def round(a: Tensor, decimals: int = 0) -> Tensor:
    digits = integer("round", "decimals", decimals)
    if not digits or not (digits < 0 or a.dtype.is_inexact):
        return _round(a)
    # As NumPy has it.
    power = 10.0 ** abs(digits)
    x = _inexact(a, DType.F64)
    return (_round(x * power) / power if digits > 0 else _round(x / power) * power).to_dtype(a.dtype)


def around(a: Tensor, decimals: int = 0) -> Tensor:
    return round(a, decimals)


def angle(z: Tensor, deg: builtins.bool = False) -> Tensor:
    # That of a real number is 0 or pi.
    radians = z.angle() if z.dtype.is_complex else _inexact(z).zeros_like().atan2(_inexact(z))
    return radians * (180 / math.pi) if deg else radians


def imag(val: Tensor) -> Tensor:
    return val.imag() if val.dtype.is_complex else val.zeros_like()


def isposinf(x: Tensor) -> Tensor:
    result: Tensor = _inexact(x) == math.inf
    return result


def isneginf(x: Tensor) -> Tensor:
    result: Tensor = _inexact(x) == -math.inf
    return result


def iscomplexobj(x: Tensor) -> builtins.bool:
    return x.dtype.is_complex


def isrealobj(x: Tensor) -> builtins.bool:
    return not x.dtype.is_complex


def iscomplex(x: Tensor) -> Tensor:
    return x.imag() != 0 if x.dtype.is_complex else (x != x) & False


def isreal(x: Tensor) -> Tensor:
    return ~iscomplex(x)


def fix(x: Tensor) -> Tensor:
    return x.trunc() if x.dtype.is_inexact else x.copy()


def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    return x.nan_to_num(nan, posinf, neginf)


def bincount(x: Tensor, /, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    return x.bincount(weights, minlength)


def dot(a: Operand, b: Operand) -> Tensor:
    if not _rank(a) or not _rank(b):
        product: Tensor = a * b
        return product
    result: Tensor = a @ b if b.rank == 1 else a.tensordot(b, ([-1], [-2]))
    return result


def vdot(a: Tensor, b: Tensor) -> Tensor:
    left = a.flatten()
    return (conj(left) if a.dtype.is_complex else left) @ b.flatten()


def inner(a: Operand, b: Operand) -> Tensor:
    if not _rank(a) or not _rank(b):
        product: Tensor = a * b
        return product
    result: Tensor = a.tensordot(b, ([-1], [-1]))
    return result


def outer(a: Tensor, b: Tensor) -> Tensor:
    return a.flatten().unsqueeze(1) * b.flatten()


def cross(a: Tensor, b: Tensor, axis: int | None = None) -> Tensor:
    return _cross(a, b, axis=-1 if axis is None else axis)


def einsum(subscripts: str, /, *operands: Tensor) -> Tensor:
    return _einsum(subscripts, *operands)


def degrees(x: Tensor) -> Tensor:
    result: Tensor = _inexact(x) * (180 / math.pi)
    return result


def radians(x: Tensor) -> Tensor:
    result: Tensor = _inexact(x) * (math.pi / 180)
    return result


def array_repr(arr: Tensor) -> str:
    return repr(arr)


def array_str(a: Tensor) -> str:
    return str(a)
