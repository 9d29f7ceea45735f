"""Ops of rows, and their gradients: these are compared with differences of the oracle."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import tallow

from ..bench import Bench
from ..comparison import FUNCTION, ROUNDED, assert_close
from ..layouts import Case, Operand
from ..oracle.formats import EXTENDED, FLOATS, HALVES, Array, compute_name, decode, encode
from ..oracle.network import epsilon
from ..oracle.rows import REDUCTIONS, ROWS
from .network import DIMS, LONG_ROWS, draw_rows, saves_argument, special_rows
from .network import ROWS as CASES

_GRADIENT = "_gradient"
_REDUCTION_GRADIENT = "_row_gradient"
_FUNCTIONS = {**ROWS, **REDUCTIONS}
# The roundings of an op, each of which is as good as another operand.
_ROUNDINGS = 8
# Gradients are compared at so many positions of a row.
_SAMPLES = 24
# The imaginary step of derivatives: without a difference nothing cancels (Squire and Trapp 1998).
_STEP = EXTENDED(1e-30)
_PLACEMENTS = ("contiguous", "offset", "broadcast rows", "broadcast columns", "narrowed columns")


def _cases(bench: Bench) -> Iterator[tuple[Case, int]]:
    for case in bench.some(CASES + LONG_ROWS):
        yield case, len(case.shape) - 1
    for placement, (shape, dim) in bench.some([*product(("contiguous", "transposed", "offset"), DIMS)]):
        yield Case(shape, placement), dim


def _numbers(op: str) -> dict[str, float]:
    """Values of the parameters of an op that differ from its defaults."""
    signature = inspect.signature(getattr(tallow.Tensor, op))
    return {
        name: 1.5 * each.default for name, each in signature.parameters.items() if type(each.default) in (int, float)
    }


def _operand_count(op: str) -> int:
    return len(inspect.signature(_FUNCTIONS[op]).parameters) - len(_numbers(op))


def _operands(bench: Bench, case: Case, count: int, number: int) -> list[Operand]:
    """Operands of a shape, of which the others lie in other ways than the first."""
    several = _PLACEMENTS if len(case.shape) > 1 else ("contiguous",)
    others = [Case(case.shape, several[(number + index) % len(several)]) for index in range(count - 1)]
    return [draw_rows(bench, each) for each in (case, *others)]


def _parts(operands: Sequence[Operand]) -> list[object]:
    return [part for operand in operands for part in (operand.storage, operand.layout)]


def _along(dim: int, op: str) -> Callable[..., Array]:
    """The oracle of an op, whose rows are along the last axis, along another one."""
    numbers = _numbers(op).values()

    def function(*operands: Array) -> Array:
        moved = (np.moveaxis(each, dim, -1) for each in operands)
        result: Array = np.moveaxis(_FUNCTIONS[op](*moved, *numbers), -1, dim)
        return result

    return function


def rounding_slack(
    function: Callable[..., Array], operands: Sequence[Array], expected: Array, size: np.longdouble
) -> Array:
    """How far rounding errors of `size` may move a result: as far as those of operands do."""
    rng = np.random.default_rng(0)
    actual = np.zeros_like(expected)
    for _ in range(4):
        # Infinities have no rounding error.
        sizes = [size * np.where(np.isfinite(each), 1 + np.abs(each), 0) for each in operands]
        moved = [each + own * rng.choice([-1, 1], each.shape) for each, own in zip(operands, sizes, strict=True)]
        actual = np.maximum(actual, np.abs(function(*moved) - expected))
    # Some signs cancel: no element is safer than the largest one.
    least = size * np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
    count = np.log2(max(2, *expected.shape))
    slack: Array = np.nan_to_num(_ROUNDINGS * (actual * count + least), posinf=0, neginf=0)
    return slack


def _of_terms(dim: int, size: np.longdouble, g: Array, result: Array, x: Array) -> Array:
    """Return the rounding errors that remain where the terms of a gradient cancel, as in rows of one element."""
    g, result, x = (np.max(np.abs(each), axis=dim, keepdims=True, initial=0) for each in (g, result, x))
    slack: Array = np.nan_to_num(_ROUNDINGS * size * g * result / x, nan=0, posinf=0)
    return slack


def row(bench: Bench) -> None:
    """All rows, special numbers among them, with operands that are broadcast."""
    op = bench.cell.method
    count = _operand_count(op)
    every = [
        (f"{case}, dim {dim}", _operands(bench, case, count, number), dim)
        for number, (case, dim) in enumerate(_cases(bench))
    ]
    every.append(("special numbers", [bench.lay_out(special_rows(bench)) for _ in range(count)], 1))
    for fact, operands, dim in every:
        where, (x, *others) = bench.where(fact), operands
        options = *saves_argument(op, saves=bool(dim)), *_numbers(op).values()
        result = getattr(x.storage, op)(x.layout, *_parts(others), dim, *options)
        if isinstance(result, tuple):
            got = _numbers_of_rows(bench, result[0], x.values.shape, dim, where)
        else:
            got = bench.read(result, bench.name, x.values.shape, where)
        if not x.values.size:
            continue
        values = [decode(bench.name, each.values) for each in operands]
        with np.errstate(all="ignore"):
            expected = _along(dim, op)(*values)
            slack = rounding_slack(_along(dim, op), values, expected, epsilon(bench.name))
        assert_close(bench.name, got, expected, _ulps(bench), where, {"x": x.values}, slack=slack, zero_sign=False)


def _numbers_of_rows(bench: Bench, storage: tallow.Storage, shape: tuple[int, ...], dim: int, where: str) -> Array:
    """A number for each row: they are in the compute dtype, as exact as that of the elements shows."""
    compute = compute_name(bench.name)
    numbers = bench.read(storage, compute, (*shape[:dim], *shape[dim + 1 :]), where)
    return np.expand_dims(encode(bench.name, decode(compute, numbers)), dim)


def _ulps(bench: Bench) -> int:
    return ROUNDED if bench.name in HALVES else FUNCTION


def gradient(bench: Bench) -> None:
    """The gradients of all operands, at some positions, against derivatives of the oracle."""
    op = bench.cell.method.removesuffix(_REDUCTION_GRADIENT).removesuffix(_GRADIENT)
    names = [name for name in inspect.signature(_FUNCTIONS[op]).parameters if name not in _numbers(op)]
    signature = inspect.signature(getattr(tallow.Storage, bench.cell.method)).parameters
    numbers = [number for name, number in _numbers(op).items() if name in signature]
    is_of_rows = "gradient" in signature
    for number, (case, dim) in enumerate(_cases(bench)):
        is_along_last = dim == len(case.shape) - 1
        if op in REDUCTIONS and not (is_along_last and (bench.full or number % 2)):
            continue
        where = bench.where(case, f"dim {dim}")
        g, *operands = _operands(bench, case, len(names) + 1, number)
        first, shape = g, g.values.shape
        values = [decode(bench.name, each.values) for each in (g, *operands)]
        with np.errstate(all="ignore"):
            created = _along(dim, op)(*values[1:]) if g.values.size else values[0]
        known = {name: _parts([operand]) for name, operand in zip(names, operands, strict=True)}
        known["output"] = _parts([bench.lay_out(encode(bench.name, created))])
        numbers_of_call = [*[dim] * ("dim" in signature), *[False] * ("overwrites" in signature), *numbers]
        if is_of_rows:
            # Of numbers of rows, and of those that the op saved.
            first, g = operands[0], _gradient_of_numbers(bench, g, dim)
            values[0] = np.expand_dims(decode(compute_name(bench.name), g.values), dim)
            options = *saves_argument(op, saves=True), *_numbers(op).values()
            _, *saved = getattr(first.storage, op)(first.layout, dim, *options)
            known["gradient"] = _parts([g])
            known |= {f"saved_{index}": [each, g.layout.dense] for index, each in enumerate(saved, 1)}
        others = [part for name in signature for part in known.get(name, ())]
        actual = getattr(first.storage, bench.cell.method)(first.layout, *others, *numbers_of_call)
        results = actual if isinstance(actual, tuple) else (actual,)
        got = [bench.read(result, bench.name, shape, where) for result in results]
        if 0 in shape:
            continue
        # What the gradient is made of may be a result that was rounded.
        size = EXTENDED(2) ** -FLOATS[bench.name].precision if "output" in signature else epsilon(bench.name)
        # The oracle computes a row of 100,003 elements again for each position.
        fewer = 8 if op in REDUCTIONS or shape[dim] > 10_000 else 4
        samples = _SAMPLES if bench.full else _SAMPLES // fewer
        indices = np.unique(np.linspace(0, shape[dim] - 1, samples).astype(int))
        of = [_derivatives(dim, op, index, indices) for index in range(len(names))]
        with np.errstate(all="ignore"):
            expected = [function(*values) for function in of]
            slacks = [
                rounding_slack(function, values, each, size) + _of_terms(dim, size, values[0], created, x)
                for function, each, x in zip(of, expected, values[1:], strict=True)
            ]
        # Gradients that are that of the result itself are results of no op.
        differing = [
            index
            for index, each in enumerate(expected)
            if op in REDUCTIONS or is_of_rows or not np.array_equal(each, values[0].take(indices, dim))
        ]
        is_undefined = np.isnan(created).all(axis=dim, keepdims=True)
        for index, each in zip(differing, got, strict=True):
            taken = each.take(indices, dim)
            # A result of NaN has no slope, but cases of the formula that lack an element have the gradient 0.
            reference = np.where(is_undefined & (decode(bench.name, taken) == 0), 0, expected[index])
            assert_close(bench.name, taken, reference, _ulps(bench), where, slack=slacks[index], zero_sign=False)


def _gradient_of_numbers(bench: Bench, g: Operand, dim: int) -> Operand:
    """The gradient of a number for each row, in the compute dtype."""
    compute, shape = compute_name(bench.name), (*g.values.shape[:dim], *g.values.shape[dim + 1 :])
    numbers = bench.generator.normal(0, 1, shape).astype(EXTENDED)
    return bench.lay_out(np.asarray(encode(compute, numbers)), "offset", compute)


def _derivatives(dim: int, op: str, operand: int, indices: Array) -> Callable[..., Array]:
    """The gradient of an operand at some positions along a dim: a function of that of the result and all operands."""

    def function(g: Array, *operands: Array) -> Array:
        columns = []
        for index in indices:
            moved = [each.astype(np.clongdouble) for each in operands]
            np.moveaxis(moved[operand], dim, 0)[index] += 1j * _STEP
            slopes = _along(dim, op)(*moved).imag / _STEP
            # Each element has its own gradient of the one result of a reduction.
            of_result = (g.take([index], dim) if op in REDUCTIONS else g) * slopes
            columns.append(of_result.sum(axis=dim))
        return np.stack(columns, axis=dim)

    return function


HANDLERS: dict[str, Callable[[Bench], None]] = {
    **dict.fromkeys(ROWS, row),
    **{f"{op}{_GRADIENT}": gradient for op in ROWS},
    **{f"{op}{_REDUCTION_GRADIENT}": gradient for op in REDUCTIONS},
}
