"""reduce_op and matmul."""

from __future__ import annotations

import numpy as np
import pytest
from tallow import Layout
from tallow.op import BinaryOp, ReduceOp, UnaryOp
from tallow.runtime.base.error import EmptyTensor

from .. import values
from ..bench import Bench
from ..comparison import ROUNDED, assert_close, assert_equal_values, assert_same, sum_bound
from ..layouts import Operand
from ..oracle import reductions as oracle
from ..oracle.formats import (
    COMPLEX,
    EXTENDED,
    FLOATS,
    HALVES,
    INTEGERS,
    NUMPY,
    Array,
    convert,
    decode,
    encode,
    from_number,
    part_name,
)
from .elementwise import result_name
from .scans import near_one, powers_of_two

# Shape, the dims that are reduced, and how the tensor lies.
REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((), (), "contiguous"),
    ((), (), "offset"),
    ((1, 1, 1), (1,), "offset"),
    ((4, 5, 6), (), "transposed"),
    *(((4, 5, 6), dims, "contiguous") for dims in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (2, 0)]),
    *(((4, 5, 6), dims, "rolled") for dims in [(0,), (1,), (2,), (0, 2)]),
    *(((4, 5, 6), dims, "broadcast middle") for dims in [(0,), (1,), (1, 2)]),
    *(
        ((9, 10), dims, placement)
        for placement in ("transposed", "broadcast rows", "narrowed columns", "narrowed rows")
        for dims in [(0,), (1,)]
    ),
    ((9, 10), (0, 1), "broadcast all"),
    ((2, 3, 2, 3, 4), (0, 2, 4), "contiguous"),
    ((2, 3, 2, 3, 4), (1, 3), "transposed"),
    *(((3, width), (1,), "contiguous") for width in (1, 2, 3, 4, 7, 8, 16, 17, 31, 33, 64, 65, 127, 129, 256, 257)),
    ((1, 1025), (1,), "offset"),
    ((2, 3000), (1,), "contiguous"),
    ((2, 3000), (1,), "transposed"),
    ((300, 3), (1,), "contiguous"),
    ((300, 3), (0,), "contiguous"),
    ((1023,), (0,), "contiguous"),
    ((0, 3), (1,), "contiguous"),
    ((2, 0, 3), (0, 2), "contiguous"),
]
EMPTY_REDUCTIONS = [((0,), (0,)), ((0, 3), (0,)), ((3, 0), (0, 1)), ((2, 0, 3), (1,))]


def reduce_op(bench: Bench) -> None:
    is_sum = bench.op in (*oracle.TERMS, "mean", "norm")
    draws = [values.modest] if is_sum else [values.few_values, values.mixed]
    if bench.op == "prod" and bench.name not in INTEGERS:
        draws = [powers_of_two, near_one]
    if bench.op == "prod_slope":
        draws = [_few_zeros]
    if bench.op in ("any", "all"):
        draws.append(_mostly_neutral)
    for shape, dims, placement in bench.share(REDUCTIONS):
        for draw in draws:
            numbers = draw(bench.generator, bench.name, shape)
            where = bench.where(f"shape {shape}, dims {dims}, {placement}, {draw.__name__} numbers")
            check_reduction(bench, bench.lay_out(numbers, placement), dims, where)
    for shape, dims in EMPTY_REDUCTIONS:
        where = bench.where(f"shape {shape}, dims {dims}")
        operand = bench.lay_out(np.zeros(shape, NUMPY[bench.name]))
        if bench.op not in oracle.FINDS_ELEMENT:
            check_reduction(bench, operand, dims, where)
            continue
        with pytest.raises(EmptyTensor) as caught:
            operand.storage.reduce_op(ReduceOp(bench.op), operand.layout, dims)
        assert caught.value.op == bench.op, where
    if is_sum and bench.name not in INTEGERS:
        check_float_sums(bench)
        for shape, dims, placement in bench.share(REDUCTIONS):
            check_sum_of_negative_zeros(bench, shape, dims, placement)
    if bench.op in ("prod", "prod_slope") and bench.name not in INTEGERS:
        rows = np.ones((4, 70), EXTENDED)
        rows[0, 3], rows[1, 5], rows[2, [7, 60]], rows[3, 9] = np.nan, np.inf, [np.inf, 0], -0.0
        check_reduction(bench, bench.lay_out(encode(bench.name, rows)), (1,), bench.where("NaN, infinity and zeros"))
    if bench.op == "norm":
        check_extreme_norms(bench)
    if bench.op == "centre":
        check_centres(bench)
    if bench.op in ("logsumexp", "sum_powers"):
        check_sums_of_powers(bench)
    if bench.op in oracle.TERMS and bench.name in INTEGERS:
        extremes = np.full((3, 500), INTEGERS[bench.name].highest, NUMPY[bench.name])
        check_reduction(bench, bench.lay_out(extremes), (1,), bench.where("overflow"))


