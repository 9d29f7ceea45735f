"""unary_gradient, binary_gradient, binary_gradients, and the gradients of functors with parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import tallow
from tallow.op import BinaryGradientOp, BinaryGradientsOp, MethodOp, UnaryGradientOp

from .. import values
from ..bench import Bench
from ..comparison import LARGEST_ANGLE, assert_close, tolerance
from ..layouts import Operand
from ..oracle import gradients as oracle
from ..oracle.formats import Array, decode
from .elementwise import SMALL_SWEEP, as_operands, operand_pairs, parameters_of, sweep_size


def unary_gradient(bench: Bench) -> None:
    for fact, g, x in [_sweep(bench), *operand_pairs(bench)]:
        result = g.storage.unary_gradient(UnaryGradientOp(bench.op), g.layout, x.storage, x.layout)
        _check(bench, bench.op, bench.read(result, bench.name, g.values.shape, fact), [g, x], (), fact)


def binary_gradient(bench: Bench) -> None:
    for fact, g, x, y in _triples(bench):
        op, operands = BinaryGradientOp(bench.op), (x.storage, x.layout, y.storage, y.layout)
        result = g.storage.binary_gradient(op, g.layout, *operands)
        _check(bench, bench.op, bench.read(result, bench.name, g.values.shape, fact), [g, x, y], (), fact)


def binary_gradients(bench: Bench) -> None:
    for fact, g, x, y in _triples(bench):
        op, operands = BinaryGradientsOp(bench.op), (x.storage, x.layout, y.storage, y.layout)
        results = g.storage.binary_gradients(op, g.layout, *operands)
        _check_each(bench, bench.op, results, [g, x, y], (), fact)


def _triples(bench: Bench) -> Iterator[tuple[str, Operand, Operand, Operand]]:
    """Operands of which one is of mixed numbers, the first or the last."""
    for index, (fact, *group) in enumerate(operand_pairs(bench)):
        third = bench.lay_out(values.mixed(bench.generator, bench.name, group[0].values.shape))
        first, second, last = (third, *group) if index % 2 == 0 else (*group, third)
        yield fact, first, second, last


def method(bench: Bench) -> None:
    name = bench.cell.method
    names = list(inspect.signature(getattr(tallow.Storage, name)).parameters)
    operands = sum(parameter.endswith("layout") for parameter in names)
    parameter_sets = parameters_of(bench, name.partition("_gradient")[0], len(names) - 2 * operands)
    pairs = operand_pairs(bench)
    for index, (fact, *group) in enumerate([_sweep(bench) for _ in parameter_sets] + pairs):
        shape, parameters = group[0].values.shape, parameter_sets[index % len(parameter_sets)]
        group += [bench.lay_out(values.mixed(bench.generator, bench.name, shape)) for _ in range(operands - 2)]
        g, *others = group
        remaining = [part for other in others for part in (other.storage, other.layout)]
        result = getattr(g.storage, name)(g.layout, *remaining, *parameters)
        if isinstance(result, tuple):
            _check_each(bench, name, result, group, parameters, fact)
            continue
        _check(bench, name, bench.read(result, bench.name, shape, fact), group, parameters, fact)


def _sweep(bench: Bench) -> tuple[str, Operand, Operand]:
    """Operands of every magnitude, with ordinary gradients."""
    x = values.sweep(bench.generator, bench.name, sweep_size(bench) if bench.full else SMALL_SWEEP)
    return "sweep", bench.lay_out(values.ordinary(bench.generator, bench.name, x.shape)), bench.lay_out(x)


def _check_each(
    bench: Bench,
    op: str,
    results: tuple[tallow.Storage, ...],
    operands: list[Operand],
    parameters: tuple[float, ...],
    fact: str,
) -> None:
    """Compare the gradients of both operands with those of each."""
    g, x, y = operands
    for result, (name, swaps) in zip(results, oracle.of_each(op), strict=True):
        inputs = [g, y, x] if swaps else [g, x, y]
        _check(bench, name, bench.read(result, bench.name, g.values.shape, fact), inputs, parameters, fact)


def _check(
    bench: Bench, op: str, got: Array, operands: list[Operand], parameters: tuple[float, ...], fact: str
) -> None:
    arrays = [operand.values for operand in operands]
    expected, slack, is_open = oracle.gradient(op, bench.name, *arrays, parameters=parameters)
    if op in ("sin_gradient", "cos_gradient"):
        is_open = is_open | (np.abs(decode(bench.name, arrays[1])) > LARGEST_ANGLE)
    with np.errstate(invalid="ignore"):
        actual = decode(bench.name, got)
    expected = np.where(is_open, actual, expected)
    where = bench.where(f"parameters {parameters}", fact)
    inputs = dict(zip("gxy", arrays, strict=False)) | as_operands(bench.name, parameters)
    assert_close(bench.name, got, expected, tolerance(op, bench.name), where, inputs, slack=slack, zero_sign=False)


HANDLERS = {
    **{op.value: method for op in MethodOp if "_gradient" in op.value and not op.moves},
    "unary_gradient": unary_gradient,
    "binary_gradient": binary_gradient,
    "binary_gradients": binary_gradients,
}
