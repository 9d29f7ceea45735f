"""scaled_dot_product_attention, what it leaves for gradients, and these."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import ROUNDED, SUM_EPSILONS, assert_close, assert_same, sum_bound
from ..layouts import Operand
from ..oracle import attention as oracle
from ..oracle.formats import EXTENDED, FLOATS, HALVES, NO_ROW, NUMPY, Array, compute_name, decode, encode, from_number
from .indexing import check_bad_indexes


@dataclass(frozen=True)
class Case:
    """The sizes b, heads, key heads, queries, keys and that of a head, and what else attention is given."""

    sizes: tuple[int, int, int, int, int, int]
    is_causal: bool = False
    lengths: tuple[int, ...] | None = None
    has_mask: bool = False
    placements: tuple[str, str, str, str] = ("contiguous",) * 4
    scale: float = 0.3


# What a weight loses that f16 cannot hold, where the largest is 1: half of its least number, divided by 2**15.
MIN_WEIGHT = -40
# The same of the gradient of a score, which nothing is divided by.
MIN_CHANGE = -25
_TRANSPOSED = ("positions first", "positions first", "positions first", "contiguous")
CASES = (
    Case((1, 1, 1, 1, 1, 1)),
    # One query, or a few: over keys in one part and, where there are few rows, in several.
    Case((2, 4, 2, 1, 100, 64)),
    Case((1, 4, 1, 1, 300, 128), lengths=(170,), placements=_TRANSPOSED),
    Case((2, 1, 1, 1, 700, 16), lengths=(699, 5), is_causal=True),
    Case((1, 2, 2, 3, 200, 128), is_causal=True),
    Case((2, 2, 1, 4, 66, 256), is_causal=True, has_mask=True),
    Case((1, 3, 1, 5, 90, 40), is_causal=True, lengths=(3,), has_mask=True),
    # Rows that tiles of 16 and blocks of 128 do not fill, and keys that tiles do not.
    Case((1, 1, 1, 40, 70, 64), is_causal=True, placements=_TRANSPOSED),
    Case((1, 4, 2, 70, 150, 128), is_causal=True, lengths=(99,), placements=_TRANSPOSED),
    Case((2, 2, 2, 50, 130, 80), has_mask=True, lengths=(0, 77), scale=-0.3),
    Case((1, 1, 1, 130, 60, 256), is_causal=True),
    Case((1, 2, 1, 129, 65, 32), has_mask=True),
    # Heads that no whole access, or none at its place, reads.
    Case((1, 2, 2, 33, 65, 19)),
    Case((1, 2, 1, 2, 9, 20), has_mask=True),
    *(
        Case((2, 4, 2, queries, 40, 24), has_mask=True, placements=placements)
        for queries in (2, 35)
        for placements in [
            ("offset", "transposed", "rolled", "broadcast rows"),
            ("broadcast rows", "broadcast columns", "narrowed columns", "broadcast all"),
            ("narrowed rows", "broadcast middle", "narrowed rows", "transposed"),
        ]
    ),
    Case((0, 2, 1, 3, 4, 8)),
    Case((2, 2, 1, 0, 4, 8), lengths=(1, 2)),
    Case((2, 2, 1, 3, 0, 8), has_mask=True),
    Case((2, 2, 1, 3, 4, 0)),
)


def lay_out(bench: Bench, numbers: Array, placement: str) -> Operand:
    """An operand (b, heads, n, size), of which the positions may lie before the heads."""
    if placement != "positions first":
        return bench.lay_out(numbers, placement)
    operand = bench.lay_out(np.ascontiguousarray(numbers.swapaxes(1, 2)), "narrowed rows")
    return replace(operand, values=operand.values.swapaxes(1, 2), layout=operand.layout.transpose(1, 2))


def scaled_dot_product_attention(bench: Bench) -> None:
    for number, case in bench.some([*enumerate(CASES)]):
        check_attention(bench, case, index_name_of(number, case), bench.where(case))
    check_specials(bench)
    check_small(bench)
    query = bench.lay_out(values.modest(bench.generator, bench.name, (2, 2, 3, 4)))
    keys = bench.lay_out(values.modest(bench.generator, bench.name, (2, 1, 5, 4)))

    def call(lengths: Operand) -> object:
        return attend(bench, (query, keys, keys, None, lengths), is_causal=False, scale=1)

    for index_name in NO_ROW:
        check_bad_indexes(bench, index_name, (2,), 6, call)


def index_name_of(number: int, case: Case) -> str:
    """The dtype of a case's lengths."""
    name = list(NO_ROW)[number % len(NO_ROW)]
    return "i32" if case.lengths is not None and max(case.lengths) > np.iinfo(NUMPY[name]).max else name


