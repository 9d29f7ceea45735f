"""Comparing numbers as far as arithmetic in f64 allows, and formatting them for messages."""

import math
from collections.abc import Iterable

TOLERANCE = 1e-9
# Larger integers are shorter with an exponent.
_LONG = 1e6


def are_close(actual: float, expected: float, scale: float = 0.0, tolerance: float = TOLERANCE) -> bool:
    """Return True if two numbers differ by rounding alone, for operands of the size of `scale`; NaN equals NaN."""
    if math.isnan(actual) or math.isnan(expected):
        return math.isnan(actual) and math.isnan(expected)
    if actual == expected:
        return True
    bound = tolerance * max(abs(actual), abs(expected), scale)
    return math.isfinite(actual) and math.isfinite(expected) and abs(actual - expected) <= bound


def are_same(actual: float, expected: float, tolerance: float) -> bool:
    """Return True if two numbers are close and, if they are zeros, have one sign."""
    if actual == 0 and expected == 0:
        return math.copysign(1, actual) == math.copysign(1, expected)
    return are_close(actual, expected, tolerance=tolerance)


def format_number(number: float) -> str:
    """Format a number as a spec has it."""
    if isinstance(number, int) or not math.isfinite(number):
        return str(int(number) if isinstance(number, bool) else number)
    return f"{number:.1f}" if number.is_integer() and abs(number) < _LONG else f"{number:.6g}"


def format_numbers(numbers: Iterable[float]) -> str:
    """Format a list of numbers."""
    return ", ".join(map(format_number, numbers))
