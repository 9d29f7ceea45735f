"""NumPy arrays to test with, and their comparison with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import tallow
from numpy.typing import NDArray

FLOATS = [dtype for dtype in tallow.DType if dtype.is_float]
NUMBERS = [dtype for dtype in tallow.DType if dtype is not tallow.DType.BOOL]
INTEGERS = [dtype for dtype in tallow.DType if dtype.is_integer]
REALS = [dtype for dtype in NUMBERS if dtype.kind != "complex"]
COMPLEX = [dtype for dtype in tallow.DType if dtype.kind == "complex"]


def numbers(shape: tuple[int, ...], dtype: tallow.DType = tallow.DType.F32, seed: int = 0) -> NDArray[Any]:
    """Small numbers that every dtype has: integers from 0 to 9, signed halves for floats, truth values for bool.

    The parts of complex numbers are signed halves.
    """
    generator = np.random.default_rng(seed)
    full = generator.integers(0, 10, shape)
    if dtype in COMPLEX:
        return (full / 2 - 2 + 1j * (generator.integers(0, 10, shape) / 2 - 2)).astype(dtype.numpy)
    return (full / 2 - 2 if dtype.is_float else full).astype(dtype.numpy)


def same(tensor: tallow.Tensor, expected: NDArray[Any]) -> None:
    """Assert that a tensor has the shape, the dtype and the very numbers of an array; NaNs are alike."""
    actual = tensor.numpy()
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    np.testing.assert_array_equal(actual.astype(wide), expected.astype(wide))
