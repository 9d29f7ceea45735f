"""Convolutions of one group, each as a matrix product.

A 1-d convolution is a 2-d one of height 1.
"""

from __future__ import annotations

from typing import Any

from ....core.conv import Params
from . import cast
from .matmul import multiply, rounded
from .operand import Operand


def _images(operand: Operand) -> Any:
    """The elements in the compute dtype, with a height."""
    library, x = operand.library, operand.array
    wide = cast.widen(library, x, operand.dtype)
    return wide if len(x.shape) == 4 else library.reshape(wide, (*x.shape[:2], 1, x.shape[2]))


def convolve(operand: Operand, kernel: Operand, params: Params) -> Any:
    """(b, c_in, h, w) with a kernel (c_out, c_in, kh, kw), or (b, c_in, l) with (c_out, c_in, k): `params.out_dims`."""
    pad, stride, dilation, size = params.window.padding, params.stride, params.dilation, params.window.result
    library = operand.library
    x, weights = _images(operand), _images(kernel)
    batch, c_in = x.shape[:2]
    c_out, _, k_h, k_w = weights.shape
    out_h, out_w = size
    # An empty product is 0 in each place.
    if 0 in (batch, c_in, c_out, out_h, out_w):
        return operand.result(_zeros(operand, (batch, c_out, out_h, out_w)))
    padded = _surrounded(library, x, pad)
    taps = [
        padded[:, :, row : row + (out_h - 1) * stride + 1 : stride, column : column + (out_w - 1) * stride + 1 : stride]
        for row in range(0, k_h * dilation, dilation)
        for column in range(0, k_w * dilation, dilation)
    ]
    # (b, c_in, kh * kw, h * w): the element under each tap of the kernel for each result.
    windows = library.concat([library.reshape(tap, (batch, c_in, 1, out_h * out_w)) for tap in taps], 2)
    columns = library.reshape(windows, (batch, c_in * k_h * k_w, out_h * out_w))
    matrix = library.broadcast_to(library.reshape(weights, (1, c_out, -1)), (batch, c_out, c_in * k_h * k_w))
    return operand.result(rounded(library, multiply(library, matrix, columns), operand.dtype))


def _surrounded(library: Any, x: Any, pad: tuple[int, int]) -> Any:
    """(.., h, w) with zeros around."""
    for axis, width in zip((2, 3), pad, strict=True):
        if width:
            edge = _blank(library, x, tuple(width if dim == axis else count for dim, count in enumerate(x.shape)))
            x = library.concat([edge, x, edge], axis)
    return x


def _zeros(operand: Operand, shape: tuple[int, ...]) -> Any:
    library = operand.library
    return library.full(shape, 0, library.DTYPES[operand.dtype], operand.device.handle)


def convolve_transposed(operand: Operand, kernel: Operand, params: Params) -> Any:
    """The same with a kernel (c_in, c_out, ..): a convolution of the elements, set apart by zeros, with it flipped."""
    pad, stride, dilation, size = params.window.padding, params.stride, params.dilation, params.window.result
    library = operand.library
    x, weights = _images(operand), _images(kernel)
    batch, c_in, height, width = x.shape
    _, c_out, k_h, k_w = weights.shape
    out_h, out_w = size
    if 0 in (batch, c_in, c_out, height, width, out_h, out_w):
        return operand.result(_zeros(operand, (batch, c_out, out_h, out_w)))
    matrix = library.permute_dims(library.reshape(weights, (c_in, -1)), (1, 0))
    matrix = library.broadcast_to(library.reshape(matrix, (1, -1, c_in)), (batch, c_out * k_h * k_w, c_in))
    product = multiply(library, matrix, library.reshape(x, (batch, c_in, height * width)))
    product = library.reshape(product, (batch, c_out, k_h, k_w, height, width))
    total: Any = None
    for row in range(k_h):
        for column in range(k_w):
            tap = product[:, :, row, column, ...]
            for axis, place, out, edge in ((2, row, out_h, pad[0]), (3, column, out_w, pad[1])):
                tap = _placed(library, tap, axis, place * dilation - edge, stride, out)
            total = tap if total is None else total + tap
    return operand.result(rounded(library, total, operand.dtype))


def _placed(library: Any, x: Any, axis: int, first: int, stride: int, count: int) -> Any:
    """Elements along an axis at places first, first + stride .. of `count`, with zeros between; some may be outside."""
    begin, end = max(-(first // stride), 0), min((count - 1 - first) // stride + 1, x.shape[axis])
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if begin >= end:
        return _blank(library, x, (*before, count, *after))
    every = (slice(None),) * axis
    x = x[(*every, slice(begin, end), ...)]
    first += begin * stride
    size = end - begin
    # Strides may be far longer than the result, where one element is inside.
    if size > 1 and stride > 1:
        gap = _blank(library, x, (*before, size, stride - 1, *after))
        x = library.concat([library.reshape(x, (*before, size, 1, *after)), gap], axis + 1)
        x = library.reshape(x, (*before, size * stride, *after))
        size = (size - 1) * stride + 1
        x = x[(*every, slice(0, size), ...)]
    edges = [_blank(library, x, (*before, length, *after)) for length in (first, count - first - size)]
    return library.concat([edges[0], x, edges[1]], axis)


def _blank(library: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of a shape, in the dtype of x and where it is."""
    return library.broadcast_to(library.reshape(library.constant(0, x), (1,) * len(shape)), shape)
