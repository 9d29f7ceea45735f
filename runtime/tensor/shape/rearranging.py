"""Rearranged elements: rolled, repeated, in windows, selected along a dim, and on grids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, TypeVar

from ....dtype import DType
from ...base.error import InvalidArgument, ShapeMismatch, describe
from ...core import argument
from ...core.argument import REQUIRED
from ...core.layout import Layout
from ...core.padding import CIRCULAR
from ...core.shape import Shape
from ..base import TensorBase, named, require_tensors
from ..layouts import Ends
from ..math.counting import CountingMethods
from .joining import cat
from .views import ViewMethods, _integers

T = TypeVar("T", bound=ViewMethods)


def _rolled(shape: Shape, steps: tuple[int, ...], dims: tuple[int, ...]) -> tuple[str, Ends]:
    """Repeat the last elements of each dim in front of the first one."""
    sums: dict[int, int] = {}
    for step, dim in zip(steps, [shape.dim("roll", dim) for dim in dims], strict=True):
        sums[dim] = (sums.get(dim, 0) + step) % max(shape[dim], 1)
    return CIRCULAR, [(dim, step, -step) for dim, step in sums.items()]


class RearrangingMethods(CountingMethods):
    """Rearranged elements."""

    __slots__ = ()

    @named
    def roll(
        self,
        shifts: int | Sequence[int],
        dims: int | Sequence[int] | None = None,
        *,
        axis: int | Sequence[int] | None = None,
    ) -> Self:
        """Copy the tensor with its elements shifted along some dims; those shifted out at the end come in at the front.

        Without `dims` the elements are shifted in row-major order.

        >>> tl.arange(5).roll(2)
        Tensor([3, 4, 0, 1, 2], dtype=i64)
        >>> tl.arange(6).reshape(2, 3).roll((1, 1), dims=(0, 1))
        Tensor([[5, 3, 4],
                [2, 0, 1]], dtype=i64)
        """
        if axis is not None:
            dims = argument.by_other_name("roll", "dims", dims, "axis", axis)
        steps = argument.integers("roll", "shifts", shifts if isinstance(shifts, Sequence) else (shifts,))
        if dims is None:
            if len(steps) != 1:
                raise InvalidArgument("roll", f"{len(steps)} shifts need as many dims; name the dims")
            return self.flatten().roll(steps, 0).reshape(self.shape)
        chosen = argument.integers("roll", "dims", dims if isinstance(dims, Sequence) else (dims,))
        if len(steps) != len(chosen):
            raise InvalidArgument("roll", f"there are {len(steps)} shifts for {len(chosen)} dims; give one for each")
        return self._padded(_rolled, steps, chosen)

    @named
    def tile(self, *times: int | Sequence[int]) -> Self:
        """Tile the tensor as `repeat` does; fewer numbers than dims are those of the last dims.

        >>> tl.Tensor([1, 2]).tile(3)
        Tensor([1, 2, 1, 2, 1, 2], dtype=i64)
        """
        counts = _integers("tile", "times", times)
        return self.repeat((*[1] * (self.rank - len(counts)), *counts))

    @named
    def repeat_interleave(self, repeats: int | Self, dim: int | None = None, *, axis: int | None = None) -> Self:
        """Repeat each element along a dim; without `dim`, each element of the flattened tensor.

        A vector of integers says how often each element is repeated. The shape then depends on its values, and the host
        waits for the device.

        >>> tl.Tensor([1, 2]).repeat_interleave(3)
        Tensor([1, 1, 1, 2, 2, 2], dtype=i64)
        >>> tl.Tensor([5, 6]).repeat_interleave(tl.Tensor([1, 2]))
        Tensor([5, 6, 6], dtype=i64)
        """
        if axis is not None:
            dim = argument.dim_of("repeat_interleave", dim, axis)
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        dim = self.shape.dim("repeat_interleave", dim)
        if isinstance(repeats, TensorBase):
            return self._repeated_each(repeats, dim)
        count = argument.integer("repeat_interleave", "repeats", repeats)
        if count < 0:
            raise InvalidArgument("repeat_interleave", f"repeats is 0 or more, not {count}")
        before, size, after = self.shape[:dim], self.shape[dim], self.shape[dim + 1 :]
        repeated = self.unsqueeze(dim + 1).broadcast_as(*before, size, count, *after)
        return repeated.copy().reshape(*before, size * count, *after)

    def _repeated_each(self, repeats: Self, dim: int) -> Self:
        """Repeat each element along a dim as often as a vector says."""
        if repeats.shape not in ((self.shape[dim],), (1,)) or not repeats.dtype.is_integer:
            reason = f"repeats is an integer, or a vector of {self.shape[dim]} of them"
            raise ShapeMismatch("repeat_interleave", (self.shape, repeats.shape), reason)
        if not self.shape[dim]:
            return self.copy()
        counts = repeats.to_dtype(DType.I64).broadcast_as(self.shape[dim])
        ends = counts.cumsum(0)
        least, total = cat([counts.min(0, keepdim=True), ends[-1:]]).tolist()
        if least < 0:
            raise InvalidArgument("repeat_interleave", f"repeats are 0 or more, not {least}")
        return self.index_select(ends.searchsorted(self.arange(total, device=self.device), "right"), dim)

    @named
    def unfold(
        self, dim: int = REQUIRED, size: int = REQUIRED, step: int = REQUIRED, *, axis: int | None = None
    ) -> Self:
        """View the sliding windows of `size` elements along a dim, at steps of `step`, as a new last dim.

        `dim` has (n - size) // step + 1 windows, which share elements where they overlap.

        >>> tl.arange(5).unfold(0, 3, 1)
        Tensor([[0, 1, 2],
                [1, 2, 3],
                [2, 3, 4]], dtype=i64)
        """
        if axis is not None:
            dim = argument.dim_of("unfold", dim, axis)
        dim = self.shape.dim("unfold", dim)
        length, size = self.shape[dim], argument.integer("unfold", "size", size)
        step = argument.integer("unfold", "step", step)
        if not 0 <= size <= length or step < 1:
            reason = f"a window has 0 to {length} elements, and a step is 1 or more, not size {size} and step {step}"
            raise InvalidArgument("unfold", reason)
        layout = self._layout
        sizes, strides = [*layout.shape], [*layout.strides]
        sizes[dim] = (length - size) // step + 1
        strides[dim] *= step
        return self._view(Layout((*sizes, size), (*strides, layout.strides[dim]), layout.start_offset))

    @named
    def take_along_dim(self, indexes: Self, dim: int | None = None, *, axis: int | None = None) -> Self:
        """Take elements along a dim by index, as `gather` does; the other dims broadcast.

        Without `dim` both are flattened first.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.take_along_dim(x.argsort(1, descending=True).to_dtype("i64"), dim=1)
        Tensor([[3, 2, 1],
                [6, 5, 4]], dtype=i64)
        """
        if axis is not None:
            dim = argument.dim_of("take_along_dim", dim, axis)
        require_tensors("take_along_dim", indexes=indexes)
        if dim is None:
            return self.flatten().gather(indexes.flatten(), 0)
        dim = self.shape.dim("take_along_dim", dim)
        if indexes.rank != self.rank:
            reason = "indexes have as many dims as the tensor; unsqueeze them first"
            raise ShapeMismatch("take_along_dim", (self.shape, indexes.shape), reason)
        others = [Shape((*tensor.shape[:dim], 1, *tensor.shape[dim + 1 :])) for tensor in (self, indexes)]
        shape = Shape.broadcast("take_along_dim", *others)
        source, chosen = (
            tensor.broadcast_as(*shape[:dim], tensor.shape[dim], *shape[dim + 1 :]) for tensor in (self, indexes)
        )
        return source.gather(chosen, dim)


def meshgrid(*tensors: T | Sequence[T], indexing: str = "ij") -> list[T]:
    """View vectors as the coordinates of a grid: one tensor for each, which varies along one dim only.

    With `indexing="ij"` dim i of the grid is that of vector i; "xy" swaps the first two dims, as plots have them.

    >>> rows, columns = tl.meshgrid(tl.arange(2), tl.arange(3))
    >>> rows
    Tensor([[0, 0, 0],
            [1, 1, 1]], dtype=i64)
    >>> columns
    Tensor([[0, 1, 2],
            [0, 1, 2]], dtype=i64)
    """
    items = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], TensorBase) else tensors
    vectors: list[T] = list(items) if isinstance(items, Iterable) else [items]  # type: ignore[arg-type]
    require_tensors("meshgrid", **{f"tensors[{number}]": vector for number, vector in enumerate(vectors)})
    if argument.text("meshgrid", "indexing", indexing) not in ("ij", "xy"):
        raise InvalidArgument("meshgrid", f"indexing is 'ij' or 'xy', not {describe(indexing)}")
    for vector in vectors:
        if vector.rank > 1:
            raise ShapeMismatch(
                "meshgrid", (vector.shape,), "the coordinates of a dim are a vector; flatten the tensor"
            )
    lines = [vector.reshape(-1) if vector.rank else vector.reshape(1) for vector in vectors]
    order = [*range(len(lines))]
    if indexing == "xy" and len(lines) > 1:
        order[:2] = 1, 0
    shape = [lines[axis].shape[0] for axis in order]
    along = [
        line.reshape(*[1] * order.index(axis), -1, *[1] * (len(order) - order.index(axis) - 1))
        for axis, line in enumerate(lines)
    ]
    return [line.broadcast_as(shape) for line in along]
