"""Attention, with all scores of a head at once."""

from __future__ import annotations

import math
from typing import Any

from .....dtype import DType
from ..errors import tells_errors
from . import cast
from .operand import Operand


@tells_errors
def scaled_dot_product_attention(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Any:
    """softmax(query key^T * scale + mask) value of (b, heads, n, size), of which key heads serve several each."""
    library, dtype, handle = query.library, query.dtype, query.device.handle
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    i64 = library.DTYPES[DType.I64]
    counts = library.full((1,), keys, i64, handle)
    if lengths is not None and lengths.layout.elem_count:
        counts = library.reshape(library.astype(lengths.array, i64), (-1,))
        is_wrong = (counts < 0) | (counts > keys)
        query.device.note("scaled_dot_product_attention", library.reshape(lengths.array, (-1,)), is_wrong, keys + 1)
        counts = library.where(is_wrong, library.constant(0, counts), counts)
    if 0 in (batches, heads, queries, size, keys):
        return query.result(library.full(tuple(query.layout.shape), 0, library.DTYPES[dtype], handle))
    group = heads // key_heads
    lines, key_lines, value_lines = (cast.widen(library, each.array, dtype) for each in (query, key, value))
    lines = library.reshape(lines, (batches, key_heads, group * queries, size))
    scores = library.matmul(lines, library.permute_dims(key_lines, (0, 1, 3, 2))) * library.constant(scale, lines)
    scores = library.reshape(scores, (batches, key_heads, group, queries, keys))
    if mask is not None:
        scores = scores + library.reshape(cast.widen(library, mask.array, dtype), scores.shape)
    counts = library.reshape(counts, (-1, 1, 1, 1, 1))
    seen = counts
    if is_causal:
        seen = counts + library.reshape(library.arange(queries, handle), (-1, 1)) + (1 - queries)
        seen = library.minimum(seen, counts)
    is_seen = library.arange(keys, handle) < seen
    lowest = library.constant(-math.inf, scores)
    scores = library.where(is_seen, scores, lowest)
    largest = library.max(scores, 4)
    weights = library.exp(scores - library.where(largest == lowest, library.constant(0, scores), largest))
    totals = library.sum(weights, 4, weights.dtype)
    # What is not seen may be anything, and nothing times infinity is NaN.
    is_there = library.reshape(library.arange(keys, handle), (1, 1, -1, 1)) < library.reshape(counts, (-1, 1, 1, 1))
    value_lines = library.where(is_there, value_lines, library.constant(0, value_lines))
    weights = library.reshape(weights, (batches, key_heads, group * queries, keys))
    sums = library.reshape(library.matmul(weights, value_lines), (batches, key_heads, group, queries, size))
    zero = library.constant(0, sums)
    return query.result(cast.narrow(library, library.where(totals == zero, zero, sums / totals), dtype))
