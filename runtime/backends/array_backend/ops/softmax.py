"""Weights that add up to 1 along a dim, and their logarithms: in f64 where the library has it, else in f32."""

from __future__ import annotations

from typing import Any

from ....numerics.numerics import accumulated
from . import cast
from .operand import Operand


def softmax(x: Operand, dim: int) -> Any:
    """e**(x - m) / sum(e**(x - m)) along `dim`, where m is the largest element."""
    if x.layout.elem_count == 0:
        return x.result(x.array)
    powers = x.library.exp(below_zero(x, dim))
    return x.result(cast.narrow(x.library, powers / total(x.library, powers, dim), x.dtype))


def log_softmax(x: Operand, dim: int) -> Any:
    """x - m - log(sum(e**(x - m))) along `dim`, where m is the largest element."""
    if x.layout.elem_count == 0:
        return x.result(x.array)
    library, below = x.library, below_zero(x, dim)
    return x.result(cast.narrow(library, below - library.log(total(library, library.exp(below), dim)), x.dtype))


def softmax_gradient(x: Operand, gradient: Operand, dim: int) -> Any:
    """y * (g - sum(g * y)) along `dim`."""
    library, y, g = x.library, *(cast.widest(x.library, each.array, x.dtype) for each in (x, gradient))
    if x.layout.elem_count:
        y = y * (g - total(library, g * y, dim))
    return x.result(cast.narrow(library, y, x.dtype))


def log_softmax_gradient(x: Operand, gradient: Operand, dim: int) -> Any:
    """g - e**y * sum(g) along `dim`."""
    library, y, g = x.library, *(cast.widest(x.library, each.array, x.dtype) for each in (x, gradient))
    if x.layout.elem_count:
        y = g - library.exp(y) * total(library, g, dim)
    return x.result(cast.narrow(library, y, x.dtype))


def below_zero(x: Operand, dim: int) -> Any:
    """The elements less the largest one along `dim`."""
    wide = cast.widest(x.library, x.array, x.dtype)
    return wide - x.library.max(wide, dim)


def total(library: Any, x: Any, dim: int) -> Any:
    """The sums along `dim`, which is kept."""
    last = len(x.shape) - 1
    order = (*(axis for axis in range(last + 1) if axis != dim), dim)
    moved = library.permute_dims(x, order)
    # As rows that lie one behind the other, which libraries add more exactly.
    rows = accumulated(library, library.sum, library.reshape(moved, (-1, x.shape[dim])))
    sums = library.reshape(rows, (*moved.shape[:-1], 1))
    return library.permute_dims(sums, tuple(order.index(axis) for axis in range(last + 1)))
