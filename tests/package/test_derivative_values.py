"""First and second derivatives of every op of one element are those of closed forms, over all numbers of a dtype.

The forms are listed where a formula has functions of its own, and else differences of the spec's formula.

The forms are evaluated with several times the digits of f64, so that nothing is lost where terms cancel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
import own_spec
import pytest
from mpmath import mp, mpf
from tallow import Device, Tensor, Var
from tallow.gradients.functors import DERIVATIVES
from tallow.op import BinaryOp, MethodOp, UnaryOp

from . import exact_formulas

Number = Any
INF, NAN = math.inf, math.nan


class Jet(NamedTuple):
    """A number, and its first and second derivative by x."""

    value: Number
    first: Number
    second: Number

    def __mul__(self, other: Jet) -> Jet:  # type: ignore[override]
        first = self.first * other.value + self.value * other.first
        second = self.second * other.value + 2 * self.first * other.first + self.value * other.second
        return Jet(self.value * other.value, first, second)

    def through(self, value: Number, first: Number, second: Number) -> Jet:
        """A function of it, of which these are the value and the derivatives."""
        return Jet(value, first * self.first, second * self.first**2 + first * self.second)


def sigmoid(x: Jet) -> Jet:
    share, remaining = 1 / (1 + mp.exp(-x.value)), 1 / (1 + mp.exp(x.value))
    return x.through(share, share * remaining, share * remaining * (remaining - share))


def softplus(x: Jet) -> Jet:
    share, remaining = 1 / (1 + mp.exp(-x.value)), 1 / (1 + mp.exp(x.value))
    return x.through(mp.log1p(mp.exp(x.value)), share, share * remaining)


def tanh(x: Jet) -> Jet:
    slope = mp.sech(x.value) ** 2
    return x.through(mp.tanh(x.value), slope, -2 * mp.tanh(x.value) * slope)


def gelu(x: Number) -> tuple[Number, Number]:
    root = 2 * mp.sqrt(2 / mp.pi)
    inner = Jet(root * (x + mpf("0.044715") * x**3), root * (1 + mpf("0.134145") * x**2), root * mpf("0.26829") * x)
    return (Jet(x, mpf(1), mpf(0)) * sigmoid(inner))[1:]


def gelu_erf(x: Number) -> tuple[Number, Number]:
    if abs(x) > 1000:
        return mpf(x > 0), mpf(0)
    density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
    return (Jet(x, mpf(1), mpf(0)) * Jet(mp.erfc(-x / mp.sqrt(2)) / 2, density, -x * density))[1:]


def of_x(function: Callable[[Jet], Jet]) -> Callable[[Number], tuple[Number, Number]]:
    def slopes(x: Number) -> tuple[Number, Number]:
        at = Jet(x, mpf(1), mpf(0))
        return (at * function(at))[1:]

    return slopes


def constant(slope: float) -> Callable[[Number], tuple[Number, Number]]:
    return lambda _: (mpf(slope), mpf(0))


def power(alpha: Number) -> Callable[[Number], tuple[Number, Number]]:
    return lambda x: (alpha * x ** (alpha - 1), alpha * (alpha - 1) * x ** (alpha - 2))


def hardswish(x: Number) -> tuple[Number, Number]:
    if abs(x) >= 3:
        return mpf(x > 0), mpf(0)
    return (2 * x + 3) / 6, mpf(1) / 3


class Form(NamedTuple):
    """What the derivatives of an op are."""

    slopes: Callable[[Number], tuple[Number, Number]]
    """The first and the second one at a finite number."""
    low: tuple[float, float] = (NAN, NAN)
    """Those at -infinity."""
    high: tuple[float, float] = (NAN, NAN)
    """Those at infinity."""
    domain: tuple[float, float] = (-INF, INF)
    """Where the function is smooth."""
    terms: float = 0
    """The size of terms of the second derivative that may cancel."""
    parameters: tuple[float, ...] = ()


ZEROS, ONE = (0.0, 0.0), (1.0, 0.0)
# The first is 0, and the second one is 0 in the limit, but NaN where factors are infinite.
OPEN = (0.0, NAN)
LN2, LN10 = mp.log(2), mp.log(10)
FORMS: dict[str, Form] = {
    "exp": Form(lambda x: (mp.exp(x), mp.exp(x)), ZEROS, (INF, INF)),
    "expm1": Form(lambda x: (mp.exp(x), mp.exp(x)), ZEROS, (INF, INF)),
    "exp2": Form(lambda x: (LN2 * mpf(2) ** x, LN2**2 * mpf(2) ** x), ZEROS, (INF, INF)),
    "log": Form(lambda x: (1 / x, -1 / x**2), high=ZEROS, domain=(0, INF)),
    "log2": Form(lambda x: (1 / x / LN2, -1 / x**2 / LN2), high=ZEROS, domain=(0, INF)),
    "log10": Form(lambda x: (1 / x / LN10, -1 / x**2 / LN10), high=ZEROS, domain=(0, INF)),
    "log1p": Form(lambda x: (1 / (1 + x), -1 / (1 + x) ** 2), high=ZEROS, domain=(-1, INF)),
    "sin": Form(lambda x: (mp.cos(x), -mp.sin(x)), domain=(-1e4, 1e4)),
    "cos": Form(lambda x: (-mp.sin(x), -mp.cos(x)), domain=(-1e4, 1e4)),
    "tan": Form(lambda x: (mp.sec(x) ** 2, 2 * mp.tan(x) * mp.sec(x) ** 2), domain=(-1.5, 1.5)),
    "asin": Form(lambda x: (1 / mp.sqrt(1 - x * x), x / mp.sqrt(1 - x * x) ** 3), domain=(-1, 1), terms=1),
    "acos": Form(lambda x: (-1 / mp.sqrt(1 - x * x), -x / mp.sqrt(1 - x * x) ** 3), domain=(-1, 1), terms=1),
    "atan": Form(lambda x: (1 / (1 + x * x), -2 * x / (1 + x * x) ** 2), ZEROS, ZEROS),
    "sinh": Form(lambda x: (mp.cosh(x), mp.sinh(x)), (INF, -INF), (INF, INF)),
    "cosh": Form(lambda x: (mp.sinh(x), mp.cosh(x)), (-INF, INF), (INF, INF)),
    "tanh": Form(lambda x: tanh(Jet(x, mpf(1), mpf(0)))[1:], ZEROS, ZEROS, terms=1),
    "asinh": Form(lambda x: (1 / mp.sqrt(1 + x * x), -x / mp.sqrt(1 + x * x) ** 3), OPEN, OPEN),
    "acosh": Form(lambda x: (1 / mp.sqrt(x * x - 1), -x / mp.sqrt(x * x - 1) ** 3), high=OPEN, domain=(1, INF)),
    "atanh": Form(lambda x: (1 / (1 - x * x), 2 * x / (1 - x * x) ** 2), domain=(-1, 1), terms=1),
    "recip": Form(lambda x: (-1 / x**2, 2 / x**3), (-0.0, -0.0), (-0.0, 0.0)),
    "sqr": Form(lambda x: (2 * x, mpf(2)), (-INF, 2.0), (INF, 2.0)),
    "sqrt": Form(lambda x: (1 / mp.sqrt(x) / 2, -1 / mp.sqrt(x) ** 3 / 4), high=ZEROS, domain=(0, INF)),
    "rsqrt": Form(lambda x: (-1 / mp.sqrt(x) ** 3 / 2, 3 / mp.sqrt(x) ** 5 / 4), high=(-0.0, 0.0), domain=(0, INF)),
    "erf": Form(
        lambda x: (2 / mp.sqrt(mp.pi) * mp.exp(-x * x), -4 * x / mp.sqrt(mp.pi) * mp.exp(-x * x)), ZEROS, ZEROS
    ),
    "gelu": Form(gelu, ZEROS, ONE, terms=2),
    "gelu_erf": Form(gelu_erf, ZEROS, ONE, terms=2),
    "silu": Form(of_x(sigmoid), ZEROS, ONE, terms=2),
    "mish": Form(of_x(lambda x: tanh(softplus(x))), ZEROS, ONE, terms=2),
    "sigmoid": Form(lambda x: sigmoid(Jet(x, mpf(1), mpf(0)))[1:], ZEROS, ZEROS, terms=1),
    "softplus": Form(lambda x: softplus(Jet(x, mpf(1), mpf(0)))[1:], ZEROS, ONE),
    "hardswish": Form(hardswish, ZEROS, ONE),
    "elu": Form(
        lambda x: (mpf(1), mpf(0)) if x > 0 else (1.5 * mp.exp(x), 1.5 * mp.exp(x)), ZEROS, ONE, parameters=(1.5,)
    ),
    "powf": Form(power(mpf(2.5)), high=(INF, INF), domain=(0, INF), parameters=(2.5,)),
    "nan_to_num": Form(constant(1), ZEROS, ZEROS, parameters=(0.0, 2.0, -2.0)),
}
ULPS = 16


def form_of(op: UnaryOp | MethodOp) -> Form:
    """The listed form, else that of the spec's formula."""
    if op.value in FORMS:
        return FORMS[op.value]
    functor = own_spec.read().functors["unary"].by_name[op.value]
    parameters = {name: 4.0 * number for number, name in enumerate(functor.parameters, 1)}

    def slopes(x: Number) -> tuple[Number, Number]:
        return exact_formulas.slopes(functor.formula.node, x, parameters)

    low, high = ((float(first), float(second)) for first, second in map(slopes, (mpf(-INF), mpf(INF))))
    return Form(slopes, low, high, parameters=tuple(parameters.values()))


