"""Attention of f64, which has no kernels of its own: products, maps and reductions of all scores in memory."""

from __future__ import annotations

import math
from typing import NamedTuple

from .....dtype import DType
from .....op import BinaryOp, CmpOp, MethodOp, ReduceOp, UnaryOp
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from . import copy, elementwise, memory
from .elementwise import applied
from .index import Rows, check
from .matmul import matmul
from .reduce import reduce


def scaled_dot_product_attention(
    build: ProgramBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> Buffer:
    """softmax(query key^T * scale + mask) value of (b, heads, n, size), of which key heads serve several each."""
    op = "scaled_dot_product_attention"
    return scaled_dot_product_attention_with_logsumexp(
        build, query, key, value, mask, lengths, is_causal, scale, op=op
    )[0]


def scaled_dot_product_attention_with_logsumexp(
    build: ProgramBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
    *,
    op: str = "scaled_dot_product_attention_with_logsumexp",
) -> tuple[Buffer, ...]:
    """Compute attention, and log(sum(exp(score))) of each query."""
    parts = _scored(build, op, query, key, value, mask, lengths, is_causal, scale)
    if parts is None:
        sums = dense(build.empty(query.dtype, math.prod(query.shape[:3])), query.shape[:3])
        copy.const_set(build, sums, math.inf)
        return memory.zeros(build, query.layout.shape, query.dtype), sums.storage
    scores, lines, _, values = parts
    (batches, rows, count), size, shape = scores.shape, lines.shape[2], lines.shape[:2]
    largest = dense(reduce(build, ReduceOp.MAX, scores, (2,)), shape)
    zero, lowest = (copy.repeated_number(build, scores, number, shape) for number in (0, -math.inf))
    pivot = applied(build, MethodOp.WHERE_COND, applied(build, CmpOp.EQ, largest, lowest), zero, largest)
    weights = applied(build, UnaryOp.EXP, applied(build, BinaryOp.SUB, scores, _columns(pivot, scores)))
    totals = dense(reduce(build, ReduceOp.SUM, weights, (2,)), shape)
    sums = dense(matmul(build, weights, values, (batches, rows, size, count)), lines.shape)
    means = applied(build, BinaryOp.DIV, sums, _columns(totals, lines))
    sees_nothing = applied(build, CmpOp.EQ, totals, zero)
    nothing = copy.repeated_number(build, lines, 0, lines.shape)
    result = applied(build, MethodOp.WHERE_COND, _columns(sees_nothing, lines), nothing, means)
    logsumexp = applied(build, BinaryOp.ADD, pivot, applied(build, UnaryOp.LOG, totals))
    infinity = copy.repeated_number(build, scores, math.inf, shape)
    return result.storage, applied(build, MethodOp.WHERE_COND, sees_nothing, infinity, logsumexp).storage


def scaled_dot_product_attention_gradient(
    build: ProgramBuilder,
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
) -> tuple[Buffer, ...]:
    """Compute the gradients of query, key and value, and of the mask if it needs one."""
    operands = [query, key, value, *([mask] if of_mask and mask is not None else [])]
    parts = _scored(build, "scaled_dot_product_attention_gradient", query, key, value, mask, lengths, is_causal, scale)
    if parts is None:
        return tuple([memory.zeros(build, each.layout.shape, query.dtype) for each in operands])
    scores, lines, keys, values = parts
    (batches, rows, count), size = scores.shape, lines.shape[2]
    lines_of = (batches, rows, size)
    sums = _columns(copy.contiguous(build, logsumexp), scores)
    weights = applied(build, UnaryOp.EXP, applied(build, BinaryOp.SUB, scores, sums))
    wide, output = (copy.reshaped(build, each, lines_of) for each in (gradient, result))
    of_weights = dense(matmul(build, wide, _transposed(values), (batches, rows, count, size)), scores.shape)
    products = applied(build, BinaryOp.MUL, wide, output)
    sums = _columns(dense(reduce(build, ReduceOp.SUM, products, (2,)), lines_of[:2]), scores)
    difference = applied(build, BinaryOp.SUB, of_weights, sums)
    # Of what is not seen, a gradient may be anything.
    zero = copy.repeated_number(build, scores, 0, scores.shape)
    is_unseen = applied(build, CmpOp.EQ, weights, zero)
    product = applied(build, BinaryOp.MUL, weights, difference)
    of_scores = applied(build, MethodOp.WHERE_COND, is_unseen, zero, product)
    of_lines = dense(matmul(build, of_scores, keys, (batches, rows, size, count)), lines_of)
    of_query = applied(build, MethodOp.AFFINE, of_lines, scale, 0.0)
    of_keys = dense(matmul(build, _transposed(of_scores), lines, (batches, count, size, rows)), keys.shape)
    of_key = applied(build, MethodOp.AFFINE, of_keys, scale, 0.0)
    of_value = matmul(build, _transposed(weights), wide, (batches, count, size, rows))
    return (of_query.storage, of_key.storage, of_value, of_scores.storage)[: len(operands)]


class _Parts(NamedTuple):
    """Matrices of each key head: its scores, the queries that it serves, its keys and its values."""

    scores: Operand
    lines: Operand
    keys: Operand
    values: Operand


def _scored(
    build: ProgramBuilder,
    op: str,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> _Parts | None:
    """Scores, -inf of what is not seen; None where there are no elements."""
    (batches, heads, queries, size), (key_heads, keys) = query.shape, key.shape[1:3]
    if lengths is not None:
        check(build, Rows.of(build, op, lengths, keys + 1, mark=0))
    if 0 in (*query.shape, keys):
        return None
    heads_of_keys, rows = batches * key_heads, heads // key_heads * queries
    # What is not there may be anything, and nothing times infinity is NaN.
    if lengths is not None:
        positions = dense(memory.arange(build, 0, 1, Shape((keys,)), DType.I64), (keys,))
        counts = dense(elementwise.cast(build, MethodOp.TO_DTYPE, lengths, result=DType.I64), lengths.shape)
        step = 1 if lengths.layout.elem_count > 1 else 0
        ends = counts.as_strided(key.shape, (step, 0, 0, 0))
        is_present = applied(build, CmpOp.LT, positions.as_strided(key.shape, (0, 0, 1, 0)), ends)
        nothing = copy.repeated_number(build, key, 0, key.shape)
        key, value = (applied(build, MethodOp.WHERE_COND, is_present, each, nothing) for each in (key, value))
    lines = copy.reshaped(build, query, (heads_of_keys, rows, size))
    key_lines, value_lines = (copy.reshaped(build, each, (heads_of_keys, keys, size)) for each in (key, value))
    products = matmul(build, lines, _transposed(key_lines), (heads_of_keys, rows, keys, size))
    scores = applied(build, MethodOp.AFFINE, dense(products, (*query.shape[:3], keys)), scale, 0.0)
    if mask is not None:
        scores = applied(build, BinaryOp.ADD, scores, mask)
    if is_causal or lengths is not None:
        positions = dense(memory.arange(build, 0, 1, Shape((keys,)), DType.I64), (keys,))
        # Before how many keys fewer than there are a query sees none.
        first = (1 - queries if is_causal else 0) + (keys if lengths is None else 0)
        ends = dense(memory.arange(build, first, int(is_causal), Shape((queries,)), DType.I64), (queries,))
        ends = ends.as_strided((batches, queries), (0, 1))
        if lengths is not None:
            ends = applied(build, BinaryOp.ADD, ends, counts.as_strided(ends.shape, (step, 0)))
        of_query = ends.as_strided(scores.shape, (ends.strides[0], 0, ends.strides[1], 0))
        is_seen = applied(build, CmpOp.LT, positions.as_strided(scores.shape, (0, 0, 0, 1)), of_query)
        lowest = copy.repeated_number(build, scores, -math.inf, scores.shape)
        scores = applied(build, MethodOp.WHERE_COND, is_seen, scores, lowest)
    return _Parts(dense(scores.storage, (heads_of_keys, rows, keys)), lines, key_lines, value_lines)


def _columns(x: Operand, like: Operand) -> Operand:
    """A number for each row of matrices, as elements of the rows."""
    return x.as_strided(like.shape, (like.shape[1], 1, 0))


def _transposed(x: Operand) -> Operand:
    (batches, rows, columns), (step, row, column) = x.shape, x.strides
    return x.as_strided((batches, columns, rows), (step, column, row))
