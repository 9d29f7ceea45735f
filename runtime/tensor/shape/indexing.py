"""Elements selected by index: basic indexing, and ops that take tensors of indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Final, Self, SupportsIndex, TypeGuard

from .... import results
from ....dtype import Array, DType
from ...base.bounded_cache import BoundedCache
from ...base.error import DTypeMismatch, InvalidArgument, InvalidIndex, ShapeMismatch, TallowError, UnsizedTensor
from ...core import argument
from ...core.argument import REQUIRED, DTypeLike, dim_of, integer
from ...core.check import distinct_positions
from ...core.layout import Layout
from ...core.padding import REFLECT
from ...core.shape import Shape
from ..base import TensorBase, named, require_tensors
from ..batch import copy_per_example
from ..create import CreationMethods
from ..layouts import Ends
from ..promotion import DTYPE_ERRORS, common_dtype, fits, fitted, promote, refuse_result
from .selection import indexed_dims, integer_index, selection, spelled_out, with_arrays

Index = SupportsIndex | slice | EllipsisType | None
"""An index that selects a view of a tensor."""
Choice = TensorBase | Sequence[Any] | Array
"""An index that selects elements to copy: indexes, or a mask."""

_WHOLE = slice(None)


# The most rows of an identity matrix that is cached.
_MAX_UNIT_ROWS: Final = 256

# By the number of the layout and the classes.
_one_hot: Final[BoundedCache[tuple[int, int], tuple[Shape, Layout, Layout]]] = BoundedCache(1 << 12)


def _one_hot_layouts(layout: Layout, count: int) -> tuple[Shape, Layout, Layout]:
    """The shape of the result, and the layouts of the indexes and of a number for each of them."""
    rows = layout.unsqueeze(layout.rank)
    return Shape((*layout.shape, count)), rows, rows.repeated


def _mirrored(shape: Shape, dims: tuple[int, ...]) -> tuple[str, Ends]:
    """Reflect all elements of dims but the first one, which stays as the last one."""
    positions = distinct_positions("flip", shape, dims)
    return REFLECT, [(dim, shape[dim] - 1, 1 - shape[dim]) for dim in positions if shape[dim]]


class IndexMethods(CreationMethods):
    """Indexing.

    The dtype of indexes is that of any integers. The largest value of each but u8 means "no row": gather and
    index_select give 0 there, scatter and index_add skip it. Any other index that is out of range, a negative one
    included, is an `InvalidIndex` error even where the result is empty, and then nothing is written. A GPU may report
    it as late as the next synchronising call, such as `numpy`, of the thread that gave the index, or of any thread once
    that one has ended.
    """

    __slots__ = ()

    def __len__(self) -> int:
        if not self.shape:
            raise UnsizedTensor("len", "a tensor of rank 0 has no length; use item() for its element")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, index: Index | Choice | tuple[Index | Choice, ...]) -> Self:
        """Choose elements by integers, slices, None (a new dim) and `...`, as in NumPy: a view of them.

        Slices with negative steps make a copy instead, and so do tensors, arrays of NumPy's and lists: those of
        integers are indexes, which broadcast, and of which those below 0 count from the end; those of bool are masks of
        as many dims as they have. For a tensor that is a mask the host waits for the number of its elements that are
        True.
        """
        items = index if isinstance(index, tuple) else (index,)
        key = _key(self._layout, items)
        view = None if key is None else _views.get(key)
        if view is not None:
            return self._view(view)
        chosen = with_arrays(items)
        if chosen is not None:
            taken: Self = selection(self, chosen).taken()
            return taken
        if any(map(is_backward, items)):
            ahead, dims = forward(self._layout, items)
            return self[ahead]._reversed(dims)
        return self._view(indexed(self._layout, items))  # type: ignore[arg-type]

    def _reversed(self, dims: Sequence[int]) -> Self:
        """Copy the tensor with the order of some dims reversed."""
        return self._padded(_mirrored, tuple(dims))

    def gather(self, indexes: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Return result[.., i, ..] = self[.., indexes[.., i, ..], ..] along `dim`, in the shape of `indexes`.

        The indexes have the rank of the tensor and, in every dim but `dim`, at most its size. `InvalidIndex` for an
        index that is out of range.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.gather(tl.Tensor([[0], [2]]), dim=1)
        Tensor([[1],
                [6]], dtype=i64)
        """
        if not isinstance(indexes, TensorBase):
            require_tensors("gather", indexes=indexes)
        if axis is not None:
            dim = dim_of("gather", dim, axis)
        layout = self._layout
        dim = layout.shape.dim("gather", dim)
        return indexes._like(self._storage.gather(layout, indexes._storage, indexes._layout, dim))

    def index_select(self, indexes: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Select the rows of the tensor along `dim` that a vector of indexes names.

        The largest number of an index dtype but u8 gives a row of zeros; any other that is out of range is
        `InvalidIndex`.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.index_select(tl.Tensor([2, 0]), dim=1)
        Tensor([[3, 1],
                [6, 4]], dtype=i64)
        """
        if not isinstance(indexes, TensorBase):
            require_tensors("index_select", indexes=indexes)
        if axis is not None:
            dim = dim_of("index_select", dim, axis)
        layout, rows = self._layout, indexes._layout
        dim = layout.shape.dim("index_select", dim)
        storage = self._storage.index_select(indexes._storage, layout, rows, dim)
        key = layout.number, rows.number, dim
        selected = _selected.get(key)
        if selected is None:
            selected = _selected.put(key, Layout.contiguous(results.index_select(self, indexes, dim).shape))
        return self._new(storage, selected)

    @named
    def embedding(self, ids: Self) -> Self:
        """Look up rows of this matrix (vocabulary, hidden) by ids of any shape: the result is (.., hidden).

        The largest number of an index dtype but u8 gives a row of zeros.

        >>> table = tl.Tensor([[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]])
        >>> table.embedding(tl.Tensor([2, 0]))
        Tensor([[2.0, 2.1],
                [0.0, 0.1]], dtype=f32)
        """
        require_tensors("embedding", ids=ids)
        if self.rank != 2:
            raise ShapeMismatch("embedding", (self.shape,), "rows are those of a matrix; reshape the tensor first")
        return self.index_select(ids.reshape(-1), 0).reshape(*ids.shape, self.shape[1])

    @named
    def one_hot(self, classes: int, dtype: DTypeLike = DType.I64) -> Self:
        """Encode each index as a vector of `classes` zeros with a one at the index: a new last dim.

        The largest number of an index dtype but u8 gives zeros alone; any other index out of range is `InvalidIndex`.

        >>> tl.Tensor([0, 2]).one_hot(3)
        Tensor([[1, 0, 0],
                [0, 0, 1]], dtype=i64)
        """
        count = integer("one_hot", "classes", classes)
        if count < 0:
            raise InvalidArgument("one_hot", f"the number of classes is 0 or more, not {count}")
        if self._storage.is_wrapped or count > _MAX_UNIT_ROWS or not self.device.is_cpu():
            return self._one_hot(count, dtype)
        # Copying rows of the identity matrix writes each element once, and checks indexes in the same call.
        dtype = argument.dtype("one_hot", "dtype", dtype)
        numbers, key = self._storage.inner.device.numbers, ("one_hot", count, dtype)
        unit_rows = numbers.get(key)
        if unit_rows is None:
            unit_rows = numbers.put(key, self._result_class.arange(count)._one_hot(count, dtype))
        indexes = self if self.rank == 1 else self.reshape(-1)
        result: Self = unit_rows.index_select(indexes, 0)
        return result if self.rank == 1 else result.reshape(*self.shape, count)

    def _one_hot(self, count: int, dtype: DTypeLike) -> Self:
        key = self._layout.number, count
        shape, rows, ones = _one_hot.get(key) or _one_hot.put(key, _one_hot_layouts(self._layout, count))
        result = self._new_full(shape, 0, dtype)
        one, layout = result._number("one_hot", 1), result._layout
        return result._written(
            "one_hot", lambda: result._storage.scatter_set(layout, self._storage, rows, one, ones, rows.rank - 1)
        )

    def scatter(self, indexes: Self, source: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Copy the tensor and set copy[.., indexes[.., i, ..], ..] = source[.., i, ..] along `dim`.

        Indexes and source have one shape; it has the rank of the tensor and, in every dim but `dim`, at most its size.
        Of several writes to one element the last in row-major order wins.

        >>> tl.zeros((2, 3)).scatter(tl.Tensor([[0], [2]]), tl.ones((2, 1)), dim=1)
        Tensor([[1., 0., 0.],
                [0., 0., 1.]], dtype=f32)
        """
        if axis is not None:
            dim = dim_of("scatter", dim, axis)
        return self._scattered_copy("scatter", "scatter_set", indexes, source, dim)

    def scatter_(self, indexes: Self, source: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Write elements by index as `scatter` does, in place, and return the tensor.

        >>> x = tl.zeros(3)
        >>> x.scatter_(tl.Tensor([0, 2]), tl.Tensor([1.0, 2.0]), dim=0)
        Tensor([1., 0., 2.], dtype=f32)
        """
        if axis is not None:
            dim = dim_of("scatter_", dim, axis)
        try:
            return self._scattered("scatter_", "scatter_set", indexes, source, dim)
        except DTypeMismatch:
            if source.dtype is self.dtype:
                raise
        return self._scattered("scatter_", "scatter_set", indexes, fitted("scatter_", self, source), dim)

    def scatter_add(self, indexes: Self, source: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Copy the tensor and add source[.., i, ..] to copy[.., indexes[.., i, ..], ..] along `dim`.

        The shapes are those of `scatter`. Sums are in row-major order of the source, or with `deterministic(False)` in
        any order, in the compute dtype, rounded once.

        >>> tl.zeros(3).scatter_add(tl.Tensor([0, 2, 2]), tl.ones(3), dim=0)
        Tensor([1., 0., 2.], dtype=f32)
        """
        if axis is not None:
            dim = dim_of("scatter_add", dim, axis)
        return self._scattered_copy("scatter_add", "scatter_add", indexes, source, dim)

    def scatter_add_(self, indexes: Self, source: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Add elements by index as `scatter_add` does, in place, and return the tensor.

        >>> x = tl.zeros(3)
        >>> x.scatter_add_(tl.Tensor([2, 2]), tl.Tensor([1.0, 2.0]), dim=0)
        Tensor([0., 0., 3.], dtype=f32)
        """
        if axis is not None:
            dim = dim_of("scatter_add_", dim, axis)
        op, method = "scatter_add_", "scatter_add"
        try:
            return self._scattered(op, method, indexes, source, dim)
        except DTypeMismatch:
            if source.dtype is self.dtype:
                raise
        return self._in_common_dtype(op, source, lambda to, added: to._scattered(op, method, indexes, added, dim))

    def _scattered_copy(self, op: str, method: str, indexes: Self, source: Self, dim: int) -> Self:
        try:
            copy: Self = copy_per_example(self, indexes, source)
            return copy._scattered(op, method, indexes, source, dim)
        except DTYPE_ERRORS as error:
            target, source = promote(error, self, source)
        return target._scattered_copy(op, method, indexes, source, dim)

    def _scattered(self, op: str, method: str, indexes: Self, source: Self, dim: int) -> Self:
        if not (isinstance(indexes, TensorBase) and isinstance(source, TensorBase)):
            require_tensors(op, indexes=indexes, source=source)
        layout = self._layout
        dim = layout.shape.dim(op, dim)
        try:
            scatter = getattr(self._storage, method)
            scatter(layout, indexes._storage, indexes._layout, source._storage, source._layout, dim)
        except TallowError as error:
            error.rename(op)
            raise
        return self

    def _written(self, op: str, write: Callable[[], object]) -> Self:
        """Write in place, with errors that name what was called."""
        try:
            write()
        except TallowError as error:
            error.rename(op)
            raise
        return self

    def _assigned(self, op: str, source: Self) -> Self:
        return self._written(
            op, lambda: self._storage.assign(self._layout, source._storage, source._layout.broadcast_as(self.shape))
        )

    def _in_common_dtype(self, op: str, operand: Self, write: Callable[[Self, Self], object]) -> Self:
        """Write in place with an operand of another dtype: in the dtype that both have together, then rounded."""
        common = common_dtype(op, self.dtype, operand.dtype)
        if not fits(common, self.dtype):
            refuse_result(op, self.dtype, common)
        target = self.to_dtype(common)
        write(target, operand.to_dtype(common))
        return self if target is self else self._assigned(op, target.to_dtype(self.dtype))

    def index_add(self, indexes: Self, source: Self, dim: int = REQUIRED, axis: int | None = None) -> Self:
        """Copy the tensor and add row i of `source` along `dim` to row indexes[i], in order of i.

        The indexes are a vector, one for each row of the source, whose other dims are those of the tensor.

        >>> tl.zeros((2, 2)).index_add(tl.Tensor([1, 1]), tl.ones((2, 2)), dim=0)
        Tensor([[0., 0.],
                [2., 2.]], dtype=f32)
        """
        if not (isinstance(indexes, TensorBase) and isinstance(source, TensorBase)):
            require_tensors("index_add", indexes=indexes, source=source)
        if axis is not None:
            dim = dim_of("index_add", dim, axis)
        layout = self._layout
        dim = layout.shape.dim("index_add", dim)
        operands = indexes._storage, indexes._layout, source._storage, source._layout
        try:
            return self._like(self._storage.index_add(layout, *operands, dim))
        except DTYPE_ERRORS as error:
            target, source = promote(error, self, source)
        return target.index_add(indexes, source, dim)


_views: BoundedCache[tuple[object, ...], Layout] = BoundedCache(1 << 14)


def _key(layout: Layout, items: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return the cache key of the view that an index of Python integers selects; None for any other index."""
    key: list[object] = [layout.number]
    for item in items:
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step  # type: ignore[attr-defined]
            if not (
                (start is None or type(start) is int)
                and (stop is None or type(stop) is int)
                and (step is None or type(step) is int)
            ):
                return None
            key.append((start, stop, step))
        elif kind is int or item is None or item is Ellipsis:
            key.append(item)
        else:
            return None
    return tuple(key)


def indexed(layout: Layout, index: Index | tuple[Index, ...]) -> Layout:
    """Return the part of a layout that a basic index chooses."""
    items = index if isinstance(index, tuple) else (index,)
    key = _key(layout, items)
    view = None if key is None else _views.get(key)
    if view is None:
        view = _indexed(layout, items)
        if key is not None:
            _views.put(key, view)
    return view


def _indexed(layout: Layout, items: tuple[Index, ...]) -> Layout:
    dim = 0
    for item in spelled_out(items, layout.rank):
        if item is None:
            layout = layout.unsqueeze(dim)
            dim += 1
        elif isinstance(item, slice):
            layout = _sliced(layout, dim, item)
            dim += 1
        else:
            layout = _at(layout, dim, item)
    return layout


def is_backward(item: object) -> TypeGuard[slice]:
    """Tell whether an item of an index is a slice with a negative step."""
    return isinstance(item, slice) and item.step is not None and integer("index", "the step of a slice", item.step) < 0


def forward(layout: Layout, items: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """Return an index of the same elements by positive steps, and the dims of its result that it leaves backward.

    Dims that tensors and integers index are not counted among those of the result.
    """
    result: list[Any] = []
    dims: list[int] = []
    source = dim = 0
    for item in spelled_out(items, layout.rank):
        if is_backward(item):
            rows = range(*_slice_of_integers(item).indices(layout.shape[source]))
            item = slice(rows[-1], rows[0] + 1, -rows.step) if rows else slice(0, 0)
            dims.append(dim)
        result.append(item)
        source += indexed_dims(item)
        dim += item is None or isinstance(item, slice)
    for position, item in enumerate(items):
        if item is Ellipsis:
            # It stands for no dim any more, but still separates tensors.
            result.insert(position, item)
    return tuple(result), dims


def _slice_of_integers(item: slice) -> slice:
    start = None if item.start is None else integer("index", "the start of a slice", item.start)
    stop = None if item.stop is None else integer("index", "the end of a slice", item.stop)
    return slice(start, stop, None if item.step is None else integer("index", "the step of a slice", item.step))


def _sliced(layout: Layout, dim: int, item: slice) -> Layout:
    item = _slice_of_integers(item)
    start, stop, step = item.start, item.stop, 1 if item.step is None else item.step
    if step < 1:
        reason = "0" if step == 0 else f"{step} where a view is needed, as for what is written or stored"
        raise InvalidArgument("index", f"the step of a slice is not {reason}; use a positive one, or index_select")
    if start is None and stop is None and step == 1:
        return layout
    first, end, _ = slice(start, stop).indices(layout.shape[dim])
    return layout.narrow(dim, first, max(-((first - end) // step), 0), step)


def _at(layout: Layout, dim: int, item: Index) -> Layout:
    size = layout.shape[dim]
    position = integer_index(item)
    if not -size <= position < size:
        raise InvalidIndex("index", position, size)
    return layout.narrow(dim, position % size, 1).squeeze(dim)


# By the numbers of the layouts of rows and of indexes, and the dim.
_selected: BoundedCache[tuple[int, int, int], Layout] = BoundedCache(1 << 12)
