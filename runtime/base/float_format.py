"""Binary floats as bits of exponent and fraction."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class FloatFormat(NamedTuple):
    """A binary float: a sign, an exponent, and a fraction below a hidden bit.

    >>> tl.DType("f16").format
    FloatFormat(exponent=5, fraction=10, bias=15, specials='')
    """

    exponent: int
    fraction: int
    bias: int
    specials: str
    """"" for infinities and NaNs as in IEEE 754, "fn" for one NaN of each sign, "fnuz" for NaN as the code of -0.0."""

    @property
    def bits(self) -> int:
        """The size of a number."""
        return 1 + self.exponent + self.fraction

    @property
    def highest(self) -> int:
        """The code of infinity; where there is none, that of the largest number."""
        last = (1 << self.bits - 1) - 1
        return last + 1 - (1 << self.fraction) if not self.specials else last - (self.specials == "fn")

    @property
    def eps(self) -> float:
        """The distance of 1 to the next number."""
        return math.ldexp(1, -self.fraction)

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return math.ldexp(1, 1 - self.bias)

    @property
    def max(self) -> float:
        """The largest finite number."""
        exponent, fraction = divmod(self.highest - (not self.specials), 1 << self.fraction)
        return math.ldexp((1 << self.fraction) + fraction, exponent - self.bias - self.fraction)

    def values(self) -> NDArray[np.float32]:
        """The value of each code of a float of 8 or 16 bits."""
        sign = 1 << self.bits - 1
        magnitudes = np.arange(sign)
        exponents, fractions = np.divmod(magnitudes, 1 << self.fraction)
        significands = fractions + np.where(exponents > 0, 1 << self.fraction, 0)
        numbers = np.ldexp(significands, np.maximum(exponents, 1) - self.bias - self.fraction)
        if not self.specials:
            numbers[self.highest] = np.inf
        numbers[self.highest + 1 :] = np.nan
        negative = -numbers
        if self.specials == "fnuz":
            negative[0] = -np.nan
        return np.concatenate([numbers, negative]).astype(np.float32)

    def codes(self, numbers: NDArray[np.float32]) -> NDArray[Any]:
        """The codes of 8 or 16 bits nearest to f32 numbers, ties to even; without an infinity they saturate."""
        lost, sign = 23 - self.fraction, 1 << self.bits - 1
        pattern = np.ascontiguousarray(numbers).view(np.uint32)
        magnitude = pattern & 0x7FFFFFFF
        normal = (magnitude + ((1 << lost - 1) - 1) + (magnitude >> lost & 1) >> lost) - (
            127 - self.bias << self.fraction
        )
        # Below the normal numbers the adder of f32 rounds to a multiple of the smallest one.
        adder = np.uint32(151 - self.bias - self.fraction << 23)
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            subnormal = (magnitude.view(np.float32) + adder.view(np.float32)).view(np.uint32) - adder
        code = np.where(magnitude < 128 - self.bias << 23, subnormal, np.minimum(normal, self.highest))
        if self.specials == "fnuz":
            code = np.where(magnitude > 0x7F800000, sign, code | np.where(code == 0, 0, pattern >> 31 << self.bits - 1))
        else:
            code = np.where(magnitude > 0x7F800000, sign - 1, code) | pattern >> 31 << self.bits - 1
        return code.astype(f"u{self.bits // 8}")
