"""Functions that NumPy lacks, or has with other edges, on arrays of a compute dtype.

Floating-point functions take f32 or f64 and keep the dtype. In f32 they are computed in f64. In f64 a plain formula
loses digits where an exponent is large, for its rounding error is multiplied by the exponent: there the exponent is a
sum of two numbers, high + low, and exp(high + low) is exp(high) * (1 + low).
"""

from typing import Any

import numpy as np

from ...dtype import Array

# sqrt(8 / pi) and 0.044715 * sqrt(8 / pi), each as the sum of two f64.
GELU_LINEAR = (1.5957691216057308, -9.96930880911092e-17)
GELU_CUBIC = (0.07135481627260025, -6.175149918155315e-19)

# x * exp(x**2 / 2) * erfc(x / sqrt(2)) / 2 as a Chebyshev series in (x - 2) / (x + 2), for x from 0.75 on (the idea is
# that of Shepherd and Laframboise 1981). The first coefficient is a sum of two f64: its error would be the result's.
TAIL_MEAN = 0.26620934781252453
TAIL_TERMS = (
    6.890193635719588e-18,
    0.19270080404392737,
    -0.06827813236446435,
    0.0070032288830940955,
    0.0016229600207018546,
    -0.00023600398179839612,
    -8.810419284787106e-05,
    2.451674690894741e-06,
    5.271855205488669e-06,
    7.490178588114735e-07,
    -1.9661546818035186e-07,
    -9.467164654356951e-08,
    -8.24232636936353e-09,
    5.114491608632891e-09,
    2.056696305491757e-09,
    1.7159309797532568e-10,
    -1.242056559973378e-10,
    -5.459729127460947e-11,
    -6.682930211072006e-12,
    2.8350759763570974e-12,
    1.6437899927251503e-12,
    3.183046211799344e-13,
    -4.678026182862222e-14,
    -5.071950570787839e-14,
    -1.4988892345292744e-14,
    -5.794008501988962e-16,
    1.3982381521806523e-15,
    6.482864311608033e-16,
    1.1792033622414963e-16,
    -2.3310930727152066e-17,
    -2.3984765172536803e-17,
    -7.963730078827207e-18,
)

# Below these, gelu and gelu_erf are -0.0 in f64.
_GELU_ZERO = 40.0

# exp(-x) is subnormal beyond this, and loses digits.
_EXP_NORMAL = 700.0

# The error of a product is an f64 itself while the product is above this.
_EXACT_PRODUCT = 1e-290

_SPLITTER = float(2**27 + 1)


def relu(x: Array) -> Array:
    """x where x > 0, else 0; NaN stays, and -0.0 becomes 0.0."""
    result: Array = np.maximum(x, 0)
    result += 0
    return result


def sign(x: Array) -> Array:
    """-1, 0 or 1; NaN stays, and -0.0 becomes 0.0."""
    return np.sign(x) + 0


def round_half_away(x: Array) -> Array:
    """The nearest integer, halves away from zero; the sign stays."""
    whole = np.trunc(x)
    # The difference is exact, where x + 0.5 would not be.
    result: Array = whole + np.copysign(np.abs(x - whole) >= 0.5, x)
    return result


def divide_integers(x: Array, y: Array) -> Array:
    """x / y truncated toward zero; x / 0 is 0, and the lowest integer / -1 is itself."""
    result: Array = (x - np.fmod(x, y)) // y
    return result


def multiply_add(x: Array, mul: float, add: float) -> Array:
    """x * mul + add in f64, as if rounded once, also where the product and `add` cancel."""
    if x.dtype == np.float32:
        # The product of two f32 is an f64.
        wide = x.astype(np.float64)
        wide *= mul
        wide += add
        return wide
    plain = x * mul + add
    if add == 0 or not np.isfinite(mul) or not np.isfinite(add):
        return plain
    product, product_error = _two_product(x, mul)
    total, total_error = _two_sum(product, add)
    result = total + (total_error + product_error)
    # Where the product's error is no f64, or the way to it overflows, exponents are set apart first.
    is_rough = ~np.isfinite(result) | ((np.abs(product) < _EXACT_PRODUCT) & (x != 0))
    is_rough &= np.isfinite(x)
    if is_rough.any():
        result[is_rough] = _multiply_add_scaled(x[is_rough], mul, add)
    return np.where(np.isfinite(x), result, plain)


def affine(x: Array, mul: Array, add: Array) -> Array:
    """x * mul + add; of floats as if rounded once, and perhaps in f64; integers wrap."""
    # Where one of the two steps is exact, the other is all that rounds.
    if x.dtype.kind != "f" or mul[0] == 1 or add[0] == 0:
        result: Array = x * mul + add
        return result
    return multiply_add(x, float(mul[0]), float(add[0]))


def elu(x: Array, alpha: Array) -> Array:
    """x where x > 0, else alpha * expm1(x)."""
    wide = x.astype(np.float64)
    return np.where(x > 0, wide, float(alpha[0]) * np.expm1(wide)).astype(x.dtype)


def power(x: Array, exponent: Array) -> Array:
    """x to the power of the exponents, which broadcast."""
    result: Array = np.power(x, exponent)
    is_half = exponent == 0.5
    if is_half.any():
        # Where an exponent is repeated, NumPy takes the square root, which differs from C's pow at -inf and at -0.0.
        result = np.where(is_half, np.where(np.isneginf(x), x.dtype.type(np.inf), result + 0), result)
    return result


