"""Pooling of (b, c, h, w)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..... import results
from .....kernels import arguments
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from . import copy
from .geometry import merged, packed_block, parts

if TYPE_CHECKING:
    from ..libraries.library import Pooling

Pair = tuple[int, int]


def avg_pool2d_by_library(
    build: ProgramBuilder, library: Pooling, x: Operand, kernel_size: Pair, stride: Pair
) -> Buffer | None:
    """The mean of each window by a library of images; None where there is nothing to do or it refuses."""
    if x.layout.elem_count == 0:
        return None
    source, pooled = copy.contiguous(build, x), results.avg_pool2d(x, kernel_size, stride)
    result = build.output(pooled)
    dims = x.shape, pooled.shape
    call = library.avg_pool2d(x.dtype, *dims, kernel_size, stride, source.address, result.address)
    fallback = partial(avg_pool2d, x=x, kernel_size=kernel_size, stride=stride)
    return result if build.append(call, fallback) else None


def avg_pool2d(build: ProgramBuilder, x: Operand, kernel_size: Pair, stride: Pair) -> Buffer:
    """The mean of each window."""
    return _pool(build, "avg_pool2d", x, results.avg_pool2d(x, kernel_size, stride), kernel_size, stride)


def max_pool2d(build: ProgramBuilder, x: Operand, kernel_size: Pair, stride: Pair) -> Buffer:
    """The largest element of each window."""
    return _pool(build, "max_pool2d", x, results.max_pool2d(x, kernel_size, stride), kernel_size, stride)


def _pool(build: ProgramBuilder, op: str, x: Operand, pooled: TensorType, kernel_size: Pair, stride: Pair) -> Buffer:
    *outer, stride_h, stride_w = x.strides
    result = build.output(pooled)
    if result.length == 0:
        return result
    name, itemsize = f"{op}_{x.dtype.value}", x.itemsize
    dims, steps = merged(pooled.shape, ((*outer, stride_h * stride[0], stride_w * stride[1]),))
    per_block = packed_block(itemsize, dims[-1] if dims else 1)
    for blocks, first, (offset,), count, geometry in parts(per_block, dims, steps):
        packed = arguments.pool(
            result=result.address + first * itemsize, source=x.address + offset * itemsize,
            stride_h=stride_h, stride_w=stride_w, window_h=kernel_size[0], window_w=kernel_size[1],
            count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("pool", name, blocks, packed)
    return result
