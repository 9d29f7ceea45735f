"""What functors give at the edges that the spec lists: infinities, NaN, the sign of zero, no elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import own_spec
import pytest
import tallow
from tallow.op import BinaryOp, CmpOp, ReduceOp, UnaryOp

from .bench import Bench
from .calls import layout
from .oracle.formats import COMPLEX, Array, convert, decode

if TYPE_CHECKING:
    from opgen.model.functors import Functor

FUNCTORS = [functor for kind in own_spec.read().functors.values() for functor in kind.functors if functor.edges]
# What a name instead of a number stands for.
FINITE = (0.0, -0.0, 1.0, -2.5)
# Enough for vectors, and what is left behind them.
COUNT = 37
OPS = {op.value: op for kind in (UnaryOp, BinaryOp, CmpOp, ReduceOp) for op in kind}


def has(name: str, number: float) -> bool:
    """Whether dtype `name` has a number, or NaN, or a signed zero."""
    return same(float(decode(name, convert("f64", name, np.array([number])))[0]), number)


def same(actual: float, expected: float) -> bool:
    """Whether two numbers are equal to the sign of zero, or both NaN."""
    if math.isnan(expected):
        return math.isnan(actual)
    return actual == expected and math.copysign(1, actual) == math.copysign(1, expected)


def called(device: tallow.Device, functor: Functor, name: str, arguments: list[float]) -> tallow.Storage:
    """What a functor gives on many elements that are all the same. A parameter without a default is 1."""
    is_reduction = functor.joins
    count = len(arguments) if is_reduction else len(functor.operands)

    def stored(values: list[float]) -> tallow.Storage:
        with np.errstate(all="ignore"):
            rows: Array = convert("f64", name, np.tile(np.array(values, np.float64), COUNT))
        return device.storage(rows)

    defaults = [1.0 if default is None else default for default in functor.parameters.values()]
    parameters = [*arguments[count:], *defaults[max(len(arguments) - count, 0) :]]
    if is_reduction:
        x, where = stored(arguments), layout(COUNT, count)
        if functor.is_scan:
            return last_of_lines(x, where, functor)
        if functor.is_method:
            return getattr(x, functor.name)(where, (1,), *parameters)
        return x.reduce_op(OPS[functor.name], where, (1,))
    x, *others = [stored([number]) for number in arguments[:count]]
    where = layout(COUNT)
    if functor.is_method:
        return getattr(x, functor.name)(where, *itertools.chain(*((y, where) for y in others)), *parameters)
    match OPS[functor.name]:
        case UnaryOp() as op:
            return x.unary_impl(op, where)
        case BinaryOp() as op:
            return x.binary_impl(op, *others, where, where)
        case op:
            return x.cmp(op, *others, where, where)


def last_of_lines(x: tallow.Storage, where: tallow.Layout, functor: Functor) -> tallow.Storage:
    """The last result of each line of a scan."""
    options = (False,) if functor.needs_elements else (False, False)
    results = getattr(x, functor.name)(where, 1, *options)
    every = tallow.Tensor.from_storage(results[0] if functor.positions else results, where.shape)
    return every.narrow(1, where.shape[1] - 1, 1).copy().storage


@cache
def supported_dtypes(backend: str) -> set[str]:
    """The dtypes of which a backend has any op."""
    return {str(cell.dtype) for cell in tallow.support() if (cell.backend, cell.status) == (backend, "supported")}


def cases(functor: Functor) -> Iterator[tuple[str, list[float], float]]:
    """How each edge is shown, its numbers and its result."""
    for edge in functor.edges:
        for values in itertools.product(FINITE, repeat=len(edge.names)):
            yield str(edge), *edge.numbers(dict(zip(edge.names, values, strict=True)))


@pytest.mark.parametrize("functor", FUNCTORS, ids=lambda functor: functor.name)
def test_a_functor_keeps_its_edges(functor: Functor, device: tallow.Device) -> None:
    done = set()
    for cell in tallow.support():
        is_own = functor.name in (cell.op, cell.method) and cell.method != "binary_assign"
        if not is_own or cell.backend != device.backend or cell.status != "supported" or str(cell.dtype) in COMPLEX:
            continue
        bench = Bench.of(cell, device, False)
        result = bench.name if functor.keeps_kind else str(functor.result)
        for shown, arguments, value in cases(functor):
            operands = arguments if functor.joins else arguments[: len(functor.operands)]
            if all(has(bench.name, number) for number in operands) and has(result, value):
                output = called(device, functor, bench.name, arguments)
                actual = bench.read(output, result, (COUNT,), bench.where(shown))
                assert all(same(float(each), value) for each in actual), bench.where(shown, arguments, actual)
                done.add(shown)
    # Numbers such as 0.1 are those of f64 alone, which not every backend has.
    if "f64" in supported_dtypes(device.backend):
        assert done == {str(edge) for edge in functor.edges}, "each edge has a dtype with its numbers"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_rows_longer_than_16_bits_count(dtype: str, device: tallow.Device) -> None:
    """Neither dtype has the number 70,001 of elements, or their sum."""
    numbers = np.array([2.0, *[1.0, 3.0] * 35_000])
    x = tallow.Tensor(np.stack([numbers] * 2)).to_dtype(dtype).to(device)
    for function, expected in (
        (lambda x: x.mean(1), 2.0),
        (lambda x: x.std(1), 1.0),
        (lambda x: x.layer_norm()[:, 2], 1.0),
        (lambda x: x.rms_norm()[:, 0], 2 / 5**0.5),
        (lambda x: x.zeros_like().logsumexp(1), math.log(70_001)),
    ):
        actual = function(x).to_dtype("f32").numpy()
        np.testing.assert_allclose(actual, [expected] * 2, rtol=4e-3 if dtype == "bf16" else 5e-4)
