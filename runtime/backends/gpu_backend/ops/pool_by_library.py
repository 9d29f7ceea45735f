"""Pooling by libraries of images."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..... import results
from .....kernels import launches
from ....core.pool import PoolAxis, PoolParams, pool_of
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from . import copy

if TYPE_CHECKING:
    from ..libraries.library import Pooling


def avg_pool(
    build: ProgramBuilder, library: Pooling, x: Operand, window: PoolParams, stride: tuple[int, int] | None = None
) -> Buffer | None:
    """The mean of each window by a library of images; None where there is nothing to do or it refuses."""
    params = pool_of(x.shape, window, stride)
    axes = params.axes
    if params.is_empty or len(axes) != 2 or params.adaptive or not all(map(_is_plain, axes)):
        return None
    source, result = copy.contiguous(build, x), build.output(results.avg_pool(x, params))
    height, width = params.window
    # Libraries count the windows by themselves, and so the stride after a single one must leave no space for more.
    down, right = [axis.stride if axis.windows > 1 else axis.size for axis in axes]
    dims = x.shape, params.out_dims
    call = library.avg_pool2d(x.dtype, *dims, (height, width), (down, right), source.address, result.address)
    return result if build.append(call, partial(launches.avg_pool, x=x, params=params)) else None


def _is_plain(axis: PoolAxis) -> bool:
    """Whether no window along a dim reaches beyond the input, or leaves out elements within it."""
    end = (axis.windows - 1) * axis.stride + axis.window
    return axis.padding == 0 and axis.dilation == 1 and end <= axis.size
