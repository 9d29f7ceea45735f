"""Functions of complex numbers that NumPy has, but with fewer digits, or with NaN where there are numbers."""

import numpy as np

from ...dtype import Array


def expm1(z: Array) -> Array:
    """exp(z) - 1. NumPy's product of sin(0) and an infinite exponential is NaN."""
    result: Array = np.expm1(z)
    return np.where(np.isfinite(result), result, np.exp(z) - 1)


def log1p(z: Array) -> Array:
    """log(1 + z), of which NumPy adds 1 to what is near 0: there the square of its size is 1 + x (x + 2) + y y."""
    moved = z.copy()
    moved.real += 1  # the imaginary part keeps the sign of its zero
    result: Array = np.log(moved)
    is_near = (np.abs(z.real) < 0.5) & (np.abs(z.imag) < 0.5)
    result.real = np.where(is_near, np.log1p(z.real * (z.real + 2) + z.imag * z.imag) / 2, result.real)
    return result
