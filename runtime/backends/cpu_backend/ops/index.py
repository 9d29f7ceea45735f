"""Elements chosen by an index.

Indexes are checked before anything is written. Those equal to their dtype's mark name no row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..... import results
from .....dtype import Array
from ....base.error import InvalidIndex
from ....core.layout import Layout
from ....helpers.host_memory import require_memory
from ....host import cast
from ....host.array import bits, contiguous
from ...array_backend.ops.operand import Operand

# Rows at least this long are added one by one, shorter ones element by element in one go.
_LONG_ROW = 256


def gather(x: Operand, indexes: Operand, dim: int) -> Any:
    """The element at each index along `dim`, in the shape of `indexes`; 0 at a mark."""
    layout, data = x.layout, x.storage.data
    rows, marked = _checked("gather", indexes, layout.shape[dim])
    if layout.shape[dim] == 0:
        return x.result(np.zeros(rows.shape, data.dtype))
    result = bits(data).take(_positions(layout, rows, dim))
    if marked is not None:
        result[marked] = 0
    return x.result(result.view(data.dtype))


def index_select(operand: Operand, indexes: Operand, dim: int) -> Any:
    """The rows along `dim` that the vector `indexes` names; zeros at a mark."""
    require_memory(*results.index_select(operand, indexes, dim))
    return select_rows("index_select", operand, indexes, dim)


def select_rows(op: str, operand: Operand, indexes: Operand, dim: int) -> Any:
    """Select rows for an op that errors name."""
    x = operand.array
    rows, marked = _checked(op, indexes, x.shape[dim])
    if x.shape[dim] == 0:
        return operand.result(np.zeros((*x.shape[:dim], len(rows), *x.shape[dim + 1 :]), x.dtype))
    before: tuple[Any, ...] = (slice(None),) * dim
    # take makes all of x contiguous, indexing takes long along an inner dim.
    moved = bits(x)
    result = moved.take(rows, dim) if moved.flags.c_contiguous else np.ascontiguousarray(moved[(*before, rows)])
    if marked is not None:
        result[(*before, marked)] = 0
    return operand.result(result.view(x.dtype))


def scatter_set(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Write each element of `source` to its index along `dim`; the last in row-major order wins."""
    positions, values = _scattered("scatter_set", x, indexes, source, dim)
    if positions.size == 0:
        return
    order = np.arange(positions.size)
    from_0 = positions - positions.min()
    last = np.empty(from_0.max() + 1, np.intp)
    last[from_0] = order
    winners = last[from_0]
    # NumPy does not promise that the last of several assignments to one element is done last.
    if (winners < order).any():
        np.maximum.at(last, from_0, order)
        winners = last[from_0]
    bits(x.storage.data)[positions] = bits(values)[winners]


def scatter_add(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in row-major order, in the compute dtype."""
    positions, values = _scattered("scatter_add", x, indexes, source, dim)
    if positions.size == 0:
        return
    data, dtype = x.storage.data, x.dtype
    if dtype is dtype.compute:
        if np.may_share_memory(data, values):
            values = values.copy()
        _add_at(data, positions, values)
    else:
        first = positions.min()
        sums = cast.widen(data[first : positions.max() + 1], dtype)
        _add_at(sums, positions - first, cast.widen(values, dtype))
        data[positions] = cast.narrow(sums[positions - first], dtype)


def index_add(operand: Operand, indexes: Operand, terms: Operand, dim: int) -> Any:
    """A copy with row i of `terms` along `dim` added to row indexes[i], in order, in the compute dtype."""
    x, source, dtype = operand.array, terms.array, operand.dtype
    rows, marked = _checked("index_add", indexes, x.shape[dim])
    if marked is not None:
        rows, source = rows[~marked], bits(source).compress(~marked, axis=dim).view(source.dtype)
    sums = contiguous(cast.convert(x, dtype, dtype.compute))
    added = cast.widen(source, dtype)
    if rows.size == 0 or added.size == 0:
        pass
    elif added.size // rows.size >= _LONG_ROW:
        target, lines = np.moveaxis(sums, dim, 0), np.moveaxis(added, dim, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            for row, term in zip(rows.tolist(), lines, strict=True):
                target[row] += term
    else:
        along = rows.reshape([-1 if axis == dim else 1 for axis in range(x.ndim)])
        positions = _positions(Layout.contiguous(x.shape), np.broadcast_to(along, added.shape), dim)
        _add_at(sums.reshape(-1), positions.reshape(-1), contiguous(added).reshape(-1))
    return operand.result(cast.narrow(sums, dtype) if dtype.is_float else sums)


def _checked(op: str, indexes: Operand, size: int) -> tuple[Array, Array | None]:
    """The indexes as fresh i64, and where they are the mark, if any is; there they become 0."""
    rows = indexes.array.astype(np.int64, order="C")
    mark = indexes.dtype.index_form[0]
    if rows.size == 0 or (rows.min() >= 0 and rows.max() < (min(size, mark) if mark > 0 else size)):
        return rows, None
    marked = rows == mark
    wrong = ((rows < 0) | (rows >= size)) & ~marked
    if wrong.any():
        raise InvalidIndex(op, int(indexes.array[wrong][0]), size)
    rows[marked] = 0
    return rows, marked


def _positions(layout: Layout, rows: Array, dim: int) -> Array:
    """Where in the storage of `layout` the elements are whose position along `dim` is in `rows`.

    Their positions along the other dims are those in `rows`.
    """
    other = np.array(layout.start_offset)
    for axis, (count, stride) in enumerate(zip(rows.shape, layout.strides, strict=True)):
        if axis != dim:
            steps = np.arange(count) * stride
            other = other + steps.reshape([-1 if position == axis else 1 for position in range(rows.ndim)])
    positions: Array = rows * layout.strides[dim]
    positions += other
    return positions


def _scattered(op: str, x: Operand, indexes: Operand, source: Operand, dim: int) -> tuple[Array, Array]:
    """Return flat arrays of the offsets to write to and of the elements for them, without those at a mark."""
    rows, marked = _checked(op, indexes, x.layout.shape[dim])
    positions = _positions(x.layout, rows, dim).reshape(-1)
    values = contiguous(source.array).reshape(-1)
    if marked is not None:
        is_in_range = ~marked.reshape(-1)
        return positions[is_in_range], bits(values)[is_in_range].view(values.dtype)
    return positions, values


def _add_at(sums: Array, positions: Array, values: Array) -> None:
    """Add each value at its offset, one after the other."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(sums, positions, values)
