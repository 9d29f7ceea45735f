"""argsort, sort and searchsorted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import values
from ..bench import Bench
from ..comparison import assert_same
from ..layouts import VIEWS, Operand
from ..oracle import sorting as oracle
from ..oracle.formats import convert

# Around what threads of a block, and a block, sort at once, and lines that are sorted together.
SHAPES = ((300, 1), (90, 3), (3, 255), (2, 256), (2, 257), (1, 4096), (257, 5), (2, 4097), (1, 9001), (3, 5000))


def argsort(bench: Bench) -> None:
    for operand, where in operands(bench):
        check_argsort(bench, operand, where)


def sort(bench: Bench) -> None:
    for operand, where in operands(bench):
        check_sort(bench, operand, where)


def operands(bench: Bench) -> Iterator[tuple[Operand, str]]:
    for case in VIEWS:
        numbers = values.mixed(bench.generator, bench.name, case.shape)
        yield bench.lay_out(numbers, case.placement), bench.where(case)
    for shape in SHAPES if bench.full else bench.some(SHAPES[:-1]):
        # The sizes are about where lines lie, and numbers about ties: --full has both at every size.
        kinds = (values.mixed, few_numbers) if bench.full or shape[-1] <= 4096 else (few_numbers, hardly_a_number)
        for kind in kinds:
            yield bench.lay_out(kind(bench.generator, bench.name, shape)), bench.where(shape, kind.__name__)


def few_numbers(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Many of each number."""
    return convert("i64", name, generator.integers(0, 5, shape))


def hardly_a_number(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Mostly zeros: more of them than a block that selects has room for."""
    return convert("bool", name, generator.random(shape) < 1 / 64)


def check_argsort(bench: Bench, operand: Operand, where: str) -> None:
    length = operand.values.shape[-1] if operand.values.ndim else 1
    for descending in (False, True):
        expected = oracle.argsort(bench.name, operand.values, descending=descending)
        # All of them; and, of one order, a few, as many as a quarter of them, and none.
        few = {min(length, 3), min(length, 70), length // 4, 0} if descending or bench.full else set()
        for count in {length} | few:
            result = operand.storage.argsort(operand.layout, descending, count)
            first = np.atleast_1d(expected)[..., :count]
            got = bench.read(result, "u32", first.shape, where)
            assert_same(got, first, f"{where}, descending {descending}, {count} of each line", {"x": operand.values})
    bench.assert_untouched(operand, where)


def check_sort(bench: Bench, operand: Operand, where: str) -> None:
    lines = np.atleast_1d(operand.values)
    for descending in (False, True):
        order = np.atleast_1d(oracle.argsort(bench.name, operand.values, descending=descending))
        for count in (lines.shape[-1], min(lines.shape[-1], 3)):
            first = order[..., :count]
            elements, positions = operand.storage.sort(operand.layout, descending, count)
            told = f"{where}, descending {descending}, {count} of each line"
            got = bench.read(elements, bench.name, first.shape, told)
            expected = np.take_along_axis(lines, first.astype(np.int64), -1)
            assert_same(got, expected, told, {"x": operand.values})
            got = bench.read(positions, "u32", first.shape, told)
            assert_same(got, first, told, {"x": operand.values})
    bench.assert_untouched(operand, where)


# The shape of what is in order and that of the values, and how both lie.
SEARCHES: list[tuple[tuple[int, ...], tuple[int, ...], str, str]] = [
    ((7,), (30,), "contiguous", "contiguous"),
    ((1,), (), "offset", "offset"),
    ((0,), (3,), "contiguous", "contiguous"),
    ((4,), (2, 0), "contiguous", "contiguous"),
    ((300,), (3, 5, 7), "narrowed columns", "transposed"),
    ((5, 33), (5, 9), "transposed", "narrowed columns"),
    ((2, 3, 8), (2, 3, 4), "rolled", "broadcast middle"),
    ((2, 0), (2, 3), "contiguous", "contiguous"),
    ((2, 5), (2, 0), "contiguous", "contiguous"),
    ((64,), (9000,), "contiguous", "contiguous"),
]


def searchsorted(bench: Bench) -> None:
    for shape, queries_shape, placement, other in SEARCHES:
        kinds = (values.mixed, few_numbers) if bench.full or len(queries_shape) != 1 else (values.mixed,)
        for kind in kinds:
            numbers = kind(bench.generator, bench.name, shape)
            order = oracle.argsort(bench.name, numbers, descending=False)
            ordered = np.take_along_axis(numbers, order.astype(np.int64), -1)
            queries = kind(bench.generator, bench.name, queries_shape)
            if queries.size and ordered.size:
                # Half of the values are there.
                present = bench.generator.choice(ordered.reshape(-1), queries_shape)
                queries = np.where(bench.generator.random(queries_shape) < 1 / 2, present, queries).astype(
                    numbers.dtype
                )
            lines, sought = bench.lay_out(ordered, placement), bench.lay_out(queries, other)
            for right in (False, True):
                where = bench.where(f"{queries_shape} in {shape}, {placement}, {other}", kind.__name__, right)
                result = lines.storage.searchsorted(lines.layout, sought.storage, sought.layout, right)
                expected = oracle.places(bench.name, lines.values, sought.values, right=right)
                got = bench.read(result, "i64", queries_shape, where)
                assert_same(got, expected, where, {"lines": lines.values, "values": sought.values})
            bench.assert_untouched(lines, where)
            bench.assert_untouched(sought, where)


HANDLERS = {"argsort": argsort, "sort": sort, "searchsorted": searchsorted}
