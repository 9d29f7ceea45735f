"""Attention, a block of queries at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .....dtype import Array
from ....base.error import InvalidIndex
from ....helpers.host_memory import require_memory
from ....host import cast
from ...array_backend.ops.operand import Operand

# Scores that are computed at once.
_SCORES: Final = 1 << 20


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
    op = "scaled_dot_product_attention"
    return scaled_dot_product_attention_with_logsumexp(query, key, value, mask, lengths, is_causal, scale, op=op)[0]


def scaled_dot_product_attention_with_logsumexp(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
    *,
    op: str = "scaled_dot_product_attention_with_logsumexp",
) -> tuple[Any, ...]:
    """Compute attention, and log(sum(exp(score))) of each query."""
    batches, heads, queries, size = query.layout.shape
    key_heads, keys = key.layout.shape[1:3]
    require_memory(query.dtype, query.layout.shape)
    counts = _counts(op, lengths, batches, keys)
    compute = query.dtype.compute
    result = np.zeros((batches, key_heads, heads // max(key_heads, 1), queries, size), compute.numpy)
    logsumexp = np.full(result.shape[:-1], np.inf, compute.numpy)
    masks = None if mask is None else mask.array.reshape(*result.shape[:-1], keys)
    rows = max(_SCORES // max(heads * keys, 1), 1)
    for batch, count in enumerate(counts if result.size else ()):
        wide = [cast.widen(each.array[batch], each.dtype)[:, None] for each in (key, value)]
        for first in range(0, queries, rows):
            part = slice(first, first + rows)
            # How many keys each query of the part sees.
            positions = np.arange(first, min(first + rows, queries))[:, None]
            seen = positions + (count - queries + 1) if is_causal else np.full_like(positions, count)
            end = max(int(seen[-1, 0]), 0)
            lines = cast.widen(query.array[batch, :, part], query.dtype).reshape(*result.shape[1:3], -1, size)
            added = None if mask is None or masks is None else cast.widen(masks[batch, :, :, part, :end], mask.dtype)
            keys_and_values = wide[0][..., :end, :], wide[1][..., :end, :]
            attended = _attend(lines, *keys_and_values, added, seen, scale)
            result[batch, :, :, part], logsumexp[batch, :, :, part] = attended
    return query.result(cast.narrow(result, query.dtype)), query.result(logsumexp, compute)


def _attend(
    query: Array, key: Array, value: Array, mask: Array | None, seen: Array, scale: float
) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        scores = np.matmul(query, key.swapaxes(-1, -2)) * query.dtype.type(scale)
        if mask is not None:
            scores += mask
        scores[..., np.arange(key.shape[-2]) >= seen] = -np.inf
        largest = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
        totals = weights.sum(-1, keepdims=True)
        logsumexp = np.where(totals == 0, np.inf, largest + np.log(totals))
        return np.where(totals == 0, 0, np.matmul(weights, value) / totals), logsumexp[..., 0]


def _counts(op: str, lengths: Operand | None, batches: int, keys: int) -> list[int]:
    """How many keys there are in each batch."""
    if lengths is None:
        return [keys] * batches
    counts = [int(count) for count in lengths.array.reshape(-1)]
    for count in counts:
        if not 0 <= count <= keys:
            raise InvalidIndex(op, count, keys + 1)
    return counts * batches if len(counts) == 1 else counts
