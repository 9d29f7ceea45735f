"""Views: other shapes and orders of the same elements, without a copy wherever the layout allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

from ...base.bounded_cache import BoundedCache
from ...base.error import InvalidArgument, ShapeMismatch, describe
from ...core.argument import REQUIRED, dim_of, integers
from ...core.check import distinct_positions
from ...core.layout import Layout, channels_last_order, inverse
from ...core.shape import Shape
from ...storage.calls import new
from ..base import TensorBase

# By the method, the number of the layout that is viewed, and the integer arguments.
_views: Final[BoundedCache[tuple[object, ...], Layout]] = BoundedCache(1 << 15)


class ViewMethods(TensorBase):
    """Methods whose result shares the storage of the tensor, unless they say that they copy."""

    __slots__ = ()

    def _view(self, layout: Layout) -> Self:
        if layout is self._layout:
            return self
        tensor: Self = new(self._result_class)
        tensor._storage = self._storage
        tensor._layout = layout
        return tensor

    def _seen(self, method: Callable[..., Layout], *integers: int) -> Self:
        """Return the view whose layout a method of this one's gives, and keep that for the next time."""
        for integer in integers:
            # An equal float, or a bool, is converted or refused by the method.
            if type(integer) is not int:
                return self._view(method(self._layout, *integers))
        key = method, self._layout.number, *integers
        return self._view(_views.get(key) or _views.put(key, method(self._layout, *integers)))

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return the elements, in row-major order, in another shape. One size may be -1 and follows from the others.

        The result is a view if the strides allow, else a copy. `ShapeMismatch` if the number of elements changes.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.reshape(3, 2)
        Tensor([[1, 2],
                [3, 4],
                [5, 6]], dtype=i64)
        >>> x.reshape(-1)
        Tensor([1, 2, 3, 4, 5, 6], dtype=i64)
        """
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        key: tuple[object, ...] | None = ("reshape", self._layout.number, sizes)
        for size in sizes:
            if type(size) is not int:
                key = None
                break
        layout = None if key is None else _views.get(key)
        if layout is not None:
            return self._view(layout)
        target = self._completed(_integers("reshape", "shape", shape))
        layout = self._layout.reshape(target)
        if layout is None:
            return self._new(self.copy()._storage, Layout.contiguous(target))
        if key is not None:
            _views.put(key, layout)
        return self._view(layout)

    def _completed(self, sizes: tuple[int, ...]) -> Shape:
        if -1 not in sizes:
            return Shape(sizes)
        known = Shape([size for size in sizes if size != -1])
        count = known.elem_count
        if len(known) != len(sizes) - 1 or count == 0 or self.elem_count % count:
            reason = f"no size for -1 in {sizes} makes {self.elem_count} elements; state all sizes, or all but one"
            raise ShapeMismatch("reshape", (self.shape,), reason)
        return Shape([self.elem_count // count if size == -1 else size for size in sizes])

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge the dims from `start_dim` to `end_dim` into one; rank 0 becomes rank 1.

        The result is a view or a copy, as in `reshape`.

        >>> tl.zeros((2, 3, 4)).flatten().shape
        (24,)
        >>> tl.zeros((2, 3, 4)).flatten(start_dim=1).shape
        (2, 12)
        """
        shape = self.shape
        if not shape:
            return self.reshape(1)
        first, last = shape.dim("flatten", start_dim, "start_dim"), shape.dim("flatten", end_dim, "end_dim")
        if first > last:
            reason = f"start_dim {start_dim} comes after end_dim {end_dim} in shape {shape}; swap them"
            raise InvalidArgument("flatten", reason)
        merged = Shape._trusted(shape[first : last + 1]).elem_count
        return self.reshape((*shape[:first], merged, *shape[last + 1 :]))

    def transpose(self, dim1: int, dim2: int) -> Self:
        """Swap two dims. The result is a view.

        >>> tl.zeros((2, 3, 4)).transpose(1, 2).shape
        (2, 4, 3)
        """
        return self._seen(Layout.transpose, dim1, dim2)

    def permute(self, *dims: int | Sequence[int]) -> Self:
        """Reorder the dims: dim i of the result is dim `dims[i]` of the tensor. The result is a view.

        >>> tl.zeros((2, 3, 4)).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        order = _integers("permute", "dims", dims)
        key = "permute", self._layout.number, order
        return self._view(_views.get(key) or _views.put(key, self._layout.permute(order)))

    @property
    def T(self) -> Self:  # noqa: N802
        """A view with the dims in reverse order.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.T
        Tensor([[1, 4],
                [2, 5],
                [3, 6]], dtype=i64)
        """
        key = "T", self._layout.number
        return self._view(_views.get(key) or _views.put(key, self._layout.permute(range(self.rank - 1, -1, -1))))

    @property
    def mT(self) -> Self:  # noqa: N802
        """A view with the last two dims swapped: each matrix of a batch transposed. `ShapeMismatch` below rank 2.

        >>> tl.zeros((2, 3, 4)).mT.shape
        (2, 4, 3)
        """
        if self.rank < 2:
            raise ShapeMismatch("mT", (self.shape,), "a matrix has 2 dims; unsqueeze the tensor first")
        return self.transpose(-2, -1)

    def t(self) -> Self:
        """Return a view of the transposed matrix; tensors of rank 1 and rank 0 stay as they are.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.t()
        Tensor([[1, 4],
                [2, 5],
                [3, 6]], dtype=i64)
        """
        if self.rank > 2:
            raise ShapeMismatch("t", (self.shape,), "a matrix has 2 dims; use mT to swap the last two, or T for all")
        return self.T

    def narrow(
        self,
        dim: int = REQUIRED,
        start: int = REQUIRED,
        length: int = REQUIRED,
        step: int = 1,
        axis: int | None = None,
    ) -> Self:
        """Return a view of `length` elements along `dim`: start, start + step, start + 2 * step, and so on.

        `x[:, 2:5]` is `x.narrow(1, 2, 3)`.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.narrow(1, 1, 2)
        Tensor([[2, 3],
                [5, 6]], dtype=i64)
        """
        if axis is not None:
            dim = dim_of("narrow", dim, axis)
        return self._seen(Layout.narrow, dim, start, length, step)

    def squeeze(self, dim: int | Sequence[int] | None = None, axis: int | Sequence[int] | None = None) -> Self:
        """Remove dims of size 1: all of them, or only `dim`, one or several of size 1. The result is a view.

        >>> x = tl.zeros((1, 3, 1))
        >>> x.squeeze().shape
        (3,)
        >>> x.squeeze(0).shape
        (3, 1)
        """
        if axis is not None:
            dim = dim_of("squeeze", dim, axis)
        if dim is not None and type(dim) is not int and isinstance(dim, Sequence):
            return self._squeezed(integers("squeeze", "dim", dim))
        if dim is not None:
            return self._seen(Layout.squeeze, dim)
        layout = self._layout
        for position in reversed(range(layout.rank)):
            if layout.shape[position] == 1:
                layout = layout.squeeze(position)
        return self._view(layout)

    def _squeezed(self, dims: tuple[int, ...]) -> Self:
        """Drop some dims of size 1."""
        view = self
        for position in sorted(distinct_positions("squeeze", self.shape, dims), reverse=True):
            view = view._seen(Layout.squeeze, position)
        return view

    def unsqueeze(self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Insert a dim of size 1 as dim `dim` of the result; -1 puts it last. The result is a view.

        >>> x = tl.zeros((2, 3))
        >>> x.unsqueeze(0).shape
        (1, 2, 3)
        >>> x.unsqueeze(-1).shape
        (2, 3, 1)
        """
        if axis is not None:
            dim = dim_of("unsqueeze", dim, axis)
        return self._seen(Layout.unsqueeze, dim)

    def broadcast_as(self, *shape: int | Sequence[int]) -> Self:
        """Broadcast the tensor to `shape` by NumPy's rules.

        The result is a view with stride 0 along the repeated dims. `ShapeMismatch` where the shapes do not fit.

        >>> tl.Tensor([1, 2, 3]).broadcast_as(2, 3)
        Tensor([[1, 2, 3],
                [1, 2, 3]], dtype=i64)
        """
        sizes = _integers("broadcast_as", "shape", shape)
        key = "broadcast_as", self._layout.number, sizes
        return self._view(_views.get(key) or _views.put(key, self._layout.broadcast_as(sizes)))

    def contiguous(self, memory_format: str = "contiguous") -> Self:
        """Return the tensor itself if it is contiguous in row-major order, else a contiguous copy.

        With `memory_format="channels_last"` the elements of (b, c, ..), of 3 to 5 dims, are in the order (b, .., c) of
        memory. Convolutions, pools, norms and elementwise ops of such a tensor have results in that order.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.T.contiguous().layout.strides
        (2, 1)
        >>> tl.zeros((1, 3, 4, 5)).contiguous(memory_format="channels_last").layout.strides
        (60, 1, 15, 3)
        """
        if memory_format == "contiguous":
            return self if self._layout.is_contiguous else self.copy()
        if memory_format != "channels_last":
            reason = f"memory_format is 'contiguous' or 'channels_last', not {describe(memory_format)}"
            raise InvalidArgument("contiguous", reason)
        if not 3 <= self.rank <= 5:
            reason = "channels last are (b, c, ..) of 3 to 5 dims; reshape or unsqueeze them first"
            raise ShapeMismatch("contiguous", (self.shape,), reason)
        order = channels_last_order(self.rank)
        return self.permute(order).contiguous().permute(inverse(order))

    def copy(self) -> Self:
        """Copy the elements to a new storage, in row-major order.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> y = x.copy()
        >>> y += 10
        >>> x[0]
        Tensor([1, 2, 3], dtype=i64)
        """
        storage = self._storage
        return self._like(storage.to_dtype(self._layout, storage.inner.dtype))


def _integers(op: str, name: str, items: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the integers that a call named, one by one or in one sequence."""
    if len(items) == 1 and type(items[0]) is Shape:
        return items[0]
    integers_of = items[0] if len(items) == 1 and isinstance(items[0], Iterable) else items
    return integers(op, name, integers_of, expected="integers one by one or in one sequence")
