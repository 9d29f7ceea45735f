"""One result for each element.

A function named for an op takes arrays in the dtype `name` and gives either the exact result, in the result's dtype,
or the result in extended precision, before any rounding: extended numbers or, of complex dtypes, complex ones.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from . import complex_numbers, functions
from .formats import (
    COMPLEX,
    EXTENDED,
    FLOATS,
    INTEGERS,
    NUMPY,
    Array,
    compute_name,
    decode,
    from_number,
    joined,
    part_name,
    round_values,
    wide,
    wrap,
)

_UNARY_FLOAT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": np.exp2,
    "log2": np.log2,
    "log10": np.log10,
    "neg": np.negative,
    "recip": lambda x: 1 / x,
    "sqr": lambda x: x * x,
    "sqrt": np.sqrt,
    "gelu": functions.gelu,
    "gelu_erf": functions.gelu_erf,
    "erf": functions.erf,
    "relu": lambda x: np.where(x <= 0, EXTENDED(0), x),
    "silu": functions.silu,
    "sigmoid": functions.sigmoid,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": functions.round_half_away,
    "rint": np.rint,
    "trunc": np.trunc,
    "sign": functions.sign,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "softplus": functions.softplus,
    "mish": functions.mish,
    "hardswish": functions.hardswish,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "relu6": lambda x: np.where(x <= 0, EXTENDED(0), np.minimum(x, 6)),
    "selu": functions.selu,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
}
_UNARY_INTEGER: dict[str, Callable[[Array], Array]] = {
    "neg": lambda x: -x,
    "sqr": lambda x: x * x,
    "relu": lambda x: np.maximum(x, 0),
    "abs": lambda x: np.where(x < 0, -x, x),
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "round": lambda x: x,
    "trunc": lambda x: x,
    "bitwise_invert": lambda x: ~x,
    "sign": lambda x: (x > 0).astype(np.int64) - (x < 0),
}


def unary(op: str, name: str, x: Array) -> Array:
    """Float dtypes: extended. Integers: exact, in dtype `name`. Predicates give bool."""
    with np.errstate(all="ignore"):
        if name in COMPLEX:
            return np.asarray(complex_numbers.UNARY[op](decode(name, x)))
        if name in INTEGERS:
            result = np.asarray(_UNARY_INTEGER[op](wide(name, x)))
            return result if result.dtype == bool else wrap(name, result)
        return np.asarray(_UNARY_FLOAT[op](decode(name, x)))


def _next_number(name: str, x: Array, y: Array) -> Array:
    """The neighbour of x in the direction of y among all numbers of a float of 8 or 16 bits."""
    patterns = np.arange(1 << FLOATS[name].bits).astype(FLOATS[name].raw).view(NUMPY[name])
    numbers = np.unique(decode(name, patterns))
    numbers = numbers[~np.isnan(numbers)]
    left, right = decode(name, x), decode(name, y)
    steps = np.where(right > left, 1, -1)
    moved = numbers[np.clip(np.searchsorted(numbers, left) + steps, 0, len(numbers) - 1)]
    moved = np.where(left == right, right, np.copysign(moved, np.where(left == 0, right, left)))
    return np.where(np.isnan(left) | np.isnan(right), left + right, moved)


def binary(op: str, name: str, x: Array, y: Array) -> Array:
    """Float dtypes: extended. Integers: exact, in dtype `name`."""
    with np.errstate(all="ignore"):
        if name in INTEGERS:
            return _binary_integer(op, name, wide(name, x), wide(name, y))
        if op == "nextafter":
            return decode(name, np.nextafter(x, y)) if x.dtype.names is None else _next_number(name, x, y)
        left, right = decode(name, x), decode(name, y)
        if name in COMPLEX:
            return np.asarray(complex_numbers.BINARY[op](left, right))
        if op in ("minimum", "maximum"):
            chosen = np.where((left < right) == (op == "minimum"), left, right)
            return np.where(np.isnan(left), left, np.where(np.isnan(right), right, chosen))
        operations = {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": np.divide,
            "pow": np.power,
            "fmod": np.fmod,
            "floor_divide": np.floor_divide,
            "remainder": np.remainder,
            "atan2": np.arctan2,
            "hypot": np.hypot,
            "copysign": np.copysign,
            "logaddexp": np.logaddexp,
            "squared_difference": lambda x, y: np.square(round_values(compute_name(name), x - y)),
            "logistic_loss": lambda x, y: np.where(x > 0, x * (1 - y), -x * y) + np.log1p(np.exp(-np.abs(x))),
            "bernoulli_loss": lambda x, y: -(y * functions.held_log(x) + (1 - y) * functions.held_log1p(-x)),
            "kl_divergence": lambda x, y: np.where(x == 0, 0, x * round_values(compute_name(name), np.log(x) - y)),
            "prelu": lambda x, y: np.where(x > 0, x, x * y),
            # The function of x is a number of the compute dtype before it is multiplied.
            "silu_mul": lambda x, y: round_values(compute_name(name), functions.silu(x)) * y,
            "gelu_mul": lambda x, y: round_values(compute_name(name), functions.gelu(x)) * y,
            "kl_divergence_of_logs": lambda x, y: (
                round_values(compute_name(name), np.exp(x)) * round_values(compute_name(name), x - y)
            ),
        }
        return np.asarray(operations[op](left, right))


def _truncated(left: int, right: int) -> int:
    magnitude = abs(left) // abs(right) if right else 0
    return magnitude if (left < 0) == (right < 0) else -magnitude


def _power(left: int, right: int) -> int:
    """In 64 bits; below 0, what the truncated division of 1 by the power leaves."""
    return pow(left, right, 2**64) if right >= 0 else _truncated(1, left**-right if abs(left) < 2 else 2)


# In Python's integers.
_EXACT: dict[str, Callable[[int, int], int]] = {
    "div": _truncated,
    "floor_divide": lambda left, right: left // right if right else 0,
    "remainder": lambda left, right: left % right if right else 0,
    "pow": _power,
}


_SHIFTS: dict[str, Callable[[int, int, int], int]] = {
    "bitwise_left_shift": lambda bits, left, right: left << right if 0 <= right < bits else 0,
    "bitwise_right_shift": lambda bits, left, right: left >> (right if 0 <= right < bits else bits),
}


def _binary_integer(op: str, name: str, x: Array, y: Array) -> Array:
    if op in _EXACT or op in _SHIFTS:
        function = _EXACT[op] if op in _EXACT else partial(_SHIFTS[op], INTEGERS[name].bits)
        results = [function(int(left), int(right)) % 2**64 for left, right in zip(x.flat, y.flat, strict=True)]
        return wrap(name, np.array(results, np.uint64).reshape(np.shape(x)))
    operations = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "squared_difference": lambda x, y: np.multiply(x - y, x - y),
        "minimum": np.minimum,
        "maximum": np.maximum,
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
    }
    return wrap(name, operations[op](x, y))


def compare(op: str, name: str, x: Array, y: Array) -> Array:
    """Truth values."""
    left, right = decode(name, x), decode(name, y)
    if name in COMPLEX:
        return (left == right) == (op == "eq")
    unordered = np.isnan(left) | np.isnan(right)
    below, above = left < right, left > right
    equal = ~below & ~above & ~unordered
    return {
        "eq": equal,
        "ne": ~equal,
        "lt": below,
        "le": below | equal,
        "gt": above,
        "ge": above | equal,
    }[op]


def affine(name: str, x: Array, mul: float, add: float) -> Array:
    """Float dtypes: extended, from an exact product. Integers: exact, in dtype `name`."""
    if name in INTEGERS:
        factor = from_number(name, mul).astype(np.int64)
        term = from_number(name, add).astype(np.int64)
        with np.errstate(all="ignore"):
            return wrap(name, x.astype(np.int64) * factor + term)
    if name in COMPLEX:
        part = part_name(name)
        return joined(affine(part, x.real, mul, add), affine(part, x.imag, mul, 0.0))
    value = decode(name, x)
    with np.errstate(all="ignore"):
        # A product of significands of at most 24 bits is exact when extended; that of two f64 is not.
        result = value * EXTENDED(mul) + EXTENDED(add)
        if name == "f64" and np.isfinite([mul, add]).all():
            result = np.array(result)
            for index in np.argwhere(np.isfinite(value)):
                position = tuple(index)
                exact = Fraction(float(value[position])) * Fraction(mul) + Fraction(add)
                result[position] = _extended(exact) if exact else result[position]
    return result


def _extended(exact: Fraction) -> np.longdouble:
    """A nonzero fraction with a power of two below the line, rounded to 63 bits or less."""
    numerator, denominator = abs(exact.numerator), exact.denominator.bit_length() - 1
    shift = max(numerator.bit_length() - 63, 0)
    magnitude = np.ldexp(EXTENDED(numerator >> shift), shift - denominator)
    return magnitude if exact > 0 else -magnitude


def powf(name: str, x: Array, alpha: float) -> Array:
    """Extended x ** alpha, as C's pow has it."""
    with np.errstate(all="ignore"):
        if name in COMPLEX:
            return complex_numbers.power(decode(name, x), joined(EXTENDED(alpha), EXTENDED(0)))
        return np.asarray(np.power(decode(name, x), EXTENDED(alpha)))