def _few_zeros(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Powers of two, and rows without, with one and with several zeros."""
    numbers = powers_of_two(generator, name, shape)
    is_zero = generator.random(shape) < 1.2 / max(shape[-1] if shape else 1, 1)
    return np.where(is_zero, np.zeros_like(numbers), numbers)


def _mostly_neutral(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Rows in which now and then one element decides what any and all say."""
    base = generator.choice([0, 1], (*shape[:-1], 1) if shape else ())
    flipped = generator.random(shape) < 1 / max(4 * (shape[-1] if shape else 1), 1)
    return convert("f64", name, np.where(flipped, 1 - base, base).astype(np.float64))


def check_float_sums(bench: Bench) -> None:
    """Sums that a running total in the dtype, or in f32, would get wrong, and those that have no number."""
    ones = bench.lay_out(encode(bench.name, np.ones((2, 4096), EXTENDED)))
    total = ones.storage.reduce_op(ReduceOp(bench.op), ones.layout, (1,))
    got = bench.read(total, bench.name, (2, 1), bench.where("4096 ones"))
    expected = {"mean": 1, "norm": 64}.get(bench.op, 4096)
    assert_same(got, encode(bench.name, np.full((2, 1), expected, EXTENDED)), bench.where("4096 ones"))
    count = 2**20 if bench.full else 2**15
    tenths = encode(bench.name, np.full((2, count), 0.1, EXTENDED))
    check_reduction(bench, bench.lay_out(tenths), (1,), bench.where(f"{count} tenths"))
    check_reduction(bench, bench.lay_out(tenths, "transposed"), (1,), bench.where(f"{count} tenths, transposed"))
    rows = np.ones((5, 70), EXTENDED)
    rows[0, 3], rows[1, 5], rows[2, 7], rows[3, [2, 50]] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    check_reduction(bench, bench.lay_out(encode(bench.name, rows)), (1,), bench.where("NaN and infinities"))


def check_centres(bench: Bench) -> None:
    """Equal elements exactly, and numbers of both signs whose sum overflows."""
    info = FLOATS[part_name(bench.name)]
    for count in (2, 7, 49, 3000):
        equal = np.array([0.1, 1 / 3, -0.7, info.smallest_normal, info.largest], EXTENDED)
        rows = np.repeat(encode(bench.name, equal)[:, None], count, 1)
        large = encode(bench.name, bench.generator.uniform(-1, 1, (3, count)) * EXTENDED(info.largest))
        for dims, turned in (((1,), False), ((0,), True)):
            where = bench.where(f"{count} elements, dims {dims}")
            placed = bench.lay_out(np.ascontiguousarray(rows.T if turned else rows))
            result = placed.storage.reduce_op(ReduceOp(bench.op), placed.layout, dims)
            got = bench.read(result, bench.name, (1, 5) if turned else (5, 1), where)
            assert_same(got.reshape(-1), rows[:, 0], where)
            check_reduction(bench, bench.lay_out(np.ascontiguousarray(large.T if turned else large)), dims, where)


def check_extreme_norms(bench: Bench) -> None:
    """Rows of numbers from the least to the largest, of all of them, and of NaN beside infinity."""
    info = FLOATS[part_name(bench.name)]
    # The root of the number of elements is below 2**7.
    exponents = np.linspace(np.log2(EXTENDED(info.smallest_subnormal)), np.log2(EXTENDED(info.largest)) - 7, 9)
    for count in (1, 3, 65, 5000):
        digits = bench.generator.uniform(0.5, 1, (11, count)).astype(EXTENDED)
        rows = np.exp2([*exponents, 0, 0])[:, None] * digits
        rows[9] = np.exp2(bench.generator.choice(exponents, count)) * digits[9]
        rows[10, :2] = [np.inf, np.nan][:count]
        rows = rows[..., 0] if count == 1 else rows
        for placement in ("contiguous", "transposed") if count > 1 else ("contiguous",):
            where = bench.where(f"{count} extreme numbers, {placement}")
            check_reduction(bench, bench.lay_out(encode(bench.name, rows), placement), (1,) if count > 1 else (), where)


def check_sums_of_powers(bench: Bench) -> None:
    """Rows of numbers that are none, and of numbers whose exponentials overflow or vanish."""
    rows = np.ones((7, 4100), EXTENDED)
    rows[0, 3], rows[1, 5], rows[2, 7:900], rows[3, [2, 4099]] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    rows[4], rows[5], rows[6] = -np.inf, -120, 200
    for placement in ("contiguous", "transposed"):
        operand = bench.lay_out(encode(bench.name, rows), placement)
        check_reduction(bench, operand, (1,), bench.where(f"rows of odd numbers, {placement}"))
    for shape in ((3, 5000), (2, 70000)):
        spread = encode(bench.name, np.asarray(bench.generator.uniform(-300, 300, shape)))
        check_reduction(bench, bench.lay_out(spread), (1,), bench.where(f"spread numbers of shape {shape}"))


def check_sum_of_negative_zeros(bench: Bench, shape: tuple[int, ...], dims: tuple[int, ...], placement: str) -> None:
    """It starts at 0.0, so that is what it is."""
    where = bench.where(f"-0.0 in shape {shape}, dims {dims}, {placement}")
    zeros = bench.lay_out(encode(bench.name, np.full(shape, -0.0, EXTENDED)), placement)
    result = zeros.storage.reduce_op(ReduceOp(bench.op), zeros.layout, dims)
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(shape))
    assert_same(bench.read(result, bench.name, kept, where), np.zeros(kept, NUMPY[bench.name]), where)


