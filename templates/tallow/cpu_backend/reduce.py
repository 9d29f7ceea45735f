"""Reductions of the last axis of a 2-d array, and of any dims by way of it."""

import math
from typing import Any

import numpy as np

from ..dtype import Array, DType
from ..op import ReduceOp
from . import cast, functors
from .array import contiguous

# Rows up to this long are reduced column by column where there are more of them.
_SHORT = 16


def reduce(op: ReduceOp, x: Array, dims: tuple[int, ...], dtype: DType) -> Array:
    """`op` over `dims`, in row-major order of them: a flat array, in the dtype of the op's result."""
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    order = kept + sorted(dims)
    moved = cast.widen(x, dtype).transpose(order)
    count = math.prod(x.shape[dim] for dim in kept)
    target = op.result or dtype
    if count == 0:
        return np.empty(0, target.numpy)
    with np.errstate(all="ignore"):
        result = functors.REDUCE[op](moved.reshape(count, -1 if x.size else 0))
    return cast.narrow(result, target) if target.is_float else result


def sum_last(x: Array) -> Array:
    """The sums: of f32 in f64, of f64 pairwise, of integers modulo 2**n."""
    dtype = np.dtype(np.float64) if x.dtype == np.float32 else x.dtype
    # NumPy sums f64 pairwise only along neighbours in memory.
    while x.dtype == np.float64 and x.strides[1] != x.itemsize and x.shape[1] > 1:
        half, is_odd = divmod(x.shape[1], 2)
        sums = x[:, :half] + x[:, half : 2 * half]
        sums[:, :is_odd] += x[:, 2 * half :]
        x = sums
    # As if it had started at 0.0: that of -0.0 alone is not -0.0.
    return _reduced(np.add, x, dtype) + 0


def min_last(x: Array) -> Array:
    """The smallest elements; NaN wins."""
    return _reduced(np.minimum, x, x.dtype)


def max_last(x: Array) -> Array:
    """The largest elements; NaN wins."""
    return _reduced(np.maximum, x, x.dtype)


def argmin_last(x: Array) -> Array:
    """The u32 positions of the smallest elements: the first of equals, and the first NaN before any number."""
    return np.asarray(np.argmin(contiguous(x), axis=1)).astype(np.uint32)


def argmax_last(x: Array) -> Array:
    """The u32 positions of the largest elements: the first of equals, and the first NaN before any number."""
    return np.asarray(np.argmax(contiguous(x), axis=1)).astype(np.uint32)


def _reduced(combine: np.ufunc, x: Array, dtype: np.dtype[Any]) -> Array:
    rows, columns = x.shape
    if not 0 < columns <= _SHORT < rows:
        return np.asarray(combine.reduce(x, axis=1, dtype=dtype))
    # NumPy takes one row at a time, which short ones are too many for.
    result = x[:, 0].astype(dtype)
    for column in range(1, columns):
        combine(result, x[:, column], out=result)
    return result