def numbers_of(dtype: type, form: Form) -> Sequence[float]:
    """Special numbers, neighbours of those at which functions choose, and some of all exponents."""
    info = np.finfo(dtype)
    near = [1, 2, 3, 0.5, 1.5, 40, 88.5, 100, 709.5, 750]
    tiny = [info.smallest_subnormal, info.tiny, info.tiny * 3]
    huge = [math.sqrt(info.max), math.sqrt(info.max) * 4, float(info.max) / 4, info.max]
    near += [math.nextafter(1, 0), 1 - float(info.eps) / 2, 1 + float(info.eps), 1 - 1e-4, 1e-4, 1e-8]
    generator = np.random.default_rng(0)
    drawn = generator.uniform(1, 2, 60) * 2.0 ** generator.integers(info.minexp, info.maxexp, 60)
    every = np.array([*near, *tiny, *huge, *drawn, *generator.uniform(0, 6, 30)]).astype(dtype)
    low, high = form.domain
    both = np.unique(np.concatenate([every, -every]))
    return [float(x) for x in both if low < x < high]


OPS = [op for op, given in DERIVATIVES.items() if given is not None and len(given) == 1]
OPS = [op for op in OPS if isinstance(op, UnaryOp | MethodOp) and op not in (MethodOp.VAR, MethodOp.STD)]


