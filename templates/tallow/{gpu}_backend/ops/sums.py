"""Elements added at an index, each sum in the order of its positions.

Two ways lead there. By lines, a thread walks the positions of a line along the chosen dim: that is quick where lines
are many. By sorting, the positions of each place come to stand together: that works for any shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...kernels import arguments
from ..utils import BLOCK, ceil_divide
from . import copy, elementwise, index
from .geometry import LIMIT, parts, strided_block
from .index import Rows, apart, without
from .operand import Operand, dense

if TYPE_CHECKING:
    from ..storage import GpuStorage
    from ..storage.slice import Slice

# Where so many lines are walked at once, or lines are so short, walking is quicker than sorting.
_MANY_LINES: Final = 1 << 15
_SHORT_LINE: Final = 32
# A block of the sort takes so many keys, and counts so many digits of so many bits each.
_SORT_TILE: Final = 4096
_DIGITS: Final = 256
_DIGIT_BITS: Final = 8
_KEY_BITS: Final = 32
_KEY_BYTES: Final = 4
# Of a byte of a place that no key has.
_NOWHERE: Final = 0xFF


def scatter_add(x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in row-major order, in the compute dtype."""
    count = indexes.layout.elem_count
    if count == 0:
        return
    indexes, source = apart(x, indexes), apart(x, source)
    reach = x.layout.end - x.layout.start_offset if x.layout.end else 0
    length = indexes.shape[dim]
    can_sort = count < LIMIT and reach < 1 << _KEY_BITS
    # A small target of many sums is also cheap to widen, which lines need.
    prefers_lines = count // length >= _MANY_LINES or length <= _SHORT_LINE
    is_worth_it = x.dtype is x.dtype.compute or x.layout.elem_count <= 4 * count
    if can_sort and not (prefers_lines and is_worth_it):
        _add_sorted(x, indexes, source, dim, reach)
    else:
        _add_by_lines("scatter_add", x, indexes, source, dim)


def index_add(x: Operand, indexes: Operand, source: Operand, dim: int) -> GpuStorage:
    """A copy of `x` with row i of `source` along `dim` added to row indexes[i], in the compute dtype."""
    count = indexes.layout.elem_count
    if count == 0 or x.layout.elem_count == 0:
        if source.layout.elem_count:
            # Nothing to add to: the indexes are still looked at.
            _sorted_rows(Rows("index_add", indexes, x.shape[dim], 1))
        return copy.fresh(x)
    if max(count, x.shape[dim]) >= LIMIT:
        result = dense(copy.fresh(x), x.shape)
        _add_by_lines("index_add", result, index.broadcast(indexes, source.shape, dim), source, dim)
        return result.storage
    return _add_rows(x, indexes, source, dim)


