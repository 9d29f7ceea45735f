"""Convolutions of (b, c, h, w): by the library of images, by a matrix product of columns, or directly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ...conv import ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D
from ...dtype import DType
from ...kernels import arguments
from ..utils import BLOCK, ceil_divide
from . import copy, elementwise
from .geometry import LIMIT, plane_parts, strided_block
from .matmul import multiply
from .operand import Operand, dense

if TYPE_CHECKING:
    from ..storage import GpuStorage

# A thread of the direct kernel makes so many channels of the result.
_CHANNELS: Final = 4
# With fewer channels of the result a matrix product reads each column too few times to pay for writing it.
_LEAST_CHANNELS: Final = 8
# The most memory that columns take at once, in bytes.
_MOST_COLUMNS: Final = 1 << 28

Pair = tuple[int, int]


class _Window(NamedTuple):
    """Sizes and steps along h and w."""

    kernel: Pair
    padding: Pair
    stride: Pair
    dilation: Pair
    result: Pair


def conv1d(x: Operand, kernel: Operand, params: ParamsConv1D) -> GpuStorage:
    """The convolution of (b, c, l), as one of images of height 1."""
    window = _line(params.k_size, params.padding, params.stride, params.dilation, params.l_out)
    return _convolve(params.op, _image(x), _image(kernel), window)


def conv_transpose1d(x: Operand, kernel: Operand, params: ParamsConvTranspose1D) -> GpuStorage:
    """The transposed convolution of (b, c, l), as one of images of height 1."""
    window = _line(params.k_size, params.padding, params.stride, params.dilation, params.l_out)
    return _convolve_transposed(params.op, _image(x), _image(kernel), window)


def conv2d(x: Operand, kernel: Operand, params: ParamsConv2D) -> GpuStorage:
    """The convolution of (b, c, h, w), by the library where there is one that takes it."""
    images, dtype, device = x.device.images, x.dtype, x.device
    if images is not None and dtype in images.dtypes and 0 not in (*x.shape, *kernel.shape, *params.out_dims):
        result = device.empty(dtype, math.prod(params.out_dims))
        source, weights = copy.contiguous(x), copy.contiguous(kernel)
        if images.conv2d(dtype, params, source.address, weights.address, result.memory.address):
            return result
    return _convolve(params.op, x, kernel, _square(params))


def conv_transpose2d(x: Operand, kernel: Operand, params: ParamsConvTranspose2D) -> GpuStorage:
    """The transposed convolution of (b, c, h, w)."""
    return _convolve_transposed(params.op, x, kernel, _square(params))


def _line(kernel: int, padding: int, stride: int, dilation: int, result: int) -> _Window:
    return _Window((1, kernel), (0, padding), (1, stride), (1, dilation), (1, result))


def _square(params: ParamsConv2D | ParamsConvTranspose2D) -> _Window:
    padding, stride, dilation = params.padding, params.stride, params.dilation
    return _Window(
        (params.k_h, params.k_w), (padding, padding), (stride, stride), (dilation, dilation),
        (params.out_h, params.out_w),
    )  # fmt: skip


def _image(x: Operand) -> Operand:
    (outer, inner, length), (outer_stride, inner_stride, stride) = x.shape, x.strides
    return x.relaid((outer, inner, 1, length), (outer_stride, inner_stride, 0, stride))


def _has_product(dtype: DType, x: Operand, channels: int) -> bool:
    """Whether a matrix product is quicker than the direct kernel: the library has it, and columns are read often."""
    blas = x.device.blas
    return blas is not None and dtype in blas.dtypes and channels >= _LEAST_CHANNELS


def _convolve(op: str, x: Operand, kernel: Operand, window: _Window) -> GpuStorage:
    b, c_in, *_ = x.shape
    c_out, (height, width) = kernel.shape[0], window.result
    result = x.device.empty(x.dtype, b * c_out * height * width)
    if result.length == 0:
        return result
    if c_in == 0:
        x.device.driver.zero(result.memory.address, result.memory.nbytes)
        return result
    steps = c_in * math.prod(window.kernel)
    if _has_product(x.dtype, x, c_out) and steps * height * width < LIMIT:
        _by_columns(op, x, kernel, window, result)
    else:
        _directly(op, x, kernel, window, result, transposed=False)
    return result


def _by_columns(op: str, x: Operand, kernel: Operand, window: _Window, result: GpuStorage) -> None:
    """A product of the kernel, (c_out, c_in * kh * kw), and the columns, (c_in * kh * kw, h * w), for each image."""
    itemsize = x.itemsize
    b, c_in, *_ = x.shape
    c_out, places, steps = kernel.shape[0], math.prod(window.result), c_in * math.prod(window.kernel)
    weights = _matrix(kernel, (c_out, steps))
    pixels = _pixels(x, window)
    if pixels is not None:
        multiply(_repeated(weights, b), pixels, (b, c_out, places, steps), result.memory.address)
        return
    together = min(max(_MOST_COLUMNS // (steps * places * itemsize), 1), b)
    for start in range(0, b, together):
        count = min(together, b - start)
        images = Operand(x.storage, x.layout.narrow(0, start, count))
        columns = dense(_columns(op, images, window), (count, steps, places))
        to = result.memory.address + start * c_out * places * itemsize
        multiply(_repeated(weights, count), columns, (count, c_out, places, steps), to)


def _matrix(kernel: Operand, shape: Pair) -> Operand:
    layout = kernel.layout.reshape(shape)
    return dense(copy.fresh(kernel), shape) if layout is None else Operand(kernel.storage, layout)


def _repeated(matrix: Operand, count: int) -> Operand:
    return matrix.relaid((count, *matrix.shape), (0, *matrix.strides))


def _pixels(x: Operand, window: _Window) -> Operand | None:
    """The image itself where it is its own columns: those of a kernel of one place."""
    if window.kernel != (1, 1) or window.padding != (0, 0) or window.stride != (1, 1):
        return None
    b, c, *sizes = x.shape
    layout = x.layout.reshape((b, c, math.prod(sizes)))
    return None if layout is None else Operand(x.storage, layout)


def _columns(op: str, x: Operand, window: _Window) -> GpuStorage:
    b, c, height, width = x.shape
    stride_b, stride_c, stride_h, stride_w = x.strides
    shape, places = (b, c, *window.result), math.prod(window.result)
    step = math.prod(window.kernel) * places
    result = x.device.empty(x.dtype, b * c * step)
    # The row, the column, the plane, and the first column.
    strides = (
        (0, 0, window.stride[0], 0),
        (0, 0, 0, window.stride[1]),
        (stride_b, stride_c, 0, 0),
        (c * step, step, window.result[1], 1),
    )
    itemsize = x.itemsize
    for blocks, _, (*_, plane, column), fields in plane_parts(op, strided_block(itemsize), shape, strides, 2):
        to, source = result.memory.address + column * itemsize, x.address + plane * itemsize
        packed = arguments.IMAGE_TO_COLUMNS.pack(
            to, source, stride_h, stride_w, height, width,
            *window.kernel, *window.padding, *window.dilation, places, *fields,
        )  # fmt: skip
        x.device.kernels.launch("conv", f"im2col_b{8 * itemsize}", blocks, packed)
    return result


def _convolve_transposed(op: str, x: Operand, kernel: Operand, window: _Window) -> GpuStorage:
    b, c_in, *_ = x.shape
    c_out, (height, width) = kernel.shape[1], window.result
    result = x.device.empty(x.dtype, b * c_out * height * width)
    if result.length == 0:
        return result
    if 0 in x.shape:
        x.device.driver.zero(result.memory.address, result.memory.nbytes)
        return result
    if _has_product(x.dtype.compute, x, c_in) and c_out * height * width < LIMIT:
        _by_column_sums(op, x, kernel, window, result)
    else:
        _directly(op, x, kernel, window, result, transposed=True)
    return result


def _by_column_sums(op: str, x: Operand, kernel: Operand, window: _Window, result: GpuStorage) -> None:
    """A product of the transposed kernel, (c_out * kh * kw, c_in), and the images, (c_in, h * w); then sums of it."""
    compute = x.dtype.compute
    device, kernel_places = x.device, math.prod(window.kernel)
    b, c_in, *sizes = x.shape
    c_out, places, (height, width) = kernel.shape[1], math.prod(sizes), window.result
    rows = c_out * kernel_places
    weights = _matrix(_in_compute(kernel), (c_in, rows))
    turned = weights.relaid((rows, c_in), weights.strides[::-1])
    together = min(max(_MOST_COLUMNS // (rows * places * compute.itemsize), 1), b)
    # The row, the column, and the plane of the first column.
    plane = kernel_places * places
    strides = ((0, 0, 1, 0), (0, 0, 0, 1), (c_out * plane, plane, 0, 0))
    for start in range(0, b, together):
        count = min(together, b - start)
        images = _in_compute(Operand(x.storage, x.layout.narrow(0, start, count)))
        layout = images.layout.reshape((count, c_in, places))
        pixels = dense(copy.fresh(images), (count, c_in, places)) if layout is None else Operand(images.storage, layout)
        columns = device.allocate(count * rows * places * compute.itemsize)
        multiply(_repeated(turned, count), pixels, (count, rows, places, c_in), columns.address)
        begin = result.memory.address + start * c_out * height * width * x.itemsize
        shape = (count, c_out, height, width)
        for blocks, first, (*_, offset), fields in plane_parts(op, BLOCK, shape, strides, 2):
            packed = arguments.COLUMNS_TO_IMAGE.pack(
                begin + first * x.itemsize,
                columns.address + offset * compute.itemsize,
                *sizes,
                *(*window.kernel, *window.padding, *window.stride, *window.dilation),
                *fields,
            )
            device.kernels.launch("conv", f"col2im_{x.dtype.value}", blocks, packed)


def _in_compute(x: Operand) -> Operand:
    compute = x.dtype.compute
    return x if x.dtype is compute else dense(elementwise.cast(x, compute), x.shape)


def _directly(op: str, x: Operand, kernel: Operand, window: _Window, result: GpuStorage, *, transposed: bool) -> None:
    """Each element of the result by itself, four channels in a thread."""
    b, c_in, *sizes = x.shape
    stride_b, *source_strides = x.strides
    outer, inner, *kernel_strides = kernel.strides
    out, in_ = (inner, outer) if transposed else (outer, inner)
    c_out = kernel.shape[1 if transposed else 0]
    height, width = window.result
    plane = height * width
    step_h, step_w = (1, 1) if transposed else window.stride
    shape = (b, ceil_divide(c_out, _CHANNELS), height, width)
    # The row, the column, the output channel, the source, the kernel and the result.
    row, column, channel = (0, 0, step_h, 0), (0, 0, 0, step_w), (0, _CHANNELS, 0, 0)
    moving = (stride_b, 0, 0, 0), (0, _CHANNELS * out, 0, 0), (c_out * plane, _CHANNELS * plane, width, 1)
    name = f"conv{'_transpose' if transposed else ''}_{x.dtype.value}_direct"
    for blocks, _, offsets, fields in plane_parts(op, BLOCK, shape, (row, column, *moving, channel), 2):
        source, weights, to = [
            begin + offset * x.itemsize
            for begin, offset in zip((x.address, kernel.address, result.memory.address), offsets[2:5], strict=True)
        ]
        # A part that begins at a later channel has so many fewer of them.
        left = c_out - offsets[5]
        packed = arguments.CONVOLVE.pack(
            *(to, source, weights),
            *source_strides,
            *(out, in_, *kernel_strides),
            *(plane, c_in, left),
            *(*sizes, *window.kernel, *window.padding, *window.stride, *window.dilation),
            *fields,
        )
        x.device.kernels.launch("conv", name, blocks, packed)
