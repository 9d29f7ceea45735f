"""Functions of f32 and f64 for libraries whose own are too rough: within 2 ulps, computed in their own dtype."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ....dtype import DType
from ...numerics.numerics import scaled_tail
from . import transfer

# pi / 2, by the hexadecimal digits of pi: a numerator and a denominator.
_HALF_PI: Final = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D008, 2 * 16**50


class _Format(NamedTuple):
    """The facts of f32 or f64 that the functions use."""

    integer: DType  # of as many bits
    fraction: int  # bits of the significand after the first
    exponents: tuple[float, float]  # where exp is 0, and infinite
    log_2: tuple[float, float]  # as a sum, whose first part has so few bits that multiples of it are exact
    terms: int  # of the series of exp, up to half of log(2)
    wave_terms: int  # of the series of sine and cosine, up to pi / 4
    part: tuple[int, int]  # bits of the parts of pi / 2 of which multiples are exact, and how many of these there are
    own_sine: float  # up to here a number is its own sine
    middle: int  # squares of powers of two up to this exponent, and of their inverses, are ordinary numbers

    @property
    def bias(self) -> int:
        """The bias of exponents."""
        return int((1 << 8 * self.integer.itemsize - self.fraction - 2) - 1)

    @property
    def half_pi(self) -> Iterator[float]:
        """Parts of pi / 2, so that products with integers of 16 bits are exact (Cody and Waite 1980)."""
        (remainder, one), (bits, count) = _HALF_PI, self.part
        for _ in range(count):
            below = remainder % (1 << remainder.bit_length() - bits)
            yield (remainder - below) / one
            remainder = below
        yield remainder / one


_F32: Final = _Format(DType.I32, 23, (-110, 90), (0.693359375, -2.12194440e-4), 8, 5, (8, 6), 1e-4, 60)
_F64: Final = _Format(
    DType.I64, 52, (-760, 720), (0.6931471803691238, 1.9082149292705877e-10), 14, 9, (36, 3), 1e-8, 500
)


def _format(library: Any, x: Any) -> _Format:
    return _F64 if transfer.is_of(library, x, DType.F64) else _F32


def exp(library: Any, x: Any) -> Any:
    """e to the power x: of what is left of multiples of log(2), by its series."""
    own = _format(library, x)
    lowest, highest = (library.constant(bound, x) for bound in own.exponents)
    clamped = library.minimum(library.maximum(x, lowest), highest)
    count = library.floor(clamped * math.log2(math.e) + 0.5)
    # By arrays: of multiples of Python's numbers a library may add the factors up, which rounds them.
    high, low = (library.constant(part, x) for part in own.log_2)
    remainder = clamped - count * high - count * low
    result = _polynomial(remainder, [1 / math.factorial(term) for term in range(own.terms)])
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
    terms = [(-1) ** term / (math.factorial(term) * (2 * term + 1)) for term in range(20)]
    series = near * _polynomial(near * near, terms) * (2 / math.sqrt(math.pi))
    far = library.minimum(library.maximum(size, library.constant(1, x)), library.constant(6, x))
    scaled = far * math.sqrt(2)
    tail = 2 * library.exp(-far * far) * scaled_tail(scaled) / scaled
    result = library.where(size < library.constant(1, x), series, 1 - tail)
    # The sign of -0.0 is preserved.
    return library.where(x > library.constant(0, x), result, library.where(x == library.constant(0, x), x, -result))


def hypot(library: Any, x: Any, y: Any) -> Any:
    """The length of the vector (x, y), scaled by a power of two so that no square overflows or vanishes."""
    x, y = library.abs(x), library.abs(y)
    longer = library.maximum(x, y)
    one, middle = library.constant(1, x), _format(library, x).middle
    is_large, is_small = longer > 2.0**middle, longer < 2.0**-middle
    scale = library.where(
        is_large, one * 2.0 ** (-middle - 20), library.where(is_small, one * 2.0 ** (middle + 20), one)
    )
    length = library.sqrt(library.square(x * scale) + library.square(y * scale)) / scale
    return library.where(library.isinf(x) | library.isinf(y), library.constant(math.inf, x), length)


def copysign(library: Any, x: Any, y: Any) -> Any:
    """The absolute values of x with the signs of y."""
    return library.where(library.signbit(y), -library.abs(x), library.abs(x))


def nextafter(library: Any, x: Any, y: Any) -> Any:
    """Return the next number from x towards y: its bits are those of x plus or minus one."""
    own, zero = _format(library, x), library.constant(0, x)
    bits = library.bitcast(x, library.DTYPES[own.integer])
    grows = (x < y) == (x > zero)
    moved = library.bitcast(library.where(grows, bits + 1, bits - 1), x.dtype)
    moved = library.where(x == zero, copysign(library, zero + 2.0 ** (1 - own.bias - own.fraction), y), moved)
    return library.where(x == y, y, library.where(library.isnan(x) | library.isnan(y), x + y, moved))


def logaddexp(library: Any, x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)): the larger one, and what the other adds to it."""
    larger = library.maximum(x, y)
    difference = library.minimum(x, y) - larger
    # Of two infinities there is no difference.
    return library.where(x == y, x + math.log(2), larger + library.log1p(library.exp(difference)))


def logsumexp(library: Any, x: Any, axis: int) -> Any:
    """The logarithms of the sums of exponentials along an axis: the highest one, and what the others add to it."""
    highest = library.max(x, axis)
    pivot = library.where(library.isinf(highest), library.constant(0, x), highest)
    return pivot + library.log(library.sum(library.exp(x - pivot), axis, x.dtype))


def fmod(library: Any, x: Any, y: Any) -> Any:
    """Return the remainder of x / y truncated toward zero, from that of the magnitudes, which is exact."""
    remainder = library.remainder(library.abs(x), library.abs(y))
    zero = library.constant(0, x)
    return library.where(x < zero, -remainder, library.where((x == zero) & (remainder == zero), x, remainder))


def _wave(library: Any, x: Any, ahead: int) -> Any:
    """The sine of x + ahead * pi / 2."""
    own = _format(library, x)
    count = library.floor(x * (2 / math.pi) + 0.5)
    reduced = x
    for part in own.half_pi:
        reduced = reduced - count * library.constant(part, x)
    # Beyond the bound the result is any sine.
    reduced = library.minimum(library.maximum(reduced, library.constant(-1, x)), library.constant(1, x))
    square = reduced * reduced
    terms = range(1, own.wave_terms + 1)
    sine = [(-1) ** term / math.factorial(2 * term + 1) for term in terms]
    odd = reduced + reduced * square * _polynomial(square, sine)
    even = 1 + square * _polynomial(square, [(-1) ** term / math.factorial(2 * term) for term in terms])
    quadrant = count + ahead - 4 * library.floor((count + ahead) / 4)
    is_even = (quadrant == 1) | (quadrant == 3)
    result = library.where(is_even, even, odd)
    result = library.where(quadrant >= 2, -result, result)
    # What is so small is its own sine, and -0.0 keeps its sign.
    return library.where(library.abs(x) < own.own_sine, x, result) if ahead == 0 else result


def _power_of_two(library: Any, exponent: Any) -> Any:
    own = _format(library, exponent)
    bits = library.astype(exponent + own.bias, library.DTYPES[own.integer])
    return library.bitcast(bits * (1 << own.fraction), exponent.dtype)


def _polynomial(x: Any, terms: Sequence[float]) -> Any:
    """The sum of terms[i] * x**i."""
    result = x * 0 + terms[-1]
    for term in reversed(terms[:-1]):
        result = result * x + term
    return result
