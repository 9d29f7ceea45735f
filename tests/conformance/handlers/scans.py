"""Scans along a dim, of which those of `oracle.scans` are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from tallow.op import MethodOp

from .. import values
from ..bench import Bench
from ..comparison import ROUNDED, assert_close, assert_same
from ..layouts import Operand
from ..oracle import scans as oracle
from ..oracle.formats import COMPLEX, EXTENDED, INTEGERS, NUMPY, Array, decode, encode, part_name

# Shape, dim, and how the tensor lies.
LINES: list[tuple[tuple[int, ...], int, str]] = [
    *(((4, 5, 6), dim, placement) for dim in (0, 1, 2) for placement in ("contiguous", "rolled", "broadcast middle")),
    *(((9, 10), dim, placement) for dim in (0, 1) for placement in ("offset", "transposed", "narrowed columns")),
    *(((3, width), 1, "contiguous") for width in (1, 2, 7, 16, 31, 33, 64, 129, 257, 1025, 2049)),
    *(((width, 3), 0, "contiguous") for width in (1, 16, 33, 1000)),
    # Of so few long lines each goes in splits, of so many short ones not.
    ((2, 30000), 1, "offset"),
    ((30000, 2), 0, "contiguous"),
    ((2, 5000, 3), 1, "contiguous"),
    ((2000, 5), 1, "contiguous"),
    ((2, 3, 2, 3, 4), 3, "transposed"),
    *(((0, 3), dim, "contiguous") for dim in (0, 1)),
]


def powers_of_two(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers whose products are exact: mostly 1 and -1, and a few times 2 and 1 / 2."""
    if name in INTEGERS:
        return values.modest(generator, name, shape)
    count = max(int(np.prod(shape)), 1)
    exponents = generator.choice([-1, 0, 1], shape, p=[2 / (count + 4), count / (count + 4), 2 / (count + 4)])
    units = [-1, 1, -1j, 1j] if name in COMPLEX else [-1, 1]
    return encode(name, np.asarray(generator.choice(units, shape) * np.exp2(exponents)))


def near_one(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of many digits whose products stay near 1."""
    if name in INTEGERS:
        return values.modest(generator, name, shape)
    steps = generator.uniform(-1, 1, shape) / 64
    return encode(name, np.asarray(1 + steps + (1j * generator.uniform(-1, 1, shape) / 64 if name in COMPLEX else 0)))


def spread(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Numbers whose exponentials overflow or vanish."""
    return encode(name, np.asarray(generator.uniform(-300, 300, shape)))


DRAWS: dict[str, Callable[[np.random.Generator, str, tuple[int, ...]], Array]] = {
    "modest": values.modest,
    "few_values": values.few_values,
    "mixed": values.mixed,
    "powers_of_two": powers_of_two,
    "near_one": near_one,
    "spread": spread,
}


def scan(bench: Bench) -> None:
    op = bench.cell.method
    draws = oracle.SCANS[op].draws
    directions = [*itertools.product((False, True), repeat=oracle.SCANS[op].directions)]
    every = [*itertools.product(draws, directions)]
    for number, (shape, dim, placement) in enumerate(bench.sampled(LINES)):
        for draw, direction in every if bench.full else [every[number % len(every)], every[-1 - number % len(every)]]:
            operand = bench.lay_out(DRAWS[draw](bench.generator, bench.name, shape), placement)
            where = bench.where(f"{shape}, {dim}, {placement}, {draw}")
            check_scan(bench, operand, dim, direction, where)
            bench.assert_untouched(operand, where)
    for dim, rows in enumerate(lines_of_specials(bench.name)):
        for direction in directions:
            check_scan(bench, bench.lay_out(rows), 1 - dim, direction, bench.where("numbers at the edges"))


def lines_of_specials(name: str) -> tuple[Array, Array]:
    """Rows, and the same as columns, of numbers that overflow, or that are none."""
    if name in INTEGERS:
        rows = np.full((3, 500), INTEGERS[name].highest, NUMPY[name])
    else:
        numbers = np.ones((8, 2100), EXTENDED)
        numbers[0, 30], numbers[1, 50], numbers[2, 2070], numbers[3, [2, 1500]] = np.nan, np.inf, -np.inf, [np.inf, 0]
        numbers[4], numbers[5, 1::2], numbers[6, 9], numbers[7, :900] = -0.0, -1, -0.0, -np.inf
        rows = encode(name, numbers)
    return rows, np.ascontiguousarray(rows.T)


def check_scan(bench: Bench, operand: Operand, dim: int, direction: tuple[bool, ...], where: str) -> None:
    op, shape = MethodOp(bench.cell.method), operand.values.shape
    reverse, exclusive = (*direction, False)[:2]
    where = f"{where}, reverse={reverse}, exclusive={exclusive}"
    results = getattr(operand.storage, op.value)(operand.layout, dim, *direction)
    result, *others = results if op.gives_positions else (results,)
    name = op.result_of(operand.storage.dtype).value
    got = bench.read(result, name, shape, where)
    expected, slack = oracle.scanned(op.value, bench.name, operand.values, dim, reverse=reverse, exclusive=exclusive)
    if name in INTEGERS:
        assert_same(got, expected.astype(NUMPY[name]), where)
    else:
        assert_close(name, got, expected, ROUNDED, where, slack=slack, zero_sign=False, loose=True)
    if op.value == "cumsum" and name not in INTEGERS:
        parts = decode(part_name(name), got.view(NUMPY[part_name(name)]))
        assert not np.signbit(parts[parts == 0]).any(), f"{where}: a sum starts at 0.0"
    for positions in others:
        at = bench.read(positions, "u32", shape, where)
        assert_same(at, oracle.positions(bench.name, operand.values, expected, dim, reverse=reverse), where)


HANDLERS = dict.fromkeys(oracle.SCANS, scan)
