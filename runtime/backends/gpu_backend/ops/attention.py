"""Attention: which kernel, and into how many parts the keys are split."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from ..... import results
from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, ATTENTION_FEW_ROWS, ATTENTION_ROWS, COUNTERS, GROUP_SHARED
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, address_of, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from ..libraries.library import AttentionParams
from . import copy
from .geometry import LIMIT, Dims
from .index import Rows, check
from .scalar import element_bits

if TYPE_CHECKING:
    from ..libraries.library import Attention

# The sizes of heads that there are kernels for, and the rows that a block takes of them with dot products.
_SIZES: Final = (64, 128, 256)
_ROWS: Final = (1, 4, 8)
# Fewer rows of a key head than these are not worth matrix cores.
_MIN_ROWS: Final = 5
# The keys of a few rows are split so that each multiprocessor has a block, with so many keys at least, or as many as it
# runs at once where these have many keys.
_BUSY_BLOCKS: Final = {"few": 1}
_MAX_BUSY_BLOCKS: Final = 2
_MIN_KEYS: Final = 64
_MANY_KEYS: Final = 512
# Blocks of these kernels take large tiles of rows, and all keys.
_ALL_KEYS: Final = ("tiles", "any")
# The least normal number of f32.
_MIN_SCALE: Final = 2.0**-126
NO_LENGTHS: Final = arguments.Index(NULL, 0, 0, 0, 0, 0, 0)


def scaled_dot_product_attention(
    build: ProgramBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
    *,
    op: str = "scaled_dot_product_attention",
    logsumexp: Buffer | None = None,
) -> Buffer:
    """softmax(query key^T * scale + mask) value of (b, heads, n, size), of which key heads serve several each.

    `logsumexp` is written if it is given.
    """
    batches, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    dtype = query.dtype
    result = build.empty(dtype, query.layout.elem_count)
    # As an index, a length is one of so many.
    indexes = None if lengths is None else Rows.of(build, op, lengths, keys + 1, mark=0)
    if result.length == 0 or keys == 0:
        if indexes is not None:
            check(build, indexes)
        build.zero(result)
        if logsumexp is not None:
            copy.const_set(build, dense(logsumexp, query.shape[:3]), math.inf)
        return result
    group = heads // key_heads
    rows = group * queries
    least = held_size(op, size)
    multiprocessors = build.facts.multiprocessors
    is_plain = mask is None and scale >= _MIN_SCALE
    key_rows = batches * key_heads
    are_few = key_rows * _max_splits(rows, keys) < multiprocessors
    # Blocks of many rows of f32 need a multiprocessor each; those of few rows share one.
    are_many = 2 * key_rows * ceil_divide(rows, ATTENTION_ROWS) >= multiprocessors
    way, taken = _way(dtype, rows, are_few, are_many, is_plain)
    blocks = key_rows * ceil_divide(rows, taken)
    splits = 1
    if way not in _ALL_KEYS and blocks <= COUNTERS:
        busy = _BUSY_BLOCKS.get(way, _MAX_BUSY_BLOCKS)
        splits = _splits(blocks, min(rows, taken), keys, multiprocessors, busy)
    if max(rows, keys) >= LIMIT or blocks * splits > MAX_BLOCKS:
        raise InvalidArgument(op, f"shapes {query.shape} and {key.shape} are more than a kernel can number; use fewer")
    query, key, value = (whole(build, operand) for operand in (query, key, value))
    lines = batches * heads * queries
    parts = build.empty(DType.F32, lines * splits * (least + 2)) if splits > 1 else None
    packed = arguments.attention(
        result=result.address, logsumexp=address_of(logsumexp),
        query=query.address, key=key.address, value=value.address, mask=address_of(mask),
        parts=address_of(parts),
        counters=NULL if parts is None else build.facts.counters,
        indexes=NULL if indexes is None else indexes.indexes.address,
        index=NO_LENGTHS if indexes is None else indexes.fields, is_causal=is_causal,
        index_stride=index_stride(lengths),
        scale=element_bits(scale, DType.F32), query_strides=query.strides[:3], key_strides=key.strides[:3],
        value_strides=value.strides[:3], mask_strides=(0, 0, 0, 0) if mask is None else mask.strides, batches=batches,
        heads=key_heads, group=group, queries=queries, keys=keys, head_size=size, splits=splits,
    )  # fmt: skip
    shared_bytes = GROUP_SHARED if way in _ALL_KEYS else 0
    build.launch("attention", f"attention_{dtype.value}_{least}_{way}", blocks * splits, packed, shared_bytes)
    if indexes is not None:
        build.expect_error()
    return result


def scaled_dot_product_attention_with_logsumexp(
    build: ProgramBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Buffer, ...]:
    """The same, and log(sum(exp(score))) of each query."""
    op = "scaled_dot_product_attention_with_logsumexp"
    sums = build.output(results.scaled_dot_product_attention_with_logsumexp(query)[1])
    result = scaled_dot_product_attention(
        build, query, key, value, mask, lengths, is_causal, scale, op=op, logsumexp=sums
    )
    return result, sums


def by_library(
    build: ProgramBuilder,
    library: Attention,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Buffer | None:
    """The same by a library; None for what that refuses, and for what takes less time by kernels."""
    if mask is not None or lengths is not None or not suits_libraries((query, key, value), is_causal, scale):
        return None
    result = build.empty(query.dtype, query.layout.elem_count)
    params = AttentionParams(form(query), form(key), form(value), is_causal, scale)
    call = library.attention(query.dtype, params, query.address, key.address, value.address, result.address)
    fallback = partial(
        scaled_dot_product_attention, query=query, key=key, value=value, mask=None, lengths=None, is_causal=is_causal,
        scale=scale,
    )  # fmt: skip
    return result if build.append(call, fallback) else None


def by_library_with_logsumexp(
    build: ProgramBuilder,
    library: Attention,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Buffer, ...] | None:
    """The same, and log(sum(exp(score))) of each query."""
    if mask is not None or lengths is not None or not suits_libraries((query, key, value), is_causal, scale):
        return None
    made = tuple(map(build.output, results.scaled_dot_product_attention_with_logsumexp(query)))
    params = AttentionParams(form(query), form(key), form(value), is_causal, scale)
    addresses = query.address, key.address, value.address, *(each.address for each in made)
    call = library.attention_with_logsumexp(query.dtype, params, *addresses)
    fallback = partial(
        scaled_dot_product_attention_with_logsumexp, query=query, key=key, value=value, mask=None, lengths=None,
        is_causal=is_causal, scale=scale,
    )  # fmt: skip
    return made if build.append(call, fallback) else None


def held_size(op: str, size: int) -> int:
    """The size of heads of the kernels for heads of a size."""
    if size > _SIZES[-1]:
        raise InvalidArgument(
            op, f"heads of {size} elements are larger than {_SIZES[-1]}, the kernels' largest; split them"
        )
    return next(each for each in _SIZES if size <= each)


def index_stride(lengths: Operand | None) -> int:
    """From the length of one batch to that of the next."""
    return lengths.strides[0] if lengths is not None and lengths.shape != (1,) and lengths.shape else 0


def suits_libraries(operands: tuple[Operand, ...], is_causal: bool, scale: float) -> bool:
    """Whether libraries do it in less time, of queries, keys and others alike, and give the same."""
    query, key = operands[:2]
    heads, queries = query.shape[1:3]
    key_heads, keys = key.shape[1:3]
    # A query that sees nothing, and a mask that hides all, is not 0 there. A scale below 0 makes the lowest score the
    # highest one, by which libraries do not divide.
    is_plain = 0 < scale < math.inf and not (is_causal and queries > keys)
    are_few = heads // max(key_heads, 1) * queries <= ATTENTION_FEW_ROWS
    is_empty = keys == 0 or query.layout.elem_count == 0
    return is_plain and not are_few and not is_empty and all(map(_is_whole, operands))


def form(operand: Operand) -> tuple[Dims, Dims]:
    """Its dims and strides."""
    return tuple(operand.shape), operand.strides


def _way(dtype: DType, rows: int, are_few: bool, are_many: bool, is_plain: bool) -> tuple[str, int]:
    """How the name of a kernel for so many rows of a key head ends, and how many of them a block takes.

    Where there would be few blocks of many rows, more blocks read the same keys. Rows are plain that have no mask and a
    positive scale.
    """
    if dtype is DType.F32 and rows > ATTENTION_FEW_ROWS and are_many:
        return "tiles", ATTENTION_ROWS
    if dtype.itemsize != 2 or rows < _MIN_ROWS or (are_few and rows <= ATTENTION_FEW_ROWS):
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


def whole(build: ProgramBuilder, operand: Operand) -> Operand:
    """An operand whose heads are read in whole accesses: where it is if it can be, else a copy."""
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
    target = dense(storage, (*outer, padded)).relaid((*outer, size), strides)
    copy.copy(build, operand, target)
    return target


def _is_whole(operand: Operand) -> bool:
    """Whether the heads of an operand can be read in whole accesses where they are."""
    length = ACCESS_BYTES // operand.itemsize
    *outer, size = operand.shape
    steps = [step for count, step in zip(outer, operand.strides, strict=False) if count > 1]
    is_dense = operand.strides[-1] == 1 or size == 1
    return (
        is_dense and size % length == 0 and all(step % length == 0 for step in steps) and operand.address.is_aligned()
    )
