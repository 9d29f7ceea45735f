"""unary_impl, binary_impl, cmp, and the functors that are methods of their own, to_dtype and where_cond among them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest
import tallow
from tallow import Layout, Shape
from tallow.op import BinaryOp, CmpOp, MethodOp, UnaryOp
from tallow.runtime.base.error import UnsupportedDType

from .. import matrix, values
from ..bench import Bench, dtype_of
from ..comparison import (
    COMPLEX_FUNCTION,
    EXACT,
    FUNCTION,
    LARGEST_ANGLE,
    LOOSE,
    assert_close,
    assert_equal_values,
    assert_same,
    tolerance,
)
from ..layouts import CONTIGUOUS, FEW_VIEWS, TILES, VIEWS, WRITABLE, Case, Operand, pairs
from ..oracle import elementwise as oracle
from ..oracle.formats import (
    COMPLEX,
    EXTENDED,
    EXTENDED_COMPLEX,
    FLOATS,
    INTEGERS,
    NO_ROW,
    NUMPY,
    Array,
    compute_name,
    convert,
    decode,
    encode,
    from_number,
    part_name,
    spacing,
)
from ..subnormals import flush

SWEEP, SMALL_SWEEP, FULL_SWEEP = 2**16, 2**13, 2**22
# The extended functions of f64 are slow in the lower tail of gelu.
SWEEP_F64 = 2**14


def sweep_size(bench: Bench) -> int:
    if bench.full:
        return FULL_SWEEP if bench.name == "f32" else FULL_SWEEP // 16
    return SWEEP_F64 if part_name(bench.name) == "f64" else SWEEP


def unary_impl(bench: Bench) -> None:
    operands = [("sweep", bench.lay_out(values.sweep(bench.generator, bench.name, sweep_size(bench))))]
    for case in bench.share(VIEWS + CONTIGUOUS):
        numbers = values.mixed(bench.generator, bench.name, case.shape)
        operands.append((str(case), bench.lay_out(numbers, case.placement)))
    for fact, operand in operands:
        check_unary(bench, operand, bench.where(fact))


def check_unary(bench: Bench, operand: Operand, where: str) -> None:
    result = operand.storage.unary_impl(UnaryOp(bench.op), operand.layout)
    expected = oracle.unary(bench.op, bench.name, operand.values)
    name = result_name(bench.name, expected)
    got = bench.read(result, name, operand.values.shape, where)
    inputs = {"x": operand.values}
    if bench.op == "signbit":
        # CUDA's conversion of f16 gives one NaN for all.
        with np.errstate(invalid="ignore"):
            expected = np.where(np.isnan(decode(bench.name, operand.values)), got, expected)
    if not is_extended(expected):
        assert_same(got, expected, where, inputs)
    elif bench.name in COMPLEX and bench.op in ("abs", "angle"):
        assert_close(name, got, expected, FUNCTION, where, inputs)
    elif tolerance(bench.op, bench.name) == EXACT:
        assert_same(got, encode(name, expected), where, inputs)
    elif bench.name in COMPLEX:
        check_complex(bench.op, bench.name, got, expected, [decode(bench.name, operand.values)], where, inputs)
    else:
        if bench.op in ("sin", "cos"):
            expected = _forgive_large_angles(bench, operand.values, got, expected, where)
        assert_close(bench.name, got, expected, tolerance(bench.op, bench.name), where, inputs)


def is_extended(expected: Array) -> bool:
    """Whether the oracle gives numbers before any rounding."""
    return expected.dtype in (EXTENDED, EXTENDED_COMPLEX)


# Of complex numbers, those that are made of products of parts, and those that turn by an angle.
_PRODUCTS = ("mul", "div", "sqr", "recip", "rsqrt", "pow", "powf", "sign", "log1p")
_ANGLES = ("exp", "expm1", "sinh", "cosh", "tanh")


def check_complex(
    op: str, name: str, got: Array, expected: Array, operands: list[Array], where: str, inputs: dict[str, Array]
) -> None:
    """A result of complex numbers, where neither what is given nor what comes out is at the ends of the range."""
    part = FLOATS[COMPLEX[name].part]
    epsilon = EXTENDED(2) ** -part.precision
    is_open, slack = np.zeros(got.shape, bool), np.zeros(got.shape, EXTENDED)
    with np.errstate(all="ignore"):
        if op in _PRODUCTS:
            # Products of parts may overflow, or lose their digits, where the result would not.
            least, most = EXTENDED(2) ** (part.min_exponent + part.precision), EXTENDED(part.largest) / 8
            for x in (*operands, expected) if op != "log1p" else operands:
                modulus = np.abs(x)
                is_open |= (modulus < least) & (modulus != 0) & (op != "log1p")
                is_open |= np.isfinite(modulus) & (modulus > most)
            # What becomes of infinities is left open, and NaN is no number afterwards.
            is_nan = np.any([np.isnan(x) for x in np.broadcast_arrays(*operands)], 0)
            is_infinite = np.any([np.isinf(x) for x in np.broadcast_arrays(*operands)], 0)
            is_open |= is_infinite & (op == "sign" or (~is_nan & (op not in ("mul", "log1p"))))
            is_open |= is_nan & (op in ("pow", "powf"))
        if op in _ANGLES or op in ("sin", "cos", "tan"):
            angle = np.abs(operands[0].imag if op in _ANGLES else operands[0].real)
            is_open |= (angle > LARGEST_ANGLE) & np.isfinite(angle)
        if op in ("pow", "powf"):
            # The rounding of an exponent is a relative error of the power.
            factor = np.abs(operands[-1]) * (np.abs(np.log(operands[0])) + 1)
            is_open |= (operands[0] == 0) | ~(factor < 2**10)
            slack = COMPLEX_FUNCTION * np.abs(expected) * factor * epsilon
        # Where one part overflows, so may what the other is a product of.
        overflows = np.isfinite(expected) & (np.maximum(np.abs(expected.real), np.abs(expected.imag)) > part.largest)
        is_open |= overflows & ~np.isfinite(got)
        slack = np.where(is_open | ~np.isfinite(slack), EXTENDED(0), slack)
    expected = np.where(is_open, decode(name, got), expected)
    assert_close(name, got, expected, tolerance(op, name), where, inputs, slack=slack, loose=op in LOOSE)


def result_name(name: str, expected: Array) -> str:
    """The dtype of a result on dtype `name`: the oracle gives extended numbers for that dtype, or the result itself.

    Of a complex dtype real extended numbers are for the dtype of its parts.
    """
    if is_extended(expected):
        return part_name(name) if expected.dtype == EXTENDED else name
    return next(other for other, kind in NUMPY.items() if kind == expected.dtype)


def _forgive_large_angles(bench: Bench, angles: Array, got: Array, expected: Array, where: str) -> Array:
    angle, actual = np.abs(decode(bench.name, angles)), decode(bench.name, got)
    large = (angle > LARGEST_ANGLE) & np.isfinite(angle)
    assert (np.abs(actual[large]) <= 1).all(), f"{where}: {bench.op} of a large angle is not in [-1, 1]"
    return np.where(large, actual, expected)


def binary_impl(bench: Bench) -> None:
    tiles = [_operand_pair(bench, left, right) for left, right in bench.share(pairs(TILES))]
    for fact, lhs, rhs in operand_pairs(bench) + tiles:
        where = bench.where(fact)
        result = lhs.storage.binary_impl(BinaryOp(bench.op), rhs.storage, lhs.layout, rhs.layout)
        _check_binary(bench, bench.read(result, bench.name, lhs.values.shape, where), lhs.values, rhs.values, where)
    for fact, lhs, rhs in _pairs_with_a_number(bench):
        where = bench.where(fact)
        result = lhs.storage.binary_impl(BinaryOp(bench.op), rhs.storage, lhs.layout, rhs.layout)
        _check_binary(bench, bench.read(result, bench.name, lhs.values.shape, where), lhs.values, rhs.values, where)


def _pairs_with_a_number(bench: Bench) -> Iterator[tuple[str, Operand, Operand]]:
    """One operand is a number, which a GPU may take along with the launch."""
    specials = flush(bench.name, values.specials(bench.name))
    numbers = list({number.tobytes(): number for number in specials}.values())
    chosen = numbers[:: 1 if bench.full else 20 if bench.name in COMPLEX else 3]
    cases = [Case((5, 7)), Case((5, 7), "narrowed columns"), Case((5, 7), "transposed")]
    # A share of these has every case on either side.
    for number, case, is_left in bench.share(list(itertools.product(chosen, cases, (False, True)))):
        x = bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), case.placement)
        repeated = np.broadcast_to(number, case.shape)
        layout = Layout(Shape(case.shape), (0,) * len(case.shape))
        value = number if number.dtype.names is None else decode(bench.name, number)
        storage = bench.device.storage_from_slice([value.item()], x.storage.dtype)
        y = Operand(repeated, repeated, np.zeros(case.shape, int), layout, storage)
        yield f"{case}, {number} on the {'left' if is_left else 'right'}", *((y, x) if is_left else (x, y))


def _check_binary(bench: Bench, got: Array, left: Array, right: Array, where: str) -> None:
    expected = oracle.binary(bench.op, bench.name, left, right)
    inputs = {"x": left, "y": right}
    if bench.name in INTEGERS:
        assert_same(got, expected, where, inputs)
    elif tolerance(bench.op, bench.name) == EXACT:
        assert_equal_values(got, encode(bench.name, expected), where, inputs)
    elif bench.name in COMPLEX:
        operands = [decode(bench.name, left), decode(bench.name, right)]
        check_complex(bench.op, bench.name, got, expected, operands, where, inputs)
    else:
        slack: Array | float = 0.0
        if bench.op in ("silu_mul", "gelu_mul"):
            # The function of x may be a subnormal number of the compute dtype, which is off before it is multiplied.
            factors = np.abs(decode(bench.name, right))
            unit = spacing(compute_name(bench.name), EXTENDED(0))
            slack = FUNCTION * unit * np.where(np.isfinite(factors), factors, 0)
        if bench.op in SLACKS:
            slack = SLACKS[bench.op](bench.name, decode(bench.name, left), decode(bench.name, right))
        if bench.op == "bernoulli_loss":
            # Both terms of targets that are far from shares may overflow.
            expected = np.where(np.abs(decode(bench.name, right)) > 2**60, decode(bench.name, got), expected)
        ulps = tolerance(bench.op, bench.name)
        has_sign = bench.op not in ("logaddexp", "bernoulli_loss")
        assert_close(bench.name, got, expected, ulps, where, inputs, slack=slack, zero_sign=has_sign)


def _slack_of_logaddexp(name: str, left: Array, right: Array) -> Array:
    """The larger operand and what the other adds may cancel, and this is of a rounded distance."""
    unit = partial(spacing, compute_name(name))
    with np.errstate(invalid="ignore"):
        larger, distance = np.fmax(left, right), np.abs(left - right)
    slack = FUNCTION * unit(larger) + np.exp(-distance) * unit(distance)
    return np.where(np.isfinite(distance), slack, EXTENDED(0))


def _slack_of_logistic_loss(name: str, left: Array, right: Array) -> Array:
    """The terms of the loss may cancel, each of which is rounded."""
    unit = partial(spacing, compute_name(name))
    with np.errstate(all="ignore"):
        terms = left * ((left > 0) - right), np.log1p(np.exp(-np.abs(left)))
    held = [np.where(np.isfinite(term), term, EXTENDED(0)) for term in terms]
    return FUNCTION * (unit(held[0]) + unit(held[1]))


def _slack_of_bernoulli_loss(name: str, left: Array, right: Array) -> Array:
    """Of targets that are no shares the terms of the loss may cancel, each of which is rounded."""
    with np.errstate(all="ignore"):
        terms = right * np.log(left), (1 - right) * np.log1p(-left), right
    held = [np.where(np.isfinite(term), term, EXTENDED(100) * np.abs(right)) for term in terms]
    return sum((FUNCTION * spacing(compute_name(name), _finite(term)) for term in held), np.zeros_like(left))


def _slack_of_kl_divergence(name: str, left: Array, _: Array) -> Array:
    """The logarithms may cancel, one of which is rounded, and then their difference is multiplied."""
    with np.errstate(all="ignore"):
        rounding = spacing(compute_name(name), _finite(np.log(left)))
        return _finite(FUNCTION * rounding * np.abs(left))


def _slack_of_kl_divergence_of_logs(name: str, left: Array, right: Array) -> Array:
    """A power that is a subnormal number of the compute dtype is off before it is multiplied."""
    with np.errstate(all="ignore"):
        return FUNCTION * spacing(compute_name(name), EXTENDED(0)) * _finite(np.abs(right - left))


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, EXTENDED(0))


# By op, how far a result may be off for numbers of a dtype besides its rounding.
SLACKS: dict[str, Callable[[str, Array, Array], Array]] = {
    "logaddexp": _slack_of_logaddexp,
    "logistic_loss": _slack_of_logistic_loss,
    "bernoulli_loss": _slack_of_bernoulli_loss,
    "kl_divergence": _slack_of_kl_divergence,
    "kl_divergence_of_logs": _slack_of_kl_divergence_of_logs,
}


def binary_assign(bench: Bench) -> None:
    for case in bench.share(WRITABLE + CONTIGUOUS[::3]):
        for other in ("contiguous", "offset", "transposed", "broadcast all"):
            where = bench.where(case, f"from {other}")
            target, source = (
                bench.lay_out(values.modest(bench.generator, bench.name, case.shape), placement)
                for placement in (case.placement, other)
            )
            target.storage.binary_assign(BinaryOp(bench.op), target.layout, source.storage, source.layout)
            got = target.storage.to_numpy()
            _check_binary(bench, got[target.places], target.values, source.values, where)
            bench.assert_untouched(source, where)
            got[target.places] = target.values
            assert got.tobytes() == target.buffer.tobytes(), f"{where}: something else was written"
    for shift, step in ((0, 1), (1, 1), (4, 1), (0, 2)):
        where = bench.where(f"to what lies {shift} before, {step} apart")
        line = bench.lay_out(values.modest(bench.generator, bench.name, (3000,)))
        targets, sources = line.places[: 1000 * step : step], line.places[shift : shift + 1000]
        layouts = Layout(Shape((1000,)), (step,)), Layout(Shape((1000,)), (1,), shift)
        line.storage.binary_assign(BinaryOp(bench.op), layouts[0], line.storage, layouts[1])
        got = line.storage.to_numpy()[targets]
        _check_binary(bench, got, line.values[targets], line.values[sources], where)


def cmp(bench: Bench) -> None:
    for fact, lhs, rhs in [*operand_pairs(bench), *_pairs_with_a_number(bench)]:
        where = bench.where(fact)
        result = lhs.storage.cmp(CmpOp(bench.op), rhs.storage, lhs.layout, rhs.layout)
        got = bench.read(result, "bool", lhs.values.shape, where)
        expected = oracle.compare(bench.op, bench.name, lhs.values, rhs.values)
        assert_same(got, expected, where, {"x": lhs.values, "y": rhs.values})


def operand_pairs(bench: Bench) -> list[tuple[str, Operand, Operand]]:
    """All pairs of special numbers, ties, random numbers of every magnitude, and every pair of layout classes."""
    left, right = values.special_pairs(bench.name)
    operands = [("special pairs", bench.lay_out(left), bench.lay_out(right))]
    for draw in (values.few_values, values.mixed, values.modest):
        numbers = [draw(bench.generator, bench.name, (1500,)) for _ in range(2)]
        operands.append((f"{draw.__name__} numbers", bench.lay_out(numbers[0]), bench.lay_out(numbers[1])))
    for left_case, right_case in bench.share(pairs(VIEWS) + [(case, case) for case in CONTIGUOUS[::3]]):
        operands.append(_operand_pair(bench, left_case, right_case))
    return operands


def _operand_pair(bench: Bench, left: Case, right: Case) -> tuple[str, Operand, Operand]:
    numbers = [values.mixed(bench.generator, bench.name, left.shape) for _ in range(2)]
    lhs, rhs = bench.lay_out(numbers[0], left.placement), bench.lay_out(numbers[1], right.placement)
    return f"{left} with {right.placement}", lhs, rhs


def affine(bench: Bench) -> None:
    if bench.name in INTEGERS:
        factors = [(1.0, 0.0), (2.7, -3.9), (-1.0, 7.0), (1e20, 0.0), (np.nan, 5.0), (3.0, -np.inf), (0.0, 300.0)]
        factors += [(1, 300), (-70000, -1), (1 << 63, 1)]
    else:
        # Numbers that every dtype holds, so that it does not matter in which one mul and add arrive.
        factors = [(1.0, 0.0), (1.5, -1.5), (-0.25, 3.0), (0.0, 1.0), (np.inf, 1.0), (2.0, np.nan)]
    if part_name(bench.name) in ("f32", "f64"):
        factors += [(1e10, -1e10), (1.000244140625, 0.75)]
    if part_name(bench.name) == "f64":
        factors += [(0.1, 0.7), (1e300, -1e308), (-1.1, 1.1)]
    for mul, add in factors:
        operands = [("sweep", bench.lay_out(values.sweep(bench.generator, bench.name, SMALL_SWEEP // 8)))]
        if bench.name not in INTEGERS and np.isfinite([mul, add]).all():
            operands.append(("cancelling", bench.lay_out(_around(bench.name, -add / (mul or 1.0)))))
        check_affine(bench, operands, mul, add)
    views = [
        (str(case), bench.lay_out(values.mixed(bench.generator, bench.name, case.shape), case.placement))
        for case in VIEWS + CONTIGUOUS[::2]
    ]
    check_affine(bench, views, 1.5, -3.0)


def check_affine(bench: Bench, operands: list[tuple[str, Operand]], mul: float, add: float) -> None:
    for fact, operand in operands:
        where = bench.where(f"mul {mul}, add {add}", fact)
        got = bench.read(operand.storage.affine(operand.layout, mul, add), bench.name, operand.values.shape, where)
        expected = oracle.affine(bench.name, operand.values, mul, add)
        inputs = {"x": operand.values}
        if bench.name in INTEGERS:
            assert_same(got, expected, where, inputs)
        else:
            ulps = tolerance("affine", bench.name)
            assert_close(bench.name, got, expected, ulps, where, inputs, zero_sign=False, loose=True)


def _around(name: str, number: float) -> Array:
    """The numbers of the dtype next to `number`."""
    steps = np.arange(-40, 41).astype(EXTENDED) * EXTENDED(2) ** (1 - FLOATS[part_name(name)].precision)
    return encode(name, EXTENDED(number) * (1 + steps))


# What methods are given. Every dtype holds each of the numbers, so that it does not matter in which one they arrive.
PARAMETERS: dict[str, list[tuple[float, ...]]] = {
    "powf": [(alpha,) for alpha in (2.0, 0.5, -1.0, 3.0, -0.5, 1.75, 0.0, 1.0, 17.0, np.inf, -np.inf, np.nan)],
    "elu": [(alpha,) for alpha in (1.0, 0.5, -2.0, 0.0, 2.0**100, -np.inf, np.inf, np.nan)],
    "celu": [(alpha,) for alpha in (1.0, 0.5, 3.0)],  # x is divided by it
    "leaky_relu": [(slope,) for slope in (0.25, 0.0, 1.0, -2.0, np.inf, np.nan)],
    "round_to": [(1.0, 10.0), (1.0, 1.0), (100.0, 1.0), (1.0, 1000.0), (np.inf, 1.0), (1.0, np.inf)],
    "nan_to_num": [(0.0, 1.5, -1.5), (np.nan, np.inf, -np.inf), (1.0, -2.0, 3.0)],
    "clamp": [(-1.0, 2.0), (0.0, 0.0), (2.0, -1.0), (-np.inf, 1.5), (-1.5, np.inf), (np.nan, 1.0), (0.0, np.nan)],
}
# Numbers that only f64 holds.
FINE_PARAMETERS = {"powf": [(0.1,), (1 / 3,), (-2.7,)]}
# What any other method is given.
_NUMBERS = (0.5, -2.0, 1.0, 0.0, 3.0)


def parameters_of(bench: Bench, name: str, count: int) -> list[tuple[float, ...]]:
    """What a functor with so many parameters is given."""
    others = [(_NUMBERS * 2)[first : first + count] for first in range(len(_NUMBERS))]
    return PARAMETERS.get(name, others) + (FINE_PARAMETERS.get(name, []) if bench.name == "f64" else [])


def method(bench: Bench) -> None:
    """A functor that is a method of its own: on many numbers, and on every layout class."""
    name = bench.cell.method
    names = list(inspect.signature(getattr(tallow.Storage, name)).parameters)[1:]
    operands = sum(parameter.endswith("layout") for parameter in names)
    count = len(names) - (2 * operands - 1)
    parameter_sets = parameters_of(bench, name, count)
    if operands > 1:
        for index, (fact, *group) in enumerate(operand_pairs(bench)):
            shape = group[0].values.shape
            group += [bench.lay_out(values.mixed(bench.generator, bench.name, shape)) for _ in range(operands - 2)]
            iteration = index % operands
            _check_method(
                bench, group[iteration:] + group[:iteration], parameter_sets[index % len(parameter_sets)], fact
            )
        return
    for parameters in parameter_sets:
        numbers = values.sweep(bench.generator, bench.name, sweep_size(bench) if bench.full else SMALL_SWEEP)
        _check_method(bench, [bench.lay_out(numbers)], parameters, "sweep")
    for case in VIEWS + CONTIGUOUS[::2]:
        numbers = values.mixed(bench.generator, bench.name, case.shape)
        _check_method(bench, [bench.lay_out(numbers, case.placement)], parameter_sets[0], str(case))


def as_operands(name: str, parameters: Sequence[float]) -> dict[str, Array]:
    """The parameters of an op on floats as operands of one element, rounded to no dtype of operands."""
    if name not in FLOATS:
        return {}
    return {f"parameter {index}": np.full(1, each, EXTENDED) for index, each in enumerate(parameters)}


def _check_method(bench: Bench, operands: list[Operand], parameters: tuple[float, ...], fact: str) -> None:
    name = bench.cell.method
    where = bench.where(f"parameters {parameters}", fact)
    first, *others = operands
    remaining = [part for other in others for part in (other.storage, other.layout)]
    result = getattr(first.storage, name)(first.layout, *remaining, *parameters)
    with np.errstate(all="ignore"):
        expected = getattr(oracle, name)(bench.name, *(operand.values for operand in operands), *parameters)
    got = bench.read(result, result_name(bench.name, expected), first.values.shape, where)
    inputs = {argument: operand.values for argument, operand in zip("xyz", operands, strict=False)}
    inputs |= as_operands(bench.name, parameters)
    if not is_extended(expected):
        assert_same(got, expected, where, inputs)
    elif bench.name in COMPLEX:
        numbers = [decode(bench.name, operand.values) for operand in operands] + [EXTENDED(each) for each in parameters]
        check_complex(name, bench.name, got, expected, numbers, where, inputs)
    elif tolerance(name, bench.name) == EXACT:
        assert_equal_values(got, encode(bench.name, expected), where, inputs)
    else:
        assert_close(bench.name, got, expected, tolerance(name, bench.name), where, inputs)


def to_dtype(bench: Bench) -> None:
    sources = [("sweep", bench.lay_out(values.sweep(bench.generator, bench.name, SMALL_SWEEP)))]
    sources.append(("near powers of two", bench.lay_out(_near_powers_of_two(bench.name))))
    for case in VIEWS[::2] + CONTIGUOUS[::4]:
        numbers = values.mixed(bench.generator, bench.name, case.shape)
        sources.append((str(case), bench.lay_out(numbers, case.placement)))
    for target in matrix.dtypes_of(bench.cell.backend):
        if bench.name in COMPLEX and not (target in COMPLEX or target == "bool"):
            with pytest.raises(UnsupportedDType, match="imaginary"):
                sources[0][1].storage.to_dtype(sources[0][1].layout, dtype_of(target))
            continue
        extra = []
        if target in FLOATS and FLOATS[target].bits <= 16 and bench.name in FLOATS:
            extra.append(("ties", bench.lay_out(_ties(bench.name, target))))
        for fact, operand in sources + extra:
            where = bench.where(f"to {target}", fact)
            result = operand.storage.to_dtype(operand.layout, dtype_of(target))
            got = bench.read(result, target, operand.values.shape, where)
            assert_same(got, convert(bench.name, target, operand.values), where, {"x": operand.values})


def _near_powers_of_two(name: str) -> Array:
    """The bounds of integers, and where an integer falls between two floats."""
    powers = [(2**power + step) * sign for power in range(64) for step in (-3, -1, 0, 1, 3) for sign in (1, -1)]
    if name in INTEGERS:
        bounds = INTEGERS[name]
        for number_format in FLOATS.values():
            # A tie between two floats, of which the lower or the upper one is even, and just beside it.
            half = number_format.precision
            ties = [(2**half + odd) << shift for odd in (1, 3) for shift in range(64 - half)]
            powers += [(tie + step) * sign for tie in ties for step in (-1, 0, 1) for sign in (1, -1)]
        return np.array([number for number in powers if bounds.lowest <= number <= bounds.highest], NUMPY[name])
    wide = np.array(powers, object).astype(EXTENDED)
    # Of complex numbers these are the real parts.
    return encode(name, np.concatenate([wide, wide / 2, wide + np.sign(wide) * EXTENDED(0.75)]))


def _ties(source: str, target: str) -> Array:
    """Halfway between neighbours of the target dtype, and one step of the source dtype to either side."""
    numbers = np.sort(decode(target, values.all_patterns(target)))
    numbers = numbers[np.isfinite(numbers)]
    middles = encode(source, (numbers[1:] + numbers[:-1]) / 2)
    # The last of these is where overflow begins.
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    middles = np.concatenate([middles, encode(source, np.array([beyond, -beyond]))])
    bits = middles.view(FLOATS[source].raw)
    return np.concatenate([bits, bits + 1, bits - 1]).astype(FLOATS[source].raw).view(NUMPY[source])


def where_cond(bench: Bench) -> None:
    for condition_name in ("bool", *NO_ROW):
        placements = [case.placement for case in FEW_VIEWS]
        shapes = [(6, 7), (1023,), (2, 3, 1, 2, 3), (), (0, 4)]
        combinations = [
            ((6, 7), *chosen)
            for chosen in zip(placements, placements[1:] + placements[:1], placements[::-1], strict=True)
        ]
        combinations += [(shape, "contiguous", "contiguous", "contiguous") for shape in shapes]
        for shape, *chosen in combinations:
            where = bench.where(f"condition {condition_name}, shape {shape}, {chosen}")
            truth = bench.generator.choice([0, 1], shape).astype(NUMPY[condition_name])
            truth = np.where(truth == 1, bench.generator.choice(_true_values(condition_name), shape), truth)
            condition = bench.lay_out(truth, chosen[0], condition_name)
            if bench.cell.method == "where_cond_gradients":
                gradient = bench.lay_out(values.mixed(bench.generator, bench.name, shape), chosen[1])
                of_gradient = condition.layout, gradient.storage, gradient.layout
                zeros = np.zeros_like(gradient.values)
                expected = [(gradient.values, zeros), (zeros, gradient.values)]
                for actual, both in zip(condition.storage.where_cond_gradients(*of_gradient), expected, strict=True):
                    got = bench.read(actual, bench.name, shape, where)
                    assert_same(got, oracle.where(condition.values, *both), where, {"condition": condition.values})
                continue
            on_true, on_false = (
                bench.lay_out(values.mixed(bench.generator, bench.name, shape), placement) for placement in chosen[1:]
            )
            result = condition.storage.where_cond(
                condition.layout, on_true.storage, on_true.layout, on_false.storage, on_false.layout
            )
            got = bench.read(result, bench.name, shape, where)
            expected = oracle.where(condition.values, on_true.values, on_false.values)
            assert_same(got, expected, where, {"condition": condition.values})
            # One of the two may be a number, which a GPU may take along with the launch.
            repeated = Layout(Shape(shape), (0,) * len(shape))
            number = bench.device.storage_from_slice([7], on_true.storage.dtype)
            sevens = np.full(shape, from_number(bench.name, 7.0))
            result = condition.storage.where_cond(condition.layout, number, repeated, on_false.storage, on_false.layout)
            got = bench.read(result, bench.name, shape, where)
            assert_same(got, oracle.where(condition.values, sevens, on_false.values), where)
            number = bench.device.storage_from_slice([7], on_true.storage.dtype)
            result = condition.storage.where_cond(condition.layout, on_true.storage, on_true.layout, number, repeated)
            got = bench.read(result, bench.name, shape, where)
            assert_same(got, oracle.where(condition.values, on_true.values, sevens), where)


def _true_values(name: str) -> Array:
    numbers = values.specials(name)
    return numbers[decode(name, numbers) != 0]


HANDLERS = {
    **{op.value: method for op in MethodOp},
    "affine": affine,
    "to_dtype": to_dtype,
    "unary_impl": unary_impl,
    "binary_impl": binary_impl,
    "binary_assign": binary_assign,
    "cmp": cmp,
    **dict.fromkeys(("where_cond", "where_cond_gradients"), where_cond),
}
