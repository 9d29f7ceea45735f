"""Weights that add up to 1 along a dim, and their logarithms: in f64 where the library has it, else in f32."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from ..errors import tells_errors
from . import cast
from .operand import Operand
from .reduce import accumulated


@tells_errors
def softmax(x: Operand, dim: int) -> Any:
    """e**(x - m) / sum(e**(x - m)) along `dim`, where m is the largest element."""
    if x.layout.elem_count == 0:
        return x.result(x.array)
    powers = x.library.exp(below_zero(x, dim))
    return x.result(cast.narrow(x.library, powers / total(x.library, powers, dim), x.dtype))


@tells_errors
def log_softmax(x: Operand, dim: int) -> Any:
    """x - m - log(sum(e**(x - m))) along `dim`, where m is the largest element."""
    if x.layout.elem_count == 0:
        return x.result(x.array)
    library, below = x.library, below_zero(x, dim)
    return x.result(cast.narrow(library, below - library.log(total(library, library.exp(below), dim)), x.dtype))


def below_zero(x: Operand, dim: int) -> Any:
    """The elements less the largest one along `dim`."""
    wide = cast.widest(x.library, x.array, x.dtype)
    return wide - x.library.max(wide, dim)


def total(library: Any, x: Any, dim: int) -> Any:
    """The sums along `dim`, which is kept."""
    if DType.F64 in library.DTYPES:
        return library.sum(x, dim, x.dtype)
    last = len(x.shape) - 1
    order = (*(axis for axis in range(last + 1) if axis != dim), dim)
    moved = library.permute_dims(x, order)
    # As rows that lie one behind the other, which libraries add more exactly.
    rows = accumulated(library, library.sum, library.reshape(moved, (-1, x.shape[dim])))
    sums = library.reshape(rows, (*moved.shape[:-1], 1))
    return library.permute_dims(sums, tuple(order.index(axis) for axis in range(last + 1)))
