"""Gradients of one result for each element: closed forms, written by hand.

A function gives what an op multiplies the gradient of its result by, before any rounding, of extended operands; with it
the sum of the magnitudes of its terms, where these may cancel each other; and by what a part of it is multiplied that
may be a subnormal number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import elementwise, functions
from .formats import EXTENDED, FLOATS, Array, compute_name, decode, round_values, spacing

Terms = tuple[Array, Array, Array]


class Expected(NamedTuple):
    """The expected gradient."""

    value: Array
    slack: Array
    """Its error bound besides units in the last place: terms may cancel, and factors be subnormal numbers."""
    is_open: Array
    """Where it is NaN or not by a rounding: infinity times what underflows or cancels, powers of numbers below 0."""


def _both_signs(x: Array, center: Array, low: float, high: float) -> Array:
    """A slope with its limits at the infinities."""
    return np.where(x == -np.inf, EXTENDED(low), np.where(x == np.inf, EXTENDED(high), center))


def _silu(x: Array) -> Terms:
    share, remaining = functions.sigmoid(x), functions.sigmoid(-x)
    scale = 1 + np.abs(x) * remaining
    return _both_signs(x, share * (1 + x * remaining), 0, 1), share * scale, scale


def _gelu(x: Array) -> Terms:
    root = np.sqrt(2 / functions.PI)
    # Of twice the argument of the hyperbolic tangent.
    u, slope = 2 * root * (x + EXTENDED("0.044715") * x**3), 2 * root * (1 + EXTENDED("0.134145") * x**2)
    share, remaining = functions.sigmoid(u), functions.sigmoid(-u)
    scale = 1 + np.abs(x) * remaining * slope
    return _both_signs(x, share + x * share * remaining * slope, 0, 1), share * scale, scale


def _gelu_erf(x: Array) -> Terms:
    share, part = functions.normal_integral(x), x * functions.gauss(x) * functions.INVERSE_SQRT_TWO_PI
    return _both_signs(x, share + part, 0, 1), share + np.abs(part), 1 + np.abs(x)


def _mish(x: Array) -> Terms:
    gate = np.tanh(functions.softplus(x))
    part = x * (1 - gate * gate) * functions.sigmoid(x)
    return _both_signs(x, gate + part, 0, 1), gate + np.abs(part), 1 + np.abs(x)


def _hardswish(x: Array) -> Terms:
    inside = np.where(x <= -3, EXTENDED(0), np.where(x >= 3, EXTENDED(1), (2 * x + 3) / 6))
    return inside, np.where(np.abs(x) < 3, np.abs(x) / 3 + EXTENDED(0.5), EXTENDED(0)), np.ones_like(x)


_OF_ONE: dict[str, Callable[[Array], Array | Terms]] = {
    "sin_gradient": np.cos,
    "cos_gradient": lambda x: -np.sin(x),
    "tan_gradient": lambda tangent: 1 + tangent**2,
    "sinh_gradient": np.cosh,
    "cosh_gradient": np.sinh,
    "exp2_gradient": lambda power: np.log(EXTENDED(2)) * power,
    "tanh_gradient": lambda x: 1 / np.cosh(x) ** 2,
    "gelu_gradient": _gelu,
    "gelu_erf_gradient": _gelu_erf,
    "erf_gradient": lambda x: _both_signs(x, 2 / np.sqrt(functions.PI) * functions.gauss(x) ** 2, 0, 0),
    "silu_gradient": _silu,
    "asin_gradient": lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
    "acos_gradient": lambda x: -1 / np.sqrt((1 - x) * (1 + x)),
    "atan_gradient": lambda x: 1 / (1 + x * x),
    "asinh_gradient": lambda x: 1 / np.hypot(x, 1),
    "acosh_gradient": lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    "sigmoid_gradient": lambda x: 1 / (2 + np.exp(x) + np.exp(-x)),
    "abs_gradient": functions.sign,
    "expm1_gradient": np.exp,
    "softplus_gradient": functions.sigmoid,
    "mish_gradient": _mish,
}


def _pow_x(name: str, x: Array, y: Array) -> Terms:
    slope = np.where(y == 0, EXTENDED(0), y * _held(name, np.power(x, y - 1)))
    # y - 1 is rounded.
    return slope, np.abs((y - 1) * np.log(np.abs(x)) * slope), np.abs(y)


def _pow_y(name: str, x: Array, y: Array) -> Terms:
    return _held(name, np.power(x, y)) * np.log(x), np.zeros_like(x), np.abs(np.log(np.abs(x)))


def _atan2(x: Array, y: Array, *, of_x: bool) -> Terms:
    slope = (y if of_x else -x) / (x * x + y * y)
    far = np.where(np.isnan(x + y), EXTENDED("nan"), EXTENDED(0))
    ratio = 1 / np.maximum(np.abs(x), np.abs(y))
    return np.where(np.isinf(x) != np.isinf(y), far, slope), np.zeros_like(x), ratio


def _of_two(op: str, name: str, x: Array, y: Array) -> Array | Terms:
    """Of the operands; of the divisor and the quotient for a division."""
    match op:
        case "remainder_gradient_y":
            return -np.floor_divide(x, y)
        case "fmod_gradient_y":
            return -np.round((x - np.fmod(x, y)) / y)
        case "pow_gradient_x":
            return _pow_x(name, x, y)
        case "pow_gradient_y":
            return _pow_y(name, x, y)
        case "atan2_gradient_x":
            return _atan2(x, y, of_x=True)
        case "atan2_gradient_y":
            return _atan2(x, y, of_x=False)
        case "logistic_loss_gradient_x":
            # The sigmoid and the target may cancel.
            return functions.sigmoid(x) - y, functions.sigmoid(x) + np.abs(y), np.ones_like(x)
        case "logistic_loss_gradient_y":
            return -x
        case "bernoulli_loss_gradient_x":
            return _held(name, x - y) / np.maximum(x * (1 - x), EXTENDED("1e-12"))
        case "bernoulli_loss_gradient_y":
            yes, no = functions.held_log(x), functions.held_log1p(-x)
            return no - yes, np.abs(no) + np.abs(yes), np.ones_like(x)
        case "kl_divergence_gradient_x":
            return np.log(x) - y + 1, np.abs(np.log(x)) + np.abs(y) + 1, np.ones_like(x)
        case "kl_divergence_gradient_y":
            return -x
        case "kl_divergence_of_logs_gradient_x":
            power, distance = round_values(compute_name(name), np.exp(x)), _held(name, x - y)
            return power * (distance + 1), power * (np.abs(distance) + 1), np.abs(distance) + 1
        case "kl_divergence_of_logs_gradient_y":
            return -_held(name, np.exp(x)), np.zeros_like(x), np.ones_like(x)
        case "squared_difference_gradient_x":
            return 2 * _held(name, x - y)
        case "squared_difference_gradient_y":
            return 2 * _held(name, y - x)
        case "copysign_gradient_x":
            return functions.sign(x) * np.copysign(EXTENDED(1), y)
        case "silu_mul_gradient_y" | "gelu_mul_gradient_y":
            return (functions.silu if op.startswith("silu") else functions.gelu)(x)
    raise AssertionError(f"no gradient is written for {op}")


def gradient(
    op: str, name: str, g: Array, x: Array, y: Array | None = None, parameters: tuple[float, ...] = ()
) -> Expected:
    """The gradient of an operand, extended, of operands in dtype `name`."""
    with np.errstate(all="ignore"):
        incoming, first = decode(name, g), decode(name, x)
        second = first if y is None else decode(name, y)
        numbers = [EXTENDED(number) for number in parameters]
        match op:
            case "product":
                return _exact(incoming * first)
            case "quotient":
                return _exact(incoming / first)
            case "relu_gradient":
                return _exact(np.where(first <= 0, EXTENDED(0), incoming))
            case "recip_gradient":
                return _quotient(name, -_held(name, incoming / first), first)
            case "sqr_gradient":
                return _exact(2 * incoming * first)
            case "sqrt_gradient":  # of the result
                return _quotient(name, incoming, _held(name, 2 * first))
            case "atanh_gradient":
                return _quotient(name, incoming, _held(name, (1 - first) * (1 + first)))
            case "log2_gradient":
                return _quotient(name, _held(name, incoming / np.log(EXTENDED(2))), first)
            case "log10_gradient":
                return _quotient(name, _held(name, incoming / np.log(EXTENDED(10))), first)
            case "rsqrt_gradient":
                return _quotient(name, -_held(name, incoming / first), 2 * np.sqrt(first))
            case "log1p_gradient":
                return _quotient(name, incoming, 1 + first)
            case "div_gradient_y":
                return _quotient(name, -_held(name, incoming * second), first)
            case "hardswish_gradient":
                result = _times(name, incoming, _hardswish(first))
                outside = np.where(first <= -3, EXTENDED(0), incoming)
                return result._replace(value=np.where(np.abs(first) >= 3, outside, result.value))
            case "leaky_relu_gradient":
                result = _times(name, incoming, np.broadcast_to(numbers[0], first.shape))
                return result._replace(value=np.where(first > 0, incoming, result.value))
            case "elu_gradient":
                alpha = np.broadcast_to(numbers[0], first.shape)
                slope = alpha * _held(name, np.exp(first))
                result = _times(name, incoming, (slope, np.zeros_like(first), np.abs(alpha)))
                is_lost = _is_subnormal(name, np.exp(first)) & np.isfinite(first)
                is_open = result.is_open | ((np.isinf(alpha) | np.isinf(incoming)) & is_lost)
                return result._replace(value=np.where(first > 0, incoming, result.value), is_open=is_open)
            case "clamp_gradient":
                lower, upper = numbers
                return _exact(np.where((first < lower) | (first > upper), EXTENDED(0), incoming))
            case "nan_to_num_gradient":
                return _exact(np.where(np.isfinite(first), incoming, EXTENDED(0)))
            case "powf_gradient":
                power = _pow_x(name, first, np.broadcast_to(numbers[0], first.shape))
                result = _times(name, incoming, power)
                return result if numbers[0] else _exact(np.zeros_like(incoming))
            case "prod_gradient":  # of an element, and of the product
                result = _times(name, incoming, _held(name, second / first))
                return result._replace(value=np.where(first == 0, incoming, result.value))
            case "kl_divergence_gradient_x" | "kl_divergence_gradient_y":
                result = _times(name, incoming, _of_two(op, name, first, second))
                return result._replace(value=np.where(first == 0, EXTENDED(0), result.value))
            case "min_gradient":  # of an element, and of the smallest or the largest one
                # NaN is both.
                return _exact(np.where((first == second) | np.isnan(first), incoming, EXTENDED(0)))
            case "logsumexp_gradient":  # of an element, and of the largest one
                distance = np.where(first == second, EXTENDED(0), _held(name, first - second))
                slope = np.exp(distance)
                # The difference is rounded.
                return _times(name, incoming, (slope, np.abs(distance) * slope, np.ones_like(slope)))
            case "logaddexp_gradient_x":
                distance = np.where(first == second, EXTENDED(0), _held(name, first - second))
                share, remaining = functions.sigmoid(distance), functions.sigmoid(-distance)
                # The difference is rounded.
                slack = np.where(np.isinf(distance), EXTENDED(0), np.abs(distance) * share * remaining)
                return _times(name, incoming, (share, slack, np.ones_like(share)))
            case "minimum_gradient_x" | "maximum_gradient_x":
                # NaN wins.
                lost, beaten = np.isnan(first), np.isnan(second)
                is_further = first < second if op == "minimum_gradient_x" else first > second
                wins, ties = is_further | (lost & ~beaten), (first == second) | (lost & beaten)
                return _exact(np.where(wins, incoming, np.where(ties, incoming / 2, EXTENDED(0))))
            case "pow_gradient_x":
                result = _times(name, incoming, _pow_x(name, first, second))
                # Of a number below 0, other powers than whole ones are NaN.
                is_rounded = round_values(compute_name(name), second - 1) != second - 1
                is_open = result.is_open | (is_rounded & np.signbit(first))
                return result._replace(value=np.where(second == 0, EXTENDED(0), result.value), is_open=is_open)
            case "pow_gradient_y":
                result, power = _times(name, incoming, _pow_y(name, first, second)), np.power(first, second)
                is_constant = ((first == 0) & (second >= 0)) | (power == 0)
                is_open = (power != 0) & _is_subnormal(name, power) & (~np.isfinite(incoming) | (first < 0))
                return result._replace(value=np.where(is_constant, EXTENDED(0), result.value), is_open=is_open)
            case "atan2_gradient_x" | "atan2_gradient_y":
                result = _times(name, incoming, _of_two(op, name, first, second))
                return result._replace(value=np.where((first == 0) & (second == 0), EXTENDED(0), result.value))
            case "huber_gradient_x":
                delta, distance = numbers[0], _held(name, first - second)
                return _times(name, incoming, np.minimum(np.maximum(distance, -delta), delta))
            case "hypot_gradient_x":  # of the result
                result = _times(name, incoming, first / second)
                return result._replace(value=np.where(second == 0, EXTENDED(0), result.value))
            case "hypot_of_operands":
                length = _held(name, elementwise.binary("hypot", name, first, second))
                result = _times(name, incoming, first / length)
                is_open = (result.is_open | _is_subnormal(name, length)) & (length != 0)
                return result._replace(value=np.where(length == 0, EXTENDED(0), result.value), is_open=is_open)
            case "silu_mul_gradient_x" | "gelu_mul_gradient_x":
                slope = (_silu if op.startswith("silu") else _gelu)(first)
                result = _times(name, _held(name, incoming * second), slope)
                return result._replace(slack=result.slack + _finite(_tiniest(name) * np.abs(slope[0])))
        if op in _OF_ONE:
            return _times(name, incoming, _OF_ONE[op](first))
        if op in OF_TWO:
            return _times(name, incoming, _of_two(op, name, first, second))
        return _by_differences(op, name, incoming, [first] if y is None else [first, second], parameters)


# By what gives both, the gradients of x and of y, each with whether its operands change places; of a division these are
# the divisor and the quotient.
_OF_EACH = {
    "mul": (("product", True), ("product", False)),
    "div": (("quotient", False), ("div_gradient_y", False)),
    "minimum": (("minimum_gradient_x", False), ("minimum_gradient_x", True)),
    "maximum": (("maximum_gradient_x", False), ("maximum_gradient_x", True)),
    "hypot": (("hypot_of_operands", False), ("hypot_of_operands", True)),
    "huber": (("huber_gradient_x", False), ("huber_gradient_x", True)),
    "logaddexp": (("logaddexp_gradient_x", False), ("logaddexp_gradient_x", True)),
    "squared_difference": (("squared_difference_gradient_x", False), ("squared_difference_gradient_x", True)),
}


def of_each(op: str) -> tuple[tuple[str, bool], ...]:
    """The gradients of which `op` gives both, each with whether its operands change places."""
    functor = op.removesuffix("_gradients")
    return _OF_EACH.get(functor, ((f"{functor}_gradient_x", False), (f"{functor}_gradient_y", False)))


OF_ONE = (
    *_OF_ONE,
    *("recip_gradient", "sqr_gradient", "sqrt_gradient", "rsqrt_gradient", "log1p_gradient"),
    *("relu_gradient", "hardswish_gradient", "log2_gradient", "log10_gradient", "atanh_gradient"),
)
OF_TWO = (
    *("div_gradient_y", "remainder_gradient_y", "minimum_gradient_x", "maximum_gradient_x"),
    *("pow_gradient_x", "pow_gradient_y", "logaddexp_gradient_x"),
    *("fmod_gradient_y", "atan2_gradient_x", "atan2_gradient_y", "hypot_gradient_x", "copysign_gradient_x"),
    *("silu_mul_gradient_x", "gelu_mul_gradient_x", "logistic_loss_gradient_x", "logistic_loss_gradient_y"),
    *("silu_mul_gradient_y", "gelu_mul_gradient_y", "bernoulli_loss_gradient_x", "bernoulli_loss_gradient_y"),
    *("squared_difference_gradient_x", "squared_difference_gradient_y"),
    *("kl_divergence_gradient_x", "kl_divergence_gradient_y"),
    *("kl_divergence_of_logs_gradient_x", "kl_divergence_of_logs_gradient_y"),
)


def slope(op: str, operands: list[Array], parameters: tuple[float, ...], step: Array) -> Array:
    """The slope of an op of the oracle by central differences, of which two are extrapolated: `exp_gradient` of exp."""
    function, x = _of_operand(op, operands, parameters)
    full, half = ((function(x + size) - function(x - size)) / (2 * size) for size in (step, step / 2))
    return np.asarray((4 * half - full) / 3)


def _of_operand(
    op: str, operands: list[Array], parameters: tuple[float, ...]
) -> tuple[Callable[[Array], Array], Array]:
    """The op of a gradient as a function of the operand by which it is one, and that operand."""
    functor, _, operand = op.partition("_gradient")
    index = int(operand == "_y")

    def function(moved: Array) -> Array:
        inputs = [*operands[:index], moved, *operands[index + 1 :]]
        # Extended numbers stay what they are.
        method = getattr(elementwise, functor, None)
        if method is None:
            one_or_two = elementwise.unary if len(inputs) == 1 else elementwise.binary
            return np.asarray(one_or_two(functor, "f64", *inputs))
        # Parameters that the gradient does not have may be any.
        count = len(inspect.signature(method).parameters) - 1 - len(inputs)
        return np.asarray(method("f64", *inputs, *(parameters or (0.5,) * count)))

    return function, operands[index]


def _by_differences(
    op: str, name: str, incoming: Array, operands: list[Array], parameters: tuple[float, ...]
) -> Expected:
    """The gradient of an op whose oracle alone is written: of moderate numbers, where the op is smooth."""
    function, x = _of_operand(op, operands, parameters)
    step = np.where(x == 0, EXTENDED(2) ** -36, np.abs(x) * EXTENDED(2) ** -12)
    coarse, fine = (slope(op, operands, parameters, size) for size in (step, step / 4))
    # At a kink the gradient is the slope of one side, or 0; central differences are between.
    below, above = ((function(x + size) - function(x)) / size for size in (-step, step))
    is_kink = np.abs(above - below) > EXTENDED(2) ** -4 * np.maximum(np.abs(above), np.abs(below))
    is_smooth = ~is_kink & (np.abs(coarse - fine) <= EXTENDED(2) ** -20 * np.abs(fine))
    is_moderate = np.logical_and.reduce([np.abs(np.log2(np.abs(part))) < 8 for part in (incoming, *operands)])
    slack = np.abs(incoming) * (EXTENDED(2) ** -26 + 4 * _epsilon(name)) * (1 + np.abs(fine))
    return Expected(incoming * fine, _finite(slack), ~(is_smooth & is_moderate))


def _exact(value: Array) -> Expected:
    return Expected(value, np.zeros_like(value), np.zeros(value.shape, bool))


def _quotient(name: str, value: Array, divisor: Array) -> Expected:
    """What may be a subnormal number before it is divided."""
    is_open = (divisor == 0) & _is_subnormal(name, value)
    return Expected(value / divisor, _finite(_tiniest(name) / np.abs(divisor)), is_open)


def _times(name: str, incoming: Array, terms: Array | Terms) -> Expected:
    """What a gradient and a slope come to, whose terms may be off by a function's units each."""
    slope, magnitude, scale = terms if isinstance(terms, tuple) else (terms, EXTENDED(0), EXTENDED(1))
    rounding = _finite(_epsilon(name) * magnitude)
    slack = np.abs(incoming) * (_finite(_tiniest(name) * np.maximum(scale, 1)) + rounding)
    is_open = np.isinf(incoming) & (slope != 0) & (_is_subnormal(name, slope) | (np.abs(slope) <= rounding))
    # A function's result may be the largest number, or infinite.
    is_open |= np.abs(np.abs(slope) / EXTENDED(FLOATS[compute_name(name)].largest) - 1) < EXTENDED(2) ** -12
    return Expected(incoming * _held(name, slope), _finite(slack), is_open)


def _is_subnormal(name: str, value: Array) -> Array:
    return np.abs(value) < EXTENDED(2) ** FLOATS[compute_name(name)].min_exponent


def _finite(value: Array) -> Array:
    return np.where(np.isfinite(value), value, EXTENDED(0))


def _held(name: str, value: Array) -> Array:
    """Numbers, of which those that the compute dtype of a dtype does not hold are infinite."""
    largest = EXTENDED(FLOATS[compute_name(name)].largest)
    return np.where(np.abs(value) > largest, np.copysign(EXTENDED("inf"), value), value)


def _tiniest(name: str) -> Array:
    """Return the error bound of a function's subnormal result."""
    return 4 * spacing(compute_name(name), EXTENDED(0))


def _epsilon(name: str) -> Array:
    """Return the relative error bound of a function's result."""
    return EXTENDED(4) * EXTENDED(2) ** (1 - FLOATS[compute_name(name)].precision)