def elu(name: str, x: Array, alpha: float) -> Array:
    """Extended."""
    value = decode(name, x)
    with np.errstate(all="ignore"):
        return np.where(value > 0, value, EXTENDED(alpha) * np.expm1(value))


def celu(name: str, x: Array, alpha: float) -> Array:
    """Extended."""
    value = decode(name, x)
    with np.errstate(all="ignore"):
        return np.where(value > 0, value, EXTENDED(alpha) * np.expm1(value / EXTENDED(alpha)))


def softshrink(name: str, x: Array, lambd: float) -> Array:
    """Extended."""
    value = decode(name, x)
    with np.errstate(all="ignore"):
        return np.where(value > lambd, value - lambd, np.where(value < -lambd, value + lambd, 0 * value))


def hardshrink(name: str, x: Array, lambd: float) -> Array:
    """Extended."""
    value = decode(name, x)
    return np.where(np.abs(value) <= lambd, EXTENDED(0), value)


def leaky_relu(name: str, x: Array, slope: float) -> Array:
    """Extended."""
    value = decode(name, x)
    with np.errstate(all="ignore"):
        return np.where(value > 0, value, EXTENDED(slope) * value)


def round_to(name: str, x: Array, numerator: float, denominator: float) -> Array:
    """Extended: each step is rounded to the compute dtype."""
    held = partial(round_values, compute_name(name))
    value = decode(name, x)
    with np.errstate(all="ignore"):
        steps = held(held(value * EXTENDED(denominator)) / EXTENDED(numerator))
        integral = functions.round_half_away(steps)
        result = held(integral / EXTENDED(denominator)) * EXTENDED(numerator)
        return np.where(np.isfinite(steps), np.where(integral == 0, integral, result), value)


