"""Elements chosen by an index.

An index that is out of range is noted, and raised by the next synchronising call; nothing is written then. Those equal
to their dtype's mark name no row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...dtype import DType
from .. import strided
from . import cast
from .operand import Operand


class _Rows(NamedTuple):
    """Indexes as i64, 0 where they name no row."""

    rows: Any
    is_row: Any
    is_right: Any
    """Whether all are in range or marks, as an array of one element."""


def gather(x: Operand, indexes: Operand, dim: int) -> Any:
    """The element at each index along `dim`, in the shape of `indexes`; 0 at a mark."""
    library, size, shape = x.library, x.layout.shape[dim], tuple(indexes.layout.shape)
    chosen = _checked("gather", indexes, size)
    zero = library.constant(0, x.storage.data)
    if size == 0 or 0 in shape:
        return x.result(library.broadcast_to(zero, shape))
    found = strided.take(library, x.storage.data, _places(x, chosen.rows, dim))
    return x.result(library.where(chosen.is_row, found, zero))


def select(x: Operand, indexes: Operand, dim: int) -> Any:
    """The rows along `dim` that the vector `indexes` names; zeros at a mark."""
    library, array, size = x.library, x.array, x.layout.shape[dim]
    chosen = _checked("index_select", indexes, size)
    zero = library.constant(0, array)
    shape = (*array.shape[:dim], indexes.layout.shape[0], *array.shape[dim + 1 :])
    if size == 0 or 0 in shape:
        return x.result(library.broadcast_to(zero, shape))
    found = library.take(array, chosen.rows, dim)
    return x.result(library.where(_along(library, chosen.is_row, dim, len(shape)), found, zero))


def scatter_set(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Write each element of `source` to its index along `dim`; the last in row-major order wins."""
    library, storage, device = x.library, x.storage, x.device.handle
    chosen, places = _scattered("scatter_set", x, indexes, dim)
    if places is None or storage.length == 0:
        return
    values = library.reshape(source.array, (-1,))
    # What names no row goes to a place behind the last one.
    data = library.concat([storage.data, storage.data[:1]], 0)
    written = strided.put(library, data, places, values, device)[: storage.length]
    storage.data = library.where(chosen.is_right, written, storage.data)


def scatter_add(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in the compute dtype, in an order of positions alone."""
    library, storage, dtype = x.library, x.storage, x.dtype
    chosen, places = _scattered("scatter_add", x, indexes, dim)
    if places is None or storage.length == 0:
        return
    values = _wide(library, library.reshape(source.array, (-1,)), dtype)
    sums, is_hit = _sums(library, places, values, storage.length, x.device.handle)
    total = _rounded(library, _wide(library, storage.data, dtype) + sums, dtype)
    storage.data = library.where(is_hit & chosen.is_right, total, storage.data)


def index_add(x: Operand, indexes: Operand, terms: Operand, dim: int) -> Any:
    """A copy with row i of `terms` along `dim` added to row indexes[i], in the compute dtype."""
    library, array, dtype = x.library, x.array, x.dtype
    size = array.shape[dim]
    chosen = _checked("index_add", indexes, size)
    if chosen.rows.shape[0] == 0 or strided.size(array) == 0:
        return x.result(array)
    rows = library.where(chosen.is_row, chosen.rows, library.constant(size, chosen.rows))
    order = (dim, *(axis for axis in range(len(array.shape)) if axis != dim))
    values = library.permute_dims(_wide(library, terms.array, dtype), order)
    sums, is_hit = _sums(library, rows, values, size, x.device.handle)
    moved = library.permute_dims(array, order)
    total = _rounded(library, _wide(library, moved, dtype) + sums, dtype)
    result = library.where(_along(library, is_hit, 0, len(order)), total, moved)
    return x.result(library.permute_dims(result, tuple(order.index(axis) for axis in range(len(order)))))


def checked(op: str, operand: Operand, rows: Any, is_wrong: Any, size: int) -> None:
    """Note the first of the indexes `rows` that is wrong."""
    library = operand.library
    count = strided.size(rows)
    flat = library.reshape(rows, (-1,))
    every = library.arange(count, operand.device.handle)
    positions = library.where(library.reshape(is_wrong, (-1,)), every, library.constant(count, every))
    first = library.min(positions, 0)
    index = library.take(flat, library.minimum(first, library.constant(count - 1, first)), 0)
    operand.device.note(op, size, first, count, index)


def _checked(op: str, indexes: Operand, size: int) -> _Rows:
    library = indexes.library
    rows = library.astype(indexes.array, library.DTYPES[DType.I64])
    if strided.size(rows) == 0:
        return _Rows(rows, rows == rows, None)
    mark = indexes.dtype.index_mark
    is_row = (rows >= 0) & (rows < size)
    is_wrong = ~is_row
    if mark is not None:
        is_mark = rows == library.constant(mark, rows)
        is_row, is_wrong = is_row & ~is_mark, is_wrong & ~is_mark
    checked(op, indexes, rows, is_wrong, size)
    flat = library.reshape(library.astype(is_wrong, library.DTYPES[DType.U8]), (-1,))
    return _Rows(library.where(is_row, rows, library.constant(0, rows)), is_row, library.max(flat, 0) == 0)


def _along(library: Any, x: Any, dim: int, rank: int) -> Any:
    """A vector as an array of a rank, along `dim`."""
    return library.reshape(x, tuple(-1 if axis == dim else 1 for axis in range(rank)))


def _places(x: Operand, rows: Any, dim: int) -> Any:
    """Where in the storage the elements are at positions `rows` along `dim`."""
    library = x.library
    return rows * x.layout.strides[dim] + strided.places(library, x.layout, tuple(rows.shape), dim, x.device.handle)


def _scattered(op: str, x: Operand, indexes: Operand, dim: int) -> tuple[_Rows, Any]:
    """The indexes, and a vector of the places to write to, behind the storage where an index names no row."""
    library = x.library
    chosen = _checked(op, indexes, x.layout.shape[dim])
    if strided.size(chosen.rows) == 0:
        return chosen, None
    places = _places(x, chosen.rows, dim)
    kept = library.where(chosen.is_row, places, library.constant(x.storage.length, places))
    return chosen, library.reshape(kept, (-1,))


def _sums(library: Any, places: Any, values: Any, count: int, device: Any) -> tuple[Any, Any]:
    """For each place up to `count` the sum of the rows of `values` that go there, and whether there are any.

    The sums of runs of equal places, by steps of twice the length (Hillis and Steele 1986).
    """
    order, last, is_hit = strided.runs(library, places, count, device)
    ascending, sums = library.take(places, order, 0), library.take(values, order, 0)
    step, length, rank = 1, places.shape[0], len(values.shape)
    while step < length:
        is_same = _along(library, ascending[step:] == ascending[: length - step], 0, rank)
        added = sums[step:] + library.where(is_same, sums[: length - step], library.constant(0, sums))
        sums = library.concat([sums[:step], added], 0)
        step *= 2
    return library.take(sums, last, 0), is_hit


def _wide(library: Any, x: Any, dtype: DType) -> Any:
    """The elements as they are added: floats in f64 where there is one."""
    wide = cast.widen(library, x, dtype)
    return library.astype(wide, library.DTYPES[DType.F64]) if dtype.is_float and DType.F64 in library.DTYPES else wide


def _rounded(library: Any, x: Any, dtype: DType) -> Any:
    return cast.narrow(library, x, dtype) if dtype.is_float else cast.wrap(library, x, dtype)
