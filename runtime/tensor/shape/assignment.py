"""Writing in place: arithmetic, slices, and rows that indexes name.

Views of the same storage see what is written. What is read may share memory with what is written: the result is that of
a copy. Operands broadcast to the tensor and, but for `copy_`, have its device (`DeviceMismatch`). The tensor keeps its
dtype: arithmetic is done in the dtype that the operands have together, and its results, or what is set, are converted
where the kind of the tensor holds theirs, as by NumPy's casting "same_kind"; else it is a `DTypeMismatch`. A tensor
whose elements are repeated, as `broadcast_as` makes them, is not written to (`InvalidArgument`). Each method returns
the tensor itself.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ....dtype import Array
from ....op import BinaryOp
from ...base.error import InvalidArgument, ShapeMismatch, TallowError
from ...core import argument
from ...core.argument import REQUIRED
from ...core.check import require_alike_but
from ..base import TensorBase, require_tensors
from ..math.arithmetic import OPERANDS
from ..math.composed import ComposedMethods
from ..promotion import fitted
from .indexing import Choice, Index, forward, indexed, is_backward
from .selection import selection, with_arrays, without_leading


class AssignmentMethods(ComposedMethods):
    """Writing in place."""

    __slots__ = ()

    def __iadd__(self, other: Self | Array | complex) -> Self:
        return self.add_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __isub__(self, other: Self | Array | complex) -> Self:
        return self.sub_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __imul__(self, other: Self | Array | complex) -> Self:
        return self.mul_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __itruediv__(self, other: Self | Array | complex) -> Self:
        return self.div_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __ifloordiv__(self, other: Self | Array | float) -> Self:
        return self.floor_divide_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __imod__(self, other: Self | Array | float) -> Self:
        return self.remainder_(other) if isinstance(other, OPERANDS) else NotImplemented

    def __iand__(self, other: Self | Array | int) -> Self:
        return self._changed("&=", BinaryOp.BITWISE_AND, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ior__(self, other: Self | Array | int) -> Self:
        return self._changed("|=", BinaryOp.BITWISE_OR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ixor__(self, other: Self | Array | int) -> Self:
        return self._changed("^=", BinaryOp.BITWISE_XOR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ilshift__(self, other: Self | Array | int) -> Self:
        op = BinaryOp.BITWISE_LEFT_SHIFT
        return self._changed("<<=", op, other) if isinstance(other, OPERANDS) else NotImplemented

    def __irshift__(self, other: Self | Array | int) -> Self:
        op = BinaryOp.BITWISE_RIGHT_SHIFT
        return self._changed(">>=", op, other) if isinstance(other, OPERANDS) else NotImplemented

    def __setitem__(self, index: Index | Choice | tuple[Index | Choice, ...], value: Self | ArrayLike) -> None:
        """Set the elements that an index chooses, as it does where elements are read.

        A tensor, an array of NumPy's or a list broadcasts to what is chosen, and may have more dims of size 1 in front,
        as in NumPy. Of several values for one element the last one wins. A number is set where a mask is True without a
        wait.
        """
        items = index if isinstance(index, tuple) else (index,)
        chosen = with_arrays(items)
        if chosen is not None:
            self._set_selected(chosen, fitted("index", self, self._assignable(value)))
            return
        dims: list[int] = []
        if any(map(is_backward, items)):
            items, dims = forward(self._layout, items)
        view = self._new(self._storage, indexed(self._layout, items))  # type: ignore[arg-type]
        if not isinstance(value, TensorBase):
            try:
                view._filled("index", value)  # type: ignore[arg-type]
                return
            except InvalidArgument:
                if not isinstance(value, list | tuple | np.ndarray):
                    raise
        source = without_leading(fitted("index", self, self._assignable(value)), view.rank)
        if dims:
            self._written("index", lambda: view._assigned("index", source.broadcast_as(view.shape)._reversed(dims)))
        else:
            view._assigned("index", source)

    def _assignable(self, value: Any) -> Self:
        """Return what an index is set to as a tensor; lists take the dtype of this one."""
        if isinstance(value, list | tuple):
            tensor: Self = self._result_class(value, self.dtype, self.device)
            return tensor
        return self._operand("index", value, "value")

    def _set_selected(self, items: tuple[Any, ...], value: Self) -> None:
        """Set what an index with tensors in it chooses."""
        mask: Any = items[0]
        is_mask = len(items) == 1 and isinstance(mask, TensorBase) and mask.dtype.kind == "bool"
        if is_mask and not value.rank and mask.shape == self.shape[: mask.rank]:
            selected = mask.reshape(*mask.shape, *[1] * (self.rank - mask.rank))
            self._assigned("index", selected.where(value, self))
        else:
            backward: list[int] = []
            if any(map(is_backward, items)):
                items, backward = forward(self._layout, items)
            chosen = selection(self, items)
            self._written("index", lambda: chosen.assign(value, backward))

    def add_(self, other: Self | Array | complex) -> Self:
        """Add a tensor or a number, in place: x += other.

        >>> x = tl.Tensor([4, 5, 6])
        >>> x.add_(1)
        Tensor([5, 6, 7], dtype=i64)
        """
        return self._changed("add_", BinaryOp.ADD, other)

    def sub_(self, other: Self | Array | complex) -> Self:
        """Subtract a tensor or a number, in place: x -= other.

        >>> x = tl.Tensor([4, 5, 6])
        >>> x.sub_(1)
        Tensor([3, 4, 5], dtype=i64)
        """
        return self._changed("sub_", BinaryOp.SUB, other)

    def mul_(self, other: Self | Array | complex) -> Self:
        """Multiply by a tensor or a number, in place: x *= other.

        >>> x = tl.Tensor([4, 5, 6])
        >>> x.mul_(3)
        Tensor([12, 15, 18], dtype=i64)
        """
        return self._changed("mul_", BinaryOp.MUL, other)

    def div_(self, other: Self | Array | complex) -> Self:
        """Divide by a tensor or a number, in place: x /= other; `InvalidArgument` for integers, which cannot hold
        quotients.

        >>> x = tl.Tensor([4.0, 5.0])
        >>> x.div_(2)
        Tensor([2.0, 2.5], dtype=f32)
        """
        if self.dtype.is_integer:
            reason = f"{self.dtype.value} cannot hold quotients, which are f32"
            raise InvalidArgument("div_", f"{reason}; make a new tensor with x / y, or round down with x //= y")
        return self._changed("div_", BinaryOp.DIV, other)

    def floor_divide_(self, other: Self | Array | float) -> Self:
        """Divide by a tensor or a number and round down, in place: x //= other.

        >>> x = tl.Tensor([4, 5, 6])
        >>> x.floor_divide_(2)
        Tensor([2, 2, 3], dtype=i64)
        """
        return self._changed("floor_divide_", BinaryOp.FLOOR_DIVIDE, other)

    def remainder_(self, other: Self | Array | float) -> Self:
        """Replace x by x % other, in place: the remainder has the sign of the divisor, a tensor or a number.

        >>> x = tl.Tensor([4, 5, 6])
        >>> x.remainder_(4)
        Tensor([0, 1, 2], dtype=i64)
        """
        return self._changed("remainder_", BinaryOp.REMAINDER, other)

    def copy_(self, source: Self) -> Self:
        """Overwrite the elements with those of a tensor, which broadcasts and may be on any device.

        >>> x = tl.zeros(2)
        >>> x.copy_(tl.Tensor([1.0, 2.0]))
        Tensor([1., 2.], dtype=f32)
        """
        require_tensors("copy_", source=source)
        is_here = source._storage.inner.device is self._storage.inner.device
        return self._assigned("copy_", fitted("copy_", self, source if is_here else source.to(self.device)))

    def slice_set(self, source: Self, dim: int = REQUIRED, start: int = REQUIRED, *, axis: int | None = None) -> Self:
        """Overwrite the elements from `start` on along `dim` with those of `source`.

        `source` has the shape of the tensor in every dim but `dim`. Returns the tensor.

        >>> x = tl.zeros((2, 3))
        >>> x.slice_set(tl.ones((2, 2)), dim=1, start=1)
        Tensor([[0., 1., 1.],
                [0., 1., 1.]], dtype=f32)
        >>> x
        Tensor([[0., 1., 1.],
                [0., 1., 1.]], dtype=f32)
        """
        if axis is not None:
            dim = argument.dim_of("slice_set", dim, axis)
        require_tensors("slice_set", source=source)
        dim = self.shape.dim("slice_set", dim)
        require_alike_but("slice_set", dim, self.shape, source.shape)
        source = fitted("slice_set", self, source)
        return self._written(
            "slice_set", lambda: self.narrow(dim, start, source.shape[dim])._assigned("slice_set", source)
        )

    def index_copy_(self, indexes: Self, source: Self, dim: int = REQUIRED, *, axis: int | None = None) -> Self:
        """Overwrite row indexes[i] along `dim` with row i of `source`; of several writes to one row the last wins.

        The indexes are a vector, one for each row of the source, whose other dims are those of the tensor.

        >>> x = tl.zeros((3, 2))
        >>> x.index_copy_(tl.Tensor([2, 0]), tl.Tensor([[1.0, 1.0], [2.0, 2.0]]), dim=0)
        Tensor([[2., 2.],
                [0., 0.],
                [1., 1.]], dtype=f32)
        """
        if axis is not None:
            dim = argument.dim_of("index_copy_", dim, axis)
        require_tensors("index_copy_", indexes=indexes, source=source)
        dim = self.shape.dim("index_copy_", dim)
        expected = (*self.shape[:dim], indexes.elem_count, *self.shape[dim + 1 :])
        if indexes.rank != 1 or source.shape != expected:
            reason = f"indexes are a vector, and the source has a row for each, so the shape {expected}"
            raise ShapeMismatch("index_copy_", (indexes.shape, source.shape), reason)
        if indexes.elem_count and not source.elem_count:
            # Rows of no elements: nothing is written, but each index is one of a row.
            self._written("index_copy_", lambda: self.index_select(indexes, dim))
        column = indexes.reshape(*(-1 if i == dim else 1 for i in range(self.rank)))
        source = fitted("index_copy_", self, source)
        return self._scattered("index_copy_", "scatter_set", column.broadcast_as(source.shape), source, dim)

    def _changed(self, name: str, op: BinaryOp, other: Self | Array | complex) -> Self:
        operand, layout = self._operand(name, other), self._layout
        if operand._storage.inner.dtype is not self._storage.inner.dtype:
            return self._in_common_dtype(name, operand, lambda target, source: target._changed(name, op, source))
        try:
            stretched = operand._layout
            if stretched.shape != layout.shape:
                stretched = stretched.broadcast_as(layout.shape)
            self._storage.binary_assign(op, layout, operand._storage, stretched)
        except TallowError as error:
            error.rename(name)
            raise
        return self
