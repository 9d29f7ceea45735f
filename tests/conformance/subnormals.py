"""Subnormal numbers on a device whose library may take them for zeros, as its backend's `flushes` says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from . import matrix
from .oracle.formats import EXTENDED, FLOATS, Array, compute_name, decode, encode, name_of

# The dtypes that the library of the device under test flushes.
flushed: set[str] = set()


def use_device(backend: str) -> None:
    """Make `flushed` the dtypes of a backend."""
    library = getattr(matrix.class_of(backend, "Device"), "library", None)
    flushed.clear()
    flushed.update(dtype.value for dtype in getattr(library, "FLUSHED", ()))


def smallest(name: str) -> float | None:
    """The smallest normal number of the dtype that a float computes in; None where none is flushed."""
    computed = compute_name(name)
    return FLOATS[computed].smallest_normal if name in FLOATS and computed in flushed else None


def flush(name: str, values: Array) -> Array:
    """Operands of the device under test: those that it takes for zeros as zeros of their sign."""
    if (least := smallest(name)) is None:
        return values
    numbers = decode(name, values)
    zeros = encode(name, np.copysign(EXTENDED(0), numbers))
    return np.where(np.abs(numbers) < least, zeros, values)


def are_flushed(got: Array, expected: Array, inputs: Mapping[str, Array]) -> Array | bool:
    """Where a result differs by no more than a zero instead of a subnormal number makes.

    That may be the result itself, or an intermediate one which the operands and coefficients multiply or divide.
    """
    name = name_of(got)
    if (least := smallest(name)) is None:
        return False
    numbers = [decode(name, each) if each.dtype == got.dtype else each for each in (got, expected)]
    operands = [decode(name, array) for array in inputs.values() if array.dtype == got.dtype]
    operands += [array for array in inputs.values() if array.dtype == EXTENDED]
    # The slope of gelu is 24 times as much where its exponential is subnormal.
    factor = EXTENDED(32)
    with np.errstate(all="ignore"):
        for each in operands:
            sizes = np.where(np.isfinite(each) & (each != 0), np.abs(each), 1)
            factor = factor * np.maximum(sizes, 1 / sizes)
        off = np.abs(numbers[0] - numbers[1])
        is_small = np.all([np.abs(each) <= least for each in numbers], 0) | (off <= least * factor)
        # An infinite operand, or a product that overflows, times a zero is NaN.
        is_infinite = reduce(np.logical_or, map(np.isinf, operands), factor > FLOATS[compute_name(name)].largest)
        is_product = is_infinite & reduce(np.logical_or, map(np.isfinite, operands), False)
        return is_small | (is_product & np.isnan(numbers[0]) & np.isinf(numbers[1]))
