"""Elements chosen by an index.

An index that is out of range is noted, and raised by the next synchronising call; nothing is written then. Those equal
to their dtype's mark name no row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..... import results
from .....dtype import DType
from .. import strided
from . import cast
from .matmul import rounded
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
    chosen_elements = strided.take(library, x.storage.data, _offsets(x, chosen.rows, dim))
    return x.result(library.where(chosen.is_row, chosen_elements, zero))


def index_select(x: Operand, indexes: Operand, dim: int) -> Any:
    """The rows along `dim` that the vector `indexes` names; zeros at a mark."""
    library, array, size = x.library, x.array, x.layout.shape[dim]
    chosen = _checked("index_select", indexes, size)
    zero = library.constant(0, array)
    shape = results.index_select(x, indexes, dim).shape
    if size == 0 or 0 in shape:
        return x.result(library.broadcast_to(zero, shape))
    chosen_rows = library.take(array, chosen.rows, dim)
    return x.result(library.where(_along(library, chosen.is_row, dim, len(shape)), chosen_rows, zero))


def scatter_set(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Write each element of `source` to its index along `dim`; the last in row-major order wins."""
    library, storage, device = x.library, x.storage, x.device.handle
    chosen, offsets = _scattered("scatter_set", x, indexes, dim)
    if offsets is None or storage.length == 0:
        return
    values = library.reshape(source.array, (-1,))
    # An index that names no row writes to an element after the last one.
    data = library.concat([storage.data, storage.data[:1]], 0)
    written = strided.put(library, data, offsets, values, device)[: storage.length]
    storage.data = library.where(chosen.is_right, written, storage.data)


def scatter_add(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in row-major order, in the compute dtype."""
    library, storage, dtype = x.library, x.storage, x.dtype
    chosen, offsets = _scattered("scatter_add", x, indexes, dim)
    if offsets is None or storage.length == 0:
        return
    values = cast.widen(library, library.reshape(source.array, (-1,)), dtype)
    total = _added(library, cast.widen(library, storage.data, dtype), offsets, values, x.device.handle)
    storage.data = library.where(chosen.is_right, rounded(library, total, dtype), storage.data)


def index_add(x: Operand, indexes: Operand, terms: Operand, dim: int) -> Any:
    """A copy with row i of `terms` along `dim` added to row indexes[i], in order, in the compute dtype."""
    library, array, dtype = x.library, x.array, x.dtype
    size = array.shape[dim]
    chosen = _checked("index_add", indexes, size)
    if chosen.rows.shape[0] == 0 or strided.size(array) == 0:
        return x.result(array)
    rows = library.where(chosen.is_row, chosen.rows, library.constant(size, chosen.rows))
    order = (dim, *(axis for axis in range(len(array.shape)) if axis != dim))
    values, start = (library.permute_dims(cast.widen(library, each, dtype), order) for each in (terms.array, array))
    result = rounded(library, _added(library, start, rows, values, x.device.handle), dtype)
    return x.result(library.permute_dims(result, tuple(order.index(axis) for axis in range(len(order)))))


def _checked(op: str, indexes: Operand, size: int) -> _Rows:
    library = indexes.library
    rows = library.astype(indexes.array, library.DTYPES[DType.I64])
    if strided.size(rows) == 0:
        return _Rows(rows, rows == rows, None)
    is_row = (rows >= 0) & (rows < size)
    is_wrong = ~is_row
    if indexes.dtype.index_mark is not None:
        is_mark = rows == library.constant(indexes.dtype.index_form[0], rows)
        is_row, is_wrong = is_row & ~is_mark, is_wrong & ~is_mark
    indexes.device.note(op, indexes.array, is_wrong, size)
    flat = library.reshape(library.astype(is_wrong, library.DTYPES[DType.U8]), (-1,))
    return _Rows(library.where(is_row, rows, library.constant(0, rows)), is_row, library.max(flat, 0) == 0)


def rows_or(op: str, rows: Any, indexes: Operand, other: int) -> Any:
    """The rows of a matrix that a vector names; row `other` at a mark."""
    chosen = _checked(op, indexes, other)
    library = indexes.library
    return library.take(rows, library.where(chosen.is_row, chosen.rows, library.constant(other, chosen.rows)), 0)


def _along(library: Any, x: Any, dim: int, rank: int) -> Any:
    """A vector as an array of a rank, along `dim`."""
    return library.reshape(x, tuple(-1 if axis == dim else 1 for axis in range(rank)))


def _offsets(x: Operand, rows: Any, dim: int) -> Any:
    """Where in the storage the elements are at positions `rows` along `dim`."""
    library = x.library
    return rows * x.layout.strides[dim] + strided.offsets(library, x.layout, tuple(rows.shape), dim, x.device.handle)


def _scattered(op: str, x: Operand, indexes: Operand, dim: int) -> tuple[_Rows, Any]:
    """Check the indexes; return a vector of the offsets to write to, past the end where an index names no row."""
    library = x.library
    chosen = _checked(op, indexes, x.layout.shape[dim])
    if strided.size(chosen.rows) == 0:
        return chosen, None
    offsets = _offsets(x, chosen.rows, dim)
    targets = library.where(chosen.is_row, offsets, library.constant(x.storage.length, offsets))
    return chosen, library.reshape(targets, (-1,))


def _added(library: Any, start: Any, targets: Any, values: Any, device: Any) -> Any:
    """Add each row of `values` to the row of `start` that its target names, in order.

    The number of steps is the largest number of values with one target, which is read from the device.
    """
    count, rank, length = start.shape[0], len(start.shape), targets.shape[0]
    order = library.astype(library.argsort(targets), targets.dtype)
    ascending = library.take(targets, order, 0)
    every = library.arange(count, device)
    first, end = (library.astype(library.searchsorted(ascending, each), targets.dtype) for each in (every - 1, every))
    total = start
    for step in range(int(library.to_numpy(library.max(end - first, 0)).item())):
        position = library.minimum(first + step, library.constant(length - 1, first))
        added = total + library.take(values, library.take(order, position, 0), 0)
        total = library.where(_along(library, first + step < end, 0, rank), added, total)
    return total
