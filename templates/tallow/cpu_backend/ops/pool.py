"""Pooling of (b, c, h, w), a dim at a time: the windows' rows first, then their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import Array
from ...host_memory import tells_lack_of_memory
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def avg_pool2d(x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]) -> CpuStorage:
    """The mean of each window, accumulated in f64 and rounded once."""
    with np.errstate(all="ignore"):
        result = _pool(np.add, cast.widen(x.array, x.dtype).astype(np.float64), kernel_size, stride)
        # As if each sum had started at 0.0: that of -0.0 alone is not -0.0.
        result += 0
        result /= kernel_size[0] * kernel_size[1]
    return x.result(cast.narrow(result, x.dtype))


@tells_lack_of_memory
def max_pool2d(x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]) -> CpuStorage:
    """The largest element of each window; NaN wins."""
    with np.errstate(invalid="ignore"):
        result = _pool(np.maximum, cast.widen(x.array, x.dtype), kernel_size, stride)
    return x.result(cast.narrow(result, x.dtype) if x.dtype.is_float else result)


def _pool(combine: np.ufunc, x: Array, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Array:
    """A fresh array of the windows' elements combined."""
    for axis, size, step in ((3, kernel_size[1], stride[1]), (2, kernel_size[0], stride[0])):
        span = x.shape[axis] - size + 1
        before = (slice(None),) * axis
        result = x[(*before, slice(0, span, step))].copy()
        for tap in range(1, size):
            combine(result, x[(*before, slice(tap, tap + span, step))], out=result)
        x = result
    return x
