"""Resampling by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..... import results
from .....dtype import Array
from .....kernels import host_arguments
from ....core.tensor_type import TensorType
from ....helpers.host_memory import require_room
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Constant, Operand, address_of
from ...array_backend.ops.upsample import cubic, neighbours
from ..values import RUN_PARTS, THREADS

if TYPE_CHECKING:
    from ..kernels import HostKernels

Axis: TypeAlias = tuple[Array, Array | None, Array | None]
"""The places of a dim of the result in the source, and of an interpolated one the next places and their shares; of a
bicubic one four places and their weights."""


def nearest1d(build: ProgramBuilder, kernels: HostKernels, x: Operand, size: int) -> Buffer | None:
    """As `upsample.upsample_nearest1d`; None where NumPy does it."""
    return _nearest(build, kernels, x, results.upsample_nearest1d(x, size))


def nearest2d(build: ProgramBuilder, kernels: HostKernels, x: Operand, height: int, width: int) -> Buffer | None:
    """As `upsample.upsample_nearest2d`; None where NumPy does it."""
    return _nearest(build, kernels, x, results.upsample_nearest2d(x, height, width))


def _nearest(build: ProgramBuilder, kernels: HostKernels, x: Operand, resampled: TensorType) -> Buffer | None:
    kernel, sizes = f"upsample_nearest_b{8 * x.itemsize}", resampled.shape[2:]
    if not _is_resampled(kernels, kernel, x, resampled):
        return None
    maps: list[Axis] = [(np.zeros(1, np.int64), None, None)] * (2 - len(sizes))
    for axis, size in enumerate(sizes, 2):
        maps.append((np.arange(size) * x.shape[axis] // size * x.strides[axis], None, None))
    return _resample(build, kernel, x, resampled, maps)


def bilinear2d(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    height: int,
    width: int,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Buffer | None:
    """As `upsample.upsample_bilinear2d`; None where NumPy does it."""

    def axis(old: int, new: int, factor: float | None) -> Axis:
        before, after, shares = neighbours(old, new, align_corners, factor)
        return before, after, shares

    return _interpolated(build, kernels, "upsample_bilinear2d", x, (height, width), (scale_h, scale_w), axis)


def bicubic2d(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    height: int,
    width: int,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Buffer | None:
    """As `upsample.upsample_bicubic2d`; None where NumPy does it."""

    def axis(old: int, new: int, factor: float | None) -> Axis:
        places, weights = cubic(old, new, align_corners, factor)
        return places, None, weights

    return _interpolated(build, kernels, "upsample_bicubic2d", x, (height, width), (scale_h, scale_w), axis)


def _interpolated(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    x: Operand,
    sizes: tuple[int, int],
    factors: tuple[float | None, float | None],
    axis: Callable[[int, int, float | None], Axis],
) -> Buffer | None:
    kernel, resampled = f"{op}_{x.dtype.value}", results.upsample_bilinear2d(x, *sizes)
    if not _is_resampled(kernels, kernel, x, resampled):
        return None
    maps: list[Axis] = []
    for old, new, stride, factor in zip(x.shape[2:], sizes, x.strides[2:], factors, strict=True):
        if old == new:
            places = np.arange(new) * stride
            maps.append((places, places, None))
        else:
            with np.errstate(all="ignore"):
                first, after, shares = axis(old, new, factor)
            following = None if after is None else after * stride
            maps.append((np.ascontiguousarray(first * stride), following, np.ascontiguousarray(shares, np.float64)))
    return _resample(build, kernel, x, resampled, maps)


def _is_resampled(kernels: HostKernels, kernel: str, x: Operand, resampled: TensorType) -> bool:
    """Whether a kernel resamples images; OutOfMemory where there is no room for the result."""
    require_room(*resampled)
    return kernels.has("host_window", kernel) and x.layout.elem_count != 0 and resampled.elem_count != 0


def _resample(build: ProgramBuilder, kernel: str, x: Operand, resampled: TensorType, maps: list[Axis]) -> Buffer:
    """Images of other sizes, by each dim's places, the next ones, and their shares."""
    tables = [None if array is None else Constant(array) for axis in maps for array in axis]
    rows, next_rows, row_shares, columns, next_columns, column_shares = map(address_of, tables)
    (batch, channels, *sizes), result = resampled.shape, build.output(resampled)
    height, width = (1, *sizes)[-2:]
    packed = host_arguments.resample_rows(
        result=result.address, source=x.address, run_parts=RUN_PARTS, threads=THREADS, channels=channels,
        planes=batch * channels, height=height, width=width, stride_b=x.strides[0], stride_c=x.strides[1],
        rows=rows, columns=columns, next_rows=next_rows, next_columns=next_columns, row_shares=row_shares,
        column_shares=column_shares,
    )  # fmt: skip
    build.launch("host_window", kernel, 1, packed)
    return result
