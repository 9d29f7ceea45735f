"""Reductions of the last axis of a 2-d array, and of any dims by way of it."""

import numpy as np

from ..dtype import Array, DType
from ..op import ReduceOp
from . import cast, functors


def reduce(op: ReduceOp, x: Array, dims: tuple[int, ...], dtype: DType) -> Array:
    """`op` over `dims`, in row-major order of them: a flat array, in the dtype of the op's result."""
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    order = kept + sorted(dims)
    moved = cast.widen(x, dtype).transpose(order)
    count = int(np.prod([x.shape[dim] for dim in kept], dtype=np.int64))
    target = op.result or dtype
    if count == 0:
        return np.empty(0, target.numpy)
    with np.errstate(all="ignore"):
        result = functors.REDUCE[op](moved.reshape(count, -1 if x.size else 0))
    return cast.narrow(result, target) if target.is_float else result


def sum_last(x: Array) -> Array:
    """The sums: of f32 in f64, of f64 pairwise, of integers modulo 2**n."""
    if x.dtype == np.float32:
        return np.asarray(np.add.reduce(x, axis=1, dtype=np.float64))
    # NumPy sums pairwise only along neighbours in memory.
    return np.asarray(np.add.reduce(np.ascontiguousarray(x), axis=1, dtype=x.dtype))


def min_last(x: Array) -> Array:
    """The smallest elements; NaN wins."""
    return np.asarray(np.minimum.reduce(x, axis=1))


def max_last(x: Array) -> Array:
    """The largest elements; NaN wins."""
    return np.asarray(np.maximum.reduce(x, axis=1))


def argmin_last(x: Array) -> Array:
    """The u32 positions of the smallest elements: the first of equals, and the first NaN before any number."""
    return np.asarray(np.argmin(x, axis=1)).astype(np.uint32)


def argmax_last(x: Array) -> Array:
    """The u32 positions of the largest elements: the first of equals, and the first NaN before any number."""
    return np.asarray(np.argmax(x, axis=1)).astype(np.uint32)