def check_attention(bench: Bench, case: Case, index_name: str, where: str) -> None:
    check(bench, draw(bench, case, index_name), where, is_causal=case.is_causal, scale=case.scale)


def draw(bench: Bench, case: Case, index_name: str) -> tuple[Operand | None, ...]:
    """Queries, keys, values, the mask and the lengths of a case."""
    batches, heads, key_heads, queries, count, size = case.sizes
    shapes = (
        (batches, heads, queries, size),
        *((batches, key_heads, count, size),) * 2,
        (batches, heads, queries, count),
    )
    drawn = [values.modest(bench.generator, bench.name, shape) for shape in shapes]
    for batch, length in enumerate(case.lengths or ()):
        # What is behind the length is not read.
        for each in drawn[1:3]:
            each[batch if len(case.lengths or ()) > 1 else slice(None), :, length:] = from_number(bench.name, np.nan)
    query, keys, held, mask = (lay_out(bench, *each) for each in zip(drawn, case.placements, strict=True))
    lengths = None
    if case.lengths is not None:
        lengths = bench.lay_out(np.array(case.lengths).astype(NUMPY[index_name]), "offset", index_name)
    return query, keys, held, mask if case.has_mask else None, lengths


def attend(bench: Bench, operands: tuple[Operand | None, ...], *, is_causal: bool, scale: float) -> list[Array]:
    """The result, and logsumexp if the cell gives it."""
    query = operands[0]
    assert query is not None
    remaining = [
        part for each in operands[1:] for part in ((None, None) if each is None else (each.storage, each.layout))
    ]
    output = getattr(query.storage, bench.cell.method)(query.layout, *remaining, is_causal, scale)
    kinds = (bench.name, query.values.shape), (compute_name(bench.name), query.values.shape[:3])
    results = output if isinstance(output, tuple) else (output,)
    return [bench.read(result, *kind, bench.where()) for result, kind in zip(results, kinds, strict=False)]


def check(bench: Bench, operands: tuple[Operand | None, ...], where: str, *, is_causal: bool, scale: float) -> None:
    got, *others = attend(bench, operands, is_causal=is_causal, scale=scale)
    for again, first in zip(attend(bench, operands, is_causal=is_causal, scale=scale), (got, *others), strict=True):
        assert_same(again, first, f"{where}, again")
    query, keys, held, mask, lengths = (None if each is None else each.values for each in operands)
    counts = None if lengths is None else [int(length) for length in lengths]
    expected = oracle.attend(bench.name, query, keys, held, mask, counts, is_causal=is_causal, scale=scale)
    count, size = keys.shape[2:]
    with np.errstate(all="ignore"):
        # An error of a score is a relative one of its weight, and so is what rounding of a weight to a half type loses.
        relative = 2 * sum_bound(bench.name, expected.terms, size) + sum_bound(
            bench.name, EXTENDED(2 * SUM_EPSILONS), count
        )
        off = np.where(np.isfinite(relative), relative, 0)
        if bench.name in HALVES:
            relative = relative + EXTENDED(2) ** -FLOATS[bench.name].precision
        slack = expected.weighted * relative + expected.plain * EXTENDED(2) ** MIN_WEIGHT
        slack = np.where(np.isfinite(slack), slack, 0)
    ulps = ROUNDED if bench.name in HALVES else 0
    assert_close(bench.name, got, expected.result, ulps, where, slack=slack, zero_sign=False)
    for logsumexp in others:
        each = np.repeat(logsumexp[..., None], size, -1)
        assert_close(compute_name(bench.name), each, expected.logsumexp, ROUNDED, where, slack=off, zero_sign=False)


