"""Images and signals at another size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import Array
from ...host_memory import require_room, tells_lack_of_memory
from . import cast
from .array import bits
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def nearest1d(x: Operand, size: int) -> CpuStorage:
    """(b, c, l) at another length: place i is the old place floor(i * old length / new length)."""
    return _nearest(x, (size,))


@tells_lack_of_memory
def nearest2d(x: Operand, height: int, width: int) -> CpuStorage:
    """The same of (b, c, h, w) along both of the last dims."""
    return _nearest(x, (height, width))


def _nearest(operand: Operand, sizes: tuple[int, ...]) -> CpuStorage:
    x = operand.array
    require_room((*x.shape[: -len(sizes)], *sizes), operand.dtype)
    result = bits(x)
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        places = np.arange(size) * x.shape[axis] // max(size, 1)
        result = result.take(places, axis) if x.shape[axis] else result[(slice(None),) * axis + (slice(0, size),)]
    return operand.result(result.view(x.dtype))


@tells_lack_of_memory
def bilinear2d(
    operand: Operand, height: int, width: int, align_corners: bool, scale_h: float | None, scale_w: float | None
) -> CpuStorage:
    """(b, c, h, w) at (height, width), interpolated between the four elements around each place in f64."""
    x, dtype = operand.array, operand.dtype
    require_room((*x.shape[:2], height, width), dtype)
    if x.shape[2:] == (height, width) or 0 in (x.size, height, width):
        is_empty, shape = x.size == 0, (*x.shape[:2], height, width)
        return operand.result(np.zeros(shape, dtype.numpy) if is_empty else x[:, :, :height, :width].copy())
    with np.errstate(all="ignore"):
        rows = _interpolated(cast.widen(x, dtype).astype(np.float64), 3, width, align_corners, scale_w)
        result = _interpolated(rows, 2, height, align_corners, scale_h)
    return operand.result(cast.narrow(result, dtype))


def _interpolated(x: Array, axis: int, size: int, align_corners: bool, factor: float | None) -> Array:
    """`x` with a dim of another size; one that keeps its size is copied, whatever its factor."""
    if x.shape[axis] == size:
        return x
    before, after, share = neighbours(x.shape[axis], size, align_corners, factor)
    share = share.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    result: Array = x.take(before, axis) * (1 - share) + x.take(after, axis) * share
    return result


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
