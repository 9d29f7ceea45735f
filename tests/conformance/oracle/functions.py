"""Functions of one real variable in extended precision, well conditioned where a textbook formula is not."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from .formats import EXTENDED, Array

# More digits than any long double has.
PI = EXTENDED("3.14159265358979323846264338327950288419716939937510582")
HALF_PI = PI / 2
SQRT_TWO = np.sqrt(EXTENDED(2))
INVERSE_SQRT_TWO_PI = 1 / np.sqrt(2 * PI)

# At 2 the series loses 5 bits to the 1/2 before it in the lower tail, and the fraction converges to all digits.
_SERIES_LIMIT = EXTENDED(2)
_SERIES_TERMS = 60
_FRACTION_TERMS = 160


def gauss(x: Array) -> Array:
    """exp(-x**2 / 2), without the rounding error of x**2 in the exponent."""
    # The head has half of the significand's bits, so that its square is exact.
    head = np.where(np.abs(x) < 1e8, np.rint(x * 2**20) / 2**20, x)
    return np.exp(-head * head / 2) * np.exp(-(x - head) * (x + head) / 2)


def normal_center(x: Array) -> Array:
    """The normal distribution's integral from 0 to x, for |x| <= 2: a series of terms of one sign (Marsaglia 2004)."""
    square = x * x
    term = np.array(x, EXTENDED)
    total = np.array(x, EXTENDED)
    for order in range(1, _SERIES_TERMS):
        term = term * square / (2 * order + 1)
        total = total + term
    return total * gauss(x) * INVERSE_SQRT_TWO_PI


def normal_tail(x: Array) -> Array:
    """The normal distribution's integral from x to infinity, for x >= 2: Laplace's continued fraction."""
    x = np.asarray(x, EXTENDED)
    fraction = np.array(x, EXTENDED)
    for order in range(_FRACTION_TERMS, 0, -1):
        fraction = x + order / fraction
    return gauss(x) * INVERSE_SQRT_TWO_PI / fraction


def normal_integral(x: Array) -> Array:
    """The normal distribution's integral from -infinity to x, relatively accurate in the lower tail."""
    small = np.abs(x) <= _SERIES_LIMIT
    center = EXTENDED(0.5) + normal_center(np.where(small, x, EXTENDED(0)))
    tail = normal_tail(np.where(small, _SERIES_LIMIT, np.minimum(np.abs(x), EXTENDED(1e4))))
    return np.where(np.isnan(x), x, np.where(small, center, np.where(x < 0, tail, 1 - tail)))


def erf(x: Array) -> Array:
    """The error function."""
    argument = np.abs(x) * SQRT_TWO
    small = argument <= _SERIES_LIMIT
    center = 2 * normal_center(np.where(small, argument, EXTENDED(0)))
    tail = normal_tail(np.where(small, _SERIES_LIMIT, np.minimum(argument, EXTENDED(1e4))))
    magnitude = np.where(np.isnan(x), x, np.where(small, center, 1 - 2 * tail))
    return np.copysign(magnitude, x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)); -0.0 at -inf."""
    return np.where(x == -np.inf, EXTENDED("-0.0"), x / (1 + np.exp(-x)))


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: Array) -> Array:
    """x * tanh(softplus(x)), whose tanh is n / (n + 2) with n = exp(x) * (exp(x) + 2); -0.0 at -inf."""
    decay = np.exp(-np.abs(x))
    above = x * (1 + 2 * decay) / (1 + 2 * decay + 2 * decay**2)
    below = x * decay * (decay + 2) / (decay * (decay + 2) + 2)
    return np.where(x == -np.inf, EXTENDED("-0.0"), np.where(x > 0, above, below))


def hardswish(x: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6; -0.0 at -inf."""
    gate = np.minimum(np.maximum(x + 3, 0), 6) / 6
    return np.where(x <= -3, EXTENDED("-0.0"), x * gate)


def selu(x: Array) -> Array:
    """Of Klambauer et al. 2017: these constants keep a mean of 0 and a variance of 1."""
    alpha, scale = EXTENDED("1.6732632423543772848170429916717"), EXTENDED("1.0507009873554804934193349852946")
    return scale * np.where(x > 0, x, alpha * np.expm1(x))


def gelu_erf(x: Array) -> Array:
    """x times the normal distribution's integral up to x; -0.0 at -inf."""
    return np.where(x == -np.inf, EXTENDED("-0.0"), x * normal_integral(x))


def gelu(x: Array) -> Array:
    """x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 x**3), as x * sigmoid(2 u); -0.0 at -inf."""
    u = np.sqrt(2 / PI) * (x + EXTENDED("0.044715") * x * x * x)
    result = np.array(np.where(x == -np.inf, EXTENDED("-0.0"), x * sigmoid(2 * u)), EXTENDED)
    # In the lower tail the result is x * exp(2 u), and rounding u once costs |2 u| units of the last place.
    tail = (x < -4) & (x > -40)
    for index in np.argwhere(tail):
        result[tuple(index)] = _gelu_tail(x[tuple(index)])
    return result


def _gelu_tail(value: np.longdouble) -> np.longdouble:
    with localcontext() as context:
        context.prec = 50
        head = float(value)
        x = Decimal(head) + Decimal(float(value - EXTENDED(head)))
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582")
        exponent = 2 * (2 / pi).sqrt() * (x + Decimal("0.044715") * x**3)
        exact = x / (1 + (-exponent).exp())
        return EXTENDED(str(exact))


def round_half_away(x: Array) -> Array:
    """The nearest integer, halves away from zero; the sign of x is kept at zero."""
    magnitude = np.abs(x)
    integral = np.floor(magnitude)
    return np.copysign(np.where(magnitude - integral >= 0.5, integral + 1, integral), x)


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN stays."""
    direction = np.where(x > 0, EXTENDED(1), np.where(x < 0, EXTENDED(-1), EXTENDED(0)))
    return np.where(np.isnan(x), x, direction)


def cos_turns(turns: Array) -> Array:
    """cos(2 pi turns), exactly reduced."""
    quarter = turns * 4
    nearest = np.rint(quarter)
    angle = (quarter - nearest) * HALF_PI
    quadrant = nearest.astype(np.int64) % 4
    return np.choose(quadrant, [np.cos(angle), -np.sin(angle), -np.cos(angle), np.sin(angle)])


def sin_turns(turns: Array) -> Array:
    """sin(2 pi turns), exactly reduced."""
    quarter = turns * 4
    nearest = np.rint(quarter)
    angle = (quarter - nearest) * HALF_PI
    quadrant = nearest.astype(np.int64) % 4
    return np.choose(quadrant, [np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)])


def held_log(x: Array) -> Array:
    """The logarithm of a probability, not below -100."""
    return np.maximum(np.log(x), EXTENDED(-100))


def held_log1p(x: Array) -> Array:
    """The logarithm of 1 + x, not below -100."""
    return np.maximum(np.log1p(x), EXTENDED(-100))
