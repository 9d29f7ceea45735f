"""Convolutions and their gradients, each as a product of matrices for each group of channels."""

from __future__ import annotations

import itertools
import math
from typing import Any

from .....array_functors import functors
from .....op import UnaryOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import channels_last_order
from . import cast
from .matmul import multiply, rounded
from .operand import Operand


def convolve(operand: Operand, kernel: Operand, params: Params | ParamsConvolution) -> Any:
    """(b, c_in, ..) with a kernel (c_out, c_in / groups, ..): `params.out_dims`."""
    params, library = params.general, operand.library
    if params.is_empty:
        return operand.result(_zeros(operand, params.out_dims))
    product = rounded(library, _products(operand, kernel, params), operand.dtype)
    return operand.result(_stored(library, product, params))


def fused(
    operand: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Any:
    """activation(convolution * scale + bias + residual), with a scale and a bias for each channel."""
    library, dtype = operand.library, operand.dtype.compute
    if params.is_empty:
        result = library.full(params.out_dims, 0, library.DTYPES[dtype], operand.device.handle)
    else:
        result = _products(operand, kernel, params)
    shape = (1, params.out_dims[1], *[1] * len(params.result_sizes))
    vectors = [
        None if vector is None else library.reshape(cast.convert(library, vector.array, vector.dtype, dtype), shape)
        for vector in (scale, bias)
    ]
    if vectors[0] is not None:
        result = result * vectors[0]
    if vectors[1] is not None:
        result = result + vectors[1]
    if residual is not None:
        result = result + _wide(residual)
    if activation is not None:
        result = functors(library).elementwise[UnaryOp(activation)].of(dtype)(result)
    return operand.result(_stored(library, rounded(library, result, operand.dtype), params))


def _products(operand: Operand, kernel: Operand, params: ParamsConvolution) -> Any:
    """The convolution in the compute dtype."""
    product = multiply(operand.library, _matrices(kernel, params), _columns(operand, params))
    return operand.library.reshape(product, params.out_dims)


def convolve_transposed(operand: Operand, kernel: Operand, params: Params | ParamsConvolution) -> Any:
    """The gradient of the input, which is the transposed convolution of (b, c_out, ..): `params.input_dims`."""
    params, library = params.general, operand.library
    if params.is_empty:
        return operand.result(_zeros(operand, params.input_dims))
    matrices = library.permute_dims(_matrices(kernel, params), (0, 1, 3, 2))
    product = multiply(library, matrices, _grouped(operand, params))
    product = library.reshape(product, (*params.input_dims[:2], *params.kernel, *params.result_sizes))
    total: Any = None
    for taps in itertools.product(*map(range, params.kernel)):
        part = product[(slice(None), slice(None), *taps, ...)]
        steps = zip(taps, params.dilation, params.padding, params.stride, params.sizes, strict=True)
        for axis, (tap, dilation, padding, stride, size) in enumerate(steps, 2):
            part = _placed(library, part, axis, tap * dilation - padding, stride, size)
        total = part if total is None else total + part
    return operand.result(_stored(library, rounded(library, total, operand.dtype), params))


def gradient_weight(operand: Operand, gradient: Operand, params: ParamsConvolution) -> Any:
    """Compute the gradient of the kernel from the input and the gradient of the result: `params.kernel_dims`."""
    library = operand.library
    if params.is_empty:
        return operand.result(_zeros(operand, params.kernel_dims))
    groups, length = params.groups, params.input_dims[0] * math.prod(params.result_sizes)
    rows = library.permute_dims(_grouped(gradient, params), (1, 2, 0, 3))
    columns = library.permute_dims(_columns(operand, params), (1, 0, 3, 2))
    product = multiply(
        library, library.reshape(rows, (groups, -1, length)), library.reshape(columns, (groups, length, -1))
    )
    product = library.reshape(rounded(library, product, operand.dtype), params.kernel_dims)
    return operand.result(_stored(library, product, params))


def _stored(library: Any, x: Any, params: ParamsConvolution) -> Any:
    """A result (b, c, ..) with its dims in the order of memory."""
    return library.permute_dims(x, channels_last_order(x.ndim)) if params.channels_last else x


def _wide(operand: Operand) -> Any:
    return cast.widen(operand.library, operand.array, operand.dtype)


def _matrices(kernel: Operand, params: ParamsConvolution) -> Any:
    """The kernels of each group as a matrix, (b, groups, c_out / groups, c_in / groups * taps)."""
    library, (inner, outer) = kernel.library, params.channels
    shape = params.groups, outer, inner * params.taps
    return library.broadcast_to(library.reshape(_wide(kernel), (1, *shape)), (params.input_dims[0], *shape))


def _grouped(operand: Operand, params: ParamsConvolution) -> Any:
    """View a tensor of the result's shape as (b, groups, c_out / groups, elements of a channel)."""
    batch, sizes = params.input_dims[0], params.result_sizes
    return operand.library.reshape(_wide(operand), (batch, params.groups, params.channels[1], math.prod(sizes)))


def _columns(operand: Operand, params: ParamsConvolution) -> Any:
    """The elements under each tap of the kernel, (b, groups, c_in / groups * taps, elements of a channel)."""
    library, x = operand.library, _wide(operand)
    for axis, (before, after) in enumerate(zip(params.padding, params.padding_after, strict=True), 2):
        edges = [_blank(library, x, (*x.shape[:axis], max(n, 0), *x.shape[axis + 1 :])) for n in (before, after)]
        x = library.concat([edges[0], x, edges[1]], axis) if before or after > 0 else x
    batch, channels = params.input_dims[:2]
    positions = math.prod(params.result_sizes)
    parts = [
        library.reshape(x[(slice(None), slice(None), *window)], (batch, channels, 1, positions))
        for window in itertools.product(*map(_taps, params.result_sizes, params.kernel, params.stride, params.dilation))
    ]
    return library.reshape(
        library.concat(parts, 2), (batch, params.groups, params.channels[0] * params.taps, positions)
    )


def _taps(count: int, taps: int, stride: int, dilation: int) -> list[slice]:
    """By tap along a dim, the elements that `count` windows have under it."""
    return [slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride) for tap in range(taps)]


def _zeros(operand: Operand, shape: tuple[int, ...]) -> Any:
    library = operand.library
    return library.full(shape, 0, library.DTYPES[operand.dtype], operand.device.handle)


def _placed(library: Any, x: Any, axis: int, first: int, stride: int, count: int) -> Any:
    """Elements along an axis at first, first + stride .. of `count`, with zeros between; some may be outside."""
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