def computed(op: UnaryOp | MethodOp, x: Tensor, parameters: tuple[float, ...]) -> Tensor:
    if isinstance(op, UnaryOp):
        return x._unary(op)
    if op is MethodOp.TO_DTYPE:
        return x.to_dtype(x.dtype)
    if op is MethodOp.ROUND_TO:
        return x.round(1)
    return x._new(getattr(x._storage, op.value)(x._layout, *parameters), x._layout.dense)


def second(first: Tensor, x: Var) -> Any:
    result = first.sum().backward().get(x) if first.is_recorded else None
    return np.zeros(x.shape) if result is None else result.numpy()


def assert_close(actual: Any, exact: Sequence[Number], x: Sequence[float], dtype: type, terms: float) -> None:
    info = np.finfo(dtype)
    wrong = []
    for at, got, expected in zip(x, actual.tolist(), exact, strict=True):
        if mp.isnan(expected):
            is_right = math.isnan(got)
        elif abs(expected) > float(info.max) * (1 - ULPS * float(info.eps)):
            is_right = abs(got) >= float(info.max) * (1 - 2 * ULPS * float(info.eps)) and (got > 0) == (expected > 0)
        else:
            bound = ULPS * (float(info.eps) * (abs(expected) + terms) + float(info.smallest_subnormal))
            is_right = math.isfinite(got) and abs(mpf(got) - expected) <= bound
        if not is_right:
            wrong.append(f"{at!r}: {got!r}, not {mpmath.nstr(expected, 17)}")
    assert not wrong, f"{len(wrong)} of {len(x)}: {wrong[:12]}"


