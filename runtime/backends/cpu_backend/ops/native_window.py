"""Pooling and resampling by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .....dtype import Array
from .....kernels import host_arguments
from ....helpers.host_memory import require_room
from ...array_backend.ops.operand import Operand
from ...array_backend.ops.upsample import neighbours
from ..kernels import THREADS, Result, table
from .native import by_plan, source_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

Axis: TypeAlias = tuple[Array, Array | None, Array | None]
"""The places of a dim of the result in the source, and of an interpolated one the next places and their shares."""


@by_plan
def avg_pool2d(
    kernels: HostKernels, x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]
) -> Callable[..., CpuStorage] | None:
    """As `pool.avg_pool2d`; None where NumPy does it."""
    return _plan_pool("avg_pool2d", kernels, x, kernel_size, stride)


@by_plan
def max_pool2d(
    kernels: HostKernels, x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]
) -> Callable[..., CpuStorage] | None:
    """As `pool.max_pool2d`; None where NumPy does it."""
    return _plan_pool("max_pool2d", kernels, x, kernel_size, stride)


@by_plan
def nearest1d(kernels: HostKernels, x: Operand, size: int) -> Callable[..., CpuStorage] | None:
    """As `upsample.upsample_nearest1d`; None where NumPy does it."""
    return _plan_nearest(kernels, x, (size,))


@by_plan
def nearest2d(kernels: HostKernels, x: Operand, height: int, width: int) -> Callable[..., CpuStorage] | None:
    """As `upsample.upsample_nearest2d`; None where NumPy does it."""
    return _plan_nearest(kernels, x, (height, width))


@by_plan
def bilinear2d(
    kernels: HostKernels,
    x: Operand,
    height: int,
    width: int,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Callable[..., CpuStorage] | None:
    """As `upsample.upsample_bilinear2d`; None where NumPy does it."""
    factors = scale_h, scale_w
    sizes = height, width
    if not _has_work(x, sizes):
        return None
    maps: list[Axis] = []
    for old, new, stride, factor in zip(x.layout.shape[2:], sizes, x.layout.strides[2:], factors, strict=True):
        if old == new:
            places = np.arange(new) * stride
            maps.append((places, places, None))
        else:
            with np.errstate(all="ignore"):
                before, after, shares = neighbours(old, new, align_corners, factor)
            maps.append((before * stride, after * stride, np.ascontiguousarray(shares, np.float64)))
    return _plan_resampling(kernels, f"upsample_bilinear2d_{x.dtype.value}", x, sizes, maps)


def _has_work(x: Operand, sizes: tuple[int, ...]) -> bool:
    """Whether there are elements to make of others; OutOfMemory where there is no room for them."""
    require_room((*x.layout.shape[:2], *sizes), x.dtype)
    return x.layout.elem_count != 0 and 0 not in sizes


def _plan_nearest(kernels: HostKernels, x: Operand, sizes: tuple[int, ...]) -> Callable[..., CpuStorage] | None:
    if not _has_work(x, sizes):
        return None
    shape, strides = x.layout.shape, x.layout.strides
    maps: list[Axis] = [(np.zeros(1, np.int64), None, None)] * (2 - len(sizes))
    for axis, size in enumerate(sizes, 2):
        maps.append((np.arange(size) * shape[axis] // size * strides[axis], None, None))
    whole = (1,) * (2 - len(sizes)) + sizes
    return _plan_resampling(kernels, f"upsample_nearest_b{8 * x.dtype.itemsize}", x, whole, maps)


def _plan_resampling(
    kernels: HostKernels,
    name: str,
    x: Operand,
    sizes: tuple[int, ...],
    maps: list[Axis],
) -> Callable[..., CpuStorage] | None:
    """What makes images of other sizes: each dim's places, the next ones, and their shares."""
    layout = x.layout
    (rows, next_rows, row_shares), (columns, next_columns, column_shares) = maps
    batch, channels = layout.shape[:2]
    shape = batch, channels, *sizes
    packed = host_arguments.resample_rows(
        result=Result(math.prod(shape), x.dtype), source=source_of(x, 0), run_parts=kernels.run_parts,
        threads=THREADS, channels=channels, planes=batch * channels, height=sizes[0], width=sizes[1],
        stride_b=layout.strides[0], stride_c=layout.strides[1], rows=table(rows), columns=table(columns),
        next_rows=table(next_rows), next_columns=table(next_columns), row_shares=table(row_shares),
        column_shares=table(column_shares),
    )  # fmt: skip
    # The arrays live as long as what reads them.
    return _plan(kernels, name, x, shape, packed, maps)


def _plan_pool(
    name: str, kernels: HostKernels, x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]
) -> Callable[..., CpuStorage] | None:
    batch, channels, *sizes = x.layout.shape
    height, width = ((size - window) // step + 1 for size, window, step in zip(sizes, kernel_size, stride, strict=True))
    stride_b, stride_c, stride_h, stride_w = x.layout.strides
    packed = host_arguments.pool_rows(
        result=Result(batch * channels * height * width, x.dtype), source=source_of(x, 0),
        run_parts=kernels.run_parts, threads=THREADS, channels=channels, planes=batch * channels, height=height,
        width=width, stride_b=stride_b, stride_c=stride_c, stride_h=stride_h, stride_w=stride_w,
        window_h=kernel_size[0], window_w=kernel_size[1], step_h=stride[0], step_w=stride[1],
    )  # fmt: skip
    return _plan(kernels, f"{name}_{x.dtype.value}", x, (batch, channels, height, width), packed)


def _plan(
    kernels: HostKernels,
    name: str,
    x: Operand,
    shape: tuple[int, ...],
    packed: bytes,
    kept: object = None,
) -> Callable[..., CpuStorage] | None:
    """What makes images by a kernel; None where there are no elements, or no kernel."""
    kernel = kernels.address("host_window", name)
    require_room(shape, x.dtype)
    if kernel is None or 0 in shape or x.layout.elem_count == 0:
        return None
    return kernels.call(kernel, packed, x.storage, kept=kept)
