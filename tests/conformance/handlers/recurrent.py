"""Recurrent cells, sequences, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bench import Bench
from ..comparison import FUNCTION, ROUNDED, assert_close
from ..layouts import Operand
from ..oracle import recurrent as oracle
from ..oracle.formats import EXTENDED, FLOATS, HALVES, Array, decode, encode
from ..oracle.network import epsilon
from .rows import rounding_slack

# Rows and units, around the widths of accesses, blocks and host spans, and the layout of the gates.
STEPS = (
    ((1, 1), "contiguous"),
    ((3, 5), "narrowed rows"),
    ((2, 8), "offset"),
    ((4, 6), "transposed"),
    ((3, 7), "narrowed columns"),
    ((5, 4), "broadcast rows"),
    ((2, 515), "contiguous"),
    ((300, 68), "narrowed rows"),
    ((0, 3), "contiguous"),
    ((3, 0), "contiguous"),
)
# Steps, rows and units, the layout of the gates, and the lengths of the sequences.
SEQUENCES: tuple[tuple[tuple[int, int, int], str, list[int] | None], ...] = (
    ((1, 1, 1), "contiguous", None),
    ((4, 3, 5), "contiguous", None),
    ((4, 3, 5), "rolled", [4, 0, 2]),
    ((3, 2, 8), "narrowed rows", [1, 3]),
    ((3, 9, 16), "offset", None),
    ((2, 12, 20), "transposed", None),
    # Enough steps for another layout of the weight on the host.
    ((8, 4, 3), "contiguous", [8, 3, 0, 5]),
    ((9, 10, 4), "contiguous", None),
    ((0, 2, 3), "contiguous", None),
    ((2, 0, 3), "contiguous", None),
    ((2, 3, 0), "contiguous", None),
)


def _kind(bench: Bench) -> str:
    return bench.cell.method.split("_")[0]


def _random(bench: Bench, shape: tuple[int, ...], placement: str = "contiguous", scale: float = 1.5) -> Operand:
    return bench.lay_out(encode(bench.name, bench.generator.normal(0, scale, shape).astype(EXTENDED)), placement)


def _parts(*operands: Operand | None) -> list[Any]:
    return [part for each in operands for part in ((each.storage, each.layout) if each else (None, None))]


def _values(bench: Bench, operand: Operand | None) -> Array:
    """The values of an operand in extended precision; zero if it is missing."""
    return np.zeros(1, EXTENDED) if operand is None else decode(bench.name, operand.values)


def _ulps(bench: Bench) -> int:
    return ROUNDED if bench.name in HALVES else FUNCTION


def _placement(shape: tuple[int, ...], placement: str) -> str:
    """A layout for an operand, contiguous if it has a single row or none."""
    return placement if min(shape) > 1 else "contiguous"


def _step_operands(bench: Bench, case: tuple[tuple[int, int], str], number: int) -> list[Operand | None]:
    """Gates, products, the bias of every second case, and the last state."""
    (rows, units), placement = case
    count, others = oracle.CELLS[_kind(bench)].gates, ("contiguous", "transposed", "offset")
    gates = _random(bench, (rows, count * units), _placement((rows, units), placement))
    products = _random(bench, (rows, count * units), _placement((rows, units), others[number % 3]))
    bias = _random(bench, (count * units,), "offset" if number % 4 else "contiguous") if number % 2 else None
    return [gates, products, bias, _random(bench, (rows, units), _placement((rows, units), others[(number + 1) % 3]))]


def cell(bench: Bench) -> None:
    """Cells of operands in all layouts, and of gates that saturate or are NaN."""
    kind = _kind(bench)
    for number, case in enumerate(bench.some(STEPS)):
        gates, products, bias, last = _step_operands(bench, case, number)
        assert gates and products and last
        _check_step(bench, gates, products, bias, last, bench.where(case))
    count = oracle.CELLS[kind].gates
    special = bench.generator.normal(0, 1, (6, count * 4)).astype(EXTENDED)
    special[0], special[1], special[2, ::3], special[3, ::5], special[4, ::2] = 200, -200, np.inf, -np.inf, np.nan
    gates, products = bench.lay_out(encode(bench.name, special)), _random(bench, (6, count * 4))
    _check_step(bench, gates, products, None, _random(bench, (6, 4)), bench.where("special numbers"))


def _check_step(
    bench: Bench, gates: Operand, products: Operand, bias: Operand | None, last: Operand, where: str
) -> None:
    kind = _kind(bench)
    result = getattr(gates.storage, bench.cell.method)(gates.layout, *_parts(products, bias, last))
    shape = (2, *last.values.shape) if kind == "lstm" else last.values.shape
    got = bench.read(result, bench.name, shape, where)
    if not got.size:
        return

    def function(x: Array, h: Array, b: Array, state: Array) -> Array:
        states = oracle.step(kind, x, h, b, [state])
        return np.stack(states) if kind == "lstm" else states[0]

    values = _some_rows([_values(bench, each) for each in (gates, products, bias, last)])
    with np.errstate(all="ignore"):
        expected = function(*values)
        slack = rounding_slack(function, values, expected, epsilon(bench.name))
    (got,) = _some_rows([got])
    assert_close(bench.name, got, expected, _ulps(bench), where, slack=slack, zero_sign=False)


def cell_gradient(bench: Bench) -> None:
    """The gradients of cells, against derivatives of the oracle."""
    kind = _kind(bench)
    for number, case in enumerate(bench.some(STEPS)):
        where, operands = bench.where(case), _step_operands(bench, case, number)
        gates, products, bias, last = operands
        assert gates and products and last
        shape = (2, *last.values.shape) if kind == "lstm" else last.values.shape
        upstream = _random(bench, shape, _placement(shape, ("contiguous", "transposed", "offset")[number % 3]))
        results = getattr(gates.storage, bench.cell.method)(gates.layout, *_parts(products, bias, last, upstream))
        sizes = [*[gates.values.shape] * (len(results) - 1), last.values.shape]
        got = [bench.read(each, bench.name, size, where) for each, size in zip(results, sizes, strict=True)]
        if not last.values.size:
            continue

        def function(x: Array, h: Array, b: Array, state: Array, g: Array) -> Array:
            each = list(g) if kind == "lstm" else [g]
            last = [np.zeros_like(state), state] if kind == "lstm" else [state]
            of_x, of_h, of_last = oracle.step_gradient(kind, x, h, b, last, each)
            return np.concatenate([of_x, *([of_h] if kind == "gru" else []), of_last[-1]], -1)

        values = _some_rows([_values(bench, each) for each in (gates, products, bias, last, upstream)])
        expected = function(*values)
        slack = rounding_slack(function, values, expected, epsilon(bench.name))
        together = np.concatenate(_some_rows(got), -1)
        assert_close(bench.name, together, expected, _ulps(bench), where, slack=slack, zero_sign=False)


def _some_rows(arrays: Sequence[Array]) -> list[Array]:
    """Every 37th row of long arrays: extended precision is slow."""
    some = slice(None, None, 37)
    return [each[..., some, :] if each.ndim > 1 and each.shape[-2] > 37 else each for each in arrays]


def _sequence(bench: Bench, number: int, case: Any) -> tuple[list[Operand | None], oracle.Steps]:
    (count, rows, units), placement, lengths = case
    kind = _kind(bench)
    gates_of_cell, states = oracle.CELLS[kind].gates, 2 if kind == "lstm" else 1
    width, is_reversed = gates_of_cell * units, bool(number % 2)
    gates = _random(bench, (count, rows, width), _placement((count, rows, units), placement), 1.0)
    weight = _random(bench, (width, units), "transposed" if number % 3 == 2 and units > 1 else "contiguous", 0.5)
    bias = _random(bench, (width,), "offset", 0.5) if number % 3 else None
    initial = _random(bench, (states, rows, units), "offset" if number % 2 else "contiguous", 0.7)
    ends = None if lengths is None else bench.lay_out(np.asarray(lengths, np.int64), "contiguous", "i64")
    values = [_values(bench, each) for each in (gates, weight, bias, initial)]
    steps = oracle.Steps(kind, *values, ends and ends.values, is_reversed)
    return [gates, weight, bias, initial, ends], steps


def _slack(bench: Bench, steps: oracle.Steps, expected: Array) -> Array:
    """A bound of the accumulated rounding errors of all steps."""
    size = EXTENDED(2) ** -FLOATS[bench.name].precision
    terms = 4 + np.sqrt(EXTENDED(steps.weight.shape[1]))
    slack: Array = (
        size * terms * (1 + len(steps.gates)) * (1 + np.abs(expected).max(initial=0)) * np.ones_like(expected)
    )
    return slack


def sequence(bench: Bench) -> None:
    """Sequences in both directions, of one length or of several."""
    for number, case in enumerate(SEQUENCES if bench.name == "f32" or bench.full else SEQUENCES[1:4]):
        where, (operands, steps) = bench.where(case), _sequence(bench, number, case)
        gates = operands[0]
        assert gates
        results = getattr(gates.storage, bench.cell.method)(gates.layout, *_parts(*operands[1:]), steps.reverse)
        if bench.cell.method == _kind(bench):
            results = (results,)
        for storage, expected in zip(results, oracle.states(bench.name, steps), strict=False):
            got = bench.read(storage, bench.name, expected.shape, where)
            assert_close(bench.name, got, expected, 1, where, slack=_slack(bench, steps, expected), zero_sign=False)


def sequence_gradient(bench: Bench) -> None:
    """The gradients of such sequences."""
    for number, case in enumerate(SEQUENCES if bench.name == "f32" or bench.full else SEQUENCES[1:4]):
        where, (operands, steps) = bench.where(case), _sequence(bench, number, case)
        gates, *others, ends = operands
        assert gates
        states, products = (bench.lay_out(encode(bench.name, each)) for each in oracle.states(bench.name, steps))
        upstream = _random(bench, states.values.shape, "offset" if number % 2 else "contiguous", 1.0)
        call = getattr(gates.storage, bench.cell.method)
        results = call(gates.layout, *_parts(*others, states, products, ends, upstream), steps.reverse)
        values = [_values(bench, each) for each in (states, products, upstream)]
        of_x, of_h, of_initial = oracle.gradients(bench.name, steps, *values)
        reference = [of_x, *([of_h] if steps.kind == "gru" else []), of_initial]
        for storage, expected in zip(results, reference, strict=True):
            got = bench.read(storage, bench.name, expected.shape, where)
            slack = 4 * _slack(bench, steps, expected)
            assert_close(bench.name, got, expected, 1, where, slack=slack, zero_sign=False)


HANDLERS = {
    **dict.fromkeys(("lstm_cell", "gru_cell"), cell),
    **dict.fromkeys(("lstm_cell_gradient", "gru_cell_gradient"), cell_gradient),
    **dict.fromkeys(("lstm", "gru", "lstm_with_products", "gru_with_products"), sequence),
    **dict.fromkeys(("lstm_gradient", "gru_gradient"), sequence_gradient),
}
