"""Resampling of (b, c, h, w)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from ..... import results
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, KernelArguments, Operand
from ..driver.grid import ceil_divide
from . import copy
from .geometry import LIMIT, Dims, Part, divisor, merged, plane_parts, strided_block

Pair = tuple[int, int]

# A thread of an upsampling kernel makes this many rows, as many more the more threads there are than a GPU needs to be
# busy: rows share the columns' places, and what is read.
_MIN_ROWS: Final = 2
_MOST_ROWS: Final = 16
_BUSY_THREADS: Final = 1 << 17


def upsample_nearest1d(build: ProgramBuilder, x: Operand, size: int) -> Buffer:
    """(b, c, l) at another length: place i is the old place floor(i * old length / new length)."""
    # The channels are the rows of an image that keeps its height.
    (b, c, length), (stride_b, stride_c, stride) = x.shape, x.strides
    image = x.relaid((b, 1, c, length), (stride_b, 0, stride_c, stride))
    return _nearest(build, "upsample_nearest1d", image, build.output(results.upsample_nearest1d(x, size)), c, size)


def upsample_nearest2d(build: ProgramBuilder, x: Operand, height: int, width: int) -> Buffer:
    """The same of (b, c, h, w) along both of the last dims."""
    result = build.output(results.upsample_nearest2d(x, height, width))
    return _nearest(build, "upsample_nearest2d", x, result, height, width)


def _nearest(build: ProgramBuilder, op: str, x: Operand, result: Buffer, height: int, width: int) -> Buffer:
    old_h, old_w = x.shape[2:]
    if result.length:
        # The kernel divides the product of a place and an old size, through a product only where that is small.
        is_wide = max(height * old_h, width * old_w) >= LIMIT
        columns = _columns(x.itemsize)
        step = ceil_divide(width, columns) if width % columns else 1
        (multiplier_h, shift_h), (whole_h, part_h) = divisor(height), divmod(old_h, height)
        (multiplier_w, shift_w), (whole_w, part_w) = divisor(width), divmod(step * old_w, width)
        pack = partial(
            arguments.nearest, wide=is_wide,
            multiplier_h=multiplier_h, shift_h=shift_h, whole_h=whole_h, part_h=part_h,
            multiplier_w=multiplier_w, shift_w=shift_w, whole_w=whole_w, part_w=part_w,
        )  # fmt: skip
        _resample(build, op, f"upsample_nearest_b{8 * x.itemsize}", pack, x, result, (height, width))
    return result


def upsample_bilinear2d(
    build: ProgramBuilder,
    x: Operand,
    height: int,
    width: int,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Buffer:
    """(b, c, h, w) at (height, width), interpolated; a scale factor counts only where corners are not aligned."""
    # A dim that keeps its size is copied.
    kept = "rows_" if x.shape[2] == height else "columns_" if x.shape[3] == width else ""
    kernel = f"upsample_bilinear2d_{kept}{x.dtype.value}"
    return _interpolated(build, "upsample_bilinear2d", kernel, x, (height, width), align_corners, (scale_h, scale_w))


def upsample_bicubic2d(
    build: ProgramBuilder,
    x: Operand,
    height: int,
    width: int,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Buffer:
    """The same by cubic convolution of the sixteen elements around each place."""
    op, factors = "upsample_bicubic2d", (scale_h, scale_w)
    return _interpolated(build, op, f"{op}_{x.dtype.value}", x, (height, width), align_corners, factors)


def _interpolated(
    build: ProgramBuilder,
    op: str,
    kernel: str,
    x: Operand,
    sizes: Pair,
    align_corners: bool,
    factors: tuple[float | None, float | None],
) -> Buffer:
    if x.shape[2:] == sizes:
        return copy.fresh(build, x)
    result = build.output(results.upsample_bilinear2d(x, *sizes))
    if result.length:
        scale_h, scale_w = (
            _scale(old, new, align_corners, factor)
            for old, new, factor in zip(x.shape[2:], sizes, factors, strict=True)
        )
        pack = partial(arguments.interpolation, align_corners=align_corners, scale_h=scale_h, scale_w=scale_w)
        _resample(build, op, kernel, pack, x, result, sizes)
    return result


def _scale(old: int, new: int, align_corners: bool, factor: float | None) -> float:
    """How far a step in the result goes in the source: PyTorch's area_pixel_compute_scale, 1 where the size stays."""
    if old == new:
        return 1.0
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return old / new if factor is None else 1 / factor


def _resample(
    build: ProgramBuilder,
    op: str,
    kernel: str,
    pack: Callable[..., KernelArguments],
    x: Operand,
    result: Buffer,
    size: Pair,
) -> None:
    """Launch a kernel over the images of `result`, which is not empty."""
    itemsize, (b, c, source_h, source_w), (height, width) = x.itemsize, x.shape, size
    # Kernels number the elements of a row in 32 bits.
    if (source_w - 1) * x.strides[3] >= 2 * LIMIT:
        x = copy.copied(build, x)
    stride_b, stride_c, stride_h, stride_w = x.strides
    sides = source_h, source_w, height, width
    rows, launches = _patches(op, itemsize, (b, c), (stride_b, stride_c), sides)
    for blocks, _, (to, offset), count, geometry in launches:
        packed = pack(
            result=result.address + to * itemsize, source=x.address + offset * itemsize,
            stride_h=stride_h, stride_w=stride_w, source_h=source_h, source_w=source_w, height=height, width=width,
            rows=rows, count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("upsample", kernel, blocks, packed)


def _columns(itemsize: int) -> int:
    """The elements of a row that a thread makes."""
    return strided_block(itemsize) // BLOCK_SIZE


@lru_cache(maxsize=1024)
def _patches(op: str, itemsize: int, planes: Pair, strides: Pair, sides: Dims) -> tuple[int, tuple[Part, ...]]:
    """How many rows a thread makes, and the launches over the patches of so many rows."""
    *_, height, width = sides
    across = ceil_divide(width, _columns(itemsize))
    wanted = math.prod(planes) * height * across // _BUSY_THREADS
    down = ceil_divide(height, min(max(wanted, _MIN_ROWS), _MOST_ROWS))
    if max(*sides, down * across) >= LIMIT:
        raise InvalidArgument(op, f"one side of an image has more than {LIMIT - 1} places; use smaller images")
    dims, steps = merged(planes, ((planes[1] * height * width, height * width), strides))
    to, offset = [(*operand, 0, 0) for operand in steps]
    return ceil_divide(height, down), plane_parts(op, BLOCK_SIZE, (*dims, down, across), (to, offset), 0)
