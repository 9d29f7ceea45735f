"""Convolutions of one group by the kernels for the host, as products of weights and what lies under them.

A 1-d convolution is a 2-d one of height 1. A transposed one of a stride is so many convolutions for each dim, of which
each makes every so-manieth element of the result by some of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .....dtype import Array, DType
from .....kernels import constants, host_arguments
from ....core.conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ....core.layout import Layout
from ....helpers.host_memory import require_room, tells_lack_of_memory
from ....helpers.threads import get_threads
from ....host.array import bits
from ....program.values import Address
from ...array_backend.ops.operand import Operand
from .. import buffer_pool
from ..kernels import THREADS, Result, Source, table
from . import conv
from .native import by_plan, source_of
from .native_copy import Dense

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# A tile has so many rows of the result, where its columns fill it.
_ROWS: Final = 8
# The columns of a tile are made in strips of so many, or of a part of it.
_STRIP: Final = 32


class _Axis(NamedTuple):
    """A dim of a convolution: which lines of the source are read, from where, and where in them each weight begins."""

    size: int
    begins: tuple[int, ...]
    # The line of each weight, and its place in that.
    weights: tuple[tuple[int, int], ...]

    @classmethod
    def convolved(cls, size: int, taps: int, padding: int, stride: int, dilation: int) -> _Axis:
        """That of a result of so many elements."""
        begins = sorted({tap * dilation % stride for tap in range(taps)})
        weights = tuple((begins.index(tap * dilation % stride), tap * dilation // stride) for tap in range(taps))
        return cls(size, tuple(begin - padding for begin in begins), weights)

    @property
    def reach(self) -> int:
        """How far behind the first element of a line weights begin."""
        return max(place for _, place in self.weights)


class _Phase(NamedTuple):
    """Every `stride`-th element of a dim of a transposed result, and the weights that make it."""

    first: int
    taps: slice
    axis: _Axis


@by_plan
def conv1d(kernels: HostKernels, x: Operand, kernel: Operand, params: ParamsConv1D) -> Callable[..., CpuStorage] | None:
    """As `conv.conv1d`; None where NumPy does it."""
    return _plan(kernels, as_image(x), as_image(kernel), params, (0, params.padding))


@by_plan
def conv2d(kernels: HostKernels, x: Operand, kernel: Operand, params: ParamsConv2D) -> Callable[..., CpuStorage] | None:
    """As `conv.conv2d`; None where NumPy does it."""
    return _plan(kernels, x, kernel, params, (params.padding, params.padding))


@by_plan
def conv_transpose1d(
    kernels: HostKernels, x: Operand, kernel: Operand, params: ParamsConvTranspose1D
) -> Callable[..., CpuStorage] | None:
    """As `conv.conv_transpose1d`; None where NumPy does it."""

    def by_numpy(image: CpuStorage, weights: CpuStorage) -> Any:
        return conv.conv_transpose1d(Operand(image, x.layout), Operand(weights, kernel.layout), params)

    return _plan_transposed(kernels, as_image(x), as_image(kernel), params, (0, params.padding), by_numpy)


@by_plan
def conv_transpose2d(
    kernels: HostKernels, x: Operand, kernel: Operand, params: ParamsConvTranspose2D
) -> Callable[..., CpuStorage] | None:
    """As `conv.conv_transpose2d`; None where NumPy does it."""

    def by_numpy(image: CpuStorage, weights: CpuStorage) -> Any:
        return conv.conv_transpose2d(Operand(image, x.layout), Operand(weights, kernel.layout), params)

    return _plan_transposed(kernels, x, kernel, params, (params.padding, params.padding), by_numpy)


def as_image(x: Operand) -> Operand:
    """A line as an image of height 1."""
    (b, c, w), (stride_b, stride_c, stride_w) = x.layout.shape, x.layout.strides
    return Operand(x.storage, Layout((b, c, 1, w), (stride_b, stride_c, 0, stride_w), x.layout.start_offset))


def is_finite(array: Array, dtype: DType) -> bool:
    """Whether none of the floats is infinite or NaN."""
    with np.errstate(all="ignore"):
        least = int(bits(np.array(np.inf).astype(dtype.numpy)))
    patterns = bits(array)
    return array.size == 0 or int((patterns & (least | least - 1)).max()) < least


def _plan(
    kernels: HostKernels, x: Operand, kernel: Operand, params: ParamsConv1D | ParamsConv2D, padding: tuple[int, int]
) -> Callable[..., CpuStorage] | None:
    dtype, dims = x.dtype, params.out_dims
    require_room(dims, dtype)
    count = int(np.prod(dims))
    sizes = 1, *dims[2:]
    rows, columns = (
        _Axis.convolved(*each, params.stride, params.dilation)
        for each in zip(sizes[-2:], kernel.layout.shape[2:], padding, strict=True)
    )
    if count == 0 or x.layout.elem_count == 0:
        return None
    weights = Dense(kernels, kernel)
    strides = sizes[-2] * sizes[-1], sizes[-1], 1
    made = _arguments(kernels, x, weights.source(1), count, dims[1], rows, columns, params.stride, strides)
    if made is None:
        return None
    address, packed, tables = made
    products = count * math.prod(kernel.layout.shape[1:])
    call = kernels.call(address, packed, x.storage, kept=tables, products=products)
    return call if weights.is_there else lambda image, kernel: call(image, weights.of(kernel))


def _plan_transposed(
    kernels: HostKernels,
    x: Operand,
    kernel: Operand,
    params: ParamsConvTranspose1D | ParamsConvTranspose2D,
    padding: tuple[int, int],
    by_numpy: Callable[..., Any],
) -> Callable[..., CpuStorage] | None:
    dtype, dims, step = x.dtype, params.out_dims, params.stride
    require_room(dims, dtype)
    count = int(np.prod(dims))
    if count == 0 or x.layout.elem_count == 0:
        return None
    height, width = (1, *dims[2:])[-2:]
    taps = kernel.layout.shape[2:]
    down, across = (
        list(_phases(*each, step, params.dilation)) for each in zip((height, width), taps, padding, strict=True)
    )
    calls = []
    for rows in down:
        for columns in across:
            strides = height * width, step * width, step
            made = _arguments(kernels, x, Source(1, 0), count, dims[1], rows.axis, columns.axis, 1, strides)
            if made is None:
                return None
            _, packed, tables = made
            assert isinstance(packed, PackedArguments)
            # Between the addresses and the threads, and behind these, is what is the same in all calls.
            form, (_, _, _, run_parts, _, rest) = packed.parts()
            # The tables live as long as the plan.
            first = (rows.first * width + columns.first) * dtype.itemsize
            calls.append((first, rows.taps, columns.taps, Struct(form).pack, rest, tables))
    convolve = kernels.kernel("host_product", f"convolve_{dtype.value}")
    if convolve is None:
        return None
    covered = [sum(phase.axis.size for phase in phases) for phases in (down, across)]
    numpy_type, empty = dtype.numpy, buffer_pool.empty if covered == [height, width] else np.zeros
    offset = x.layout.start_offset * dtype.itemsize

    @tells_lack_of_memory
    def run(image: CpuStorage, weights: CpuStorage) -> Any:
        array = weights.view(kernel.layout).swapaxes(0, 1)
        # Beyond the ends of the source kernels multiply zeros, where nothing is.
        if not is_finite(array, dtype):
            return by_numpy(image, weights)
        made = type(image)(image.device, dtype, empty(count, numpy_type))
        for first, row_taps, column_taps, pack, rest, _ in calls:
            part = np.ascontiguousarray(array[:, :, row_taps, column_taps])
            places = made.address + first, image.address + offset, part.ctypes.data
            convolve(pack(*places, run_parts, get_threads(), rest))
        return made

    return run


def _phases(size: int, taps: int, padding: int, stride: int, dilation: int) -> Iterator[_Phase]:
    """Those of a dim of a transposed result that some weight makes."""
    for first in range(min(stride, size)):
        chosen = [tap for tap in range(taps) if (first + padding - tap * dilation) % stride == 0]
        if chosen:
            places = [(first + padding - tap * dilation) // stride for tap in chosen]
            weights = tuple((0, place - min(places)) for place in places)
            axis = _Axis((size - first + stride - 1) // stride, (min(places),), weights)
            between = chosen[1] - chosen[0] if len(chosen) > 1 else 1
            yield _Phase(first, slice(chosen[0], chosen[-1] + 1, between), axis)


def _arguments(
    kernels: HostKernels,
    x: Operand,
    weights_source: Source,
    count: int,
    channels: int,
    rows: _Axis,
    columns: _Axis,
    step: int,
    result_strides: tuple[int, int, int],
) -> tuple[Address, bytes, list[Array]] | None:
    """The kernel that convolves `x`, its arguments, and the tables that these point to; None where it has no room."""
    kernel, tile = kernels.address("host_product", f"convolve_{x.dtype.value}"), _Tile.of(rows, columns)
    if kernel is None or tile is None:
        return None
    (batches, sources, *sizes), strides = x.layout.shape, x.layout.strides
    line_width = tile.width + columns.reach
    lines, weights = len(rows.begins) * len(columns.begins), len(rows.weights) * len(columns.weights)
    together = max(min(sources, constants.TILE_TERMS // weights, constants.TILE_NUMBERS // (lines * tile.length)), 1)
    places = [
        (line * len(columns.begins) + part) * tile.length + place * line_width + behind
        for line, place in rows.weights
        for part, behind in columns.weights
    ]
    tables = [
        np.repeat(np.array(rows.begins, np.int64), len(columns.begins)),
        np.tile(np.array(columns.begins, np.int64), len(rows.begins)),
        np.array(places, np.int64),
    ]
    packed = host_arguments.convolve(
        result=Result(count, x.dtype), source=source_of(x, 0), kernel=weights_source, run_parts=kernels.run_parts,
        threads=THREADS, line_rows=table(tables[0]), line_columns=table(tables[1]), weight_places=table(tables[2]),
        batches=batches, result_channels=channels, channels=sources, channels_together=together, weights=weights,
        lines=lines, line_length=tile.length, line_width=line_width, height=sizes[0], width=sizes[1],
        result_height=rows.size, result_width=columns.size, tile_height=tile.height, tile_width=tile.width, step=step,
        stride_b=strides[0], stride_c=strides[1], stride_h=strides[2], stride_w=strides[3],
        result_plane=result_strides[0], result_stride_h=result_strides[1], result_stride_w=result_strides[2],
    )  # fmt: skip
    return kernel, packed, tables


class _Tile(NamedTuple):
    """The part of a plane of the result that is made at once, and how much of the source's one line of it needs."""

    height: int
    width: int
    length: int

    @classmethod
    def of(cls, rows: _Axis, columns: _Axis) -> _Tile | None:
        """One that has room; None where there is none."""
        most = constants.CONVOLUTION_COLUMNS
        lines = len(rows.begins) * len(columns.begins)
        width = _evenly(columns.size, max(most // min(rows.size, _ROWS) - columns.reach, _STRIP))
        while True:
            line_width = width + columns.reach
            height = _evenly(rows.size, max((most - width) // line_width + 1, 1))
            while True:
                made = (height - 1) * line_width + width
                length = -(-made // _STRIP) * _STRIP + rows.reach * line_width + columns.reach
                if lines * length <= constants.TILE_NUMBERS:
                    return cls(height, width, length)
                if height == 1:
                    break
                height = (height + 1) // 2
            if width <= _STRIP:
                return None
            width = (width + 1) // 2


def _evenly(size: int, most: int) -> int:
    """How long parts of at most `most` are, where they are of one size."""
    parts = -(-size // most)
    return -(-size // parts)
