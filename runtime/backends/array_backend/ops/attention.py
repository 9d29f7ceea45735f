"""Attention, with all scores of a head at once."""

from __future__ import annotations

import math
from typing import Any

from .....dtype import DType
from . import cast
from .operand import Operand


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
    return _attended("scaled_dot_product_attention", query, key, value, mask, lengths, is_causal, scale)[0]


def scaled_dot_product_attention_with_logsumexp(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Any, ...]:
    """Compute attention, and log(sum(exp(score))) of each query."""
    op = "scaled_dot_product_attention_with_logsumexp"
    result, totals, largest = _attended(op, query, key, value, mask, lengths, is_causal, scale)
    library, infinity = query.library, query.library.constant(math.inf, totals)
    sums = library.where(totals == library.constant(0, totals), infinity, largest + library.log(totals))
    return result, query.result(library.reshape(sums, tuple(query.layout.shape[:3])), query.dtype.compute)


def _attended(
    op: str,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Any, Any, Any]:
    """The result, the total of the weights of each query, and the largest score, which was taken away from others."""
    library, dtype, handle = query.library, query.dtype, query.device.handle
    counts = counted(op, key, lengths)
    shape = tuple(query.layout.shape)
    if 0 in (*shape, key.layout.shape[2]):
        none = library.full(shape[:3], 0, library.DTYPES[dtype.compute], handle)
        return query.result(library.full(shape, 0, library.DTYPES[dtype], handle)), none, none
    scores, _, _, value_lines = scored(query, key, value, mask, counts, is_causal, scale)
    largest, zero = library.max(scores, 4), library.constant(0, scores)
    weights = library.exp(scores - library.where(largest == library.constant(-math.inf, scores), zero, largest))
    totals = library.sum(weights, 4, weights.dtype)
    batches, key_heads, group, queries, keys = weights.shape
    weights = library.reshape(weights, (batches, key_heads, group * queries, keys))
    sums = library.reshape(library.matmul(weights, value_lines), (*totals.shape[:4], shape[3]))
    means = library.where(totals == zero, zero, sums / totals)
    return query.result(cast.narrow(library, means, dtype)), totals, largest


def counted(op: str, key: Operand, lengths: Operand | None) -> Any:
    """How many keys there are, in all batches or in each."""
    library, keys = key.library, key.layout.shape[2]
    i64 = library.DTYPES[DType.I64]
    if lengths is None or not lengths.layout.elem_count:
        return library.full((1,), keys, i64, key.device.handle)
    counts = library.reshape(library.astype(lengths.array, i64), (-1,))
    is_wrong = (counts < 0) | (counts > keys)
    key.device.note(op, library.reshape(lengths.array, (-1,)), is_wrong, keys + 1)
    return library.where(is_wrong, library.constant(0, counts), counts)


def scored(
    query: Operand, key: Operand, value: Operand, mask: Operand | None, counts: Any, is_causal: bool, scale: float
) -> tuple[Any, Any, Any, Any]:
    """Scores (b, key heads, group, n, keys), -inf of what is not seen, and lines of queries, keys and values."""
    library, dtype, handle = query.library, query.dtype, query.device.handle
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    group = heads // key_heads
    lines, key_lines, value_lines = (cast.widen(library, each.array, dtype) for each in (query, key, value))
    lines = library.reshape(lines, (batches, key_heads, group * queries, size))
    # The elements of missing keys may be anything, and 0 times infinity is NaN.
    is_present = library.reshape(library.arange(keys, handle), (1, 1, -1, 1)) < library.reshape(counts, (-1, 1, 1, 1))
    key_lines, value_lines = (
        library.where(is_present, each, library.constant(0, each)) for each in (key_lines, value_lines)
    )
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
    scores = library.where(is_seen, scores, library.constant(-math.inf, scores))
    return scores, lines, key_lines, value_lines
