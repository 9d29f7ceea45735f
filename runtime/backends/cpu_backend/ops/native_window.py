"""Pooling and resampling by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .....dtype import Array
from .....kernels import host_arguments
from .....kernels.host_arguments import Packer
from ....helpers.host_memory import require_room
from ...array_backend.ops.operand import Operand
from ...array_backend.ops.upsample import neighbours
from ..kernels import Result
from .native import by_plan, sources_of

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
    arrays = rows, columns, next_rows, next_columns, row_shares, column_shares
    places = [0 if array is None else array.ctypes.data for array in arrays]
    batch, channels = layout.shape[:2]
    fields = channels, batch * channels, *sizes, *layout.strides[:2], *places
    packer = host_arguments.RESAMPLE_ROWS
    packed = packer.pack(0, 0, kernels.run_parts, 1, *fields)
    # The arrays live as long as what reads them.
    return _plan(kernels, name, packer, x, (batch, channels, *sizes), packed, arrays)


def _plan_pool(
    name: str, kernels: HostKernels, x: Operand, kernel_size: tuple[int, int], stride: tuple[int, int]
) -> Callable[..., CpuStorage] | None:
    batch, channels, *sizes = x.layout.shape
    height, width = ((size - window) // step + 1 for size, window, step in zip(sizes, kernel_size, stride, strict=True))
    fields = channels, batch * channels, height, width, *x.layout.strides, *kernel_size, *stride
    packer = host_arguments.POOL_ROWS
    packed = packer.pack(0, 0, kernels.run_parts, 1, *fields)
    return _plan(kernels, f"{name}_{x.dtype.value}", packer, x, (batch, channels, height, width), packed)


def _plan(
    kernels: HostKernels,
    name: str,
    packer: Packer,
    x: Operand,
    shape: tuple[int, ...],
    packed: bytes,
    kept: object = None,
) -> Callable[..., CpuStorage] | None:
    """What makes images by a kernel; None where there are no elements, or no kernel."""
    kernel, dtype = kernels.address("host_window", name), x.dtype
    require_room(shape, dtype)
    count = int(np.prod(shape))
    if kernel is None or count == 0 or x.layout.elem_count == 0:
        return None
    result = Result(packer.places["result"], count, dtype)
    return kernels.call(kernel, packer, packed, x.storage, result, sources_of(packer, {"source": x}), kept=kept)