def _add_by_lines(op: str, x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    target = _widened(x)
    size = target.itemsize
    rows = Rows(op, indexes, x.shape[dim], target.strides[dim])
    shape = (*indexes.shape[:dim], *indexes.shape[dim + 1 :])
    operands = indexes.strides, target.strides, source.strides
    strides = tuple([(*operand[:dim], *operand[dim + 1 :]) for operand in operands])
    steps = indexes.strides[dim], source.strides[dim]
    for blocks, _, offsets, (lines, *geometry) in parts(BLOCK, shape, strides):
        for start in range(0, indexes.shape[dim], LIMIT):
            index_place, place = [offset + start * step for offset, step in zip(offsets[::2], steps, strict=True)]
            packed = arguments.SCATTER_LINES.pack(
                target.address + offsets[1] * size,
                source.address + place * source.itemsize,
                indexes.address + index_place * indexes.itemsize,
                *rows.fields(rows.stride),
                *(*steps, lines, min(LIMIT, indexes.shape[dim] - start)),
                *geometry,
            )
            index.launch(x.device, f"scatter_add_{x.dtype.value}_lines", blocks, packed)
    if target is not x:
        copy.copy(dense(elementwise.cast(target, x.dtype), x.shape), x)


def _widened(x: Operand) -> Operand:
    """The elements in the compute dtype: themselves where they are, else in a new storage."""
    compute = x.dtype.compute
    return x if x.dtype is compute else dense(elementwise.cast(x, compute), x.shape)


def _add_sorted(x: Operand, indexes: Operand, source: Operand, dim: int, reach: int) -> None:
    count = indexes.layout.elem_count
    rows = Rows("scatter_add", indexes, x.shape[dim], x.strides[dim])
    keys, positions = _sorted(rows, indexes.shape, (indexes.strides, without(x.strides, dim)), count, reach)
    (part,) = parts(BLOCK, source.shape, (source.strides,))
    addresses = x.address, source.address, keys.address, positions.address
    packed = arguments.SCATTER_SORTED.pack(*addresses, *part.fields)
    x.device.kernels.launch("index", f"scatter_add_{x.dtype.value}_sorted", part.blocks, packed)


def _sorted_rows(rows: Rows) -> tuple[Slice, Slice]:
    """The rows that a vector of indexes names, and the positions of the indexes, sorted by row."""
    (count,), strides = rows.indexes.shape, (rows.indexes.strides, (0,))
    return _sorted(rows, (count,), strides, count, rows.size)


def _sorted(
    rows: Rows, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], count: int, reach: int
) -> tuple[Slice, Slice]:
    """Keys below `reach`, or ~0 for nowhere, and their positions, sorted by key and then by position."""
    device = rows.indexes.device
    keys, positions, other_keys, other_positions = [device.allocate(count * _KEY_BYTES) for _ in range(4)]
    # The sort numbers all keys in 32 bits, so that their launch is one.
    (part,) = parts(BLOCK, shape, strides)
    fields = *rows.fields(rows.stride), *part.fields
    packed = arguments.INDEX_KEYS.pack(keys.address, positions.address, rows.indexes.address, *fields)
    index.launch(device, "index_keys", part.blocks, packed)
    blocks = ceil_divide(count, _SORT_TILE)
    counts = device.allocate(_DIGITS * blocks * _KEY_BYTES)
    # One number more than there are keys: sorted by their last digits, those of nowhere stay apart.
    for shift in range(0, reach.bit_length(), _DIGIT_BITS):
        addresses = keys.address, positions.address, other_keys.address, other_positions.address
        packed = arguments.SORT_PASS.pack(*addresses, counts.address, count, shift, blocks)
        device.kernels.launch("index", "sort_count", blocks, packed)
        device.kernels.launch("index", "sort_scan", 1, packed)
        device.kernels.launch("index", "sort_scatter", blocks, packed)
        keys, positions, other_keys, other_positions = other_keys, other_positions, keys, positions
    return keys, positions


def _add_rows(x: Operand, indexes: Operand, source: Operand, dim: int) -> GpuStorage:
    device, dtype, itemsize = x.device, x.dtype, x.itemsize
    size, count = x.shape[dim], indexes.shape[0]
    keys, positions = _sorted_rows(Rows("index_add", indexes, size, 1))
    starts = device.allocate(size * _KEY_BYTES)
    device.driver.fill_bytes(starts.address, _NOWHERE, starts.nbytes)
    packed = arguments.INDEX_STARTS.pack(starts.address, keys.address, count)
    device.kernels.launch("index", "index_starts", ceil_divide(count, BLOCK), packed)
    result = device.empty(dtype, x.layout.elem_count)
    strides = x.strides, without(source.strides, dim), index.along(len(x.shape), dim, 1)
    for blocks, first, offsets, geometry in parts(strided_block(itemsize), x.shape, strides):
        packed = arguments.INDEX_ADD.pack(
            result.memory.address + first * itemsize,
            x.address + offsets[0] * itemsize,
            source.address + offsets[1] * itemsize,
            keys.address,
            positions.address,
            starts.address + offsets[2] * _KEY_BYTES,
            source.strides[dim],
            *(geometry[0], count),
            *geometry[1:],
        )
        device.kernels.launch("index", f"index_add_{dtype.value}", blocks, packed)
    return result