def hardswish(x: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6; -0.0 at -inf."""
    wide = np.maximum(x.astype(np.float64), -3)
    result = np.where(np.isposinf(wide), wide, wide * (np.minimum(wide + 3, 6) / 6))
    return np.asarray(result.astype(x.dtype))


def mish(x: Array) -> Array:
    """x * tanh(log(1 + exp(x))), which is x * n / (n + 2) with n = exp(x) * (exp(x) + 2); -0.0 at -inf."""
    wide = x.astype(np.float64)
    size = np.abs(wide)
    decay = np.exp(-size)
    above = wide * ((1 + 2 * decay) / (1 + 2 * decay + 2 * decay * decay))
    # Subnormal exponentials have few digits: the half of the exponent, taken twice, keeps them all.
    half = np.exp(-size / 2)
    below = np.maximum(wide, -2 * _EXP_NORMAL) * half * ((decay + 2) / (decay * (decay + 2) + 2)) * half
    return np.asarray(np.where(wide > 0, above, below).astype(x.dtype))


def erf(x: Array) -> Array:
    """The error function."""
    # SciPy takes long to import, and only this family of functions needs it.
    from scipy import special

    return np.asarray(special.erf(x.astype(np.float64))).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    wide = x.astype(np.float64)
    decay = np.exp(-np.abs(wide))
    result: Array = np.where(wide >= 0, 1, decay) / (1 + decay)
    return result.astype(x.dtype)


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)), without overflow; -0.0 at -inf."""
    wide = x.astype(np.float64)
    return _gated(wide, np.abs(wide), 0.0).astype(x.dtype)


def gelu(x: Array) -> Array:
    """x / 2 * (1 + tanh(w / 2)) with w / 2 = sqrt(2 / pi) * (x + 0.044715 x**3), which is x / (1 + exp(-w))."""
    if x.dtype == np.float32:
        wide = np.maximum(x.astype(np.float64), -_GELU_ZERO)
        result: Array = wide / (1 + np.exp(-wide * (GELU_LINEAR[0] + GELU_CUBIC[0] * wide * wide)))
        return result.astype(x.dtype)
    magnitude = np.minimum(np.abs(x), _GELU_ZERO)
    square, square_error = _two_product(magnitude, magnitude)
    cubic, cubic_error = _two_product(square, GELU_CUBIC[0])
    cubic_error += square_error * GELU_CUBIC[0] + square * GELU_CUBIC[1]
    slope, slope_error = _two_sum(cubic, GELU_LINEAR[0])
    slope_error += cubic_error + GELU_LINEAR[1]
    exponent, exponent_error = _two_product(magnitude, slope)
    exponent_error += magnitude * slope_error
    return _gated(x, exponent, exponent_error)


def gelu_erf(x: Array) -> Array:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    from scipy import special

    if x.dtype == np.float32:
        wide = np.maximum(x.astype(np.float64), -_GELU_ZERO)
        return np.asarray(wide * special.erfc(wide * -np.sqrt(0.5)) / 2).astype(x.dtype)
    magnitude = np.minimum(np.abs(x), _GELU_ZERO)
    square, square_error = _two_product(magnitude, magnitude)
    place = (magnitude - 2) / (magnitude + 2)
    tail = np.exp(-square / 2) * (TAIL_MEAN + np.polynomial.chebyshev.chebval(place, TAIL_TERMS))
    tail -= tail * (square_error / 2)
    # Where 1 + erf loses no digits it is the simpler way, and the series, which has a steep slope at 0, has ended.
    result: Array = np.where(x > -0.75, x * (0.5 + special.erf(x * np.sqrt(0.5)) / 2), -tail)
    return result


def _gated(x: Array, exponent: Array, exponent_error: Array | float) -> Array:
    """x / (1 + exp(-w)) where x >= 0, elsewhere x * exp(-w) / (1 + exp(-w)); w = exponent + its error, at least 0."""
    decay = np.exp(-exponent)
    decay -= decay * exponent_error
    below = np.maximum(x, -2 * _EXP_NORMAL)
    is_far = exponent > _EXP_NORMAL
    factor = decay
    if is_far.any():
        # Subnormal exponentials have few digits: two halves of the exponent, and x between them, keep them all.
        half = np.exp(-exponent / 2)
        below = np.where(is_far, below * half, below)
        factor = np.where(is_far, half * (1 - exponent_error), decay)
    below *= factor
    result: Array = np.where(x >= 0, x, below) / (1 + decay)
    return result


def _two_sum(x: Array, y: Any) -> tuple[Array, Array]:
    """The sum, and its rounding error (Knuth 1969)."""
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def _two_product(x: Array, y: Any) -> tuple[Array, Array]:
    """The product, and its rounding error (Dekker 1971)."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _split(x: Any) -> tuple[Any, Any]:
    """Two numbers of 26 bits each whose sum is x (Veltkamp 1968)."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def _multiply_add_scaled(x: Array, mul: float, add: float) -> Array:
    """`multiply_add` of finite numbers of any magnitude."""
    x_fraction, x_exponent = np.frexp(x)
    mul_fraction, mul_exponent = np.frexp(mul)
    exponent = x_exponent + mul_exponent
    product, product_error = _two_product(x_fraction, mul_fraction)
    # Beyond a distance of 2**200 the smaller of product and `add` moves the other's rounding only by its sign.
    distance = np.frexp(add)[1] - exponent
    total, total_error = _two_sum(product, np.ldexp(np.frexp(add)[0], np.minimum(distance, 200)))
    scaled = np.ldexp(total + (total_error + product_error), exponent)
    return np.where((distance > 200) | (x == 0), add, scaled)
