"""Products of matrices and vectors, and the parts of them that need no decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import DType
from ..base.error import ShapeMismatch
from ..core.argument import integer
from ..core.layout import Layout
from ..tensor import Tensor, stack
from .data_types import promoted_operands
from .elementwise import conj
from .statistical import sum as _sum


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Multiply matrices; the axes in front broadcast, and a vector is a row at the left, a column at the right."""
    return Tensor.matmul(*promoted_operands("matmul", x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """View a tensor with its last two axes swapped."""
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Sum products over pairs of axes: the last ones of `x1` with the first ones of `x2`, or those that are listed."""
    left, right = promoted_operands("tensordot", x1, x2)
    return left.tensordot(right, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum the products of two tensors' elements along an axis, those of the first conjugated."""
    left, right = promoted_operands("vecdot", x1, x2)
    return conj(left).vecdot(right, axis)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of 3 elements along an axis; the other axes broadcast."""
    left, right = promoted_operands("cross", x1, x2)
    if any(operand.shape[operand.shape.dim("cross", axis, "axis")] != 3 for operand in (left, right)):
        raise ShapeMismatch("cross", (left.shape, right.shape), f"axis {axis} has 3 elements in both")
    (a, b, c), (d, e, f) = (each.to_dtype(each.dtype.compute).unbind(axis) for each in (left, right))
    rows = [b * f - c * e, c * d - a * f, a * e - b * d]
    return stack(rows, axis).to_dtype(left.dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of all elements of a vector with all of another."""
    left, right = promoted_operands("outer", x1, x2)
    return left.reshape(-1, 1) * right.reshape(1, -1)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the view of a diagonal of matrices as the last axis: 0 is the main one, 1 that above it, -1 that below."""
    offset = integer("diagonal", "offset", offset)
    if x.rank < 2:
        raise ShapeMismatch("diagonal", (x.shape,), "a matrix has 2 axes; expand_dims first")
    layout = x.layout
    *outer_shape, rows, columns = layout.shape
    *outer_strides, row, column = layout.strides
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = layout.start_offset + (max(-offset, 0) * row + max(offset, 0) * column if length else 0)
    return x.from_storage(x.storage, Layout((*outer_shape, length), (*outer_strides, row + column), start))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """Sum of the elements of a diagonal of matrices, in the dtype in which `sum` sums."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)
