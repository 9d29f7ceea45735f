"""Resampling of (b, c, h, w): the patches that threads compute."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels.constants import BLOCK_SIZE
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Operand
from ..driver.grid import ceil_divide
from . import copy
from .geometry import LIMIT, Dims, Part, merged, plane_parts, strided_block

# A thread of an upsampling kernel makes this many rows, as many more the more threads there are than a GPU needs to be
# busy: rows share the columns' positions, and what is read.
_MIN_ROWS: Final = 2
_MAX_ROWS: Final = 16
_BUSY_THREADS: Final = 1 << 17


class Patches(NamedTuple):
    """The rows that a thread computes, and the launches over the patches of this many rows."""

    rows: int
    parts: tuple[Part, ...]


def image_of(x: Operand) -> Operand:
    """Images as they are, and (b, c, l) as images that keep their height, whose rows are the channels."""
    if len(x.shape) == 4:
        return x
    (b, c, length), (stride_b, stride_c, stride) = x.shape, x.strides
    return x.as_strided((b, 1, c, length), (stride_b, 0, stride_c, stride))


def readable(build: ProgramBuilder, image: Operand) -> Operand:
    """An image of which kernels number the elements of a row in 32 bits: in place if possible, else a copy."""
    return copy.copied(build, image) if (image.shape[3] - 1) * image.strides[3] >= 2 * LIMIT else image


def scale(old: int, new: int, align_corners: bool, factor: float | None) -> float:
    """How far a step in the result goes in the source: PyTorch's area_pixel_compute_scale, 1 where the size stays."""
    if old == new:
        return 1.0
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return old / new if factor is None else 1 / factor


def step_of(itemsize: int, width: int) -> int:
    """How many columns are between consecutive ones of a thread."""
    columns = _columns(itemsize)
    return ceil_divide(width, columns) if width % columns else 1


def _columns(itemsize: int) -> int:
    """The elements of a row that a thread makes."""
    return strided_block(itemsize) // BLOCK_SIZE


@lru_cache(maxsize=1024)
def patches(op: str, itemsize: int, shape: Dims, strides: Dims, sizes: Dims) -> Patches:
    """The patches of the images of a shape that get other sizes."""
    planes, (height, width) = shape[:2], sizes
    across = ceil_divide(width, _columns(itemsize))
    wanted = math.prod(planes) * height * across // _BUSY_THREADS
    down = ceil_divide(height, min(max(wanted, _MIN_ROWS), _MAX_ROWS))
    if max(*shape[2:], *sizes, down * across) >= LIMIT:
        raise InvalidArgument(op, f"one side of an image has more than {LIMIT - 1} positions; use smaller images")
    dims, steps = merged(planes, ((planes[1] * height * width, height * width), strides[:2]))
    to, offset = [(*operand, 0, 0) for operand in steps]
    launches = plane_parts(op, BLOCK_SIZE, (*dims, down, across), (to, offset), 0)
    return Patches(ceil_divide(height, down), launches)
