"""Pooling of (b, c, ..) along one to three dims, and its gradients."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from ..... import results
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE
from ....base.error import InvalidArgument
from ....core.pool import ParamsPool, PoolAxis, PoolParams, pool_of
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, Operand
from ..driver.grid import ceil_divide
from . import copy
from .geometry import LIMIT, Dims, Part, merged, plane_parts, strided_block

if TYPE_CHECKING:
    from ..libraries.library import Pooling

Pair = tuple[int, int]

# Kernels take volumes (b, c, d, h, w).
_RANK: Final = 5


def avg_pool_by_library(
    build: ProgramBuilder, library: Pooling, x: Operand, window: PoolParams, stride: Pair | None = None
) -> Buffer | None:
    """The mean of each window by a library of images; None where there is nothing to do or it refuses."""
    params = pool_of(x.shape, window, stride)
    if params.is_empty or len(params.sizes) != 2 or params.adaptive or not all(map(_is_plain, params.axes)):
        return None
    source, result = copy.contiguous(build, x), build.output(results.avg_pool(x, params))
    height, width = params.window
    # Libraries count the windows by themselves, and so the stride behind a single one has to leave no room for more.
    down, right = [axis.stride if axis.windows > 1 else axis.size for axis in params.axes]
    dims = x.shape, params.out_dims
    call = library.avg_pool2d(x.dtype, *dims, (height, width), (down, right), source.address, result.address)
    return result if build.append(call, partial(avg_pool, x=x, window=params)) else None


def _is_plain(axis: PoolAxis) -> bool:
    """Whether no window along a dim reaches beyond the input, or leaves out elements within it."""
    end = (axis.windows - 1) * axis.stride + axis.window
    return axis.padding == 0 and axis.dilation == 1 and end <= axis.size


def avg_pool(build: ProgramBuilder, x: Operand, window: PoolParams, stride: Pair | None = None) -> Buffer:
    """The mean of each window."""
    return _pool(build, "avg_pool", x, pool_of(x.shape, window, stride))


def max_pool(build: ProgramBuilder, x: Operand, window: PoolParams, stride: Pair | None = None) -> Buffer:
    """The largest element of each window."""
    return _pool(build, "max_pool", x, pool_of(x.shape, window, stride))


def max_pool_tangent(build: ProgramBuilder, x: Operand, tangent: Operand, params: ParamsPool) -> Buffer:
    """The mean of the tangents of the largest elements of each window."""
    return _pool(build, "max_pool_tangent", copy.contiguous(build, x), params, copy.contiguous(build, tangent))


def avg_pool_gradient(build: ProgramBuilder, g: Operand, params: ParamsPool) -> Buffer:
    """The gradient of the input of `avg_pool`."""
    return _gradient(build, "avg_pool_gradient", params, g)


def max_pool_gradient(build: ProgramBuilder, x: Operand, pooled: Operand, g: Operand, params: ParamsPool) -> Buffer:
    """The gradient of the input of `max_pool`, made of the input, the result and its gradient."""
    return _gradient(build, "max_pool_gradient", params, g, (x, pooled))


def _pool(build: ProgramBuilder, op: str, x: Operand, params: ParamsPool, tangent: Operand | None = None) -> Buffer:
    result = build.empty(x.dtype, math.prod(params.out_dims))
    if params.is_empty:
        return result
    params, x, itemsize = params.as_volumes, x.as_rank(_RANK), x.itemsize
    stride_b, stride_c, stride_d, stride_h, stride_w = x.strides
    for blocks, _, (to, offset), count, geometry in _packs(op, itemsize, params.out_dims, (stride_b, stride_c)):
        packed = arguments.pool(
            result=result.address + to * itemsize, source=x.address + offset * itemsize,
            tangent=NULL if tangent is None else tangent.address + offset * itemsize,
            source_stride_d=stride_d, source_stride_h=stride_h, source_stride_w=stride_w, pool=_fields(op, params),
            count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("pool", f"{op}_{x.dtype.value}", blocks, packed)
    return result


def _gradient(
    build: ProgramBuilder, op: str, params: ParamsPool, g: Operand, elements: tuple[Operand, Operand] | None = None
) -> Buffer:
    result = build.empty(g.dtype, math.prod(params.input_dims))
    if params.is_empty:
        build.zero(result)
        return result
    params, itemsize = params.as_volumes, g.itemsize
    gradient = copy.contiguous(build, g).address
    source, pooled = (copy.contiguous(build, each).address for each in elements) if elements else (NULL, NULL)
    _, channels, *sizes = params.out_dims
    windows = math.prod(sizes)
    for blocks, _, (to, offset), count, geometry in _packs(
        op, itemsize, params.input_dims, (channels * windows, windows)
    ):
        packed = arguments.pool_gradient(
            result=result.address + to * itemsize, source=_after(source, to * itemsize),
            pooled=_after(pooled, offset * itemsize), gradient=gradient + offset * itemsize, pool=_fields(op, params),
            count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("pool", f"{op}_{g.dtype.value}", blocks, packed)
    return result


def _after(address: Address | int, offset: int) -> Address | int:
    return NULL if isinstance(address, int) else address + offset


def _fields(op: str, params: ParamsPool) -> arguments.Pool:
    """The numbers of a pool as kernels take them; they add some of them up in 31 bits."""
    if params.farthest >= LIMIT:
        raise InvalidArgument(op, f"one dim has more than {LIMIT - 1} positions; use smaller windows")
    return arguments.Pool(*params.numbers)


@lru_cache(maxsize=1024)
def _packs(op: str, itemsize: int, shape: Dims, strides: Pair) -> tuple[Part, ...]:
    """The launches over packs of elements of the rows of a contiguous (b, c, d, h, w) and planes at strides."""
    b, c, depth, height, width = shape
    # As the kernels have it.
    length = strided_block(itemsize) // BLOCK_SIZE
    across = ceil_divide(width, length if width >= length else 1)
    volume = depth * height * width
    if depth * height * across >= LIMIT:
        raise InvalidArgument(op, f"one volume has more than {LIMIT - 1} elements; use smaller ones")
    dims, steps = merged((b, c), ((c * volume, volume), strides))
    to, offset = [(*operand, 0, 0, 0) for operand in steps]
    return plane_parts(op, BLOCK_SIZE, (*dims, depth, height, across), (to, offset), 0)