def check_specials(bench: Bench) -> None:
    """Infinities hide keys, all of them too; NaN and an infinite score are NaN in the rows that see them."""
    for queries, size in ((3, 8), (40, 64)):
        draw = [values.modest(bench.generator, bench.name, (1, 2, count, size)) for count in (queries, 70, 70)]
        mask = np.zeros((1, 2, queries, 70), EXTENDED)
        mask[0, 0, 0], mask[0, 0, 1, :66], mask[0, 1, :, 3] = -np.inf, -np.inf, -np.inf
        mask[0, 1, 1, 69], mask[0, 1, 2, 5] = np.nan, np.inf
        if FLOATS[bench.name].saturates:
            mask = np.where(np.isfinite(mask), mask, 0)
        operands = [bench.lay_out(each) for each in (*draw, encode(bench.name, mask))]
        where = bench.where(f"a mask of infinities, {queries} queries")
        check(bench, (*operands, None), where, is_causal=False, scale=0.2)


def check_small(bench: Bench) -> None:
    """Numbers that f16 has as subnormal ones count, and so do weights that are far smaller than the largest."""
    draw = bench.generator.normal
    for queries in (3, 40):
        sizes = (1, 2, queries, 64), (1, 2, 70, 64)
        small, plain, large = (draw(0, scale, sizes[1]) for scale in (1e-5, 1, 300))
        first = np.zeros(sizes[1])
        # The scores of all keys but the first are 15 lower.
        first[:, :, 0] = 1.0
        cases = (
            ("values", (draw(0, 1, sizes[0]), plain, small), 0.1),
            ("queries", (draw(0, 1e-5, sizes[0]), large, plain), 3.0),
            ("keys", (draw(0, 300, sizes[0]), small, plain), 3.0),
            ("weights", (np.ones(sizes[0]), first, np.where(first > 0, 0, large)), 15 / 64),
        )
        for what, numbers, scale in bench.some(cases):
            inputs = [bench.lay_out(encode(bench.name, each.astype(EXTENDED))) for each in numbers]
            check(
                bench,
                (*inputs, None, None),
                bench.where(f"small {what}, {queries} queries"),
                is_causal=False,
                scale=scale,
            )