def nan_to_num(name: str, x: Array, nan_value: float, highest: float, lowest: float) -> Array:
    """Extended."""
    value = decode(name, x)
    infinite = np.where(value > 0, EXTENDED(highest), EXTENDED(lowest))
    return np.where(np.isnan(value), EXTENDED(nan_value), np.where(np.isinf(value), infinite, value))


def clamp(name: str, x: Array, lower: float, upper: float) -> Array:
    """Float dtypes: extended. Integers: exact, in dtype `name`."""
    least, most = from_number(name, lower), from_number(name, upper)
    if name in INTEGERS:
        return np.minimum(np.maximum(x, least), most)
    value = decode(name, x)
    # NumPy's minimum and maximum let NaN win too.
    return np.minimum(np.maximum(value, decode(name, least)), decode(name, most))


def huber(name: str, x: Array, y: Array, delta: float) -> Array:
    """Extended; the distance is rounded to the compute dtype."""
    with np.errstate(all="ignore"):
        distance = np.abs(round_values(compute_name(name), decode(name, x) - decode(name, y)))
        near = np.minimum(distance, EXTENDED(delta))
        return near * (distance - near / 2)


def where(condition: Array, on_true: Array, on_false: Array) -> Array:
    """where_cond: bit for bit one or the other."""
    return np.where(condition != 0, on_true, on_false)
