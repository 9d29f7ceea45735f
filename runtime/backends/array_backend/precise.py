"""Functions of f32 for libraries whose own are too rough: within 2 units in the last place, in arithmetic of f32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ....dtype import DType
from ...numerics.numerics import scaled_tail

# pi / 2 as a sum of numbers of 8 bits, but for the last, so that products with whole numbers of 16 bits are exact (Cody
# and Waite 1980).
_HALF_PI: Final = tuple(
    math.ldexp(digits, -exponent)
    for digits, exponent in ((201, 7), (253, 19), (170, 27), (136, 37), (180, 46), (194, 55), (13832986, 81))
)


def exp(library: Any, x: Any) -> Any:
    """e to the power x: of what is left of multiples of log(2), by its series."""
    held = library.minimum(library.maximum(x, library.constant(-110, x)), library.constant(90, x))
    count = library.floor(held * math.log2(math.e) + 0.5)
    rest = held - count * 0.693359375 - count * -2.12194440e-4
    result = _polynomial(rest, [1 / math.factorial(term) for term in range(8)])
    half = library.floor(count / 2)
    return result * _power_of_two(library, half) * _power_of_two(library, count - half)


def sin(library: Any, x: Any) -> Any:
    """The sine; it loses digits beyond 1e5."""
    return _wave(library, x, 0)


def cos(library: Any, x: Any) -> Any:
    """The cosine; it loses digits beyond 1e5."""
    return _wave(library, x, 1)


def erf(library: Any, x: Any) -> Any:
    """The error function: by its series up to 1, and beyond from what is left to 1."""
    size = library.abs(x)
    near = library.minimum(size, library.constant(1, x))
    terms = [(-1) ** term / (math.factorial(term) * (2 * term + 1)) for term in range(12)]
    series = near * _polynomial(near * near, terms) * (2 / math.sqrt(math.pi))
    far = library.minimum(library.maximum(size, library.constant(1, x)), library.constant(5, x))
    scaled = far * math.sqrt(2)
    tail = 2 * exp(library, -far * far) * scaled_tail(scaled) / scaled
    result = library.where(size < library.constant(1, x), series, 1 - tail)
    # The sign of -0.0 is kept.
    return library.where(x > library.constant(0, x), result, library.where(x == library.constant(0, x), x, -result))


def hypot(library: Any, x: Any, y: Any) -> Any:
    """The length of the vector (x, y), scaled by a power of two so that no square overflows or vanishes."""
    x, y = library.abs(x), library.abs(y)
    longer = library.maximum(x, y)
    one = library.constant(1, x)
    scale = library.where(longer > 2.0**60, one * 2.0**-80, library.where(longer < 2.0**-60, one * 2.0**80, one))
    length = library.sqrt(library.square(x * scale) + library.square(y * scale)) / scale
    return library.where(library.isinf(x) | library.isinf(y), library.constant(math.inf, x), length)


def copysign(library: Any, x: Any, y: Any) -> Any:
    """The absolute values of x with the signs of y."""
    return library.where(library.signbit(y), -library.abs(x), library.abs(x))


def nextafter(library: Any, x: Any, y: Any) -> Any:
    """The next number from x on the way to y: its bits are those of x and one more, or less, of its size."""
    zero, bits = library.constant(0, x), library.bitcast(x, library.DTYPES[DType.I32])
    grows = (x < y) == (x > zero)
    moved = library.bitcast(library.where(grows, bits + 1, bits - 1), x.dtype)
    moved = library.where(x == zero, copysign(library, zero + 2.0**-149, y), moved)
    return library.where(x == y, y, library.where(library.isnan(x) | library.isnan(y), x + y, moved))


def logaddexp(library: Any, x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)): the larger one, and what the other adds to it."""
    larger = library.maximum(x, y)
    rest = library.minimum(x, y) - larger
    # Of two infinities there is no difference.
    return library.where(x == y, x + math.log(2), larger + library.log1p(exp(library, rest)))


def logsumexp(library: Any, x: Any, axis: int) -> Any:
    """The logarithms of the sums of exponentials along an axis: the highest one, and what the others add to it."""
    highest = library.max(x, axis)
    pivot = library.where(library.isinf(highest), library.constant(0, x), highest)
    return pivot + library.log(library.sum(library.exp(x - pivot), axis, x.dtype))


def fmod(library: Any, x: Any, y: Any) -> Any:
    """What is left of x / y truncated toward zero, from the remainder of the magnitudes, which is exact."""
    rest = library.remainder(library.abs(x), library.abs(y))
    zero = library.constant(0, x)
    return library.where(x < zero, -rest, library.where((x == zero) & (rest == zero), x, rest))


def _wave(library: Any, x: Any, ahead: int) -> Any:
    """The sine of x + ahead * pi / 2."""
    count = library.floor(x * (2 / math.pi) + 0.5)
    rest = x
    for part in _HALF_PI:
        rest = rest - count * part
    # Of what is beyond the bound nothing is left but a sine.
    rest = library.minimum(library.maximum(rest, library.constant(-1, x)), library.constant(1, x))
    square = rest * rest
    odd = rest + rest * square * _polynomial(square, [-1 / 6, 1 / 120, -1 / 5040, 1 / 362880])
    even = 1 + square * _polynomial(square, [-1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800])
    quadrant = count + ahead - 4 * library.floor((count + ahead) / 4)
    is_even = (quadrant == 1) | (quadrant == 3)
    result = library.where(is_even, even, odd)
    result = library.where(quadrant >= 2, -result, result)
    # What is so small is its own sine, and -0.0 keeps its sign.
    return library.where(library.abs(x) < 1e-4, x, result) if ahead == 0 else result


def _power_of_two(library: Any, exponent: Any) -> Any:
    bits = library.astype(exponent + 127, library.DTYPES[DType.I32])
    return library.bitcast(bits * (1 << 23), exponent.dtype)


def _polynomial(x: Any, terms: Sequence[float]) -> Any:
    """The sum of terms[i] * x**i."""
    result = x * 0 + terms[-1]
    for term in reversed(terms[:-1]):
        result = result * x + term
    return result
