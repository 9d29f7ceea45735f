"""Normalisation of channels, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..bench import Bench
from ..comparison import assert_close, tolerance
from ..layouts import Operand
from ..oracle import normalization as oracle
from ..oracle.formats import EXTENDED, compute_name, encode
from ..oracle.normalization import Groups

EPS = 1e-3
# (b, c, s) or (b, s, c), the groups of channels, the dim that they are along, and how the elements lie.
CASES: tuple[tuple[tuple[int, int, int], Groups, str], ...] = (
    ((3, 4, 49), Groups(4, 1, True), "contiguous"),
    ((3, 4, 64), Groups(2, 1, True), "offset"),
    ((2, 6, 33), Groups(3, 1, False), "narrowed rows"),
    ((2, 3, 5), Groups(3, 1, False), "rolled"),
    ((2, 4, 1), Groups(2, 1, False), "contiguous"),
    ((1, 2, 20_003), Groups(2, 1, True), "offset"),
    ((2, 4, 4100), Groups(1, 1, False), "contiguous"),
    ((1, 70, 24), Groups(24, 2, True), "contiguous"),
    ((3, 19, 7), Groups(7, 2, True), "transposed"),
    ((2, 33, 8), Groups(4, 2, False), "narrowed rows"),
    ((2, 5, 6), Groups(6, 2, False), "narrowed columns"),
    ((1, 1500, 40), Groups(8, 2, False), "offset"),
    ((2, 1200, 9), Groups(9, 2, True), "broadcast middle"),
    ((2, 1, 600), Groups(3, 2, False), "contiguous"),
    ((1, 1, 3), Groups(3, 2, True), "contiguous"),
    ((0, 4, 5), Groups(2, 1, True), "contiguous"),
    ((2, 4, 0), Groups(2, 1, False), "contiguous"),
    ((2, 0, 4), Groups(4, 2, True), "contiguous"),
)


def _draw(bench: Bench, shape: tuple[int, ...], placement: str = "contiguous", name: str | None = None) -> Operand:
    name = name or bench.name
    return bench.lay_out(encode(name, bench.generator.normal(1, 2, shape).astype(EXTENDED)), placement, name)


def _cases(bench: Bench) -> Iterator[tuple[str, Operand, Groups, int]]:
    for number, (shape, groups, placement) in enumerate(bench.some(CASES)):
        yield f"{shape}, {groups}, {placement}", _draw(bench, shape, placement), groups, number
    special = bench.generator.normal(0, 1, (2, 6, 20)).astype(EXTENDED)
    special[0, 1, 3], special[1, 2, 0], special[0, 4, 19], special[:, 5] = np.nan, np.inf, -np.inf, 2.5
    far = 1000 + bench.generator.normal(0, 1, (2, 40, 6)).astype(EXTENDED)
    for fact, numbers, dim in (("special", special, 1), ("far from 0", far, 2)):
        for number, groups in enumerate((Groups(6, dim, True), Groups(6, dim, False))):
            yield f"{fact}, {groups}", bench.lay_out(encode(bench.name, numbers)), groups, number


def _vectors(bench: Bench, size: int, number: int) -> list[Operand | None]:
    """A weight and a bias, of which some are left out, in the dtype of the elements or in its compute dtype."""
    name = (bench.name, compute_name(bench.name))[number // 2 % 2]
    placements = ("contiguous", "narrowed columns") if number % 5 == 0 else ("contiguous", "contiguous")
    chosen = [_draw(bench, (size,), placement, name) for placement in placements]
    return [chosen[0] if number % 4 != 1 else None, chosen[1] if number % 4 < 2 else None]


def _parts(*operands: Operand | None) -> list[Any]:
    return [part for each in operands for part in ((None, None) if each is None else (each.storage, each.layout))]


def _named(operand: Operand | None) -> Any:
    return None if operand is None else (operand.storage.dtype.value, operand.values)


def _check(bench: Bench, storages: Any, expected: Any, names: list[str], where: str) -> None:
    for storage, (result, slack), name in zip(storages, expected, names, strict=True):
        got = bench.read(storage, name, result.shape, where)
        ulps = tolerance(bench.cell.method, name)
        assert_close(name, got, result, ulps, where, slack=slack, zero_sign=False)


def normalize_groups(bench: Bench) -> None:
    compute = compute_name(bench.name)
    for fact, x, groups, number in _cases(bench):
        where, (weight, bias) = bench.where(fact), _vectors(bench, x.values.shape[groups.dim], number)
        result = x.storage.normalize_groups(x.layout, *_parts(weight, bias), *groups[:3], EPS)
        expected = oracle.normalized(bench.name, x.values, _named(weight), _named(bias), groups, EPS)
        # The mean of infinite numbers may be NaN.
        some = 1 if "special" in fact else 3
        _check(bench, result[:some], expected[:some], [bench.name, compute, compute][:some], where)


def normalize_groups_gradient(bench: Bench) -> None:
    compute = compute_name(bench.name)
    for fact, x, groups, number in _cases(bench):
        shape = x.values.shape
        where, (weight, _) = bench.where(fact), _vectors(bench, shape[groups.dim], number)
        gradient = _draw(bench, shape, ("contiguous", "offset", "transposed", "broadcast all")[number % 4])
        rows = 1 if groups.whole_batch else shape[0]
        mean = _draw(bench, (rows, groups.groups), ("contiguous", "offset")[number % 2], compute)
        positive = np.abs(bench.generator.normal(1, 1, mean.values.shape)).astype(EXTENDED)
        variance = bench.lay_out(encode(compute, positive), "contiguous", compute)
        parts = _parts(weight, mean, variance, gradient)
        result = x.storage.normalize_groups_gradient(x.layout, *parts, *groups[:3], EPS)
        statistics = _named(mean), _named(variance)
        expected = oracle.gradients(bench.name, x.values, _named(weight), statistics, gradient.values, groups, EPS)
        affine = compute if weight is None else weight.storage.dtype.value
        _check(bench, result, expected, [bench.name, affine, affine], where)


def normalize_channels(bench: Bench) -> None:
    for fact, x, groups, number in _cases(bench):
        size = x.values.shape[groups.dim]
        where, (weight, bias) = bench.where(fact), _vectors(bench, size, number)
        name = (compute_name(bench.name), bench.name)[number % 2]
        mean = _draw(bench, (size,), "contiguous", name)
        positive = np.abs(bench.generator.normal(1, 1, (size,))).astype(EXTENDED)
        variance = bench.lay_out(encode(name, positive), "contiguous", name)
        parts = _parts(mean, variance, weight, bias)
        result = x.storage.normalize_channels(x.layout, *parts, groups.dim, EPS)
        statistics = _named(mean), _named(variance)
        expected = oracle.by_statistics(bench.name, x.values, statistics, _named(weight), _named(bias), groups.dim, EPS)
        _check(bench, [result], [expected], [bench.name], where)


def move_statistics(bench: Bench) -> None:
    compute = compute_name(bench.name)
    for size, placements in (
        (1, ("contiguous", "contiguous", "contiguous", "contiguous")),
        (37, ("offset", "narrowed columns", "narrowed columns", "offset")),
        (700, ("narrowed columns", "offset", "offset", "contiguous")),
        (9, ("contiguous", "offset", "broadcast all", "narrowed columns")),
        (0, ("contiguous", "contiguous", "contiguous", "contiguous")),
    ):
        where = bench.where(f"{size} channels, {placements}")
        running = [_draw(bench, (size,), placement) for placement in placements[:2]]
        new = [_draw(bench, (size,), placement, compute) for placement in placements[2:]]
        mean, *others = [(each.storage, each.layout) for each in (*running, *new)]
        mean[0].move_statistics(mean[1], *[part for each in others for part in each], 0.3, 1.25)
        for old, added, factor in zip(running, new, (1.0, 1.25), strict=True):
            expected, slack = oracle.moved(bench.name, old.values, added.values, compute, 0.3, factor)
            got = old.storage.to_numpy()[old.places]
            assert_close(bench.name, got, expected, 1, where, slack=slack, zero_sign=False)


HANDLERS = {
    "move_statistics": move_statistics,
    "normalize_groups": normalize_groups,
    "normalize_groups_gradient": normalize_groups_gradient,
    "normalize_channels": normalize_channels,
}
