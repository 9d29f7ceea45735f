"""Pooling of (b, c, h, w), a dim at a time: the windows' rows first, then their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....dtype import DType
from . import cast
from .operand import Operand


def avg_pool2d(x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Any:
    """The mean of each window, rounded once."""
    library = x.library
    wide = cast.widen(library, x.array, x.dtype)
    if DType.F64 in library.DTYPES:
        wide = library.astype(wide, library.DTYPES[DType.F64])
    # As if each sum had started at 0.0: that of -0.0 alone is not -0.0.
    sums = _pool(lambda a, b: a + b, wide, kernel_size, stride) + library.constant(0, wide)
    return x.result(cast.narrow(library, sums / library.constant(kernel_size[0] * kernel_size[1], wide), x.dtype))


def max_pool2d(x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Any:
    """The largest element of each window; NaN wins."""
    library = x.library
    result = _pool(library.maximum, cast.widen(library, x.array, x.dtype), kernel_size, stride)
    return x.result(cast.narrow(library, result, x.dtype) if x.dtype.is_float else result)


def _pool(combine: Callable[[Any, Any], Any], x: Any, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Any:
    for axis, size, step in ((3, kernel_size[1], stride[1]), (2, kernel_size[0], stride[0])):
        span = x.shape[axis] - size + 1
        before = (slice(None),) * axis
        result = x[(*before, slice(0, span, step), ...)]
        for tap in range(1, size):
            result = combine(result, x[(*before, slice(tap, tap + span, step), ...)])
        x = result
    return x
