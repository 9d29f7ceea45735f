"""Pooling and resampling of (b, c, h, w)."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from ...kernels import arguments
from . import copy
from .geometry import LIMIT, parts, plane_parts, strided_block
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import GpuStorage

Pair = tuple[int, int]


def avg_pool2d(x: Operand, kernel_size: Pair, stride: Pair) -> GpuStorage:
    """The mean of each window, by the library where there is one that takes it."""
    images = x.device.images
    if images is not None and x.dtype in images.dtypes and x.layout.elem_count > 0:
        source = copy.contiguous(x)
        b, c, h, w = x.shape
        result = x.device.empty(x.dtype, math.prod(_pooled(x, kernel_size, stride)))
        to = result.memory.address
        if images.avg_pool2d(x.dtype, (b, c, h, w), kernel_size, stride, source.address, to):
            return result
    return _pool("avg_pool2d", x, kernel_size, stride)


def max_pool2d(x: Operand, kernel_size: Pair, stride: Pair) -> GpuStorage:
    """The largest element of each window."""
    return _pool("max_pool2d", x, kernel_size, stride)


def _pooled(x: Operand, kernel_size: Pair, stride: Pair) -> tuple[int, int, int, int]:
    b, c, *sizes = x.shape
    height, width = [(size - window) // step + 1 for size, window, step in zip(sizes, kernel_size, stride, strict=True)]
    return b, c, height, width


def _pool(op: str, x: Operand, kernel_size: Pair, stride: Pair) -> GpuStorage:
    shape = _pooled(x, kernel_size, stride)
    *outer, stride_h, stride_w = x.strides
    result = x.device.empty(x.dtype, math.prod(shape))
    if result.length == 0:
        return result
    name, itemsize = f"{op}_{x.dtype.value}", x.itemsize
    steps = (*outer, stride_h * stride[0], stride_w * stride[1])
    for blocks, first, (offset,), fields in parts(strided_block(itemsize), shape, (steps,)):
        to, source = result.memory.address + first * itemsize, x.address + offset * itemsize
        packed = arguments.POOL.pack(to, source, stride_h, stride_w, *kernel_size, *fields)
        x.device.kernels.launch("pool", name, blocks, packed)
    return result


def upsample_nearest(op: str, x: Operand, sizes: tuple[int, ...]) -> GpuStorage:
    """The last dims at other sizes: place i of a dim is the old place floor(i * old size / new size)."""
    name = f"upsample_nearest_b{8 * x.itemsize}"
    if len(sizes) == 1:
        (b, c, length), (stride_b, stride_c, stride) = x.shape, x.strides
        x = x.relaid((b, c, 1, length), (stride_b, stride_c, 0, stride))
        sizes = (1, *sizes)
    # The kernel divides the product of a place and an old size, through a product only where that is small.
    is_wide = max(size * old for size, old in zip(sizes, x.shape[2:], strict=True)) >= LIMIT
    return _resample(op, name, arguments.NEAREST, x, sizes, (), is_wide)


def upsample_bilinear2d(
    x: Operand, height: int, width: int, align_corners: bool, scale_h: float | None, scale_w: float | None
) -> GpuStorage:
    """(b, c, h, w) at (height, width), interpolated; a scale factor counts only where corners are not aligned."""
    if x.shape[2:] == (height, width):
        return copy.fresh(x)
    old_h, old_w = x.shape[2:]
    scales = _scale(old_h, height, align_corners, scale_h), _scale(old_w, width, align_corners, scale_w)
    name = f"upsample_bilinear2d_{x.dtype.value}"
    return _resample("upsample_bilinear2d", name, arguments.BILINEAR, x, (height, width), scales, align_corners)


def _scale(old: int, new: int, align_corners: bool, factor: float | None) -> float:
    """How far a step in the result goes in the source, as PyTorch's area_pixel_compute_scale has it."""
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return old / max(new, 1) if factor is None else 1 / factor


def _resample(
    op: str,
    kernel: str,
    packer: struct.Struct,
    x: Operand,
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    flag: bool,
) -> GpuStorage:
    (b, c, old_h, old_w), (stride_b, stride_c, stride_h, stride_w) = x.shape, x.strides
    shape = (b, c, *sizes)
    result = x.device.empty(x.dtype, math.prod(shape))
    if result.length == 0:
        return result
    itemsize = x.itemsize
    # The place along w, that along h, and the plane.
    strides = ((0, 0, 0, 1), (0, 0, 1, 0), (stride_b, stride_c, 0, 0))
    for blocks, first, (*_, offset), fields in plane_parts(op, strided_block(itemsize), shape, strides, 2):
        to, source = result.memory.address + first * itemsize, x.address + offset * itemsize
        packed = packer.pack(to, source, stride_h, stride_w, *scales, old_h, old_w, flag, *fields)
        x.device.kernels.launch("upsample", kernel, blocks, packed)
    return result
