"""Elements in order: by one launch where lines are short, else by a stable radix sort, a digit a pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..... import results
from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, DIGIT_BITS, SELECT_COUNT, SORT_TILE
from ....base.error import InvalidArgument
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, Memory, Operand, Pointer, address_of, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from . import copy, index
from .geometry import LIMIT

_DIGITS: Final = 1 << DIGIT_BITS
_WORD_BITS: Final = 32
_WORD_BYTES: Final = 4
_PAIR_BYTES: Final = 8
# A block sorts a line by a digit in the time in which its threads compare all of it with all of it this many times.
_FEW_COMPARISONS: Final = 1 << 14
# So many blocks keep a multiprocessor busy.
_BLOCKS_AT_ONCE: Final = 8
# Selecting pays if a line has this many candidates for each selected one, and if a block has this many at least
# and for each.
_SELECTED_OF: Final = 4
_CANDIDATES_FOR_EACH: Final = 16
_MIN_CANDIDATES: Final = 4096
# The tiles in which a block counts digits, where there are enough.
_TILES_COUNTED: Final = 4


def argsort(build: ProgramBuilder, x: Operand, descending: bool, count: int) -> Buffer:
    """The positions of the first elements in order along the last dim, as u32; NaN comes last."""
    return _first_positions(build, x, descending, count, results.argsort(x, count))


def _first_positions(build: ProgramBuilder, x: Operand, descending: bool, count: int, wanted: TensorType) -> Buffer:
    lines, length = _lines(x)
    if lines * count == 0:
        return build.output(wanted)
    source = copy.contiguous(build, x)
    if length > BLOCK_SIZE and count <= min(SELECT_COUNT, length // _SELECTED_OF):
        return _selected(build, source, lines, length, descending, count)
    positions = _positions(build, source, lines, length, descending, None)
    if count == length:
        return positions
    first = build.output(wanted)
    copy.copy2d(build, positions, first, lines, count, length, count, 0, 0)
    return first


def sort(build: ProgramBuilder, x: Operand, descending: bool, count: int) -> tuple[Buffer, ...]:
    """The first elements in order along the last dim, and their positions."""
    lines, length = _lines(x)
    if count == length > SORT_TILE and lines:
        elements = build.output(results.sort(x, count)[0])
        return elements, _positions(build, copy.contiguous(build, x), lines, length, descending, elements)
    of_elements, of_positions = results.sort(x, count)
    positions = _first_positions(build, x, descending, count, of_positions)
    chosen, dim = dense(positions, of_positions.shape), len(of_positions.shape) - 1
    return index.gathered(build, x.with_a_dim, chosen, of_elements, dim), positions


def _lines(x: Operand) -> tuple[int, int]:
    """How many lines are sorted, and their length."""
    length = x.shape[-1] if x.shape else 1
    if length >= LIMIT:
        raise InvalidArgument("argsort", f"a line has {length} elements; sort lines of at most {LIMIT - 1}")
    return math.prod(x.shape[:-1]), length


def _selected(build: ProgramBuilder, source: Operand, lines: int, length: int, descending: bool, count: int) -> Buffer:
    """Those of the first `count` elements of each line, at most SELECT_COUNT."""
    dtype = source.dtype
    wanted_blocks = _BLOCKS_AT_ONCE * build.facts.multiprocessors
    listed, candidates, parts = None, length, 0
    while parts != 1:
        most = candidates // max(_MIN_CANDIDATES, _CANDIDATES_FOR_EACH * count)
        parts = max(1, min(most, ceil_divide(wanted_blocks, lines)))
        result = build.empty(DType.U32, lines * parts * count)
        packed = arguments.select_first(
            result=result.address, source=source.address, listed=address_of(listed),
            lines=lines, candidates=candidates, length=length, count=count, parts=parts, descending=descending,
        )  # fmt: skip
        kernel = f"select_{dtype.value}_listed" if listed else f"select_{dtype.value}"
        build.launch("sort", kernel, min(lines * parts, MAX_BLOCKS), packed)
        listed, candidates = result, parts * count
    return result


def _positions(
    build: ProgramBuilder, source: Operand, lines: int, length: int, descending: bool, elements: Buffer | None
) -> Buffer:
    """Those of all elements; in order, these become `elements` of lines longer than a tile."""
    dtype = source.dtype
    result, bits = build.empty(DType.U32, lines * length), 8 * dtype.itemsize
    if length <= BLOCK_SIZE and length * length <= _FEW_COMPARISONS * dtype.itemsize:
        packed = arguments.sort_lines(
            result=result.address, source=source.address, lines=lines, length=length, bits=bits,
            descending=descending,
        )  # fmt: skip
        build.launch("sort", f"sort_{dtype.value}_short", ceil_divide(lines, BLOCK_SIZE // length), packed)
        return result
    is_tile = length <= SORT_TILE
    together = MAX_BLOCKS if is_tile else (LIMIT - 1) // length
    for first in range(0, lines, together):
        some, start = min(together, lines - first), first * length
        to, from_ = result.address + start * _WORD_BYTES, source.address + start * dtype.itemsize
        if is_tile:
            packed = arguments.sort_lines(
                result=to, source=from_, lines=some, length=length, bits=bits, descending=descending
            )
            build.launch("sort", f"sort_{dtype.value}_tile", some, packed)
        else:
            carried = elements.address + start * dtype.itemsize if elements else NULL
            _sort_lines(build, dtype, from_, to, carried, some, length, descending)
    return result


def _sort_lines(
    build: ProgramBuilder, dtype: DType, source: Address, result: Address, elements: Pointer, lines: int, length: int,
    descending: bool,
) -> None:  # fmt: skip
    """Those of lines longer than a tile, and with an address for them the elements."""
    kernels = [f"sort_{dtype.value}_first", *["sort_pass"] * (dtype.itemsize - 1)]
    if len(kernels) * DIGIT_BITS > _WORD_BITS:
        kernels[_WORD_BITS // DIGIT_BITS] = f"sort_{dtype.value}_upper"
    if elements:
        kernels[-1] = f"sort_{dtype.value}_last"
    elif len(kernels) > 1:
        kernels[-1] = "sort_last"
    _sort_by_digits(build, dtype, kernels, source, result, elements, lines, length, descending)


def sort_keys(build: ProgramBuilder, keys: Memory, count: int, bits: int) -> tuple[Memory, Memory]:
    """Keys, each a u32, sorted by their lowest bits, and their positions."""
    sorted_keys, positions = [build.allocate(count * _WORD_BYTES) for _ in range(2)]
    kernels = ["sort_u32_first", *["sort_pass"] * (ceil_divide(bits, DIGIT_BITS) - 2), "sort_split"]
    _sort_by_digits(
        build, DType.U32, kernels, keys.address, positions.address, sorted_keys.address, 1, count, descending=False
    )
    return sorted_keys, positions


def _sort_by_digits(
    build: ProgramBuilder, dtype: DType, kernels: Sequence[str], source: Address, result: Address, carried: Pointer,
    lines: int, length: int, descending: bool,
) -> None:  # fmt: skip
    """Sort lines by the lowest digits of their keys, which are counted at once before: by one with each kernel."""
    passes, tiles = len(kernels), ceil_divide(length, SORT_TILE)
    blocks = lines * tiles
    counts, prefixes = passes * lines * _DIGITS, passes * blocks * _DIGITS
    known = build.allocate((counts + prefixes + passes) * _WORD_BYTES)
    build.zero(known)
    wanted = ceil_divide(_BLOCKS_AT_ONCE * build.facts.multiprocessors, lines)
    parts = min(ceil_divide(tiles, _TILES_COUNTED), wanted)
    packed = arguments.sort_digits(
        source=source, digits=known.address, length=length, parts=parts, passes=passes, descending=descending
    )
    build.launch("sort", f"sort_{dtype.value}_digits", lines * parts, packed)
    # Pairs go from one to the other.
    rooms = [build.allocate(lines * length * _PAIR_BYTES) for _ in range(min(passes - 1, 2))]
    pairs: Pointer = NULL
    for number, kernel in enumerate(kernels):
        to = result if number == passes - 1 else rooms[number % 2].address
        packed = arguments.sort_pass(
            source=source, pairs=pairs, result=to, carried=carried,
            digits=known.address + number * _DIGITS * _WORD_BYTES,
            taken=known.address + (counts + prefixes + number) * _WORD_BYTES,
            prefixes=known.address + (counts + number * blocks * _DIGITS) * _WORD_BYTES, length=length, tiles=tiles,
            passes=passes, shift=number * DIGIT_BITS % _WORD_BITS, descending=descending,
        )  # fmt: skip
        build.launch("sort", kernel, blocks, packed)
        pairs = to