def scaled_dot_product_attention_gradient(bench: Bench) -> None:
    for number, case in bench.some([*enumerate(CASES)]):
        where = bench.where(case)
        operands = draw(bench, case, index_name_of(number, case))
        shape = operands[0].values.shape  # type: ignore[union-attr]
        placement = "contiguous" if number % 2 else case.placements[1]
        result, gradient = (lay_out(bench, values.modest(bench.generator, bench.name, shape), placement) for _ in "og")
        logsumexp = sums_of(bench, operands, placement, is_causal=case.is_causal, scale=case.scale)
        check_gradient(
            bench,
            (*operands[:3], result, gradient, logsumexp, *operands[3:]),
            where,
            is_causal=case.is_causal,
            scale=case.scale,
            again=(True, False) if bench.full else (number // 2 % 2 == 0,),
        )
    query = bench.lay_out(values.modest(bench.generator, bench.name, (2, 2, 3, 4)))
    keys = bench.lay_out(values.modest(bench.generator, bench.name, (2, 1, 5, 4)))

    def call(lengths: Operand) -> object:
        return change(bench, (query, keys, keys, query, query, sums, None, lengths), is_causal=False, scale=1)

    sums = sums_of(bench, (query, keys, keys, None, None), "contiguous", is_causal=False, scale=1)
    for index_name in NO_ROW:
        check_bad_indexes(bench, index_name, (2,), 6, call)


def sums_of(
    bench: Bench, operands: tuple[Operand | None, ...], placement: str, *, is_causal: bool, scale: float
) -> Operand:
    """Return logsumexp, the second result of attention."""
    query, keys, held, mask, lengths = (None if each is None else each.values for each in operands)
    counts = None if lengths is None else [int(length) for length in lengths]
    actual = oracle.attend(bench.name, query, keys, held, mask, counts, is_causal=is_causal, scale=scale).logsumexp
    name = compute_name(bench.name)
    placement = placement if placement in ("contiguous", "offset", "transposed") else "narrowed rows"
    return bench.lay_out(actual.max(-1, initial=-np.inf).astype(NUMPY[name]), placement, name)


def change(
    bench: Bench, operands: tuple[Operand | None, ...], *, is_causal: bool, scale: float, of_mask: bool = True
) -> list[Array]:
    query = operands[0]
    assert query is not None
    remaining = [
        part for each in operands[1:] for part in ((None, None) if each is None else (each.storage, each.layout))
    ]
    results = query.storage.scaled_dot_product_attention_gradient(
        query.layout,
        *remaining,  # type: ignore[arg-type]
        is_causal,
        of_mask,
        scale,
    )
    shapes = [each.values.shape for each in (*operands[:3], operands[6] if of_mask else None) if each is not None]
    return [bench.read(result, bench.name, shape, bench.where()) for result, shape in zip(results, shapes, strict=True)]


def check_gradient(
    bench: Bench,
    operands: tuple[Operand | None, ...],
    where: str,
    *,
    is_causal: bool,
    scale: float,
    again: tuple[bool, ...],
) -> None:
    """Gradients, of the result and its gradient whatever these are; then again, with and without the mask's."""
    got = change(bench, operands, is_causal=is_causal, scale=scale)
    for of_mask in again:
        repeated = change(bench, operands, is_causal=is_causal, scale=scale, of_mask=of_mask)
        for actual, expected in zip(repeated, got, strict=False):
            assert_same(actual, expected, f"{where}, again")
    query, keys, held, output, gradient, _, mask, lengths = (None if each is None else each.values for each in operands)
    counts = None if lengths is None else [int(length) for length in lengths]
    changes = oracle.change(
        bench.name, query, keys, held, mask, counts, output, gradient, is_causal=is_causal, scale=scale
    )
    is_there = np.arange(keys.shape[2])[:, None] < np.reshape(counts or [keys.shape[2]], (-1, 1, 1, 1))
    lines = [decode(bench.name, each) for each in (query, np.where(is_there, keys, np.zeros_like(keys)), gradient)]
    expected = oracle.spread(changes.weights, changes.of_scores, *lines, scale=scale)
    count, size = keys.shape[2:]
    # An error of a score is a relative one of its weight, and so is what rounding to a half type loses.
    relative = 2 * sum_bound(bench.name, changes.terms, size) + sum_bound(bench.name, EXTENDED(2 * SUM_EPSILONS), count)
    # Weights below the least normal number may be 0.
    tiny = EXTENDED(np.finfo(NUMPY[compute_name(bench.name)]).tiny)
    weights = changes.weights * relative + tiny
    of_scores = changes.weights * sum_bound(bench.name, changes.products, size)
    of_scores = of_scores + np.abs(changes.of_scores) * relative + (1 + changes.products) * tiny
    if bench.name in HALVES:
        half = EXTENDED(2) ** -FLOATS[bench.name].precision
        weights = weights + changes.weights * half + EXTENDED(2) ** MIN_WEIGHT
        of_scores = of_scores + np.abs(changes.of_scores) * half + EXTENDED(2) ** MIN_CHANGE
    # Bounds need no more digits than f64 has, of which products are a hundred times as fast.
    magnitudes = [np.abs(each).astype(np.float64) for each in lines]
    parts = (each.astype(np.float64) for each in (changes.weights, np.abs(changes.of_scores), weights, of_scores))
    total_weights, total_scores, off_weights, off_scores = parts
    sums = oracle.spread(total_weights, total_scores, *magnitudes, scale=abs(scale))
    slack = oracle.spread(off_weights, off_scores, *magnitudes, scale=abs(scale))
    ulps = ROUNDED if bench.name in HALVES else 0
    terms = max(count, query.shape[1] * query.shape[2])
    for actual, right, off, total in zip(got, expected, slack, sums, strict=False):
        allowed = off + sum_bound(bench.name, total, terms) + terms * tiny
        assert_close(bench.name, actual, right, ulps, where, slack=allowed, zero_sign=False)


HANDLERS = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "scaled_dot_product_attention_with_logsumexp": scaled_dot_product_attention,
    "scaled_dot_product_attention_gradient": scaled_dot_product_attention_gradient,
}
