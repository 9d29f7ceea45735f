"""Convolutions of (b, c, h, w): by a library of images, by a matrix product of columns, and directly."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, CONV_CHANNELS
from ....core.conv import Params, ParamsConv2D, Window
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from ..driver.grid import ceil_divide
from . import copy, elementwise
from .geometry import LIMIT, plane_parts, strided_block
from .matmul import multiply

if TYPE_CHECKING:
    from ..libraries.library import Blas, Convolution

# With fewer channels of the result a matrix product reads each column too few times to pay for writing it.
_LEAST_CHANNELS: Final = 8
# The most memory that columns take at once, in bytes.
_MOST_COLUMNS: Final = 1 << 28


def by_library(
    build: ProgramBuilder, library: Convolution, x: Operand, kernel: Operand, params: ParamsConv2D
) -> Buffer | None:
    """The convolution of (b, c, h, w) by a library of images; None where there is nothing to do or it refuses."""
    if 0 in (*x.shape, *kernel.shape, *params.out_dims):
        return None
    result = build.empty(x.dtype, math.prod(params.out_dims))
    source, weights = copy.contiguous(build, x), copy.contiguous(build, kernel)
    call = library.conv2d(x.dtype, params, source.address, weights.address, result.address)
    return result if build.append(call, partial(convolve, x=x, kernel=kernel, params=params)) else None


def convolve(build: ProgramBuilder, x: Operand, kernel: Operand, params: Params) -> Buffer:
    """The convolution of (b, c, h, w), or of (b, c, l)."""
    x, kernel, result = x.as_image, kernel.as_image, build.empty(x.dtype, math.prod(params.out_dims))
    if result.length and x.shape[1] == 0:
        build.zero(result)
    elif result.length:
        _directly(build, params.op, x, kernel, params.window, result, transposed=False)
    return result


def convolve_by_product(
    build: ProgramBuilder, library: Blas, x: Operand, kernel: Operand, params: Params
) -> Buffer | None:
    """The same as a matrix product of columns; None where the direct kernel is quicker.

    For each image it is that of the kernel, (c_out, c_in * kh * kw), and the columns, (c_in * kh * kw, h * w).
    """
    x, kernel, window = x.as_image, kernel.as_image, params.window
    itemsize = x.itemsize
    b, c_in, *_ = x.shape
    c_out, places, steps = kernel.shape[0], math.prod(window.result), c_in * math.prod(window.kernel)
    if 0 in (b, steps, places) or c_out < _LEAST_CHANNELS or steps * places >= LIMIT:
        return None
    result = build.empty(x.dtype, b * c_out * places)
    weights = copy.reshaped(build, kernel, (c_out, steps))
    pixels = _pixels(x, window)
    if pixels is not None:
        multiply(build, library, _repeated(weights, b), pixels, (b, c_out, places, steps), result.address)
        return result
    together = min(max(_MOST_COLUMNS // (steps * places * itemsize), 1), b)
    for start in range(0, b, together):
        count = min(together, b - start)
        images = Operand(x.storage, x.layout.narrow(0, start, count))
        columns = dense(_columns(build, params.op, images, window), (count, steps, places))
        to = result.address + start * c_out * places * itemsize
        multiply(build, library, _repeated(weights, count), columns, (count, c_out, places, steps), to)
    return result


def _repeated(matrix: Operand, count: int) -> Operand:
    return matrix.relaid((count, *matrix.shape), (0, *matrix.strides))


def _pixels(x: Operand, window: Window) -> Operand | None:
    """The image itself where it is its own columns: those of a kernel of one place."""
    if window.kernel != (1, 1) or window.padding != (0, 0) or window.stride != (1, 1):
        return None
    b, c, *sizes = x.shape
    layout = x.layout.reshape((b, c, math.prod(sizes)))
    return None if layout is None else Operand(x.storage, layout)


def _columns(build: ProgramBuilder, op: str, x: Operand, window: Window) -> Buffer:
    b, c, height, width = x.shape
    stride_b, stride_c, stride_h, stride_w = x.strides
    shape, places = (b, c, *window.result), math.prod(window.result)
    step = math.prod(window.kernel) * places
    result = build.empty(x.dtype, b * c * step)
    # The row, the column, the plane, and the first column.
    strides = (
        (0, 0, window.stride[0], 0),
        (0, 0, 0, window.stride[1]),
        (stride_b, stride_c, 0, 0),
        (c * step, step, window.result[1], 1),
    )
    itemsize = x.itemsize
    for blocks, _, (*_, plane, column), count, geometry in plane_parts(op, strided_block(itemsize), shape, strides, 2):
        packed = arguments.image_to_columns(
            result=result.address + column * itemsize, source=x.address + plane * itemsize,
            source_stride_h=stride_h, source_stride_w=stride_w, source_h=height, source_w=width,
            window=_fields(window), places=places, count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("conv", f"im2col_b{8 * itemsize}", blocks, packed)
    return result


def convolve_transposed(build: ProgramBuilder, x: Operand, kernel: Operand, params: Params) -> Buffer:
    """The transposed convolution of (b, c, h, w), or of (b, c, l)."""
    x, kernel, result = x.as_image, kernel.as_image, build.empty(x.dtype, math.prod(params.out_dims))
    if result.length and 0 in x.shape:
        build.zero(result)
    elif result.length:
        _directly(build, params.op, x, kernel, params.window, result, transposed=True)
    return result


def convolve_transposed_by_product(
    build: ProgramBuilder, library: Blas, x: Operand, kernel: Operand, params: Params
) -> Buffer | None:
    """The same as a matrix product, and sums of it; None where the direct kernel is quicker.

    It is that of the transposed kernel, (c_out * kh * kw, c_in), and the images, (c_in, h * w).
    """
    x, kernel, window = x.as_image, kernel.as_image, params.window
    compute = x.dtype.compute
    kernel_places = math.prod(window.kernel)
    b, c_in, *sizes = x.shape
    c_out, places, (height, width) = kernel.shape[1], math.prod(sizes), window.result
    if 0 in (b, c_out, places, height * width) or c_in < _LEAST_CHANNELS or c_out * height * width >= LIMIT:
        return None
    result = build.empty(x.dtype, b * c_out * height * width)
    rows = c_out * kernel_places
    weights = copy.reshaped(build, elementwise.converted(build, kernel, compute), (c_in, rows))
    transposed = weights.relaid((rows, c_in), weights.strides[::-1])
    together = min(max(_MOST_COLUMNS // (rows * places * compute.itemsize), 1), b)
    # The row, the column, and the plane of the first column.
    plane = kernel_places * places
    strides = ((0, 0, 1, 0), (0, 0, 0, 1), (c_out * plane, plane, 0, 0))
    for start in range(0, b, together):
        count = min(together, b - start)
        images = elementwise.converted(build, Operand(x.storage, x.layout.narrow(0, start, count)), compute)
        pixels = copy.reshaped(build, images, (count, c_in, places))
        columns = build.allocate(count * rows * places * compute.itemsize)
        multiply(build, library, _repeated(transposed, count), pixels, (count, rows, places, c_in), columns.address)
        begin = result.address + start * c_out * height * width * x.itemsize
        shape = (count, c_out, height, width)
        for blocks, first, (*_, offset), elements, geometry in plane_parts(params.op, BLOCK_SIZE, shape, strides, 2):
            packed = arguments.columns_to_image(
                result=begin + first * x.itemsize, source=columns.address + offset * compute.itemsize,
                source_h=sizes[0], source_w=sizes[1], window=_fields(window), stride_h=window.stride[0],
                stride_w=window.stride[1], count=elements, geometry=geometry,
            )  # fmt: skip
            build.launch("conv", f"col2im_{x.dtype.value}", blocks, packed)
    return result


def _fields(window: Window) -> arguments.Window:
    return arguments.Window(*window.kernel, *window.padding, *window.dilation)


def _directly(
    build: ProgramBuilder, op: str, x: Operand, kernel: Operand, window: Window, result: Buffer, *, transposed: bool
) -> None:
    """Each element of the result by itself, some channels of it in a thread."""
    b, c_in, *sizes = x.shape
    stride_b, stride_c, stride_h, stride_w = x.strides
    outer, inner, kernel_stride_h, kernel_stride_w = kernel.strides
    out, in_ = (inner, outer) if transposed else (outer, inner)
    c_out = kernel.shape[1 if transposed else 0]
    height, width = window.result
    plane = height * width
    step_h, step_w = (1, 1) if transposed else window.stride
    shape = (b, ceil_divide(c_out, CONV_CHANNELS), height, width)
    # The row, the column, the output channel, the source, the kernel and the result.
    row, column, channel = (0, 0, step_h, 0), (0, 0, 0, step_w), (0, CONV_CHANNELS, 0, 0)
    moving = (stride_b, 0, 0, 0), (0, CONV_CHANNELS * out, 0, 0), (c_out * plane, CONV_CHANNELS * plane, width, 1)
    name = f"conv{'_transpose' if transposed else ''}_{x.dtype.value}_direct"
    for blocks, _, offsets, count, geometry in plane_parts(op, BLOCK_SIZE, shape, (row, column, *moving, channel), 2):
        # A part that begins at a later channel has so many fewer of them.
        left = c_out - offsets[5]
        packed = arguments.convolve(
            result=result.address + offsets[4] * x.itemsize, source=x.address + offsets[2] * x.itemsize,
            kernel=kernel.address + offsets[3] * x.itemsize, source_stride_c=stride_c, source_stride_h=stride_h,
            source_stride_w=stride_w, kernel_stride_out=out, kernel_stride_in=in_, kernel_stride_h=kernel_stride_h,
            kernel_stride_w=kernel_stride_w, result_stride_c=plane, channels_in=c_in, channels_out=left,
            source_h=sizes[0], source_w=sizes[1], window=_fields(window), stride_h=window.stride[0],
            stride_w=window.stride[1], count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("conv", name, blocks, packed)
