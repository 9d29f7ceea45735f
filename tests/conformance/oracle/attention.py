"""Attention by its definition: scores, their softmax, and a weighted sum of values; and its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .formats import EXTENDED, Array, decode


class Attention(NamedTuple):
    """The result of attention, and terms of its error bound; all extended and (b, heads, queries, size)."""

    result: Array
    weighted: Array
    """The sums of absolute values, weighted as these are."""
    plain: Array
    """Those of the values that are seen, with the weight 1 each."""
    terms: Array
    """The largest sum of absolute products that makes a score of the query, scaled, with the mask's."""
    logsumexp: Array
    """log(sum(exp(score))) of the query; infinity where all weights are 0."""


def attend(
    name: str,
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
    lengths: list[int] | None,
    *,
    is_causal: bool,
    scale: float,
) -> Attention:
    """Query i of head h sees key j < length of head h // (heads // key heads), if causal j <= i + length - queries."""
    batches, heads, queries, _ = query.shape
    count = keys.shape[2]
    group = heads // max(keys.shape[1], 1)
    results = [np.full(query.shape, np.inf if field == "logsumexp" else 0, EXTENDED) for field in Attention._fields]
    for batch, head, row in np.ndindex(batches, heads, queries):
        length = count if lengths is None else lengths[batch % len(lengths)]
        seen = max(min(length, row + length - queries + 1), 0) if is_causal else length
        q = decode(name, query[batch, head, row])
        k = decode(name, keys[batch, head // group, :seen])
        v = decode(name, values[batch, head // group, :seen])
        added = EXTENDED(0) if mask is None else decode(name, mask[batch, head, row, :seen])
        with np.errstate(all="ignore"):
            scores = (k * q).sum(1) * EXTENDED(scale) + added
            if not len(scores) or (scores == -np.inf).all():
                continue
            weights = np.exp(scores - scores.max())
            total = weights.sum()
            weights = weights / total
            magnitudes = np.abs(k * q).sum(1) * abs(EXTENDED(scale)) + np.where(np.isfinite(added), np.abs(added), 0)
            sums = weights @ v, weights @ np.abs(v), np.abs(v).sum(0)
            parts = (*sums, magnitudes.max(), scores.max() + np.log(total))
            for array, part in zip(results, parts, strict=True):
                array[batch, head, row] = part
    return Attention(*results)


class Changes(NamedTuple):
    """The terms of gradients, and those of their error bounds; all extended and (b, heads, queries, keys)."""

    weights: Array
    of_scores: Array
    """The gradients of the scores."""
    products: Array
    """The sums of absolute products whose difference is the gradient of a weight, less what all of a row have."""
    terms: Array
    """As those of `Attention`."""


def change(
    name: str,
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
    lengths: list[int] | None,
    output: Array,
    gradient: Array,
    *,
    is_causal: bool,
    scale: float,
) -> Changes:
    """The gradients of scores: p_ij (g_i . v_j - g_i . o_i), for a result o and its gradient g."""
    batches, heads, queries, _ = query.shape
    count = keys.shape[2]
    group = heads // max(keys.shape[1], 1)
    results = [np.zeros((batches, heads, queries, count), EXTENDED) for _ in Changes._fields]
    for batch, head, row in np.ndindex(batches, heads, queries):
        length = count if lengths is None else lengths[batch % len(lengths)]
        seen = max(min(length, row + length - queries + 1), 0) if is_causal else length
        q, o, g = (decode(name, each[batch, head, row]) for each in (query, output, gradient))
        k, v = (decode(name, each[batch, head // group, :seen]) for each in (keys, values))
        added = EXTENDED(0) if mask is None else decode(name, mask[batch, head, row, :seen])
        scores = (k * q).sum(1) * EXTENDED(scale) + added
        if not len(scores) or (scores == -np.inf).all():
            continue
        weights = np.exp(scores - scores.max())
        weights = weights / weights.sum()
        magnitudes = np.abs(k * q).sum(1) * abs(EXTENDED(scale)) + np.where(np.isfinite(added), np.abs(added), 0)
        parts = (
            weights,
            weights * ((v * g).sum(1) - (o * g).sum()),
            np.abs(v * g).sum(1) + np.abs(o * g).sum(),
            magnitudes.max(),
        )
        for array, part in zip(results, parts, strict=True):
            array[batch, head, row, :seen] = part
    return Changes(*results)


def spread(
    weights: Array, of_scores: Array, query: Array, keys: Array, gradient: Array, *, scale: float
) -> tuple[Array, ...]:
    """The gradients of queries, keys, values and mask, for weights and the gradients of scores; all extended."""
    batches, key_heads = keys.shape[:2]
    group = query.shape[1] // max(key_heads, 1)

    def shared(result: Array) -> Array:
        return result.reshape(batches, key_heads, group, *result.shape[2:]).sum(2)

    factor = EXTENDED(scale)
    return (
        of_scores @ np.repeat(keys, group, 1) * factor,
        shared(of_scores.swapaxes(2, 3) @ query) * factor,
        shared(weights.swapaxes(2, 3) @ gradient),
        of_scores,
    )
