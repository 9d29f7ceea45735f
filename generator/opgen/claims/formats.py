"""The numbers that dtypes hold, and samples of them, in Python's own numbers: no package needs to be installed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias

from opgen.dtypes import DType

_F64_PRECISION = 53


@dataclass(frozen=True)
class Integers:
    """The numbers of an integer dtype, or truth values."""

    min: int
    max: int
    epsilon: ClassVar = 0.0

    def round(self, number: float) -> int:
        """Convert a number as `to_dtype` does: truncated and saturated, NaN to 0."""
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return self.max if number > 0 else self.min
        return max(self.min, min(self.max, int(number)))

    def wrap(self, number: int) -> int:
        """Reduce an integer modulo 2**bits."""
        return (number - self.min) % (self.max - self.min + 1) + self.min

    def holds(self, number: float) -> bool:
        """Return True for a number of the dtype; -0.0 is none."""
        is_integer = math.isfinite(number) and number == int(number)
        return is_integer and self.min <= number <= self.max and not _is_negative_zero(number)

    @property
    def samples(self) -> Sequence[int]:
        """Small numbers and the extremes."""
        numbers = (0, 1, 2, 3, 7, -1, -2, -5, self.max, self.max - 1, self.min, self.min + 1)
        return [*dict.fromkeys(filter(self.holds, numbers))]


@dataclass(frozen=True)
class Floats:
    """The numbers of a floating-point dtype."""

    precision: int  # bits of the significand, with the hidden one
    min_exponent: int  # of normal numbers
    max: float
    has_infinity: bool
    has_negative_zero: bool

    def round(self, number: float) -> float:
        """Round to nearest even; overflow to infinity, or saturate without one."""
        if math.isnan(number):
            return number
        if math.isfinite(number) and number != 0 and self.precision < _F64_PRECISION:
            exponent = max(math.frexp(number)[1] - 1, self.min_exponent)
            step = math.ldexp(1.0, exponent - self.precision + 1)
            number = math.copysign(round(number / step) * step, number)
        if abs(number) > self.max:
            return math.copysign(math.inf if self.has_infinity else self.max, number)
        return number if self.has_negative_zero else number + 0.0

    def holds(self, number: float) -> bool:
        """Return True for a number of the dtype, a signed zero that it has, and NaN."""
        rounded = self.round(number)
        is_same = rounded == number and _is_negative_zero(rounded) == _is_negative_zero(number)
        return math.isnan(number) or is_same

    @property
    def samples(self) -> Sequence[float]:
        """Small numbers, the extremes and infinities."""
        numbers = (0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, -0.375, 6.0, self.max, -self.max, math.inf, -math.inf)
        return [*filter(self.holds, numbers)]

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number."""
        return math.ldexp(1.0, 1 - self.precision)


Format: TypeAlias = Integers | Floats


@cache
def format_of(dtype: DType) -> Format | None:
    """Return the numbers of a dtype; None for complex numbers."""
    if dtype.is_exact:
        return Integers(*dtype.bounds) if dtype.bytes else None
    of = dtype.format
    return (
        None if of is None else Floats(of.fraction + 1, of.min_exponent, of.max, not of.specials, of.specials != "fnuz")
    )


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1, number) < 0
