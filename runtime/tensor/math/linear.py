"""Products of matrices."""

from __future__ import annotations

import math
from typing import Self, TypeAlias

import numpy as np

from ....dtype import Array
from ...base.bounded_cache import BoundedCache
from ...base.error import ShapeMismatch
from ...core.argument import checked
from ...core.extensions import extensions
from ...core.layout import Layout
from ...core.shape import Shape
from ...storage.calls import live_autocasts, new
from ..base import TensorBase, require_tensors
from ..promotion import DTYPE_ERRORS, promote
from ..shape.views import ViewMethods


class LinearMethods(ViewMethods):
    """Products of matrices."""

    __slots__ = ()

    def matmul(self, other: Self | Array) -> Self:
        """Multiply matrices: (.., m, k) by (.., k, n) gives (.., m, n).

        The dims before the last two broadcast by NumPy's rules. A vector on the left is a row, one on the right a
        column, and that dim is not in the result. Short floats accumulate in f32, integers wrap, k = 0 gives
        zeros. `ShapeMismatch` for rank 0 and where the sizes do not fit.

        >>> x = tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.matmul(x)
        Tensor([[ 7., 10.],
                [15., 22.]], dtype=f32)
        >>> x @ tl.Tensor([1.0, 1.0])
        Tensor([3., 7.], dtype=f32)
        """
        if not isinstance(other, TensorBase | np.ndarray | list | tuple):
            require_tensors("matmul", other=other)
        product: Self = self @ other  # type: ignore[operator]
        return product

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """Apply a linear layer: rows (.., k) times the transpose of `weight` (n, k), plus `bias` (n), give (.., n).

        Floats of 16 bits and fewer accumulate in f32, and each sum is rounded once, with the bias in it.
        `ShapeMismatch` where the sizes do not fit.

        >>> x = tl.Tensor([[1.0, 2.0]])
        >>> weight, bias = tl.Tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), tl.Tensor([0.5, 0.5, 0.5])
        >>> x.linear(weight, bias)
        Tensor([[1.5, 2.5, 3.5]], dtype=f32)
        """
        if not isinstance(weight, TensorBase):
            require_tensors("linear", weight=weight)
        if live_autocasts:
            self, weight, bias = extensions.narrowed(self, weight, bias)
        storage, layout, weight_layout = self._storage, self._layout, weight._layout
        key = layout.number, weight_layout.number
        rows, result = _linears.get(key) or _linears.put(key, _linear(layout, weight_layout))
        if rows is None:
            *outer, inner = layout.shape
            rows, storage = Layout.contiguous((math.prod(outer), inner)), self.copy()._storage
        tensor: Self = new(self._result_class)
        try:
            if bias is None:
                tensor._storage = storage.linear(rows, weight._storage, weight_layout, None, None)
            else:
                if not isinstance(bias, TensorBase):
                    require_tensors("linear", bias=bias)
                tensor._storage = storage.linear(rows, weight._storage, weight_layout, bias._storage, bias._layout)
        except DTYPE_ERRORS as error:
            operands = promote(error, self, weight, *([] if bias is None else [bias]))
        else:
            tensor._layout = result
            return tensor
        return operands[0].linear(*operands[1:])

    def __matmul__(self, other: Self | Array) -> Self:
        if not isinstance(other, TensorBase):
            array = self._of_host("matmul", other)
            return NotImplemented if array is None else self @ array
        if live_autocasts:
            narrowed: tuple[Self, Self] = extensions.narrowed(self, other)
            self, other = narrowed
        left, right = self._layout, other._layout
        key = left.number, right.number
        bmnk, lhs, rhs, layout = _products.get(key) or _products.put(key, _product(left, right))
        tensor: Self = new(self._result_class)
        try:
            tensor._storage = self._storage.matmul(other._storage, bmnk, lhs, rhs)
        except DTYPE_ERRORS as error:
            x, other = promote(error, self, other)
        else:
            tensor._layout = layout
            return tensor
        return x @ other


# By the numbers of the layouts: that of the input as a matrix, None where that takes a copy, and that of the result.
_linears: BoundedCache[tuple[int, int], tuple[Layout | None, Layout]] = BoundedCache(1 << 12)


def _linear(layout: Layout, weight: Layout) -> tuple[Layout | None, Layout]:
    if not layout.shape:
        raise ShapeMismatch("linear", (layout.shape,), "the input has rank 0; make it a vector")
    *outer, inner = layout.shape
    rows = layout if len(outer) == 1 else layout.reshape((math.prod(outer), inner))
    return rows, Layout.contiguous((*outer, *weight.shape[:1]))


_Product: TypeAlias = tuple[tuple[int, int, int, int], Layout, Layout, Layout]

# By the numbers of the layouts.
_products: BoundedCache[tuple[int, int], _Product] = BoundedCache(1 << 12)


def _product(left: Layout, right: Layout) -> _Product:
    """Return the arguments of `Storage.matmul`: b, m, n and k, the operands as batches of matrices, and the layout."""
    shapes = left.shape, right.shape
    if not shapes[0] or not shapes[1]:
        raise ShapeMismatch("matmul", shapes, "an operand has rank 0; multiply with * instead")
    lhs = left if left.rank > 1 else left.unsqueeze(0)
    rhs = right if right.rank > 1 else right.unsqueeze(1)
    (m, k), (k_of_rhs, n) = lhs.shape[-2:], rhs.shape[-2:]
    if k != k_of_rhs:
        reason = f"the rows of the first have {k} elements, the columns of the second {k_of_rhs}; transpose one"
        raise ShapeMismatch("matmul", shapes, reason)
    batch = Shape.broadcast("matmul", Shape._trusted(lhs.shape[:-2]), Shape._trusted(rhs.shape[:-2]))
    result = Layout.contiguous((*batch, *((m,) if left.rank > 1 else ()), *((n,) if right.rank > 1 else ())))
    rows = batch.elem_count * m
    # Many matrices times one are the rows of one taller matrix.
    tall = lhs.reshape((rows, k)) if rhs.rank == 2 and lhs.rank > 2 else None
    if tall is not None:
        return checked((1, rows, n, k)), tall, rhs, result
    operands = lhs.broadcast_as((*batch, m, k)), rhs.broadcast_as((*batch, k, n))
    return checked((batch.elem_count, m, n, k)), *operands, result