def test_forms_are_of_ops() -> None:
    assert FORMS.keys() <= {op.value for op in OPS}
    assert PAIRS.keys() <= {op.value for op in OF_PAIRS}


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.value)
def test_derivatives_are_those_of_closed_forms(op: UnaryOp | MethodOp, name: str, device: Device) -> None:
    if name == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    form, dtype = form_of(op), {"f32": np.float32, "f64": np.float64}[name]
    numbers = numbers_of(dtype, form)
    with mp.workprec(400):
        exact = [form.slopes(mpf(x)) for x in numbers]
    for end, slopes in ((-INF, form.low), (INF, form.high)):
        if not math.isnan(slopes[0]):
            numbers, exact = [*numbers, end], [*exact, tuple(map(mpf, slopes))]
    x = Var(Tensor(np.array(numbers, dtype), device=device))
    result = computed(op, x, form.parameters)
    actual = result.backward(Tensor.ones(x.shape, dtype=x.dtype, device=device), create_graph=True).get(x)
    first = x.zeros_like() if actual is None else actual
    with mp.workprec(400):
        assert_close(first.numpy(), [slopes[0] for slopes in exact], numbers, dtype, 0 if op.value not in CANCEL else 1)
        assert_close(second(first, x), [slopes[1] for slopes in exact], numbers, dtype, form.terms)


# Whose first derivative has terms that cancel.
CANCEL = ("gelu", "gelu_erf", "silu", "mish", "hardswish")


def huber(x: Number, y: Number) -> Number:
    distance = abs(x - y)
    return distance**2 / 2 if distance < 0.75 else mpf(0.75) * (distance - mpf(0.375))


def silu(x: Number) -> Number:
    return x / (1 + mp.exp(-x))


def gelu_value(x: Number) -> Number:
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)))


def remainder(x: Number, y: Number) -> Number:
    return x - y * mp.floor(x / y)


def fmod(x: Number, y: Number) -> Number:
    quotient = x / y
    return x - y * (mp.floor(quotient) if quotient > 0 else mp.ceil(quotient))


def cross_entropy(x: Number, y: Number) -> Number:
    return -(y * mp.log(x) + (1 - y) * mp.log1p(-x))


# What differences of numbers of 1000 bits leave.
NOISE = mpf(10) ** -170


def any_pair(x: float, y: float) -> bool:
    return True


class PairForm(NamedTuple):
    """A function of two numbers, where it is smooth, and what terms its derivatives have that may cancel."""

    function: Callable[[Number, Number], Number]
    is_smooth: Callable[[float, float], bool] = any_pair
    terms: Callable[[float, float], float] = lambda x, y: 0.0


PAIRS: dict[str, PairForm] = {
    "pow": PairForm(lambda x, y: x**y, lambda x, y: x > 0, lambda x, y: 0.0),
    "atan2": PairForm(mp.atan2, any_pair, lambda x, y: 1 / max(abs(x), abs(y)) ** 2),
    "hypot": PairForm(mp.hypot, any_pair, lambda x, y: 1 / max(abs(x), abs(y))),
    "copysign": PairForm(lambda x, y: abs(x) * mp.sign(y)),
    "nextafter": PairForm(lambda x, y: x),
    "floor_divide": PairForm(lambda x, y: mp.floor(x / y), lambda x, y: x % y != 0),
    "remainder": PairForm(remainder, lambda x, y: x % y != 0 and abs(x / y) < 1e6),
    "fmod": PairForm(fmod, lambda x, y: math.fmod(x, y) != 0 and abs(x / y) < 1e6),
    "logaddexp": PairForm(lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), terms=lambda x, y: 1.0),
    "silu_mul": PairForm(lambda x, y: silu(x) * y, terms=lambda x, y: 4 * (1 + abs(y))),
    "gelu_mul": PairForm(lambda x, y: gelu_value(x) * y, terms=lambda x, y: 8 * (1 + abs(y))),
    "logistic_loss": PairForm(lambda x, y: mp.log1p(mp.exp(x)) - x * y, terms=lambda x, y: 1 + abs(y)),
    "bernoulli_loss": PairForm(
        cross_entropy, lambda x, y: 1e-9 < x < 1 and 0 <= y <= 1, lambda x, y: (1 / (x * (1 - x))) ** 2
    ),
    "kl_divergence": PairForm(lambda x, y: x * (mp.log(x) - y), lambda x, y: x > 0, lambda x, y: abs(x) + abs(y)),
    "kl_divergence_of_logs": PairForm(
        lambda x, y: mp.exp(x) * (x - y), lambda x, y: x < 80, lambda x, y: math.exp(x) * (1 + abs(x) + abs(y))
    ),
    "squared_difference": PairForm(lambda x, y: (x - y) ** 2, terms=lambda x, y: abs(x) + abs(y)),
    "huber": PairForm(huber, lambda x, y: x != y and abs(abs(x - y) - 0.75) > 1e-3, lambda x, y: abs(x) + abs(y)),
}


