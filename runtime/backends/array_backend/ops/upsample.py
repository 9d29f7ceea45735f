"""Images and signals at another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .. import strided
from . import cast
from .operand import Operand

Taps: TypeAlias = Callable[[int, int, bool, float | None], tuple[Array, Array]]
"""Returns the source indexes of each new index of a dim, and their weights."""


def upsample_nearest1d(x: Operand, size: int) -> Any:
    """Resample (b, c, l) to another length: index i reads floor(i * old length / new length)."""
    return _nearest(x, (size,))


def upsample_nearest2d(x: Operand, height: int, width: int) -> Any:
    """Resample (b, c, h, w) likewise along both of the last dims."""
    return _nearest(x, (height, width))


def _nearest(operand: Operand, sizes: tuple[int, ...]) -> Any:
    library, result = operand.library, operand.array
    for axis, size in enumerate(sizes, len(result.shape) - len(sizes)):
        if result.shape[axis]:
            sources = np.arange(size) * result.shape[axis] // max(size, 1)
            result = library.take(result, library.from_numpy(sources, operand.device.handle), axis)
        else:
            result = result[(slice(None),) * axis + (slice(0, size),)]
    return operand.result(result)


def upsample_bilinear2d(
    operand: Operand, height: int, width: int, align_corners: bool, scale_h: float | None, scale_w: float | None
) -> Any:
    """Resample (b, c, h, w) to (height, width), linearly between the four nearest elements."""
    return _resampled(operand, height, width, _linear, align_corners, scale_h, scale_w)


def upsample_bicubic2d(
    operand: Operand, height: int, width: int, align_corners: bool, scale_h: float | None, scale_w: float | None
) -> Any:
    """Resample (b, c, h, w) to (height, width), by cubic convolution of the sixteen nearest elements."""
    return _resampled(operand, height, width, cubic, align_corners, scale_h, scale_w)


def _resampled(
    operand: Operand,
    height: int,
    width: int,
    taps: Taps,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Any:
    library, x, dtype = operand.library, operand.array, operand.dtype
    if tuple(x.shape[2:]) == (height, width):
        return operand.result(x)
    if strided.size(x) == 0 or 0 in (height, width):
        shape = results.upsample_bilinear2d(operand, height, width).shape
        return operand.result(library.full(shape, 0, library.DTYPES[dtype], operand.device.handle))
    wide = cast.widen(library, x, dtype)
    if DType.F64 in library.DTYPES:
        wide = library.astype(wide, library.DTYPES[DType.F64])
    for axis, size, factor in ((3, width, scale_w), (2, height, scale_h)):
        # A dim that keeps its size is copied, whatever its factor.
        if wide.shape[axis] != size:
            wide = _interpolated(operand, wide, axis, *taps(wide.shape[axis], size, align_corners, factor))
    return operand.result(cast.narrow(library, wide, dtype))


def _interpolated(operand: Operand, x: Any, axis: int, sources: Array, weights: Array) -> Any:
    """Resize a dim of `x`: each new element is a weighted sum of source elements."""
    library, handle = operand.library, operand.device.handle
    own = np.float64 if DType.F64 in library.DTYPES else np.float32
    total = None
    for source, weight in zip(sources, weights.astype(own), strict=True):
        factors = library.reshape(library.from_numpy(weight, handle), (-1, *(1,) * (len(x.shape) - 1 - axis)))
        part = library.take(x, library.from_numpy(source, handle), axis) * factors
        total = part if total is None else total + part
    return total


def _linear(old: int, new: int, align_corners: bool, factor: float | None) -> tuple[Array, Array]:
    before, after, share = neighbours(old, new, align_corners, factor)
    return np.stack([before, after]), np.stack([1 - share, share])


def cubic(old: int, new: int, align_corners: bool, factor: float | None) -> tuple[Array, Array]:
    """Return for each new index of a dim the four nearest source indexes, and their weights: both (4, new).

    Keys 1981, with a = -0.75. As PyTorch has it, indexes outside of the dim are its ends.
    """
    exact = _exact(new, old, align_corners, factor)
    second = np.minimum(np.floor(exact).astype(np.int64), old - 1)
    distance = np.clip(exact - second, 0, 1)
    sources = np.clip(second + np.arange(-1, 3)[:, None], 0, old - 1)
    a, complement = -0.75, 1 - distance
    weights = [
        a * distance * complement * complement,
        ((a + 2) * distance - (a + 3)) * distance * distance + 1,
        ((a + 2) * complement - (a + 3)) * complement * complement + 1,
        a * complement * distance * distance,
    ]
    return sources, np.stack(weights)


def neighbours(old: int, new: int, align_corners: bool, factor: float | None) -> tuple[Array, Array, Array]:
    """Return for each new index of a dim the source indexes before and after it, and the weight of the one after.

    The arithmetic is Candle's, which follows PyTorch's area_pixel_compute_source_index.
    """
    exact = np.maximum(_exact(new, old, align_corners, factor), 0)
    before = np.minimum(exact.astype(np.int64), old - 1)
    after = np.minimum(before + 1, old - 1)
    return before, after, np.clip(exact - before, 0, 1)


def _exact(new: int, old: int, align_corners: bool, factor: float | None) -> Array:
    """Return the fractional source index of each new one; those beyond the last, however far, are just after it."""
    indexes = np.arange(new, dtype=np.float64)
    if align_corners:
        return indexes * ((old - 1) / (new - 1) if new > 1 else 0.0)
    scale = old / new if factor is None else 1 / factor
    return np.minimum(scale * (indexes + 0.5) - 0.5, old)
