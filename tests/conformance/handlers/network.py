"""The layers of networks: softmax, norms, rotations and losses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import tallow as tl
from tallow.kernels import constants

from .. import values
from ..bench import Bench
from ..comparison import ROUNDED, assert_close, assert_same, tolerance
from ..layouts import Case, Operand
from ..oracle import network as oracle
from ..oracle.formats import EXTENDED, NO_ROW, NUMPY, Array, compute_name, decode, encode
from .indexing import check_bad_indexes

# Shapes of rows around the widths of accesses, of waves and of what a block holds; some of them lie in other ways.
ROWS = (
    *(Case((3, length)) for length in (1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 128, 129, 257, 1000, 1024, 1025)),
    *(Case((2, length)) for length in (2047, 2048, 4096, 4100)),
    *(Case((70, length)) for length in (1, 5, 64)),
    *(Case((3, 65), placement) for placement in ("offset", "transposed", "broadcast rows", "broadcast columns")),
    *(Case((3, 68), placement) for placement in ("offset", "narrowed rows", "narrowed columns", "sliding")),
    Case((4, 3, 40), "rolled"),
    Case((2, 3, 2, 3, 24), "narrowed rows"),
    Case((2, 2, 3, 33), "broadcast middle"),
    Case((9,)),
    Case((0, 5)),
    Case((5, 0)),
)
# Rows that no block holds, and so few of them that several blocks share one.
LONG_ROWS = (Case((2, 16384 + 8)), Case((3, 20001), "offset"), Case((1, 100_003)))
# Shapes, and a dim along which rows are.
DIMS = (
    *(((4, 5, 6), 0), ((4, 5, 6), 1), ((3, 70, 33), 1), ((2, 300, 8), 1), ((300, 2), 0), ((65, 257), 0)),
    *(((2, 9, 1), 1), ((2, 1, 9), 1), ((1, 700, 3, 1), 1), ((2, 0, 3), 1), ((2, 3, 0), 1), ((2, 21, 16, 8), 1)),
)


def draw_rows(bench: Bench, case: Case) -> Operand:
    """Numbers whose exponentials differ, but not so much that all but one vanish."""
    numbers = bench.generator.normal(0, 3, case.shape)
    return bench.lay_out(encode(bench.name, numbers.astype(EXTENDED)), case.placement)


def special_rows(bench: Bench) -> Array:
    """Rows in which one element, or some, decide all: NaN, infinities, ties, and differences that underflow."""
    rows = bench.generator.normal(0, 1, (8, 40)).astype(EXTENDED)
    rows[0, 7], rows[1, 9], rows[2, 11] = np.nan, np.inf, -np.inf
    rows[3], rows[4] = -np.inf, 2.5
    rows[5, 1:], rows[6, 39], rows[7, :20] = -np.inf, 1e4, -200
    return encode(bench.name, rows)


def _cases(bench: Bench) -> Iterator[tuple[str, Operand, int]]:
    for case in bench.some(ROWS + LONG_ROWS):
        yield str(case), draw_rows(bench, case), len(case.shape) - 1
    for placement, (shape, dim) in bench.some([*product(("contiguous", "transposed", "offset"), DIMS)]):
        yield f"dim {dim} of shape {shape}, {placement}", draw_rows(bench, Case(shape, placement)), dim
    for dim in (0, 1):
        special = special_rows(bench)
        yield f"special numbers, dim {dim}", bench.lay_out(special if dim else np.ascontiguousarray(special.T)), dim


def softmax(bench: Bench) -> None:
    for fact, x, dim in _cases(bench):
        where = bench.where(fact)
        got = bench.read(getattr(x.storage, bench.cell.method)(x.layout, dim), bench.name, x.values.shape, where)
        expected, slack = getattr(oracle, bench.cell.method)(bench.name, x.values, dim)
        ulps = tolerance(bench.cell.method, bench.name)
        assert_close(bench.name, got, expected, ulps, where, {"x": x.values}, slack=slack, zero_sign=False)


def softmax_gradient(bench: Bench) -> None:
    """Of results that softmax has and of others, with gradients that lie as they do or in another way.

    Logarithms are those of numbers up to 1.
    """
    is_log = bench.cell.method == "log_softmax_gradient"
    for number, (fact, x, dim) in enumerate(_cases(bench)):
        shape = x.values.shape
        if is_log and "special" in fact:
            x = bench.lay_out(-np.abs(x.values))
        elif is_log or (number % 2 and "special" not in fact):
            result, _ = (oracle.log_softmax if is_log else oracle.softmax)(bench.name, x.values, dim)
            x = bench.lay_out(encode(bench.name, result), "contiguous" if number % 4 == 1 else "offset")
        placement = ("contiguous", "offset", "broadcast all", "narrowed columns")[number // 2 % 4]
        gradient = draw_rows(bench, Case(shape, placement if len(shape) > 1 else "contiguous"))
        where = bench.where(fact)
        storage = getattr(gradient.storage, bench.cell.method)(gradient.layout, x.storage, x.layout, dim)
        got = bench.read(storage, bench.name, shape, where)
        expected, slack = oracle.softmax_gradient(bench.name, x.values, gradient.values, dim, is_log=is_log)
        inputs = {"y": x.values, "g": gradient.values}
        ulps = tolerance(bench.cell.method, bench.name)
        assert_close(bench.name, got, expected, ulps, where, inputs, slack=slack, zero_sign=False)


def layer_norm(bench: Bench) -> None:
    check_norm(bench, has_bias=True)


def rms_norm(bench: Bench) -> None:
    check_norm(bench, has_bias=False)


def check_norm(bench: Bench, *, has_bias: bool) -> None:
    """All rows, with every choice of weight, bias and residual in turn."""
    rows = [(str(case), draw_rows(bench, case)) for case in bench.some(ROWS + LONG_ROWS)]
    rows.append(("special numbers", bench.lay_out(special_rows(bench))))
    far = 1000 + bench.generator.normal(0, 1, (3, 300))
    rows.append(("far from 0", bench.lay_out(encode(bench.name, far.astype(EXTENDED)))))
    placements = ("contiguous", "offset", "narrowed columns", "broadcast all")
    for number, (fact, x) in enumerate(rows):
        size = x.values.shape[-1:]
        weight, bias = (draw_rows(bench, Case(size, placements[(number + shift) % 4])) for shift in (0, 1))
        residual = draw_rows(bench, Case(x.values.shape, "offset" if number % 3 else "contiguous"))
        for choice in (number, number + 3, number + 5):
            chosen = (weight if choice & 1 else None, bias if choice & 2 else None, residual if choice & 4 else None)
            check_normed(bench, x, *chosen, has_bias=has_bias, fact=f"{fact}, choice {choice % 8}")


def check_normed(
    bench: Bench,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    *,
    has_bias: bool,
    fact: str,
) -> None:
    where, eps = bench.where(fact), 1e-3
    operands = (weight, bias, residual) if has_bias else (weight, residual)
    inputs = [part for each in operands for part in ((each.storage, each.layout) if each else (None, None))]
    normed, *sums = getattr(x.storage, bench.cell.method)(x.layout, *inputs, eps)
    assert len(sums) == (residual is not None), f"{where}: {len(sums)} sums"
    total = oracle.add(bench.name, x.values, residual and residual.values)
    for storage in sums:
        assert_same(bench.read(storage, bench.name, x.values.shape, where), total, where)
    vectors = [None if each is None else each.values for each in (weight, bias if has_bias else None)]
    expected, slack = oracle.norm(bench.name, total, *vectors, eps, is_centered=has_bias)
    got = bench.read(normed, bench.name, x.values.shape, where)
    ulps = tolerance(bench.cell.method, bench.name)
    assert_close(bench.name, got, expected, ulps, where, {"x": total}, slack=slack, zero_sign=False)


def layer_norm_gradient(bench: Bench) -> None:
    """All rows, with a weight and without, and what may be asked for in turn."""
    is_centered = bench.cell.method == "layer_norm_gradient"
    # A row is never shared here, so that one of 100,000 elements is no other than one of 20,000.
    long_rows = LONG_ROWS if bench.full else LONG_ROWS[:-1]
    rows = [
        (str(case), draw_rows(bench, case))
        for case in bench.some((*ROWS, *long_rows, Case((700, 24)), Case((700, 30))))
    ]
    rows.append(("special numbers", bench.lay_out(special_rows(bench))))
    far = 100 + bench.generator.normal(0, 1, (3, 300))
    rows.append(("far from 0", bench.lay_out(encode(bench.name, far.astype(EXTENDED)))))
    placements = ("contiguous", "offset", "narrowed columns", "broadcast all")
    for number, (fact, x) in enumerate(rows):
        shape = x.values.shape
        weight = draw_rows(bench, Case(shape[-1:], placements[number % 4]))
        gradient = draw_rows(bench, Case(shape, placements[number // 4 % 4] if len(shape) > 1 else "offset"))
        for choice in (number, number + 3):
            scale = weight if choice & 1 else None
            asked = ((choice & 2) > 0, (choice & 4) > 0) if is_centered else ((choice & 2) > 0,)
            where, eps = bench.where(f"{fact}, choice {choice % 8}"), 1e-3
            vector = (scale.storage, scale.layout) if scale else (None, None)
            call = getattr(gradient.storage, bench.cell.method)
            residual = (
                draw_rows(bench, Case(shape, placements[number // 2 % 3])) if len(shape) > 1 and choice & 2 else None
            )
            others = (residual.storage, residual.layout) if residual else (None, None)
            output = call(gradient.layout, x.storage, x.layout, *vector, *others, *asked, eps)
            assert len(output) == 1 + sum(asked), f"{where}: {len(output)} results"
            expected = oracle.norm_gradient(
                bench.name,
                x.values,
                gradient.values,
                scale and scale.values,
                eps,
                residual=residual and residual.values,
                is_centered=is_centered,
            )
            reference = [expected[0], *(each for each, is_asked in zip(expected[1:], asked, strict=False) if is_asked)]
            for storage, (result, slack) in zip(output, reference, strict=True):
                got, ulps = (
                    bench.read(storage, bench.name, result.shape, where),
                    tolerance(bench.cell.method, bench.name),
                )
                assert_close(bench.name, got, result, ulps, where, {"x": x.values}, slack=slack, zero_sign=False)


# (.., tokens, d), how it lies, how the tables do, and how many positions there are: 0 is a number of rank 0.
ROTATED: list[tuple[tuple[int, ...], str, str, int]] = [
    ((2, 5, 3, 64), "contiguous", "contiguous", 1),
    ((2, 5, 3, 64), "offset", "offset", 2),
    ((2, 5, 3, 16), "transposed", "transposed", 2),
    ((2, 3, 4, 6), "rolled", "narrowed columns", 0),
    ((3, 9, 32), "narrowed rows", "contiguous", 3),
    ((3, 9, 32), "broadcast rows", "broadcast rows", 1),
    ((7, 16), "contiguous", "broadcast columns", 0),
    ((1, 1, 2, 1, 24), "contiguous", "contiguous", 1),
    ((2, 3, 2, 5, 40), "narrowed rows", "contiguous", 2),
    ((1, 6, 1, 128), "contiguous", "contiguous", 1),
    ((2, 0, 4, 8), "contiguous", "contiguous", 2),
    ((2, 3, 0, 8), "contiguous", "contiguous", 1),
]


def rope(bench: Bench) -> None:
    for number, (shape, placement, tables, count) in enumerate(ROTATED):
        x = bench.lay_out(values.modest(bench.generator, bench.name, shape), placement)
        rows = shape[-2] + 6
        angles = bench.generator.uniform(0, 7, (rows, shape[-1] // 2))
        cos, sin = (bench.lay_out(f(angles).astype(np.float32), tables, "f32") for f in (np.cos, np.sin))
        for index_name in list(NO_ROW)[number % 2 :: 2]:
            indexes = bench.generator.integers(0, rows - shape[-2] + 1, count or ()).astype(NUMPY[index_name])
            positions = bench.lay_out(np.asarray(indexes), "contiguous", index_name)
            for is_interleaved in (False, True):
                where = bench.where(f"{index_name} positions, shape {shape}, {placement}, {is_interleaved}")
                operands = [part for each in (cos, sin, positions) for part in (each.storage, each.layout)]
                got = x.storage.rope(x.layout, *operands, is_interleaved)
                expected, slack = oracle.rope(
                    bench.name, x.values, cos.values, sin.values, positions.values, is_interleaved=is_interleaved
                )
                actual = bench.read(got, bench.name, shape, where)
                assert_close(bench.name, actual, expected, ROUNDED, where, slack=slack, zero_sign=False)
    for index_name in NO_ROW:
        _check_positions(bench, index_name)


def _check_positions(bench: Bench, index_name: str) -> None:
    """A position from which a token has no row in the tables is an error, also where there is no token to turn."""
    for shape in ((2, 3, 8), (2, 0, 3, 8)):
        x = bench.lay_out(values.modest(bench.generator, bench.name, shape))
        table = bench.lay_out(np.ones((6, 4), np.float32), name="f32")
        tables = (table.storage, table.layout) * 2

        def call(indexes: Operand, x: Operand = x, tables: tuple[Any, ...] = tables) -> object:
            return x.storage.rope(x.layout, *tables, indexes.storage, indexes.layout, False)

        check_bad_indexes(bench, index_name, (2,), 4, call)


# The classes are in dim 1 of three, else in the last one.
LOSSES = (
    *(Case((3, length)) for length in (1, 7, 8, 64, 257, 1025, 8300)),
    *(Case((70, length), "offset") for length in (5, 64)),
    *(Case((5, 68), placement) for placement in ("transposed", "narrowed rows", "sliding", "broadcast columns")),
    *(Case((2, 9, 5), placement) for placement in ("contiguous", "transposed")),
    *(Case((9,)), Case((0, 5)), Case((2, 5, 0)), Case((1, 100_003)), Case((2, 40_000), "offset")),
)


def _class_dim(shape: tuple[int, ...], number: int) -> int:
    """Where the classes are: in dim 1, of every second case in the last one, of a vector in dim 0."""
    return len(shape) - 1 if number % 2 and shape[-1] else min(len(shape), 2) - 1


def _targets(
    bench: Bench, number: int, x: Operand, ignored: int, *, has_last: bool
) -> tuple[Operand, Operand | None, oracle.Targets]:
    """Targets along a dim of each dtype in turn, of which some do not count, and the weights of every other case."""
    index_names, shape = list(NO_ROW), x.values.shape
    index_name, dim = index_names[number % len(index_names)], _class_dim(shape, number)
    targets = bench.generator.integers(0, min(shape[dim], 100), (*shape[:dim], *shape[dim + 1 :])).astype(
        NUMPY[index_name]
    )
    if has_last:
        # The share of this target is 0.
        targets[2] = 11
    if targets.size > 1 and (mark := NO_ROW[index_name]) is not None:
        targets.reshape(-1)[1] = mark
    placed = bench.lay_out(np.asarray(targets), "contiguous" if number % 2 else "offset", index_name)
    weight = None
    if number % 3:
        weight = bench.lay_out(
            encode(bench.name, bench.generator.uniform(0.5, 2, shape[dim]).astype(EXTENDED)),
            ("contiguous", "offset")[number % 2],
        )
    counts = np.asarray((targets != ignored) & (targets != NO_ROW[index_name]))
    return placed, weight, oracle.Targets(np.asarray(targets), counts, dim, None if weight is None else weight.values)


def _loss_cases(bench: Bench) -> Iterator[tuple[str, Operand, Operand, Operand | None, oracle.Targets, int]]:
    """Scores, targets and weights, and the target that does not count."""
    drawn = [(number, str(case), draw_rows(bench, case)) for number, case in bench.some([*enumerate(LOSSES)])]
    for number, fact, x in [*drawn, (len(LOSSES), "special numbers", bench.lay_out(special_rows(bench)))]:
        for ignored in (-100, 2):
            placed, weight, targets = _targets(bench, number, x, ignored, has_last=fact == "special numbers")
            where = (
                f"{placed.storage.dtype} targets, {fact}, {ignored} ignored, {'with' if weight else 'without'} weights"
            )
            yield where, x, placed, weight, targets, ignored


def _vector(weight: Operand | None) -> tuple[Any, Any]:
    return (None, None) if weight is None else (weight.storage, weight.layout)


def saves_argument(method: str, *, saves: bool) -> tuple[bool, ...]:
    """Whether an op of rows gives what its gradient needs, if that is a choice."""
    return (saves,) if constants.ROWS[method].saved else ()


def _numbers(method: str) -> tuple[float, ...]:
    """The parameters of a loss: shares of the targets."""
    return (0.25,) if "smoothing" in inspect.signature(getattr(tl.Storage, method)).parameters else ()


def loss(bench: Bench) -> None:
    method, compute = bench.cell.method, compute_name(bench.name)
    of_rows, numbers = oracle.LOSSES[method][0], _numbers(method)
    saved = constants.ROWS[method].saved
    for number, (fact, x, placed, weight, targets, ignored) in enumerate(_loss_cases(bench)):
        shape, dim, where, saves = x.values.shape, targets.dim, bench.where(fact), number % 2 == 1
        rows, options = (*shape[:dim], *shape[dim + 1 :]), (*saves_argument(method, saves=saves), *numbers)
        operands = x.layout, *_vector(weight), placed.storage, placed.layout, dim, ignored, *options
        losses, counted, *others = getattr(x.storage, method)(*operands)
        assert len(others) == saved * saves, where
        expected = oracle.counted(bench.name, x.values, targets).astype(NUMPY[compute])
        assert_same(bench.read(counted, compute, rows, where), expected, where)
        expected, slack = of_rows(bench.name, x.values, targets, *numbers)
        # They are in the compute dtype, as exact as their own dtype shows.
        got = encode(bench.name, decode(compute, bench.read(losses, compute, rows, where)))
        assert_close(
            bench.name, got, expected, tolerance("log_softmax", bench.name), where, slack=slack, zero_sign=False
        )
    x = bench.lay_out(values.modest(bench.generator, bench.name, (5, 4)))
    for index_name in NO_ROW:

        def call(indexes: Operand) -> object:
            indices = indexes.storage, indexes.layout, 1, -100
            return getattr(x.storage, method)(
                x.layout, None, None, *indices, *saves_argument(method, saves=False), *numbers
            )

        check_bad_indexes(bench, index_name, (5,), 4, call)
    # Without classes no target counts.
    nothing, targets = (
        bench.lay_out(values.modest(bench.generator, bench.name, (3, 0))),
        bench.lay_out(np.full(3, 7), name="i64"),
    )
    operands = nothing.layout, None, None, targets.storage, targets.layout, 1, 7
    losses, *_ = getattr(nothing.storage, method)(*operands, *saves_argument(method, saves=False), *numbers)
    where = bench.where("no classes")
    assert_same(bench.read(losses, compute, (3,), where), np.zeros(3, NUMPY[compute]), where)


def loss_gradient(bench: Bench) -> None:
    method, compute = bench.cell.method, compute_name(bench.name)
    forward = method.removesuffix("_gradient")
    of_rows, numbers = oracle.LOSSES[forward][1], _numbers(forward)
    placements = ("contiguous", "offset", "broadcast all", "narrowed columns")
    for number, (fact, x, placed, weight, targets, ignored) in enumerate(_loss_cases(bench)):
        shape, where = x.values.shape, bench.where(fact)
        rows = targets.indexes.shape
        gradients = encode(compute, bench.generator.normal(0, 1, rows).astype(EXTENDED))
        gradient = bench.lay_out(np.asarray(gradients), placements[number % 4] if rows else "contiguous", compute)
        indices = placed.storage, placed.layout
        options = targets.dim, ignored, *saves_argument(forward, saves=True), *numbers
        _, _, *saved = getattr(x.storage, forward)(x.layout, *_vector(weight), *indices, *options)
        operands = [*_vector(weight), gradient.storage, gradient.layout]
        operands += [part for each in saved for part in (each, placed.layout.dense)]
        operands += [*indices, targets.dim, ignored]
        storage = getattr(x.storage, method)(x.layout, *operands, False, *numbers)
        expected, slack = of_rows(bench.name, x.values, gradient.values, targets, *numbers)
        got, ulps = bench.read(storage, bench.name, shape, where), tolerance(method, bench.name)
        assert_close(bench.name, got, expected, ulps, where, {"x": x.values}, slack=slack, zero_sign=False)
        copy = x.storage.to_dtype(x.layout, x.storage.dtype)
        storage = getattr(copy, method)(x.layout.dense, *operands, True, *numbers)
        assert_same(bench.read(storage, bench.name, shape, where), got, f"{where}, in its memory")
    x = bench.lay_out(values.modest(bench.generator, bench.name, (5, 4)))
    ones = bench.lay_out(np.ones(5, NUMPY[compute]), name=compute)
    for index_name in NO_ROW:

        def call(indexes: Operand) -> object:
            others = [*[ones.storage, ones.layout] * constants.ROWS[method].numbers, indexes.storage, indexes.layout]
            return getattr(x.storage, method)(x.layout, None, None, *others, 1, -100, False, *numbers)

        check_bad_indexes(bench, index_name, (5,), 4, call)


HANDLERS = {
    "softmax": softmax,
    "log_softmax": softmax,
    "softmax_gradient": softmax_gradient,
    "log_softmax_gradient": softmax_gradient,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "layer_norm_gradient": layer_norm_gradient,
    "rms_norm_gradient": layer_norm_gradient,
    "rope": rope,
    **dict.fromkeys(oracle.LOSSES, loss),
    **dict.fromkeys([f"{name}_gradient" for name in oracle.LOSSES], loss_gradient),
}
