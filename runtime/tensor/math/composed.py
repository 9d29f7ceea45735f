"""Methods composed of others, so that every backend has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

from ....device import Device
from ....dtype import DType
from ...base.error import InvalidArgument, UnsupportedDType, describe
from ...core import argument
from ...core.argument import FIRST, LAST, DTypeLike
from ...core.layout import Layout
from ...core.shape import Shape
from ..base import device_of, named, require_few, require_tensors
from ..create import _shape
from ..promotion import DTYPE_ERRORS, promote
from ..shape.joining import cat
from .padding import PaddingMethods


@lru_cache(maxsize=1024)
def _diagonal(height: int, width: int) -> Layout:
    return Layout(Shape((min(height, width),)), (width + 1,))


class ComposedMethods(PaddingMethods):
    """Parts of matrices, repetition and order."""

    __slots__ = ()

    @named
    def tril(self, diagonal: int = 0) -> Self:
        """Copy the lower triangle of each matrix, with 0 above a diagonal: 0 is the main one, 1 the one above it.

        >>> tl.ones((3, 3)).tril()
        Tensor([[1., 0., 0.],
                [1., 1., 0.],
                [1., 1., 1.]], dtype=f32)
        """
        return self._triangle("tril", diagonal, is_upper=False)

    @named
    def triu(self, diagonal: int = 0) -> Self:
        """Copy the upper triangle of each matrix, with 0 below a diagonal: 0 is the main one, 1 the one above it.

        >>> tl.ones((3, 3)).triu(diagonal=1)
        Tensor([[0., 1., 1.],
                [0., 0., 1.],
                [0., 0., 0.]], dtype=f32)
        """
        return self._triangle("triu", diagonal, is_upper=True)

    def _triangle(self, op: str, diagonal: int, *, is_upper: bool) -> Self:
        offset = argument.integer(op, "diagonal", diagonal)
        if self.rank >= 2:
            rows, columns = self.shape[-2:]
            # Beyond the corners a diagonal is as good as at one.
            offset = min(max(offset, -rows), columns)
        return self.from_storage(self.storage.triangle(self.layout, offset, is_upper), self.shape)

    @named
    def repeat(self, *times: int | Sequence[int]) -> Self:
        """Tile the tensor: repeat it `times[i]` times along dim i; more numbers than dims add dims in front.

        `x.repeat(2, 3)` of a matrix is twice as high and three times as wide. NumPy calls this `tile`;
        `repeat_interleave` is NumPy's `repeat`.

        >>> tl.Tensor([1, 2]).repeat(2)
        Tensor([1, 2, 1, 2], dtype=i64)
        >>> tl.Tensor([1, 2]).repeat(2, 2)
        Tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]], dtype=i64)
        """
        repeats = times[0] if len(times) == 1 and isinstance(times[0], Sequence) else times
        counts = argument.integers("repeat", "times", repeats)
        if len(counts) < self.rank or any(count < 0 for count in counts):
            reason = f"times has a number of 0 or more for each of {self.rank} dims, not {counts}"
            raise InvalidArgument("repeat", reason)
        shape = (*[1] * (len(counts) - self.rank), *self.shape)
        repeated = Shape([size * count for size, count in zip(shape, counts, strict=True)])
        result = self
        for dim, count in enumerate(counts):
            if count != 1:
                outer, inner = math.prod(repeated[:dim]), math.prod(shape[dim:])
                result = result.reshape(outer, 1, inner).broadcast_as(outer, count, inner)
        result = result.reshape(repeated)
        # A single dim repeated, or a dim of size 1, is still a view.
        return result.copy() if result._storage is self._storage else result.contiguous()

    @named
    def chunk(self, chunks: int, dim: int = FIRST, *, axis: int | None = None) -> list[Self]:
        """Split the tensor along a dim into `chunks` views whose sizes differ by at most one.

        There are fewer where the dim is shorter; none is empty.

        >>> [part.tolist() for part in tl.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        if axis is not None:
            dim = argument.dim_of("chunk", dim, axis)
        dim = self.shape.dim("chunk", dim)
        size = self.shape[dim]
        count = argument.integer("chunk", "chunks", chunks)
        if count < 1:
            raise InvalidArgument("chunk", f"there is at least 1 chunk, not {count}")
        require_few("chunk", min(count, size))
        length, longer = divmod(size, min(count, size) or 1)
        bounds = [part * length + min(part, longer) for part in range(min(count, size) + 1)]
        return [self.narrow(dim, first, end - first) for first, end in itertools.pairwise(bounds)]

    @named
    def flip(self, *dims: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Self:
        """Copy the tensor with the order of the elements along some dims reversed.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.flip(1)
        Tensor([[3, 2, 1],
                [6, 5, 4]], dtype=i64)
        """
        if axis is not None:
            dims = (argument.by_other_name("flip", "dims", dims or None, "axis", axis),)
        axes = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) and isinstance(dims[0], Sequence) else dims
        return self._reversed(argument.integers("flip", "dims", axes))

    @named
    def diff(
        self,
        n: int = 1,
        dim: int = LAST,
        prepend: Self | None = None,
        append: Self | None = None,
        *,
        axis: int | None = None,
    ) -> Self:
        """Differences of neighbours along a dim: element i of the result is x[i + 1] - x[i]. Integers wrap.

        `n` repeats this; `prepend` and `append` are concatenated with the tensor first.

        >>> tl.Tensor([1, 4, 9, 16]).diff()
        Tensor([3, 5, 7], dtype=i64)
        >>> tl.Tensor([1, 4, 9, 16]).diff(n=2)
        Tensor([2, 2], dtype=i64)
        >>> tl.Tensor([1, 4, 9]).diff(prepend=tl.Tensor([0]), append=tl.Tensor([16]))
        Tensor([1, 3, 5, 7], dtype=i64)
        """
        if axis is not None:
            dim = argument.dim_of("diff", dim, axis)
        dim = self.shape.dim("diff", dim)
        count = argument.integer("diff", "n", n)
        if count < 0:
            raise InvalidArgument("diff", f"n is 0 or more, not {count}")
        parts = [part for part in (prepend, self, append) if part is not None]
        require_tensors(
            "diff", **{name: part for name, part in (("prepend", prepend), ("append", append)) if part is not None}
        )
        tensor = cat(parts, dim) if len(parts) > 1 else self
        # Differences of differences are rounded once. Masks have none, whatever integers compute them.
        result = tensor.to_dtype(tensor.dtype.compute) if count > 1 and tensor.dtype.is_inexact else tensor
        for _ in range(min(count, tensor.shape[dim])):
            left = result.shape[dim] - 1
            result = result.narrow(dim, 1, left).sub(result.narrow(dim, 0, left))
        return self.copy() if result is self else result.to_dtype(tensor.dtype)

    @named
    def argsort(self, dim: int = LAST, descending: bool = False, *, axis: int | None = None) -> Self:
        """Return the positions of the elements along a dim in ascending or descending order, as u32.

        The sort is stable, and NaN comes last in either order.

        >>> tl.Tensor([3, 1, 2]).argsort(descending=True)
        Tensor([0, 2, 1], dtype=u32)
        """
        if axis is not None:
            dim = argument.dim_of("argsort", dim, axis)
        dim = self.shape.dim("argsort", dim)
        lines = self._lines(dim)
        storage = lines._storage.argsort(lines._layout, descending, self.shape[dim])
        return lines._new(storage, lines._layout.dense)._with_lines(dim)

    def _lines(self, dim: int) -> Self:
        """Numbers that have an order, with a dim at the end."""
        numbers = self.to_dtype(DType.U8) if self.dtype.kind == "bool" else self
        return numbers._with_lines(dim)

    def _with_lines(self, dim: int) -> Self:
        return self if dim == self.rank - 1 else self.transpose(dim, -1)

    def _first_in_order(self, dim: int, descending: bool, count: int) -> tuple[Self, Self]:
        lines = self._lines(dim)
        sorted_lines = lines._storage.sort(lines._layout, descending, count)
        elements, positions = [lines._new(storage, _of_the_first(lines.shape, count)) for storage in sorted_lines]
        return elements.to_dtype(self.dtype)._with_lines(dim), positions._with_lines(dim)

    @named
    def sort(self, dim: int = LAST, descending: bool = False, *, axis: int | None = None) -> tuple[Self, Self]:
        """Sort the elements along a dim: the sorted tensor, and the positions that `argsort` gives.

        The sort is stable, and NaN comes last in either order.

        >>> values, positions = tl.Tensor([3, 1, 2]).sort()
        >>> values
        Tensor([1, 2, 3], dtype=i64)
        >>> positions
        Tensor([1, 2, 0], dtype=u32)
        """
        if axis is not None:
            dim = argument.dim_of("sort", dim, axis)
        dim = self.shape.dim("sort", dim)
        return self._first_in_order(dim, descending, self.shape[dim])

    @named
    def topk(self, count: int, dim: int = LAST, largest: bool = True, *, axis: int | None = None) -> tuple[Self, Self]:
        """Return the `count` largest or smallest elements along a dim, sorted, and their positions as u32.

        NaN is taken only where nothing else is left.

        >>> values, positions = tl.Tensor([3, 1, 4, 2]).topk(2)
        >>> values
        Tensor([4, 3], dtype=i64)
        >>> positions
        Tensor([2, 0], dtype=u32)
        """
        if axis is not None:
            dim = argument.dim_of("topk", dim, axis)
        dim = self.shape.dim("topk", dim)
        size, count = self.shape[dim], argument.integer("topk", "count", count)
        if not 0 <= count <= size:
            raise InvalidArgument("topk", f"count must be from 0 to {size}, the elements along dim {dim}, not {count}")
        return self._first_in_order(dim, argument.boolean("topk", "largest", largest), count)

    @named
    def searchsorted(self, values: Self | float, side: str = "left") -> Self:
        """Find where to insert values into sorted elements: positions in i64, in the shape of `values`.

        With side "left" a position is the number of elements below the value, with "right" the number of those not
        above it; NaN is above everything. The elements are a vector, or rows along the last dim, each searched for the
        row of values with the same other indexes.

        >>> tl.Tensor([1, 3, 5]).searchsorted(tl.Tensor([0, 3, 6]))
        Tensor([0, 1, 3], dtype=i64)
        >>> tl.Tensor([1, 3, 5]).searchsorted(3, side="right").item()
        2
        """
        if argument.text("searchsorted", "side", side) not in ("left", "right"):
            raise InvalidArgument("searchsorted", f"side is 'left' or 'right', not {describe(side)}")
        wanted = self._operand("searchsorted", values, "values")
        try:
            return wanted._like(
                self._storage.searchsorted(self._layout, wanted._storage, wanted._layout, side == "right")
            )
        except DTYPE_ERRORS as error:
            line, wanted = promote(error, self, wanted)
        return line.searchsorted(wanted, side)

    @classmethod
    def eye(
        cls,
        rows: int,
        columns: int | None = None,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Make a matrix (rows, columns) with 1 on the main diagonal and 0 elsewhere; it is square without `columns`.

        >>> tl.eye(3)
        Tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]], dtype=f32)
        >>> tl.eye(2, 3, dtype="i64")
        Tensor([[1, 0, 0],
                [0, 1, 0]], dtype=i64)
        """
        height = argument.integer("eye", "rows", rows)
        width = height if columns is None else argument.integer("eye", "columns", columns)
        matrix = cls.zeros(_shape("eye", (height, width), ()), dtype=dtype, device=device)
        matrix._storage.const_set(1.0, _diagonal(height, width))
        return matrix

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        count: int,
        dtype: DTypeLike = DType.F32,
        device: Device | str | None = None,
    ) -> Self:
        """Make a vector of `count` evenly spaced numbers from `start` to `stop`, both included.

        `UnsupportedDType` for integers: round and convert.

        >>> tl.linspace(0.0, 1.0, 5)
        Tensor([0.00, 0.25, 0.50, 0.75, 1.00], dtype=f32)
        """
        first, last = (argument.real("linspace", name, n) for name, n in (("start", start), ("stop", stop)))
        sizes = _shape("linspace", argument.integer("linspace", "count", count), ())
        target, chosen = device_of(device), argument.dtype("linspace", "dtype", dtype)
        if not chosen.is_float:
            reason = "numbers between two are floating point; leave out dtype, and convert the result with to_dtype"
            raise UnsupportedDType("linspace", chosen, target.backend, reason)
        if not (math.isfinite(first) and math.isfinite(last) and math.isfinite(last - first)):
            raise InvalidArgument("linspace", f"start, stop and their distance are finite, not {first} and {last}")
        step = (last - first) / max(sizes[0] - 1, 1)
        if chosen is DType.F64:
            # The step of arange is the distance of its first two numbers, which has their rounding errors.
            result = cls.arange(0.0, sizes[0], dtype=chosen, device=target).affine(step, first)
        else:
            result = cls._new(target.arange(first, step, sizes, chosen), Layout.contiguous(sizes))
        result[max(sizes[0] - 1, 1) :].fill_(last)
        return result


@lru_cache(maxsize=256)
def _of_the_first(lines: Shape, count: int) -> Layout:
    """Return the layout of the first `count` positions of each line."""
    return Layout.contiguous((*lines[:-1], count))
