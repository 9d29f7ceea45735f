"""The functions of NumPy and of C on Python's floats and integers.

None of them raises: where Python's do, they return infinity or NaN as IEEE 754 says. Callers wrap integers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from opgen.formula.primitives import Language

Function: TypeAlias = Callable[..., Any]

# From here on all floats are integers.
_INTEGRAL: Final = 2.0**52
# An exponent of f64 between zero and those of the least and the largest number.
_MIDDLE: Final = 700
# No dtype has more bits.
_BITS: Final = 64


def _without_errors(function: Function, poles: Mapping[float, float] | None = None) -> Function:
    """Wrap a function of one number that increases, or is even, where it overflows."""

    def wrapped(x: float) -> float:
        try:
            return float(function(x))
        except OverflowError:
            return math.copysign(math.inf, x) if function is math.sinh else math.inf
        except ValueError:
            return (poles or {}).get(x, math.nan)

    return wrapped


def divide(x: float, y: float) -> float:
    """Divide as IEEE 754 does."""
    if y != 0:
        return x / y
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1, y)


def _floor(x: float) -> float:
    return math.copysign(math.floor(x), x) if abs(x) < _INTEGRAL else x


def _ceil(x: float) -> float:
    return math.copysign(math.ceil(x), x) if abs(x) < _INTEGRAL else x


def _trunc(x: float) -> float:
    return math.copysign(math.trunc(x), x) if abs(x) < _INTEGRAL else x


def _round_half_away(x: float) -> float:
    truncated = _trunc(x)
    return truncated + math.copysign(1, x) if abs(x - truncated) >= 0.5 else truncated


def _round_half_even(x: float) -> float:
    return math.copysign(round(x), x) if abs(x) < _INTEGRAL else x


def _minimum(x: float, y: float) -> float:
    return x if math.isnan(x) or x < y else y


def _maximum(x: float, y: float) -> float:
    return x if math.isnan(x) or x > y else y


def _power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and math.fmod(y, 2) else math.inf
    except ValueError:
        # A pole at 0, and otherwise a root of a negative number.
        is_odd = math.fmod(y, 2) != 0 and y == math.trunc(y)
        return math.copysign(math.inf, x if is_odd else 1) if x == 0 else math.nan


def _fmod(x: float, y: float) -> float:
    try:
        return math.fmod(x, y)
    except ValueError:
        return math.nan


def _remainder(x: float, y: float) -> float:
    remainder = _fmod(x, y)
    if remainder != 0:
        return remainder + y if (remainder < 0) != (y < 0) else remainder
    return math.copysign(0.0, y)


def _floor_divide(x: float, y: float) -> float:
    if y == 0:
        return divide(x, y)
    remainder = _fmod(x, y)
    quotient = (x - remainder) / y
    if remainder != 0 and (remainder < 0) != (y < 0):
        quotient -= 1
    return _round_half_even(quotient) if quotient != 0 else math.copysign(0.0, divide(x, y))


def _sign(x: float) -> float:
    return x if math.isnan(x) else float((x > 0) - (x < 0))


def _logaddexp(x: float, y: float) -> float:
    distance = 0.0 if x == y else x - y
    return _maximum(x, y) + math.log1p(math.exp(-abs(distance)))


def _is_negative(x: float) -> bool:
    return math.copysign(1, x) < 0


_ZERO = {0.0: -math.inf}
# The functions of C's math.h.
_OF_C: Final[Mapping[str, Function]] = {
    **{
        name: _without_errors(getattr(math, name))
        for name in ("exp", "exp2", "expm1", "sin", "cos", "tan", "asin", "acos")
    },
    **{
        name: _without_errors(getattr(math, name))
        for name in ("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "sqrt", "erf")
    },
    **{name: _without_errors(getattr(math, name), _ZERO) for name in ("log", "log2", "log10")},
    "erfc": _without_errors(math.erfc),
    "log1p": _without_errors(math.log1p, {-1.0: -math.inf}),
    "atanh": _without_errors(math.atanh, {-1.0: -math.inf, 1.0: math.inf}),
    "abs": abs,
    "floor": _floor,
    "ceil": _ceil,
    "trunc": _trunc,
    "round": _round_half_away,
    "pow": _power,
    "fmod": _fmod,
    "atan2": math.atan2,
    "hypot": math.hypot,
    "copysign": math.copysign,
    "nextafter": math.nextafter,
}
# The functions of NumPy and of the array API standard.
_OF_ARRAYS: Final[Mapping[str, Function]] = {
    **_OF_C,
    "round": _round_half_even,
    "arctan2": math.atan2,
    "power": _power,
    **{f"arc{name}": _OF_C[f"a{name}"] for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "minimum": _minimum,
    "maximum": _maximum,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "sign": _sign,
    "square": lambda x: x * x,
    "logaddexp": _logaddexp,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "signbit": _is_negative,
    # Powers of two, which no result depends on unless it overflows or underflows.
    "shrink": lambda x: x * 2.0**-_MIDDLE,
    "grow": lambda x: x * 2.0**_MIDDLE,
}


def _divide_integers(x: int, y: int) -> int:
    quotient = abs(x) // abs(y) if y else 0
    return quotient if (x < 0) == (y < 0) else -quotient


def _power_of_integers(x: int, y: int) -> int:
    if y >= 0:
        return int(pow(x, y, 2**_BITS))
    return 0 if abs(x) != 1 else x if y % 2 else 1


def _left_shift(x: int, y: int) -> int:
    return x << y if 0 <= y < _BITS else 0


def _right_shift(x: int, y: int) -> int:
    return x >> (y if 0 <= y < _BITS else _BITS)


def _identity(x: int) -> int:
    return x


_OF_INTEGERS: Final[Mapping[str, Function]] = {
    "abs": abs,
    "floor": _identity,
    "ceil": _identity,
    "trunc": _identity,
    "round": _identity,
    "minimum": min,
    "maximum": max,
    "floor_divide": lambda x, y: x // y if y else 0,
    "remainder": lambda x, y: x % y if y else 0,
    "pow": _power_of_integers,
    "power": _power_of_integers,
    "sign": lambda x: (x > 0) - (x < 0),
    "square": lambda x: x * x,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_invert": lambda x: ~x,
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
}

OF_FLOATS: Final[Mapping[Language, Mapping[str, Function]]] = {"array": _OF_ARRAYS, "kernel": _OF_C}
OF_INTEGERS: Final = _OF_INTEGERS
QUOTIENT: Final = {"float": divide, "integer": _divide_integers}
