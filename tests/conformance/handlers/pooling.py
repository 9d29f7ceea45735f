"""Pools along one to three dims, and their gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from tallow.runtime.core.pool import ParamsPool

from .. import values
from ..bench import Bench
from ..comparison import assert_close, assert_same
from ..oracle import pools as oracle
from ..oracle.formats import EXTENDED, INTEGERS, NUMPY, Array, encode
from ..oracle.pools import Axis, Pool
from .reduction import check_sums


class Case(NamedTuple):
    """A pool of a batch of channels, and how the operands lie."""

    planes: tuple[int, int]
    pool: Pool
    placements: tuple[str, str] = ("contiguous", "contiguous")

    @property
    def input_dims(self) -> tuple[int, ...]:
        return (*self.planes, *(axis.size for axis in self.pool.axes))

    @property
    def out_dims(self) -> tuple[int, ...]:
        return (*self.planes, *self.pool.counts)

    @property
    def terms(self) -> int:
        return math.prod(max((len(inside) for inside, _ in axis.windows(True)), default=1) for axis in self.pool.axes)

    @property
    def params(self) -> ParamsPool:
        steps = [tuple(getattr(axis, name) for axis in self.pool.axes) for name in ("padding", "stride", "dilation")]
        windows = [
            max(len(inside) for inside, _ in axis.windows(True)) if axis.adaptive else axis.window
            for axis in self.pool.axes
        ]
        is_adaptive = self.pool.axes[0].adaptive
        return ParamsPool(self.input_dims, self.pool.counts, windows, *steps, self.pool.include_padding, is_adaptive)


# Axis(size, windows, window, padding, stride, dilation)
CASES = (
    Case((1, 1), Pool((Axis(1, 1),))),
    Case((2, 3), Pool((Axis(9, 5, 3, 1, 2), Axis(8, 4, 2, 0, 2)), include_padding=False), ("rolled", "contiguous")),
    # The last windows reach beyond the padding, and rows are longer than what a thread or a vector takes.
    Case((1, 2), Pool((Axis(6, 4, 3, 1, 2), Axis(37, 13, 4, 2, 3)))),
    Case((1, 2), Pool((Axis(300, 300, 3, 1, 1),)), ("offset", "narrowed columns")),
    Case((1, 2), Pool((Axis(5, 2, 2, 0, 2), Axis(64, 32, 2, 0, 2)))),
    # Windows that leave elements out, and that are apart.
    Case((2, 2), Pool((Axis(7, 2, 2, 0, 4), Axis(20, 4, 2, 1, 6))), ("transposed", "offset")),
    Case((1, 3), Pool((Axis(4, 2, 3, 1, 2), Axis(3, 2, 2, 0, 1), Axis(9, 4, 3, 0, 2))), ("contiguous", "rolled")),
    Case((2, 2), Pool((Axis(5, 5, 1), Axis(4, 2, 2, 0, 2), Axis(1, 1))), ("narrowed columns", "transposed")),
    Case((1, 2), Pool((Axis(7, 3, adaptive=True), Axis(10, 4, adaptive=True))), ("offset", "contiguous")),
    Case((1, 1), Pool((Axis(3, 5, adaptive=True), Axis(4, 3, adaptive=True), Axis(33, 20, adaptive=True)))),
    Case((0, 2), Pool((Axis(4, 2, 2, 0, 2),))),
    Case((2, 1), Pool((Axis(4, 0, 2), Axis(3, 1, 2)))),
)
# Of maxima. A window of the first reaches no element.
DILATED = (
    Case((1, 2), Pool((Axis(1, 2, 2, 3, 1, 5), Axis(9, 4, 3, 2, 2, 3)))),
    Case((2, 1), Pool((Axis(12, 5, 4, 3, 2, 2),)), ("rolled", "contiguous")),
)


def _few_values(bench: Bench, shape: tuple[int, ...], has_specials: bool) -> Array:
    """Numbers of which many are equal."""
    numbers = values.few_values(bench.generator, bench.name, shape)
    return _with_specials(bench, numbers) if has_specials else numbers


def _with_specials(bench: Bench, numbers: Array) -> Array:
    """The numbers, of which some are NaN or infinite."""
    specials = encode(bench.name, np.array([np.nan, np.inf, -np.inf], EXTENDED))
    chosen = bench.generator.random(numbers.shape) < 0.1
    return np.where(chosen, bench.generator.choice(specials, numbers.shape), numbers)


def max_pool(bench: Bench) -> None:
    for case in bench.sampled((*CASES, *DILATED)):
        for has_specials in (False, True)[: 1 if bench.name in INTEGERS else 2]:
            where = bench.where(case, f"specials {has_specials}")
            x = bench.lay_out(_few_values(bench, case.input_dims, has_specials), case.placements[0])
            expected = oracle.maximum(bench.name, x.values, case.pool)
            got = bench.read(x.storage.max_pool(x.layout, case.params), bench.name, expected.shape, where)
            if bench.name in INTEGERS:
                assert_same(got, expected.astype(got.dtype), where)
            else:
                assert_close(bench.name, got, expected, 0, where, zero_sign=False)


def avg_pool(bench: Bench) -> None:
    for case in bench.sampled(CASES):
        for has_specials in (False, True):
            where = bench.where(case, f"specials {has_specials}")
            numbers = values.modest(bench.generator, bench.name, case.input_dims)
            x = bench.lay_out(_with_specials(bench, numbers) if has_specials else numbers, case.placements[0])
            total, magnitude = oracle.average(bench.name, x.values, case.pool)
            got = bench.read(x.storage.avg_pool(x.layout, case.params), bench.name, total.shape, where)
            check_sums(bench.name, got, total, magnitude, case.terms, where)
        # Sums start at 0.0.
        zeros = bench.lay_out(encode(bench.name, np.full(case.input_dims, -0.0, EXTENDED)), case.placements[0])
        where = bench.where(case, "-0.0")
        got = bench.read(zeros.storage.avg_pool(zeros.layout, case.params), bench.name, case.out_dims, where)
        assert_same(got, np.zeros(case.out_dims, NUMPY[bench.name]), where)


def avg_pool_gradient(bench: Bench) -> None:
    for case in bench.sampled(CASES):
        where = bench.where(case)
        g = bench.lay_out(values.modest(bench.generator, bench.name, case.out_dims), case.placements[1])
        total, magnitude = oracle.average_gradient(bench.name, g.values, case.pool)
        got = bench.read(g.storage.avg_pool_gradient(g.layout, case.params), bench.name, total.shape, where)
        check_sums(bench.name, got, total, magnitude, 2 * case.terms, where)


def max_pool_gradient(bench: Bench) -> None:
    for case in bench.sampled((*CASES, *DILATED)):
        for has_specials in (False, True):
            where = bench.where(case, f"specials {has_specials}")
            x = bench.lay_out(_few_values(bench, case.input_dims, has_specials), case.placements[0])
            largest = encode(bench.name, oracle.maximum(bench.name, x.values, case.pool))
            pooled = bench.lay_out(largest, case.placements[1])
            g = bench.lay_out(values.modest(bench.generator, bench.name, case.out_dims), case.placements[1])
            total, magnitude = oracle.maximum_gradient(bench.name, x.values, g.values, case.pool)
            result = x.storage.max_pool_gradient(
                x.layout, pooled.storage, pooled.layout, g.storage, g.layout, case.params
            )
            got = bench.read(result, bench.name, total.shape, where)
            check_sums(bench.name, got, total, magnitude, 2 * case.terms, where)


def max_pool_tangent(bench: Bench) -> None:
    for case in bench.sampled((*CASES, *DILATED)):
        for has_specials in (False, True):
            where = bench.where(case, f"specials {has_specials}")
            x = bench.lay_out(_few_values(bench, case.input_dims, has_specials), case.placements[0])
            tangent = bench.lay_out(values.modest(bench.generator, bench.name, case.input_dims), case.placements[1])
            total, magnitude = oracle.maximum_tangent(bench.name, x.values, tangent.values, case.pool)
            result = x.storage.max_pool_tangent(x.layout, tangent.storage, tangent.layout, case.params)
            got = bench.read(result, bench.name, total.shape, where)
            check_sums(bench.name, got, total, magnitude, 2 * case.terms, where)


HANDLERS = {
    "avg_pool": avg_pool,
    "avg_pool_gradient": avg_pool_gradient,
    "max_pool": max_pool,
    "max_pool_gradient": max_pool_gradient,
    "max_pool_tangent": max_pool_tangent,
}
