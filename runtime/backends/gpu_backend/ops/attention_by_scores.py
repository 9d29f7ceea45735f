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
    return _attended(build, "scaled_dot_product_attention", query, key, value, mask, lengths, is_causal, scale)[0]


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
    return _attended(build, op, query, key, value, mask, lengths, is_causal, scale)


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
    """The gradients of query, key and value, and of the mask if it is asked for."""
    operands = [query, key, value, *([mask] if of_mask and mask is not None else [])]
    parts = _scored(build, "scaled_dot_product_attention_gradient", query, key, value, mask, lengths, is_causal, scale)
    if parts is None:
        return tuple([memory.zeros(build, each.layout.shape, query.dtype) for each in operands])
    scores, lines, keys, values = parts
    (batches, rows, count), size = scores.shape, lines.shape[2]
    lines_of = (batches, rows, size)
    weights = _exp(build, _sub(build, scores, _columns(copy.contiguous(build, logsumexp), scores)))
    wide, made = (copy.reshaped(build, each, lines_of) for each in (gradient, result))
    of_weights = dense(matmul(build, wide, _transposed(values), (batches, rows, count, size)), scores.shape)
    products = dense(elementwise.binary(build, BinaryOp.MUL, wide, made), lines_of)
    difference = _sub(
        build, of_weights, _columns(dense(reduce(build, ReduceOp.SUM, products, (2,)), lines_of[:2]), scores)
    )
    # Of what is not seen, a gradient may be anything.
    zero = copy.repeated_number(build, scores, 0, scores.shape)
    is_unseen = dense(elementwise.compare(build, CmpOp.EQ, weights, zero), scores.shape)
    product = dense(elementwise.binary(build, BinaryOp.MUL, weights, difference), scores.shape)
    of_scores = _where(build, is_unseen, zero, product)
    found = [
        _scaled(build, dense(matmul(build, of_scores, keys, (batches, rows, size, count)), lines_of), scale),
        _scaled(
            build, dense(matmul(build, _transposed(of_scores), lines, (batches, count, size, rows)), keys.shape), scale
        ),
        matmul(build, _transposed(weights), wide, (batches, count, size, rows)),
        of_scores.storage,
    ]
    return tuple(found[: len(operands)])


