"""Matrix products."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from ..... import results
from .....dtype import Array, DType
from ....helpers.host_memory import require_memory
from ....host import cast
from ....host.array import bits, contiguous
from ...array_backend.ops.operand import Operand
from .. import blas

# A product of fewer numbers than this is not worth a detour.
_FEW_PRODUCTS = 1 << 15

_MANY_PRODUCTS = 1 << 24

# The most products of 16-bit numbers whose sum is exact in f64.
_EXACT_TERMS = 1 << 21


def matmul(lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int]) -> Any:
    """The products of matrices (.., m, k) and (.., k, n): (.., m, n), accumulated in the compute dtype."""
    dtype = lhs.dtype
    require_memory(dtype, bmnk[:3])
    result = multiply(_matrices(lhs.array, dtype), _matrices(rhs.array, dtype))
    return lhs.result(cast.narrow(result, dtype) if dtype.is_float else result)


def linear(x: Operand, weight: Operand, bias: Operand | None) -> Any:
    """(m, k) by the transpose of (n, k), plus a bias (n) in each row: (m, n), rounded once."""
    dtype = x.dtype
    require_memory(*results.linear(x, weight))
    result = multiply(_matrices(x.array, dtype), _matrices(weight.array.T, dtype))
    if bias is not None:
        with np.errstate(all="ignore"):
            result += cast.widen(bias.array, dtype)
    return x.result(cast.narrow(result, dtype))


def multiply(lhs: Array, rhs: Array) -> Array:
    """`np.matmul` of arrays of one compute dtype; integers wrap."""
    if lhs.dtype.kind not in "fc" and lhs.size * rhs.shape[-1] > _FEW_PRODUCTS and lhs.shape[-1] <= _EXACT_TERMS:
        return _multiply_integers(lhs, rhs)
    # Setting the number of threads takes longer than a small product.
    is_large = lhs.dtype.kind in "fc" and lhs.size * rhs.shape[-1] > _MANY_PRODUCTS
    with np.errstate(all="ignore"), blas.threads() if is_large else nullcontext():
        result: Array = np.matmul(lhs, rhs)
    return result


def _multiply_integers(lhs: Array, rhs: Array) -> Array:
    """Multiply integers by BLAS, which has none: their 16-bit digits in f64, where every sum is exact."""
    lhs_digits, rhs_digits = _digits(lhs), _digits(rhs)
    result = np.zeros(1, np.uint64)
    for lhs_place, lhs_digit in enumerate(lhs_digits):
        # Digits beyond these are beyond the dtype.
        for rhs_place, rhs_digit in enumerate(rhs_digits[: len(rhs_digits) - lhs_place]):
            result = result + (np.matmul(lhs_digit, rhs_digit).astype(np.uint64) << 16 * (lhs_place + rhs_place))
    return result.astype(bits(lhs).dtype).view(lhs.dtype)


def _digits(x: Array) -> list[Array]:
    """The digits to base 2**16 of integers modulo 2**n, as f64, the lowest first."""
    pattern = bits(x).astype(np.uint64)
    return [(pattern >> shift & 0xFFFF).astype(np.float64) for shift in range(0, 8 * x.itemsize, 16)]


def _matrices(x: Array, dtype: DType) -> Array:
    """The matrices in the compute dtype, laid out so that BLAS takes them: NumPy's loop for others is far slower."""
    wide = cast.widen(x, dtype)
    steps = wide.strides[-2:]
    is_blas = wide.itemsize in steps and min(steps) > 0
    return wide if is_blas else contiguous(wide)
