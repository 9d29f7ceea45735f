"""Functions that array libraries lack, or have with other edges, on arrays of a compute dtype.

Where a library has f64, those of f32 are computed in it. Elsewhere a plain formula loses digits where an exponent is
large, for its rounding error is multiplied by the exponent: there the exponent is a sum of two numbers, high + low, and
exp(high + low) is exp(high) * (1 + low).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...dtype import DType

# sqrt(8 / pi) and 0.044715 * sqrt(8 / pi), each as the sum of two f64.
_GELU_LINEAR: Final = (1.5957691216057308, -9.96930880911092e-17)
_GELU_CUBIC: Final = (0.07135481627260025, -6.175149918155315e-19)

# x * exp(x**2 / 2) * erfc(x / sqrt(2)) / 2 as a Chebyshev series in (x - 2) / (x + 2), for x from 0.75 on (the idea is
# that of Shepherd and Laframboise 1981). The first coefficient is a sum of two f64: its error would be the result's.
_TAIL_MEAN: Final = 0.26620934781252453
_TAIL_TERMS: Final = (
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


class _Format:
    """The constants of a floating-point dtype that formulas use."""

    def __init__(self, dtype: DType) -> None:
        is_f64 = dtype is DType.F64
        # Splits a number into two of half the digits (Veltkamp 1968).
        self.splitter = float(2**27 + 1 if is_f64 else 2**12 + 1)
        # exp(-x) is subnormal beyond this, and loses digits.
        self.max_normal = 700.0 if is_f64 else 85.0
        # Below these, gelu and gelu_erf are -0.0.
        self.gelu_zero = 40.0 if is_f64 else 15.0
        # The error of a product is a number itself while the product is above this, and below the next.
        self.min_exact = 1e-290 if is_f64 else 1e-30
        self.largest = 1e290 if is_f64 else 1e30
        # Beyond this, splitting a number overflows.
        self.max_split = 1e300 if is_f64 else 1e34
        # Factors of products below that, times this, are in between.
        self.scale = 2.0**100 if is_f64 else 2.0**50


# A library adds up this many f32 in any order.
_BLOCK: Final = 1 << 6
# exp of this is beyond f32, and its square within f64; exp of the negative has no digit in f32.
_F32_FAR: Final = 200.0
_FORMATS: Final = {dtype: _Format(dtype) for dtype in (DType.F32, DType.F64)}


class Numerics:
    """The functions, for one library."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._wide = library.DTYPES.get(DType.F64)
        self._wide_complex = library.DTYPES.get(DType.F64.complex)

    def _in_wide(self, function: Callable[..., Any], *operands: Any, plain: Callable[..., Any] | None = None) -> Any:
        """`function` of floats, or of f32 `plain` in f64 where the library has it: there it has digits to spare."""
        library, own = self._library, operands[0].dtype
        if self._wide is None or self._is_wide(operands[0]):
            return function(*operands)
        wide = (library.astype(operand, self._wide) for operand in operands)
        return library.astype((plain or function)(*wide), own)

    def _is_wide(self, x: Any) -> bool:
        return self._wide is not None and bool(x.dtype == self._wide)

    def _format(self, x: Any) -> _Format:
        return _FORMATS[DType.F64 if self._is_wide(x) else DType.F32]

    def number(self, x: Any, value: float) -> Any:
        """A number as an array of one element of the dtype of `x`."""
        return self._library.constant(value, x)

    def row_sum(self, x: Any) -> Any:
        """The sums along the last axis, which is not removed."""
        return accumulated(self._library, self._library.sum, x)

    def row_max(self, x: Any) -> Any:
        """The largest elements along the last axis, which is not removed; NaN wins."""
        return self._library.max(x, len(x.shape) - 1)

    def row_min(self, x: Any) -> Any:
        """The smallest elements along the last axis, which is not removed; NaN wins."""
        return self._library.min(x, len(x.shape) - 1)

    def relu(self, x: Any) -> Any:
        """x where x > 0, else 0; NaN stays, and -0.0 becomes 0.0."""
        return self._library.maximum(x, self.number(x, 0)) + self.number(x, 0)

    def sign(self, x: Any) -> Any:
        """-1, 0 or 1, of a complex number that of its direction; NaN stays, and -0.0 becomes 0.0."""
        library, zero = self._library, self.number(x, 0)
        if library.is_complex(x):
            return library.where(x == zero, zero, x / library.astype(library.abs(x), x.dtype))
        if library.is_integer(x):
            return library.astype(x > zero, x.dtype) - library.astype(x < zero, x.dtype)
        # No subnormal is below 1 then.
        scale = self.number(x, 2.0**600 if self._is_wide(x) else 2.0**90)
        return library.minimum(library.maximum(x * scale * scale, self.number(x, -1)), self.number(x, 1)) + zero

    def round_half_away(self, x: Any) -> Any:
        """The nearest integer, half away from zero; the sign stays."""
        library = self._library
        # Beyond this all are integers, and infinity less itself is NaN.
        limit = self.number(x, 2.0**60)
        bounded = library.minimum(library.maximum(x, -limit), limit)
        # The difference is exact, where x + 0.5 would not be; and 0.0, of either sign, leaves the sign of -0.0.
        return library.trunc(x) - library.trunc(2 * (library.trunc(bounded) - bounded))

    def nextafter(self, x: Any, y: Any, dtype: DType) -> Any:
        """The next number of a dtype: of a short one what is rounded to it, off by 5/8 to 5/4 of the distance."""
        library = self._library
        if dtype.compute is dtype:
            return library.nextafter(x, y)
        facts = dtype.format
        zero, size = self.number(x, 0), library.abs(x)
        least = facts.smallest_normal * facts.eps
        step = library.maximum(size * (0.625 * facts.eps), self.number(x, 0.75 * least))
        moved = library.where((x < y) == (x > zero), size + step, size - step)
        moved = library.copysign(library.where(library.isinf(x), self.number(x, facts.max), moved), x)
        moved = library.where(x == zero, library.copysign(self.number(x, least), y), moved)
        return library.where(x == y, y, library.where(library.isnan(x) | library.isnan(y), x + y, moved))

    def divide_integers(self, x: Any, y: Any) -> Any:
        """x / y truncated toward zero; x / 0 is 0, and the lowest integer / -1 is itself."""
        library = self._library
        zero, one = self.number(x, 0), self.number(x, 1)
        # Unsigned or not, 0 - 1 is what has all bits set.
        is_zero, is_unit = y == zero, (y == zero - one) & (zero - one < zero)
        divisor = library.where(is_zero | is_unit, one, y)
        quotient = library.floor_divide(x, divisor)
        is_below = (quotient * divisor != x) & ((x < zero) != (divisor < zero))
        quotient = library.where(is_below, quotient + one, quotient)
        return library.where(is_zero, zero, library.where(is_unit, zero - x, quotient))

    def floor_divide_integers(self, x: Any, y: Any) -> Any:
        """x / y rounded down; x // 0 is 0, and the lowest integer // -1 is itself."""
        library = self._library
        zero, one = self.number(x, 0), self.number(x, 1)
        is_zero, is_unit = y == zero, (y == zero - one) & (zero - one < zero)
        quotient = library.floor_divide(x, library.where(is_zero | is_unit, one, y))
        return library.where(is_zero, zero, library.where(is_unit, zero - x, quotient))

    def remainder_integers(self, x: Any, y: Any) -> Any:
        """The remainder of `floor_divide_integers`; x % 0 is 0."""
        remainder = x - self.floor_divide_integers(x, y) * y
        zero = self.number(x, 0)
        return self._library.where(y == zero, zero, remainder)

    def power_integers(self, x: Any, y: Any) -> Any:
        """x to the power y; where y is below 0 it is 1 / x ** -y truncated toward zero, and 0 where x is 0."""
        library = self._library
        zero, one = self.number(x, 0), self.number(x, 1)
        power = library.power(x, library.maximum(y, zero))
        # Of what is neither 1 nor -1 nothing is left.
        is_unit = (x == one) | (x == zero - one)
        inverse = library.where(is_unit, library.where((y & one) == one, x, one), zero)
        return library.where(y < zero, inverse, power)

    def left_shift(self, x: Any, y: Any) -> Any:
        """Shift the bits up by y; 0 unless y is from 0 to below the number of bits."""
        zero, is_in_range = self.number(x, 0), self._is_shift(y)
        return self._library.where(is_in_range, x << self._library.where(is_in_range, y, zero), zero)

    def right_shift(self, x: Any, y: Any) -> Any:
        """Shift the bits down by y, filling with copies of the sign, which alone are left if y is out of range."""
        library, zero, is_in_range = self._library, self.number(x, 0), self._is_shift(y)
        signs = library.where(x < zero, zero - self.number(x, 1), zero)
        return library.where(is_in_range, x >> library.where(is_in_range, y, zero), signs)

    def _is_shift(self, y: Any) -> Any:
        """Where shifts are from 0 to below the number of bits of their type."""
        # A wider type may stand for a dtype that a library lacks.
        bits = max(8 * dtype.itemsize for dtype, own in self._library.DTYPES.items() if own == y.dtype)
        return (y >= self.number(y, 0)) & (y < self.number(y, bits))

    def floor_divide(self, x: Any, y: Any) -> Any:
        """x / y rounded down, from the remainder, which is exact: x / y itself may round to the integer above."""
        library = self._library
        zero, one = self.number(x, 0), self.number(x, 1)
        ratio, remainder = library.divide(x, y), library.fmod(x, y)
        quotient = library.divide(x - remainder, y)
        quotient = library.where((remainder != zero) & ((remainder < zero) != (y < zero)), quotient - one, quotient)
        below = library.floor(quotient)
        nearest = library.where(quotient - below > self.number(x, 0.5), below + one, below)
        return library.where(y == zero, ratio, library.where(nearest == zero, ratio * zero, nearest))

    def remainder(self, x: Any, y: Any) -> Any:
        """The remainder of `floor_divide`: it has the sign of y."""
        library, zero = self._library, self.number(x, 0)
        remainder = library.fmod(x, y)
        signed = library.where((remainder < zero) != (y < zero), remainder + y, remainder)
        return library.where(remainder == zero, library.where(y < zero, -zero, zero), signed)

    def affine(self, x: Any, mul: Any, add: Any) -> Any:
        """x * mul + add; of floats as if rounded once, also where the product and `add` cancel; integers wrap."""
        library = self._library
        if library.is_integer(x):
            return x * mul + add
        if self._wide is not None and not self._is_wide(x):
            return self._in_wide(lambda *operands: operands[0] * operands[1] + operands[2], x, mul, add)
        plain = x * mul + add
        limits = self._format(x)
        # Scaled by powers of two no product overflows or loses digits of its error.
        size, one = library.abs(x * mul), self.number(x, 1)
        scale = library.where(size < self.number(x, limits.min_exact), self.number(x, limits.scale), one)
        scale = library.where(size < self.number(x, limits.largest), scale, self.number(x, 2.0**-32))
        x, mul = x * scale, mul * scale
        product, product_error = self._two_product(x, mul)
        total, total_error = self._two_sum(product, add * scale * scale)
        result = (total + (total_error + product_error)) / scale / scale
        size = library.abs(product)
        is_exact = (size > self.number(x, limits.min_exact)) & (size < self.number(x, limits.largest))
        is_exact = is_exact & (library.abs(total) < self.number(x, limits.largest))
        for factor in (x, mul):
            is_exact = is_exact & (library.abs(factor) < self.number(x, limits.max_split))
        return library.where(is_exact, result, plain)

    def elu(self, x: Any, alpha: Any) -> Any:
        """x where x > 0, else alpha * expm1(x)."""
        library = self._library

        def compute(x: Any, alpha: Any) -> Any:
            return library.where(x > self.number(x, 0), x, alpha * library.expm1(x))

        return self._in_wide(compute, x, alpha)

    def power(self, x: Any, exponent: Any) -> Any:
        """x to the power of the exponents, which broadcast."""
        library = self._library
        if library.is_complex(x):
            return self._complex_power(x, exponent)
        result = library.power(x, exponent)
        # Libraries take the square root, which differs from C's pow at -inf and at -0.0.
        one = self.number(x, 1)
        result = library.where((exponent == self.number(x, 0)) | (x == one), one, result)
        is_half = exponent == self.number(x, 0.5)
        infinite = self.number(x, math.inf)
        is_lowest = library.isinf(x) & (x < self.number(x, 0))
        return library.where(is_half, library.where(is_lowest, infinite, result + self.number(x, 0)), result)

    def _complex_power(self, x: Any, exponent: Any) -> Any:
        """`power` of complex numbers. In f64, as an error of the logarithm is multiplied by the exponent."""
        library, own = self._library, x.dtype
        wide = own if self._wide_complex is None else self._wide_complex
        result = library.astype(library.power(library.astype(x, wide), library.astype(exponent, wide)), own)
        return library.where(exponent == self.number(x, 0), self.number(x, 1), result)

    def shrink(self, x: Any) -> Any:
        """x times a power of two so low that no square of the result overflows."""
        return x * self.number(x, 2.0 ** -self._middle(x))

    def grow(self, x: Any) -> Any:
        """x divided by the power of two of `shrink`, so that the square of no small x underflows."""
        return x * self.number(x, 2.0 ** self._middle(x))

    def _middle(self, x: Any) -> int:
        """An exponent between zero and those of the least and the largest number."""
        wide = self._library.DTYPES.get(DType.F64)
        return 700 if wide is not None and x.dtype == wide else 90

    def hardswish(self, x: Any) -> Any:
        """x * min(max(x + 3, 0), 6) / 6; -0.0 at -inf."""
        library = self._library

        def compute(x: Any) -> Any:
            above = library.maximum(x, self.number(x, -3))
            share = library.divide(library.minimum(above + self.number(x, 3), self.number(x, 6)), self.number(x, 6))
            return above * share

        return self._in_wide(compute, x)

    def mish(self, x: Any) -> Any:
        """x * tanh(log(1 + exp(x))), which is x * n / (n + 2) with n = exp(x) * (exp(x) + 2); -0.0 at -inf."""
        library = self._library

        def compute(x: Any) -> Any:
            decay = library.exp(-library.abs(x))
            above = x * (1 - 2 * decay * decay / (1 + 2 * decay + 2 * decay * decay))
            below = self._faded(x, -x, None, (decay + 2) / (decay * (decay + 2) + 2))
            return library.where(x > self.number(x, 0), above, below)

        def plain(x: Any) -> Any:
            power = library.exp(library.minimum(x, self.number(x, _F32_FAR)))
            product = power * (power + 2)
            return library.maximum(x, self.number(x, -_F32_FAR)) * (product / (product + 2))

        return self._in_wide(compute, x, plain=plain)

    def erf(self, x: Any) -> Any:
        """The error function."""
        return self._in_wide(self._library.erf, x)

    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + exp(-x)), without overflow."""
        library = self._library

        def compute(x: Any) -> Any:
            decay = library.exp(-library.abs(x))
            return library.where(x >= self.number(x, 0), self.number(x, 1), decay) / (1 + decay)

        return self._in_wide(compute, x, plain=lambda x: 1 / (1 + library.exp(-x)))

    def silu(self, x: Any) -> Any:
        """x / (1 + exp(-x)), without overflow; -0.0 at -inf."""
        library = self._library

        def plain(x: Any) -> Any:
            clamped = library.maximum(x, self.number(x, -_F32_FAR))
            return clamped / (1 + library.exp(-clamped))

        return self._in_wide(lambda x: self._gated(x, library.abs(x), None), x, plain=plain)

    def gelu(self, x: Any) -> Any:
        """x / 2 * (1 + tanh(w / 2)) with w / 2 = sqrt(2 / pi) * (x + 0.044715 x**3), which is x / (1 + exp(-w))."""
        library = self._library

        def plain(x: Any) -> Any:
            clamped = library.maximum(x, self.number(x, -self._format(x).gelu_zero))
            return clamped / (1 + library.exp(-clamped * (_GELU_LINEAR[0] + _GELU_CUBIC[0] * clamped * clamped)))

        return self._in_wide(self._gelu, x, plain=plain)

    def _gelu(self, x: Any) -> Any:
        library = self._library
        linear, linear_low = self._two_numbers(x, _GELU_LINEAR)
        factor, factor_low = self._two_numbers(x, _GELU_CUBIC)
        magnitude = library.minimum(library.abs(x), self.number(x, self._format(x).gelu_zero))
        square, square_error = self._two_product(magnitude, magnitude)
        cubic, cubic_error = self._two_product(square, factor)
        cubic_error = cubic_error + (square_error * factor + square * factor_low)
        slope, slope_error = self._two_sum(cubic, linear)
        slope_error = slope_error + (cubic_error + linear_low)
        exponent, exponent_error = self._two_product(magnitude, slope)
        return self._gated(x, exponent, exponent_error + magnitude * slope_error)

    def gelu_erf(self, x: Any) -> Any:
        """x / 2 * (1 + erf(x / sqrt(2)))."""
        library = self._library

        def plain(x: Any) -> Any:
            clamped = library.maximum(x, self.number(x, -self._format(x).gelu_zero))
            return clamped * library.erfc(clamped * -math.sqrt(0.5)) / 2

        return self._in_wide(self._gelu_erf, x, plain=plain if library.erfc is not None else None)

    def _gelu_erf(self, x: Any) -> Any:
        library = self._library
        magnitude = library.minimum(library.abs(x), self.number(x, self._format(x).gelu_zero))
        square, square_error = self._two_product(magnitude, magnitude)
        tail = library.exp(-square / 2) * scaled_tail(magnitude)
        tail = tail - tail * (square_error / 2)
        # Where 1 + erf loses no digits it is simpler, and the series, which has a steep slope at 0, has ended.
        plain = x * (0.5 + library.erf(x * math.sqrt(0.5)) / 2)
        return library.where(x > self.number(x, -0.75), plain, -tail)

    def _gated(self, x: Any, exponent: Any, exponent_error: Any) -> Any:
        """x / (1 + exp(-w)) where x >= 0, elsewhere x * exp(-w) / (1 + exp(-w)); w is the exponent and its error."""
        decay = self._library.exp(-exponent)
        if exponent_error is not None:
            decay = decay - decay * exponent_error
        ahead = self._library.where(x >= self.number(x, 0), x, self._faded(x, exponent, exponent_error, 1))
        return ahead / (1 + decay)

    def _faded(self, x: Any, exponent: Any, exponent_error: Any, factor: Any) -> Any:
        """x * exp(-w) * factor, for x below 0; w is the exponent and its error."""
        library, most = self._library, self._format(x).max_normal
        scale = factor if exponent_error is None else factor - factor * exponent_error
        low = library.maximum(x, self.number(x, -2 * most))
        # Subnormal exponentials have few digits: half of the exponent twice, and x between them, keep them all.
        half = library.exp(-exponent / 2)
        is_far = exponent > self.number(x, most)
        return library.where(is_far, low * half * (half * scale), low * (library.exp(-exponent) * scale))

    def _two_numbers(self, x: Any, value: tuple[float, float]) -> tuple[Any, float]:
        """A sum of two f64 as one of two numbers of the dtype of `x`, the first as an array."""
        high = value[0] if self._is_wide(x) else float(np.float32(value[0]))
        return self.number(x, high), value[0] - high + value[1]

    def _two_sum(self, x: Any, y: Any) -> tuple[Any, Any]:
        """The sum, and its rounding error (Knuth 1969)."""
        total = x + y
        addend = total - x
        return total, (x - (total - addend)) + (y - addend)

    def _two_product(self, x: Any, y: Any) -> tuple[Any, Any]:
        """The product, and its rounding error (Dekker 1971)."""
        product = x * y
        x_high, x_low = self._split(x)
        y_high, y_low = self._split(y)
        return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)

    def _split(self, x: Any) -> tuple[Any, Any]:
        scaled = x * self._format(x).splitter
        high = scaled - (scaled - x)
        return high, x - high


def scaled_tail(x: Any) -> Any:
    """x * exp(x**2 / 2) * erfc(x / sqrt(2)) / 2 for x from 0.75 on, by the sum of its series (Clenshaw 1955)."""
    t = (x - 2) / (x + 2)
    ahead, previous = t * 0 + _TAIL_TERMS[-1], t * 0
    for term in _TAIL_TERMS[-2:0:-1]:
        ahead, previous = term + 2 * t * ahead - previous, ahead
    return _TAIL_MEAN + (_TAIL_TERMS[0] + t * ahead - previous)


def accumulated(library: Any, combine: Any, x: Any, identity: float | None = 0) -> Any:
    """Reduce floats along the last axis: in f64 where there is one, else block by block."""
    axis = len(x.shape) - 1
    if DType.F64 in library.DTYPES:
        return combine(x, axis, library.DTYPES[DType.F64])
    while x.shape[axis] > _BLOCK:
        parts = -(-x.shape[axis] // _BLOCK)
        missing = parts * _BLOCK - x.shape[axis]
        if missing:
            begin = library.reshape(library.constant(identity, x), (1,) * (axis + 1))
            x = library.concat([x, library.broadcast_to(begin, (*x.shape[:axis], missing))], axis)
        x = combine(library.reshape(x, (*x.shape[:axis], parts, _BLOCK)), axis + 1, x.dtype)
        x = library.reshape(x, x.shape[:-1])
    return combine(x, axis, x.dtype)