def pair_form_of(op: BinaryOp | MethodOp) -> PairForm:
    """The listed form, else that of the spec's formula."""
    if op.value in PAIRS:
        return PAIRS[op.value]
    node = own_spec.read().functors["binary"].by_name[op.value].formula.node

    def function(x: Number, y: Number) -> Number:
        return exact_formulas.value(node, {"x": x, "y": y}, {"x": x, "y": y})

    return PairForm(function, lambda x, y: exact_formulas.is_smooth(node, {"x": x, "y": y}))


# Ordinary numbers, ones that are nearly equal, and ones whose squares are beyond f32.
PAIR_NUMBERS = [-30.5, -5.5, -1.25, -0.75, -1e-3, 1e-10, 0.25, 0.5, 0.875, 1.0, 1.0000001, 2.5, 7.0, 40.0, 1e4]
FAR = [1e25, -3e25, 2e-18]
# Of so many pairs one is compared without --full.
SAMPLE = 11
OF_PAIRS = [
    op for op, given in DERIVATIVES.items() if given is not None and (isinstance(op, BinaryOp) or op is MethodOp.HUBER)
]


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in range(1, SAMPLE))])
@pytest.mark.parametrize("op", OF_PAIRS, ids=lambda op: op.value)
def test_derivatives_by_both_operands_are_those_of_closed_forms(
    op: BinaryOp | MethodOp, part: int, name: str, device: Device
) -> None:
    if name == "f64" and device.is_metal():
        pytest.skip("metal has no f64")
    form, dtype = pair_form_of(op), {"f32": np.float32, "f64": np.float64}[name]
    near = np.array(PAIR_NUMBERS).astype(dtype).tolist()
    far = np.array(FAR).astype(dtype).tolist() if op.value in ("atan2", "hypot", "div") else []
    pairs = [*itertools.product(near, near), *itertools.product(far, far)]
    pairs = [pair for pair in pairs if form.is_smooth(*pair)][part::SAMPLE]
    inputs = [Var(Tensor(np.array(part, dtype), device=device)) for part in zip(*pairs, strict=True)]
    x, y = inputs
    if isinstance(op, BinaryOp):
        result = x._binary(op, y)
    else:
        result = x._new(x._storage.huber(x._layout, y._storage, y._layout, 0.75), x._layout.dense)
    grads = result.backward(Tensor.ones(x.shape, dtype=x.dtype, device=device), create_graph=True)
    with mp.workprec(1000):
        numbers = [tuple(map(mpf, pair)) for pair in pairs]
        terms = [form.terms(*pair) for pair in pairs]
        for index, variable in enumerate(inputs):
            first = grads.get(variable)
            orders = [(1 - index, index)]
            results = [variable.zeros_like() if first is None else first]
            for other, by in enumerate(inputs):
                orders.append((orders[0][0] + 1 - other, orders[0][1] + other))
                twice = first.sum().backward(keep=True).get(by) if first is not None and first.is_recorded else None
                results.append(variable.zeros_like() if twice is None else twice)
            for order, got in zip(orders, results, strict=True):
                exact = [mp.chop(mp.diff(form.function, pair, order, relative=True), NOISE) for pair in numbers]
                with_terms = [abs(it) + term for it, term in zip(exact, terms, strict=True)]
                assert_pairs_close(got.numpy(), exact, with_terms, pairs, dtype, order)


def assert_pairs_close(
    actual: Any, exact: Sequence[Number], sizes: Sequence[Number], pairs: Sequence[Any], dtype: type, order: Any
) -> None:
    info = np.finfo(dtype)
    wrong = []
    for pair, got, expected, size in zip(pairs, actual.tolist(), exact, sizes, strict=True):
        if abs(expected) > float(info.max) * 0.99:
            is_right = abs(got) >= float(info.max) * 0.98
        else:
            bound = 2 * ULPS * (float(info.eps) * size + float(info.smallest_subnormal))
            is_right = math.isfinite(got) and abs(mpf(got) - expected) <= bound
        if not is_right:
            wrong.append(f"{pair}: {got!r}, not {mpmath.nstr(expected, 17)}")
    assert not wrong, f"{order}: {len(wrong)} of {len(pairs)}: {wrong[:8]}"
