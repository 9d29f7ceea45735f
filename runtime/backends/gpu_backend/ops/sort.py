"""Elements in order: by one launch where lines are short, else by a stable radix sort, a digit a pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, DIGIT_BITS, SORT_TILE
from ....base.error import InvalidArgument
from ....kernels.argument_struct import Address
from ..utils import MOST_BLOCKS, ceil_divide
from . import copy
from .geometry import LIMIT
from .operand import Operand

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..storage import GpuStorage
    from ..storage.slice import Slice

_DIGITS: Final = 1 << DIGIT_BITS
_WORD_BITS: Final = 32
_WORD_BYTES: Final = 4
# A block sorts a line by a digit in the time in which its threads make so many comparisons of all of it with all of it.
_FEW_COMPARISONS: Final = 1 << 14


def argsort(x: Operand, descending: bool, count: int) -> GpuStorage:
    """The positions of the first elements in order along the last dim, as u32; NaN comes last."""
    positions = _positions(x, descending)
    length = x.shape[-1] if x.shape else 1
    if count == length:
        return positions
    lines = math.prod(x.shape[:-1])
    first = x.device.empty(DType.U32, lines * count)
    if lines * count:
        copy.copy2d(positions, first, lines, count, length, count, 0, 0)
    return first


def searchsorted(x: Operand, values: Operand, right: bool) -> GpuStorage:
    """The places of values in lines that are in order, as i64."""
    count, device = values.layout.elem_count, x.device
    result = device.empty(DType.I64, count)
    if count:
        source, wanted = copy.contiguous(x), copy.contiguous(values)
        packed = arguments.search_lines(
            result=result.memory.address, source=source.address, values=wanted.address, count=count,
            per_line=values.shape[-1] if len(x.shape) > 1 else count, length=x.shape[-1], right=right,
        )  # fmt: skip
        blocks = min(ceil_divide(count, BLOCK_SIZE), MOST_BLOCKS)
        device.kernels.launch("search", f"search_{x.dtype.value}", blocks, packed)
    return result


def _positions(x: Operand, descending: bool) -> GpuStorage:
    """Those of all elements."""
    device, dtype, count = x.device, x.dtype, x.layout.elem_count
    result = device.empty(DType.U32, count)
    if count == 0:
        return result
    length, bits = x.shape[-1] if x.shape else 1, 8 * dtype.itemsize
    if length >= LIMIT:
        raise InvalidArgument("argsort", f"a line has {length} elements; sort lines of at most {LIMIT - 1}")
    source, lines = copy.contiguous(x), count // length
    if length <= BLOCK_SIZE and length * length <= _FEW_COMPARISONS * dtype.itemsize:
        packed = arguments.sort_lines(
            result=result.memory.address, source=source.address, lines=lines, length=length, bits=bits,
            descending=descending,
        )  # fmt: skip
        device.kernels.launch("sort", f"sort_{dtype.value}_short", ceil_divide(lines, BLOCK_SIZE // length), packed)
        return result
    is_tile = length <= SORT_TILE
    together = MOST_BLOCKS if is_tile else (LIMIT - 1) // length
    for first in range(0, lines, together):
        some, start = min(together, lines - first), first * length
        to, from_ = result.memory.address + start * _WORD_BYTES, source.address + start * dtype.itemsize
        if is_tile:
            packed = arguments.sort_lines(
                result=to, source=from_, lines=some, length=length, bits=bits, descending=descending
            )
            device.kernels.launch("sort", f"sort_{dtype.value}_tile", some, packed)
        else:
            _sort_together(device, dtype, from_, to, some, length, descending)
    return result


def _sort_together(
    device: GpuDevice, dtype: DType, source: Address, result: Address, lines: int, length: int, descending: bool
) -> None:
    count = lines * length
    words, positions = device.allocate(count * _WORD_BYTES), device.allocate(count * _WORD_BYTES)
    launch, blocks = device.kernels.launch, ceil_divide(count, BLOCK_SIZE)
    for part in ("first", "last")[: ceil_divide(8 * dtype.itemsize, _WORD_BITS)]:
        packed = arguments.sort_words(
            words=words.address, positions=positions.address, source=source, count=count, descending=descending
        )
        launch("sort", f"sort_{dtype.value}_{part}", blocks, packed)
        words, positions = sort_pairs(device, words, positions, count, min(8 * dtype.itemsize, _WORD_BITS))
    if lines > 1:
        packed = arguments.sort_places(result=words.address, positions=positions.address, count=count, length=length)
        launch("sort", "sort_line_numbers", blocks, packed)
        words, positions = sort_pairs(device, words, positions, count, (lines - 1).bit_length())
    packed = arguments.sort_places(result=result, positions=positions.address, count=count, length=length)
    launch("sort", "sort_places", blocks, packed)


def sort_pairs(device: GpuDevice, keys: Slice, positions: Slice, count: int, bits: int) -> tuple[Slice, Slice]:
    """Pairs of a key and a position, each a u32, sorted by the lowest bits of keys. The given memory is overwritten."""
    other_keys, other_positions = device.allocate(count * _WORD_BYTES), device.allocate(count * _WORD_BYTES)
    blocks = ceil_divide(count, SORT_TILE)
    counts = device.allocate(_DIGITS * (blocks + 1) * _WORD_BYTES)
    for shift in range(0, bits, DIGIT_BITS):
        packed = arguments.sort_pass(
            keys=keys.address, positions=positions.address, sorted_keys=other_keys.address,
            sorted_positions=other_positions.address, counts=counts.address, count=count, shift=shift, blocks=blocks,
        )  # fmt: skip
        device.kernels.launch("sort", "sort_count", blocks, packed)
        device.kernels.launch("sort", "sort_scan", _DIGITS, packed)
        device.kernels.launch("sort", "sort_scatter", blocks, packed)
        keys, positions, other_keys, other_positions = other_keys, other_positions, keys, positions
    return keys, positions