def check_reduction(bench: Bench, operand: Operand, dims: tuple[int, ...], where: str) -> None:
    result = operand.storage.reduce_op(ReduceOp(bench.op), operand.layout, dims)
    shape = tuple(1 if dim in dims else size for dim, size in enumerate(operand.values.shape))
    exact = oracle.EXACT.get(bench.op)
    if exact is not None:
        expected = exact(bench.name, operand.values, dims)
        compare = assert_equal_values if bench.op in ("min", "max") else assert_same
        compare(bench.read(result, result_name(bench.name, expected), shape, where), expected, where)
        return
    got = bench.read(result, bench.name, shape, where)
    count = operand.values.size // max(got.size, 1)
    if bench.op == "prod":
        check_products(bench.name, got, oracle.product_exact(bench.name, operand.values, dims), count, where)
        return
    if bench.op == "prod_slope":
        check_products(bench.name, got, oracle.slope_of_product(bench.name, operand.values, dims), count, where)
        return
    if bench.op in ("mean", "centre"):
        total, magnitude = oracle.mean_exact(bench.name, operand.values, dims)
        if bench.op == "centre":
            # No number is at a distance from infinity.
            total = np.where(np.isinf(total) & np.isnan(decode(bench.name, got)), EXTENDED("nan"), total)
        check_sums(bench.name, got, total, magnitude, count, where, ulps=ROUNDED)
        return
    if bench.op == "norm":
        check_norms(bench.name, got, oracle.norm_exact(bench.name, operand.values, dims), count, where)
        return
    if bench.op == "logsumexp":
        expected = oracle.logsumexp_exact(bench.name, operand.values, dims)
        # An error of the sum, relative to it, is one of the logarithm. Exponentials of differences have a few more.
        slack = 4 * sum_bound(bench.name, np.ones_like(expected), count)
        assert_close(bench.name, got, expected, ROUNDED, where, slack=slack, zero_sign=False)
        return
    if bench.op == "sum_powers":
        expected = oracle.sum_of_powers(bench.name, operand.values, dims)
        slack = 4 * sum_bound(bench.name, np.nan_to_num(expected), count)
        assert_close(bench.name, got, expected, ROUNDED, where, slack=slack)
        return
    total, magnitude = oracle.sum_exact(bench.name, operand.values, dims, bench.op)
    check_sums(bench.name, got, total, magnitude, count, where)


