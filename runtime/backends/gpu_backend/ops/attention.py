"""Attention: which kernel, and into how many parts the keys are split."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, ATTENTION_FEW_ROWS, ATTENTION_ROWS, COUNTERS
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, Pointer, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from . import copy
from .geometry import LIMIT, Dims
from .index import Rows, check

# The sizes of heads that there are kernels for, and the rows that a block takes of them with dot products.
_SIZES: Final = (64, 128, 256)
_ROWS: Final = (1, 4, 8)
# Fewer rows of a key head than these are not worth matrix cores.
_MIN_ROWS: Final = 5
# The keys of a few rows are split so that each multiprocessor has a block, with this many keys at least, or as many
# blocks runs at once where these have many keys.
_BUSY_BLOCKS: Final = {"few": 1}
_MAX_BUSY_BLOCKS: Final = 2
_MIN_KEYS: Final = 64
_MANY_KEYS: Final = 512
# Blocks of these kernels take large tiles of rows, and all keys.
_ALL_KEYS: Final = ("tiles", "any")
# The least normal number of f32.
_MIN_SCALE: Final = 2.0**-126
NO_LENGTHS: Final = arguments.Index(NULL, 0, 0, 0, 0, 0, 0)


class Plan(NamedTuple):
    """The kernel of a launch and its grid."""

    size: int
    """That of the heads of the kernel."""
    rows: str
    """How the name of the kernel ends."""
    blocks: int
    """How many there are for each split of the keys."""
    splits: int
    shared: int


def plan(build: ProgramBuilder, op: str, query: Operand, key: Operand, mask: Operand | None, scale: float) -> Plan:
    """The kernel for queries and keys, of which there are some."""
    batches, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    rows, multiprocessors, key_rows = heads // key_heads * queries, build.facts.multiprocessors, batches * key_heads
    kernel_size = kernel_head_size(op, size)
    is_plain = mask is None and scale >= _MIN_SCALE
    is_small = key_rows * _max_splits(rows, keys) < multiprocessors
    # Blocks of many rows of f32 need a multiprocessor each; those of few rows share one.
    are_many = 2 * key_rows * ceil_divide(rows, ATTENTION_ROWS) >= multiprocessors
    variant, taken = _variant(query.dtype, rows, is_small, are_many, is_plain)
    blocks = key_rows * ceil_divide(rows, taken)
    splits = 1
    if variant not in _ALL_KEYS and blocks <= COUNTERS:
        busy = _BUSY_BLOCKS.get(variant, _MAX_BUSY_BLOCKS)
        splits = _splits(blocks, min(rows, taken), keys, multiprocessors, busy)
    _check_counts(op, query, key, rows, blocks * splits)
    return Plan(kernel_size, variant, blocks, splits, build.facts.shared_bytes if variant in _ALL_KEYS else 0)


class GradientGrid(NamedTuple):
    """The size of the heads of the kernels, and the blocks of those of queries and of keys."""

    size: int
    row_blocks: int
    key_blocks: int


def gradient_grid(op: str, query: Operand, key: Operand) -> GradientGrid:
    """The grid of both kernels of gradients."""
    batches, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    rows = heads // key_heads * queries
    row_blocks, key_blocks = (batches * key_heads * ceil_divide(count, ATTENTION_ROWS) for count in (rows, keys))
    _check_counts(op, query, key, rows, max(row_blocks, key_blocks))
    return GradientGrid(kernel_head_size(op, size), row_blocks, key_blocks)


def _check_counts(op: str, query: Operand, key: Operand, rows: int, blocks: int) -> None:
    if max(rows, key.shape[2]) >= LIMIT or blocks > MAX_BLOCKS:
        reason = f"shapes {query.shape} and {key.shape} are more than a kernel can number; use fewer"
        raise InvalidArgument(op, reason)


def _rows_of(build: ProgramBuilder, op: str, lengths: Operand, key: Operand) -> Rows:
    """Lengths as indexes: one of 0 to the number of keys."""
    return Rows.of(build, op, lengths, key.shape[2] + 1, mark=0)


def index_of(build: ProgramBuilder, op: str, lengths: Operand | None, key: Operand) -> arguments.Index:
    """The lengths as a kernel takes them."""
    return NO_LENGTHS if lengths is None else _rows_of(build, op, lengths, key).fields


def counters(build: ProgramBuilder, splits: int) -> Pointer:
    """The counters by which the blocks of several splits find the last of them."""
    return build.facts.counters if splits > 1 else NULL


def see_nothing(
    build: ProgramBuilder, op: str, key: Operand, lengths: Operand | None, result: Buffer, logsumexp: Buffer | None
) -> None:
    """Write the results of queries that see no keys, or of none."""
    zero_gradients(build, op, key, lengths, result)
    if logsumexp is not None:
        copy.const_set(build, dense(logsumexp, (logsumexp.length,)), math.inf)


def zero_gradients(
    build: ProgramBuilder, op: str, key: Operand, lengths: Operand | None, *results: Buffer | None
) -> None:
    """Set results to 0, and check the lengths."""
    if lengths is not None:
        check(build, _rows_of(build, op, lengths, key))
    for result in results:
        if result is not None:
            build.zero(result)


def kernel_head_size(op: str, size: int) -> int:
    """The size of heads of the kernels for heads of a size."""
    if size > _SIZES[-1]:
        raise InvalidArgument(
            op, f"heads of {size} elements are larger than {_SIZES[-1]}, the kernels' largest; split them"
        )
    return next(each for each in _SIZES if size <= each)


def suits_libraries(operands: tuple[Operand, ...], is_causal: bool, scale: float) -> bool:
    """Whether libraries do it in less time, of queries, keys and others alike, and give the same."""
    query, key = operands[:2]
    heads, queries = query.shape[1:3]
    key_heads, keys = key.shape[1:3]
    # A query that sees nothing, and a mask that hides all, is not 0 there. A scale below 0 makes the lowest score the
    # highest one, by which libraries do not divide.
    is_plain = 0 < scale < math.inf and not (is_causal and queries > keys)
    is_small = heads // max(key_heads, 1) * queries <= ATTENTION_FEW_ROWS
    is_empty = keys == 0 or query.layout.elem_count == 0
    return is_plain and not is_small and not is_empty and all(map(_is_whole, operands))


def form(operand: Operand) -> tuple[Dims, Dims]:
    """Its dims and strides."""
    return tuple(operand.shape), operand.strides


def _variant(dtype: DType, rows: int, is_small: bool, are_many: bool, is_plain: bool) -> tuple[str, int]:
    """Return the suffix of the kernel's name for the rows of a key head, and how many of them a block takes.

    Where there would be few blocks of many rows, more blocks read the same keys. Rows are plain that have no mask and a
    positive scale.
    """
    if dtype is DType.F32 and rows > ATTENTION_FEW_ROWS and are_many:
        return "tiles", ATTENTION_ROWS
    if dtype.itemsize != 2 or rows < _MIN_ROWS or (is_small and rows <= ATTENTION_FEW_ROWS):
        taken = next((count for count in _ROWS if rows <= count), _ROWS[-1])
        return f"rows{taken}", taken
    if rows <= ATTENTION_FEW_ROWS:
        return "few", ATTENTION_FEW_ROWS
    return "tiles" if is_plain else "any", ATTENTION_ROWS


def _splits(blocks: int, rows: int, keys: int, multiprocessors: int, busy: int) -> int:
    """Into how many parts the keys of each block's rows are split: equally many steps each, if all are there."""
    most = max(multiprocessors // blocks, min(busy * multiprocessors // blocks, keys // _MANY_KEYS))
    most = min(most, _max_splits(rows, keys))
    steps = ceil_divide(keys, _MIN_KEYS)
    return ceil_divide(steps, ceil_divide(steps, max(min(most, steps), 1)))


def _max_splits(rows: int, keys: int) -> int:
    """More would take longer: what the last block joins grows with the splits, and what each of them has shrinks."""
    return math.isqrt(keys // rows)


def aligned(build: ProgramBuilder, operand: Operand) -> Operand:
    """Return an operand whose heads are read in aligned accesses: itself if possible, else a copy."""
    if _is_whole(operand):
        return operand
    length = ACCESS_BYTES // operand.itemsize
    *outer, size = operand.shape
    padded = ceil_divide(size, length) * length
    if padded == size:
        return copy.copied(build, operand)
    storage = build.empty(operand.dtype, math.prod(outer) * padded)
    build.zero(storage)
    strides: Dims = copy.row_major((*outer, padded))
    target = dense(storage, (*outer, padded)).as_strided((*outer, size), strides)
    copy.copy(build, operand, target)
    return target


def _is_whole(operand: Operand) -> bool:
    """Whether the heads of an operand can be read in aligned accesses without a copy."""
    length = ACCESS_BYTES // operand.itemsize
    *outer, size = operand.shape
    steps = [step for count, step in zip(outer, operand.strides, strict=False) if count > 1]
    is_dense = operand.strides[-1] == 1 or size == 1
    return (
        is_dense and size % length == 0 and all(step % length == 0 for step in steps) and operand.address.is_aligned()
    )
