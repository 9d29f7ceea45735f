"""Pooling and its gradients by the kernels for the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .....kernels import host_arguments
from ....core.pool import ParamsPool, PoolParams, pool_of
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand
from ..values import RUN_PARTS, THREADS
from .native import contiguous

if TYPE_CHECKING:
    from ..kernels import HostKernels

Pair = tuple[int, int]

# Kernels take volumes (b, c, d, h, w), whose positions they add up in 31 bits.
_RANK: Final = 5
_LIMIT: Final = 1 << 31


def avg_pool(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, window: PoolParams, stride: Pair | None = None
) -> Buffer | None:
    """The mean of each window; None where NumPy does it."""
    return _pool(build, kernels, "avg_pool", x, pool_of(x.shape, window, stride))


def max_pool(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, window: PoolParams, stride: Pair | None = None
) -> Buffer | None:
    """The largest element of each window; None where NumPy does it."""
    return _pool(build, kernels, "max_pool", x, pool_of(x.shape, window, stride))


def max_pool_tangent(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, tangent: Operand, params: ParamsPool
) -> Buffer | None:
    """The mean of the tangents of the largest elements of each window; None where NumPy does it."""
    return _pool(build, kernels, "max_pool_tangent", x, params, tangent)


def avg_pool_gradient(build: ProgramBuilder, kernels: HostKernels, g: Operand, params: ParamsPool) -> Buffer | None:
    """The gradient of the input of `avg_pool`; None where NumPy does it."""
    return _gradient(build, kernels, "avg_pool_gradient", params, g)


def max_pool_gradient(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, pooled: Operand, g: Operand, params: ParamsPool
) -> Buffer | None:
    """The gradient of the input of `max_pool`, of which the result is known; None where NumPy does it."""
    return _gradient(build, kernels, "max_pool_gradient", params, g, (x, pooled))


def _pool(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    x: Operand,
    params: ParamsPool,
    tangent: Operand | None = None,
) -> Buffer | None:
    name = f"{op}_{x.dtype.value}"
    if not _is_taken(kernels, name, params):
        return None
    count = math.prod(params.out_dims)
    result, covered = build.empty(x.dtype, count), math.prod(params.window)
    params, x = params.as_volumes, x.as_rank(_RANK)
    tangent = None if tangent is None else tangent.as_rank(_RANK)
    batch, channels = params.input_dims[:2]
    packed = host_arguments.pool_rows(
        result=result.address, source=x.address, tangent=NULL if tangent is None else tangent.address,
        run_parts=RUN_PARTS, threads=THREADS, channels=channels, planes=batch * channels, source_strides=x.strides,
        tangent_strides=(x if tangent is None else tangent).strides, pool=host_arguments.Pool(*params.numbers),
    )  # fmt: skip
    build.launch("host_pool", name, 1, packed, work=count * covered)
    return result


def _gradient(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    params: ParamsPool,
    g: Operand,
    elements: tuple[Operand, Operand] | None = None,
) -> Buffer | None:
    name = f"{op}_{g.dtype.value}"
    if not _is_taken(kernels, name, params):
        return None
    count, covered = math.prod(params.input_dims), math.prod(params.out_dims) * math.prod(params.window)
    result = build.empty(g.dtype, count)
    sums = result if g.dtype.compute is g.dtype else build.empty(g.dtype.compute, count)
    source, pooled = (contiguous(build, each).address for each in elements) if elements else (NULL, NULL)
    batch, channels = params.input_dims[:2]
    packed = host_arguments.pool_planes(
        result=result.address, sums=sums.address, source=source, pooled=pooled,
        gradient=contiguous(build, g).address, run_parts=RUN_PARTS, threads=THREADS, planes=batch * channels,
        pool=host_arguments.Pool(*params.as_volumes.numbers),
    )  # fmt: skip
    build.launch("host_pool", name, 1, packed, work=count + 2 * covered)
    return result


def _is_taken(kernels: HostKernels, name: str, params: ParamsPool) -> bool:
    return params.farthest < _LIMIT and not params.is_empty and kernels.has("host_pool", name)