def variance(bench: Bench) -> None:
    for number, (shape, dims, placement) in enumerate(bench.sampled(REDUCTIONS)):
        where = bench.where(f"shape {shape}, dims {dims}, {placement}")
        operand = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        check_variances(bench, operand, dims, (1, 0, 0.5)[number % 3], where)
    for shape, dims in EMPTY_REDUCTIONS:
        operand = bench.lay_out(np.zeros(shape, NUMPY[bench.name]))
        check_variances(bench, operand, dims, 0, bench.where(f"shape {shape}, dims {dims}"))
    # One element and two, of which nothing is left with a correction of more.
    for correction in (0, 1, 2, 2.5):
        for count in (1, 2):
            operand = bench.lay_out(encode(bench.name, np.arange(3 * count, dtype=EXTENDED).reshape(3, count)))
            check_variances(bench, operand, (1,), correction, bench.where(f"{count} elements less {correction}"))
    # Far from 0 a sum of squares would have no digits left, and those of large numbers are none.
    rows = 200 + bench.generator.normal(0, 4, (7, 4100)).astype(EXTENDED)
    rows[1] = 3
    rows[2, 3], rows[3, 5], rows[4, 4099] = np.nan, np.inf, -np.inf
    rows[5] = 0 if FLOATS[bench.name].largest < 1e25 else EXTENDED("1e25")
    for placement in ("contiguous", "transposed"):
        where = bench.where(f"far from 0, {placement}")
        check_variances(bench, bench.lay_out(encode(bench.name, rows), placement), (1,), 1, where)
    check_extreme_deviations(bench)


