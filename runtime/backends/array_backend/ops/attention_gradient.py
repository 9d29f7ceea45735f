"""The gradients of attention, with all scores of a head at once."""

from __future__ import annotations

from typing import Any

from . import attention, cast
from .operand import Operand


def scaled_dot_product_attention_gradient(
    query: Operand,
    key: Operand,
    value: Operand,
    result: Operand,
    gradient: Operand,
    logsumexp: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    of_mask: bool,
    scale: float,
) -> tuple[Any, ...]:
    """Compute the gradients of query, key and value, and of the mask if it needs one."""
    library, dtype = query.library, query.dtype
    counts = attention.counted("scaled_dot_product_attention_gradient", key, lengths)
    operands = [query, key, value, *([mask] if of_mask and mask is not None else [])]
    shape = tuple(query.layout.shape)
    if 0 in (*shape, key.layout.shape[2]):
        own = library.DTYPES[dtype]
        zeros = [library.full(tuple(each.layout.shape), 0, own, query.device.handle) for each in operands]
        return tuple([query.result(each) for each in zeros])
    scores, lines, key_lines, value_lines = attention.scored(query, key, value, mask, counts, is_causal, scale)
    batches, key_heads, group, queries, keys = scores.shape
    zero = library.constant(0, scores)
    rows = batches, key_heads, group * queries
    sums = library.reshape(cast.widen(library, logsumexp.array, logsumexp.dtype), (*rows, 1))
    weights = library.exp(library.reshape(scores, (*rows, keys)) - sums)
    wide, output = (library.reshape(cast.widen(library, each.array, dtype), lines.shape) for each in (gradient, result))
    of_weights = library.matmul(wide, library.permute_dims(value_lines, (0, 1, 3, 2)))
    of_scores = weights * (of_weights - library.sum(wide * output, 3, wide.dtype))
    # Of what is not seen, a gradient may be anything.
    of_scores = library.where(weights == zero, zero, of_scores)
    factor = library.constant(scale, lines)
    gradients = [
        library.matmul(of_scores, key_lines) * factor,
        library.matmul(library.permute_dims(of_scores, (0, 1, 3, 2)), lines) * factor,
        library.matmul(library.permute_dims(weights, (0, 1, 3, 2)), wide),
        of_scores,
    ]
    pairs = zip(gradients, operands, strict=False)
    return tuple([query.result(cast.narrow(library, each, dtype)) for each, _ in pairs])
