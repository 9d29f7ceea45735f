"""Products of matrices."""

from __future__ import annotations

from typing import Self

from ..error import ShapeMismatch
from ..layout import Layout
from ..shape import Shape
from .base import TensorBase, require_tensors


class LinearMethods(TensorBase):
    """Products of matrices."""

    __slots__ = ()

    def matmul(self, other: Self) -> Self:
        """Multiply matrices: (.., m, k) by (.., k, n) gives (.., m, n).

        The dims before the last two broadcast by NumPy's rules. A vector on the left is a row, one on the right a
        column, and that dim is not in the result. bf16, f16 and f8e4m3 accumulate in f32, integers wrap, k = 0 gives
        zeros. `ShapeMismatch` for rank 0 and where the sizes do not fit.
        """
        require_tensors("matmul", other=other)
        shapes = self.shape, other.shape
        if not shapes[0] or not shapes[1]:
            raise ShapeMismatch("matmul", shapes, "an operand has rank 0; multiply with * instead")
        lhs = self._layout if self.rank > 1 else self._layout.unsqueeze(0)
        rhs = other._layout if other.rank > 1 else other._layout.unsqueeze(1)
        (m, k), (k_of_rhs, n) = lhs.shape[-2:], rhs.shape[-2:]
        if k != k_of_rhs:
            reason = f"the rows of the first have {k} elements, the columns of the second {k_of_rhs}; transpose one"
            raise ShapeMismatch("matmul", shapes, reason)
        batch = Shape.broadcast("matmul", Shape._trusted(lhs.shape[:-2]), Shape._trusted(rhs.shape[:-2]))
        rows = batch.elem_count * m
        # Many matrices times one are the rows of one taller matrix.
        tall = lhs.reshape((rows, k)) if rhs.rank == 2 and lhs.rank > 2 else None
        if tall is not None:
            storage = self._storage.matmul(other._storage, (1, rows, n, k), tall, rhs)
        else:
            lhs, rhs = lhs.broadcast_as((*batch, m, k)), rhs.broadcast_as((*batch, k, n))
            storage = self._storage.matmul(other._storage, (batch.elem_count, m, n, k), lhs, rhs)
        sizes = (*batch, *((m,) if self.rank > 1 else ()), *((n,) if other.rank > 1 else ()))
        return self._new(storage, Layout.contiguous(sizes))

    def __matmul__(self, other: Self) -> Self:
        return self.matmul(other) if isinstance(other, TensorBase) else NotImplemented