def check_extreme_deviations(bench: Bench) -> None:
    """Numbers from the least to the largest, whose squares, or the sums of these, overflow or underflow."""
    info = FLOATS[part_name(bench.name)]
    exponents = np.linspace(np.log2(EXTENDED(info.smallest_normal)), np.log2(EXTENDED(info.largest)), 8)
    for count in bench.sampled((2, 65, 3000)):
        digits = bench.generator.uniform(0.5, 1, (11, count)) * bench.generator.choice([-1, 1], (11, count))
        rows = np.exp2([*exponents, 0, 0, 0])[:, None] * digits.astype(EXTENDED)
        rows[8] = np.exp2(exponents[bench.generator.integers(0, 8, count)]) * digits[8]
        # Two whose squares are too large for a sum of them and not for a variance; small ones for the other end.
        outlier = np.sqrt(EXTENDED(info.largest) / 8 * max(count // 4, 1))
        rows[9, [0, count // 2]] = outlier, -outlier
        rows[10] *= np.sqrt(EXTENDED(info.smallest_subnormal))
        encoded = encode(bench.name, rows)
        for correction in (1, 0, count - 0.5):
            where = bench.where(f"{count} extreme numbers less {correction}")
            for placement in ("contiguous", "transposed"):
                check_variances(bench, bench.lay_out(encoded, placement), (1,), correction, f"{where}, {placement}")
            check_variances(bench, bench.lay_out(encoded.T.copy()), (0,), correction, f"{where}, columns")
            for row in (3, 7, 9, 10):
                check_variances(bench, bench.lay_out(encoded[row]), (0,), correction, f"{where}, row {row}")


def check_variances(bench: Bench, operand: Operand, dims: tuple[int, ...], correction: float, where: str) -> None:
    """The variance, or its square root."""
    result = getattr(operand.storage, bench.cell.method)(operand.layout, dims, correction)
    shape = tuple(1 if dim in dims else size for dim, size in enumerate(operand.values.shape))
    expected, slack = oracle.variance(bench.name, operand.values, dims, correction)
    if bench.cell.method == "std":
        with np.errstate(invalid="ignore"):
            lowest, highest = (np.sqrt(np.maximum(expected + off, 0)) for off in (-slack, slack))
            expected = np.sqrt(expected)
            slack = np.nan_to_num(np.maximum(expected - lowest, highest - expected))
    ulps = ROUNDED if bench.name in HALVES else 4
    assert_close(bench.name, bench.read(result, bench.name, shape, where), expected, ulps, where, slack=slack)


def ratio_of_sums(bench: Bench) -> None:
    for number, (shape, _, placement) in enumerate(REDUCTIONS):
        x = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        # Of another number of elements, now and then.
        others = (*shape, 2) if number % 3 == 2 else shape
        divisor = bench.lay_out(encode(bench.name, bench.generator.integers(1, 3, others).astype(EXTENDED)))
        check_ratio(bench, x, divisor, bench.where(f"shape {shape}, {placement}"))
    for count in (1, 7000, 9000, 70_000):
        x = bench.lay_out(values.modest(bench.generator, bench.name, (count,)))
        counted = bench.lay_out(encode(bench.name, (np.arange(count) % 3 < 2).astype(EXTENDED)), "offset")
        check_ratio(bench, x, counted, bench.where(f"{count} elements, of which some count"))
    zeros = bench.lay_out(np.zeros(5, NUMPY[bench.name]))
    check_ratio(bench, zeros, zeros, bench.where("zeros"))


def check_ratio(bench: Bench, x: Operand, divisor: Operand, where: str) -> None:
    ratio, below, slope = x.storage.ratio_of_sums(x.layout, divisor.storage, divisor.layout, True)
    (alone,) = x.storage.ratio_of_sums(x.layout, divisor.storage, divisor.layout, False)
    assert_same(bench.read(alone, bench.name, (), where), bench.read(ratio, bench.name, (), where), where)
    (total, magnitude), (of_divisor, _) = (
        oracle.sum_exact(bench.name, it.values, tuple(range(it.values.ndim))) for it in (x, divisor)
    )
    got = bench.read(below, bench.name, (), where)
    assert_same(got, encode(bench.name, of_divisor.reshape(())), where)
    one = Layout.contiguous(())
    reciprocal = bench.read(below.unary_impl(UnaryOp.RECIP, one), bench.name, (), where)
    assert_same(bench.read(slope, bench.name, (), where), reciprocal, where)
    with np.errstate(all="ignore"):
        expected, scale = (each.reshape(()) / of_divisor.reshape(()) for each in (total, magnitude))
    check_sums(bench.name, bench.read(ratio, bench.name, (), where), expected, scale, x.values.size, where)
    if x.layout.is_contiguous:
        # The loss has the bits of sums that are divided by each other.
        sums = [it.storage.reduce_op(ReduceOp.SUM, it.layout, tuple(range(it.layout.rank))) for it in (x, divisor)]
        divided = bench.read(sums[0].binary_impl(BinaryOp.DIV, sums[1], one, one), bench.name, (), where)
        assert_same(bench.read(ratio, bench.name, (), where), divided, where)


def check_products(name: str, got: Array, total: Array, count: int, where: str) -> None:
    """Integers exactly; each multiplication of floats rounds once."""
    if name in INTEGERS:
        assert_same(got, total, where)
        return
    with np.errstate(all="ignore"):
        # One of complex numbers has three roundings.
        roundings = (3 if name in COMPLEX else 1) * count
        slack = (
            np.abs(np.where(np.isfinite(total), total, 0))
            * roundings
            * EXTENDED(2) ** -FLOATS[part_name(name)].precision
        )
    if name in HALVES:
        # Of numbers near 1, f32 loses less than a unit of the last place of a short float.
        slack = np.zeros(total.shape, EXTENDED)
    assert_close(name, got, total, ROUNDED, where, slack=slack, zero_sign=False, loose=True)


def check_norms(name: str, got: Array, norms: Array, count: int, where: str) -> None:
    """A square root halves the relative error of the sum."""
    with np.errstate(invalid="ignore"):
        slack = np.where(np.isfinite(norms), sum_bound(name, norms, count), EXTENDED(0)) / 2
    assert_close(name, got, norms, ROUNDED, where, slack=slack, zero_sign=False)


def check_sums(name: str, got: Array, total: Array, magnitude: Array, count: int, where: str, *, ulps: int = 0) -> None:
    """Integers exactly; floats within `ulps` and the bound of a sum of `count` terms, and a rounding to a half type."""
    if name in INTEGERS:
        assert_same(got, total, where)
        return
    with np.errstate(invalid="ignore"):
        slack = np.where(np.isfinite(magnitude), sum_bound(name, magnitude, count), EXTENDED(0))
    assert_close(name, got, total, ROUNDED if name in HALVES else ulps, where, slack=slack, zero_sign=False, loose=True)


# (b, m, n, k), then how the two sides lie.
PRODUCTS: list[tuple[tuple[int, int, int, int], str, str]] = [
    *(
        (sizes, "contiguous", "contiguous")
        for sizes in [
            (1, 1, 1, 1),
            (1, 2, 3, 4),
            (2, 3, 4, 5),
            (1, 16, 16, 16),
            (1, 17, 33, 9),
            (3, 5, 1, 7),
            (1, 1, 64, 65),
            (1, 63, 1, 64),
            (1, 33, 31, 130),
            (1, 2, 2, 300),
            (2, 0, 3, 4),
            (2, 3, 0, 4),
            (2, 3, 4, 0),
            (0, 2, 2, 2),
        ]
    ),
    *(
        ((2, 5, 6, 7), lhs, rhs)
        for lhs, rhs in [
            ("offset", "offset"),
            ("swapped", "contiguous"),
            ("contiguous", "swapped"),
            ("swapped", "swapped"),
            ("transposed", "rolled"),
            ("rolled", "transposed"),
            ("broadcast rows", "contiguous"),
            ("contiguous", "broadcast rows"),
            ("broadcast middle", "broadcast columns"),
            ("broadcast columns", "broadcast middle"),
            ("narrowed columns", "narrowed rows"),
            ("narrowed rows", "narrowed columns"),
            ("broadcast all", "broadcast all"),
            ("sliding", "sliding"),
        ]
    ),
]


def matmul(bench: Bench) -> None:
    for sizes, left_placement, right_placement in PRODUCTS:
        b, m, n, k = sizes
        lhs = bench.lay_out(values.modest(bench.generator, bench.name, (b, m, k)), left_placement)
        rhs = bench.lay_out(values.modest(bench.generator, bench.name, (b, k, n)), right_placement)
        check_product(bench, lhs, rhs, bench.where(f"b, m, n, k {sizes}, {left_placement} by {right_placement}"))
    for sizes in [(2, 1, 6, 7), (2, 5, 1, 7), (2, 5, 6, 1), (1, 4, 1, 1)]:
        b, m, n, k = sizes
        for placement in ("swapped", "loose ones", "sliding", "narrowed columns", "broadcast rows"):
            lhs = bench.lay_out(values.modest(bench.generator, bench.name, (b, m, k)), placement)
            rhs = bench.lay_out(values.modest(bench.generator, bench.name, (b, k, n)), placement)
            check_product(bench, lhs, rhs, bench.where(f"b, m, n, k {sizes}, {placement}"))
    for batch in [(), (2, 3)]:
        lhs = bench.lay_out(values.modest(bench.generator, bench.name, (*batch, 4, 5)), "transposed")
        rhs = bench.lay_out(values.modest(bench.generator, bench.name, (*batch, 5, 3)))
        check_product(bench, lhs, rhs, bench.where(f"batch {batch}"))
    if bench.name not in INTEGERS:
        special = values.modest(bench.generator, bench.name, (1, 6, 4))
        special[0, 1, 2], special[0, 3, 0] = (from_number(bench.name, each) for each in (np.nan, np.inf))
        plain = encode(bench.name, np.ones((1, 4, 5), EXTENDED))
        check_product(bench, bench.lay_out(special), bench.lay_out(plain), bench.where("NaN and infinity"))
    if bench.full:
        lhs = bench.lay_out(values.modest(bench.generator, bench.name, (1, 40, 4096)))
        rhs = bench.lay_out(values.modest(bench.generator, bench.name, (1, 4096, 50)))
        check_product(bench, lhs, rhs, bench.where("k 4096"))


def check_product(bench: Bench, lhs: Operand, rhs: Operand, where: str) -> None:
    *batch, m, k = lhs.values.shape
    n = rhs.values.shape[-1]
    b = int(np.prod(batch, dtype=np.int64))
    result = lhs.storage.matmul(rhs.storage, (b, m, n, k), lhs.layout, rhs.layout)
    got = bench.read(result, bench.name, (*batch, m, n), where).reshape(b, m, n)
    total, magnitude = oracle.matmul(bench.name, lhs.values.reshape(b, m, k), rhs.values.reshape(b, k, n))
    check_sums(bench.name, got, total, magnitude, k, where)


def linear(bench: Bench) -> None:
    for (_, m, n, k), placement, other in [product for product in PRODUCTS if product[0][0] == 1]:
        for bias in ("contiguous", "offset", "broadcast all", None):
            shapes = (((m, k), placement), ((n, k), other), ((n,), bias or "contiguous"))
            operands = [bench.lay_out(values.modest(bench.generator, bench.name, shape), how) for shape, how in shapes]
            check_linear(bench, operands if bias else operands[:2], bench.where(f"{(m, n, k)}, {placement}, {bias}"))
    ones, weight = np.ones((3, 4), EXTENDED), np.ones((2, 4), EXTENDED)
    ones[1, 2], weight[1, 0] = np.nan, -np.inf
    operands = [bench.lay_out(encode(bench.name, part)) for part in (ones, weight, np.array([np.inf, 1.0], EXTENDED))]
    check_linear(bench, operands, bench.where("numbers that are none"))


def check_linear(bench: Bench, operands: list[Operand], where: str) -> None:
    x, weight, *remaining = operands
    (m, k), (n, _) = x.values.shape, weight.values.shape
    bias = (remaining[0].storage, remaining[0].layout) if remaining else (None, None)
    result = x.storage.linear(x.layout, weight.storage, weight.layout, *bias)
    got = bench.read(result, bench.name, (m, n), where)
    total, magnitude = oracle.matmul(bench.name, x.values[None], weight.values.T[None])
    if remaining:
        added = decode(bench.name, remaining[0].values)
        with np.errstate(invalid="ignore"):
            total, magnitude = total + added, magnitude + np.abs(added)
    check_sums(bench.name, got, total[0], magnitude[0], k + 1, where)


HANDLERS = {
    "linear": linear,
    "reduce_op": reduce_op,
    "var": variance,
    "std": variance,
    "matmul": matmul,
    "ratio_of_sums": ratio_of_sums,
}