def _attended(
    build: ProgramBuilder,
    op: str,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    lengths: Operand | None,
    is_causal: bool,
    scale: float,
) -> tuple[Buffer, Buffer]:
    """The result, and the logarithms of the sums."""
    parts = _scored(build, op, query, key, value, mask, lengths, is_causal, scale)
    if parts is None:
        sums = dense(build.empty(query.dtype, math.prod(query.shape[:3])), query.shape[:3])
        copy.const_set(build, sums, math.inf)
        return memory.zeros(build, query.layout.shape, query.dtype), sums.storage
    scores, lines, _, values = parts
    (batches, rows, count), size, shape = scores.shape, lines.shape[2], lines.shape[:2]
    largest = dense(reduce(build, ReduceOp.MAX, scores, (2,)), shape)
    zero, lowest = (copy.repeated_number(build, scores, number, shape) for number in (0, -math.inf))
    pivot = _where(build, dense(elementwise.compare(build, CmpOp.EQ, largest, lowest), shape), zero, largest)
    weights = _exp(build, _sub(build, scores, _columns(pivot, scores)))
    totals = dense(reduce(build, ReduceOp.SUM, weights, (2,)), shape)
    sums = dense(matmul(build, weights, values, (batches, rows, size, count)), lines.shape)
    means = dense(elementwise.binary(build, BinaryOp.DIV, sums, _columns(totals, lines)), lines.shape)
    sees_nothing = dense(elementwise.compare(build, CmpOp.EQ, totals, zero), shape)
    result = _where(build, _columns(sees_nothing, lines), copy.repeated_number(build, lines, 0, lines.shape), means)
    logarithms = dense(elementwise.unary(build, UnaryOp.LOG, totals), shape)
    found = dense(elementwise.binary(build, BinaryOp.ADD, pivot, logarithms), shape)
    infinity = copy.repeated_number(build, scores, math.inf, shape)
    return result.storage, _where(build, sees_nothing, infinity, found).storage


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
        counts = dense(
            copy.fresh(build, lengths) if lengths.dtype is DType.I64 else _as_i64(build, lengths), lengths.shape
        )
        step = 1 if lengths.layout.elem_count > 1 else 0
        is_present = _compared(
            build, positions.relaid(key.shape, (0, 0, 1, 0)), counts.relaid(key.shape, (step, 0, 0, 0))
        )
        nothing = copy.repeated_number(build, key, 0, key.shape)
        key, value = (_where(build, is_present, each, nothing) for each in (key, value))
    lines = copy.reshaped(build, query, (heads_of_keys, rows, size))
    key_lines, value_lines = (copy.reshaped(build, each, (heads_of_keys, keys, size)) for each in (key, value))
    products = dense(
        matmul(build, lines, _transposed(key_lines), (heads_of_keys, rows, keys, size)), (*query.shape[:3], keys)
    )
    scores = dense(_scaled(build, products, scale), products.shape)
    if mask is not None:
        scores = dense(elementwise.binary(build, BinaryOp.ADD, scores, mask), scores.shape)
    if is_causal or lengths is not None:
        positions = dense(memory.arange(build, 0, 1, Shape((keys,)), DType.I64), (keys,))
        # Before how many keys fewer than there are a query sees none.
        first = (1 - queries if is_causal else 0) + (keys if lengths is None else 0)
        ends = dense(memory.arange(build, first, int(is_causal), Shape((queries,)), DType.I64), (queries,))
        ends = ends.relaid((batches, queries), (0, 1))
        if lengths is not None:
            ends = dense(
                elementwise.binary(build, BinaryOp.ADD, ends, counts.relaid(ends.shape, (step, 0))), ends.shape
            )
        of_query = ends.relaid(scores.shape, (ends.strides[0], 0, ends.strides[1], 0))
        is_seen = _compared(build, positions.relaid(scores.shape, (0, 0, 0, 1)), of_query)
        scores = _where(build, is_seen, scores, copy.repeated_number(build, scores, -math.inf, scores.shape))
    return _Parts(dense(scores.storage, (heads_of_keys, rows, keys)), lines, key_lines, value_lines)


def _as_i64(build: ProgramBuilder, x: Operand) -> Buffer:
    return elementwise.cast(build, MethodOp.TO_DTYPE, x, result=DType.I64)


def _compared(build: ProgramBuilder, x: Operand, y: Operand) -> Operand:
    return dense(elementwise.compare(build, CmpOp.LT, x, y), x.shape)


def _where(build: ProgramBuilder, condition: Operand, x: Operand, y: Operand) -> Operand:
    return dense(elementwise.ternary(build, MethodOp.WHERE_COND, condition, x, y), x.shape)


def _columns(x: Operand, like: Operand) -> Operand:
    """A number for each row of matrices, as elements of the rows."""
    return x.relaid(like.shape, (like.shape[1], 1, 0))


def _transposed(x: Operand) -> Operand:
    (batches, rows, columns), (step, row, column) = x.shape, x.strides
    return x.relaid((batches, columns, rows), (step, column, row))


def _exp(build: ProgramBuilder, x: Operand) -> Operand:
    return dense(elementwise.unary(build, UnaryOp.EXP, x), x.shape)


def _sub(build: ProgramBuilder, x: Operand, y: Operand) -> Operand:
    return dense(elementwise.binary(build, BinaryOp.SUB, x, y), x.shape)


def _scaled(build: ProgramBuilder, x: Operand, scale: float) -> Buffer:
    return elementwise.unary(build, MethodOp.AFFINE, x, scale, 0.0)
