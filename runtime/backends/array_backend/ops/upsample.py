"""Images and signals at another size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..... import results
from .....dtype import Array, DType
from .. import strided
from . import cast
from .operand import Operand


def upsample_nearest1d(x: Operand, size: int) -> Any:
    """(b, c, l) at another length: place i is the old place floor(i * old length / new length)."""
    return _nearest(x, (size,))


def upsample_nearest2d(x: Operand, height: int, width: int) -> Any:
    """The same of (b, c, h, w) along both of the last dims."""
    return _nearest(x, (height, width))


def _nearest(operand: Operand, sizes: tuple[int, ...]) -> Any:
    library, result = operand.library, operand.array
    for axis, size in enumerate(sizes, len(result.shape) - len(sizes)):
        if result.shape[axis]:
            places = np.arange(size) * result.shape[axis] // max(size, 1)
            result = library.take(result, library.from_numpy(places, operand.device.handle), axis)
        else:
            result = result[(slice(None),) * axis + (slice(0, size),)]
    return operand.result(result)


def upsample_bilinear2d(
    operand: Operand, height: int, width: int, align_corners: bool, scale_h: float | None, scale_w: float | None
) -> Any:
    """(b, c, h, w) at (height, width), interpolated between the four elements around each place."""
    library, x, dtype = operand.library, operand.array, operand.dtype
    if tuple(x.shape[2:]) == (height, width):
        return operand.result(x)
    if strided.size(x) == 0 or 0 in (height, width):
        shape = results.upsample_bilinear2d(operand, height, width).shape
        return operand.result(library.full(shape, 0, library.DTYPES[dtype], operand.device.handle))
    wide = cast.widen(library, x, dtype)
    if DType.F64 in library.DTYPES:
        wide = library.astype(wide, library.DTYPES[DType.F64])
    rows = _interpolated(operand, wide, 3, width, align_corners, scale_w)
    return operand.result(cast.narrow(library, _interpolated(operand, rows, 2, height, align_corners, scale_h), dtype))


def _interpolated(operand: Operand, x: Any, axis: int, size: int, align_corners: bool, factor: float | None) -> Any:
    """`x` with a dim of another size; one that keeps its size is copied, whatever its factor."""
    if x.shape[axis] == size:
        return x
    library, handle = operand.library, operand.device.handle
    before, after, share = neighbours(x.shape[axis], size, align_corners, factor)
    own = np.float64 if DType.F64 in library.DTYPES else np.float32
    weights = [
        library.reshape(library.from_numpy(each.astype(own), handle), (-1, *(1,) * (len(x.shape) - 1 - axis)))
        for each in (1 - share, share)
    ]
    parts = [library.take(x, library.from_numpy(each, handle), axis) for each in (before, after)]
    return parts[0] * weights[0] + parts[1] * weights[1]


def neighbours(old: int, new: int, align_corners: bool, factor: float | None) -> tuple[Array, Array, Array]:
    """For each new place of a dim the old places before and after it, and the weight of the one after.

    The arithmetic is Candle's, which follows PyTorch's area_pixel_compute_source_index.
    """
    places = np.arange(new, dtype=np.float64)
    if align_corners:
        exact = places * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        scale = old / new if factor is None else 1 / factor
        # A factor that is smaller than new / old looks for places beyond the last, however far.
        exact = np.clip(scale * (places + 0.5) - 0.5, 0, old)
    before = np.minimum(exact.astype(np.int64), old - 1)
    after = np.minimum(before + 1, old - 1)
    return before, after, np.clip(exact - before, 0, 1)
