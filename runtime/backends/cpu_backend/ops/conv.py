"""Convolutions and their gradients by NumPy, each as a product of matrices for each group of channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .....array_functors import functors
from .....dtype import Array
from .....op import UnaryOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import channels_last_order
from ....helpers.host_memory import require_memory
from ....host import cast
from ...array_backend.ops.operand import Operand
from .matmul import multiply

# The unfolded input of a convolution repeats each element for every tap of the kernel, so it is computed in parts.
_PART_BYTES = 1 << 26

# Integers of any size are multiplied as f64.
_LARGEST_ITEM = 8


def convolve(x: Operand, kernel: Operand, params: Params | ParamsConvolution) -> Any:
    """(b, c_in, ..) with a kernel (c_out, c_in / groups, ..): `params.out_dims`."""
    return _rounded(x, _products(x, kernel, params.general), params.general)


def fused(
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Any:
    """activation(convolution * scale + bias + residual), with a scale and a bias for each channel."""
    result, dtype = _products(x, kernel, params), x.dtype.compute
    shape = (-1, *[1] * len(params.result_sizes))
    with np.errstate(all="ignore"):
        if scale is not None:
            result *= cast.astype(scale.array, dtype.numpy).reshape(shape)
        if bias is not None:
            result += cast.astype(bias.array, dtype.numpy).reshape(shape)
        if residual is not None:
            result += cast.widen(residual.array, residual.dtype)
        if activation is not None:
            result = functors(x.library).elementwise[UnaryOp(activation)].of(dtype)(result)
    return _rounded(x, result, params)


def _products(x: Operand, kernel: Operand, params: ParamsConvolution) -> Array:
    """The convolution in the compute dtype."""
    require_memory(x.dtype, params.out_dims)
    result = np.zeros(params.out_dims, x.dtype.compute.numpy)
    if not params.is_empty:
        matrices = _matrices(kernel, params)
        for images, rows, columns in _parts(_padded(x, params), params):
            part = result[images, :, rows]
            part[...] = multiply(matrices, columns).reshape(part.shape)
    return result


def convolve_transposed(x: Operand, kernel: Operand, params: Params | ParamsConvolution) -> Any:
    """The gradient of the input, which is the transposed convolution of (b, c_out, ..): `params.input_dims`."""
    params = params.general
    require_memory(x.dtype, params.input_dims)
    batch, channels = params.input_dims[:2]
    reach = [
        before + size + max(after, 0)
        for before, size, after in zip(params.padding, params.sizes, params.padding_after, strict=True)
    ]
    full = np.zeros((batch, params.groups, params.channels[0], *reach), x.dtype.compute.numpy)
    if not params.is_empty:
        gradients = _grouped(x, params)
        matrices = _matrices(kernel, params).reshape(params.groups, params.channels[1], params.channels[0], params.taps)
        positions = math.prod(params.result_sizes)
        most = max(_PART_BYTES // (params.groups * params.taps * positions * _LARGEST_ITEM), 1)
        for image, first in itertools.product(range(batch), range(0, params.channels[0], most)):
            part = full[image, :, first : first + most]
            rows = matrices[:, :, first : first + most].reshape(params.groups, params.channels[1], -1)
            product = multiply(rows.swapaxes(1, 2), gradients[image])
            _add_taps(part, product.reshape(*part.shape[:2], *params.kernel, *params.result_sizes), params)
    inside = [slice(before, before + size) for before, size in zip(params.padding, params.sizes, strict=True)]
    return _rounded(x, full.reshape(batch, channels, *reach)[:, :, *inside], params)


def gradient_weight(x: Operand, gradient: Operand, params: ParamsConvolution) -> Any:
    """Compute the gradient of the kernel from the input and the gradient of the result: `params.kernel_dims`."""
    require_memory(x.dtype, params.kernel_dims)
    inner, outer = params.channels
    total = np.zeros((params.groups, outer, inner * params.taps), x.dtype.compute.numpy)
    if not params.is_empty:
        gradients = cast.widen(gradient.array, gradient.dtype)
        for images, rows, columns in _parts(_padded(x, params), params):
            part = gradients[images, :, rows].reshape(len(columns), params.groups, outer, -1)
            with np.errstate(all="ignore"):
                total += multiply(part, columns.swapaxes(2, 3)).sum(0, dtype=total.dtype)
    return _rounded(x, total.reshape(params.kernel_dims), params)


def _rounded(x: Operand, result: Array, params: ParamsConvolution) -> Any:
    """A result (b, c, ..) in the dtype and with its dims in the order of memory."""
    if params.channels_last:
        result = result.transpose(channels_last_order(result.ndim))
    return x.result(cast.narrow(result, x.dtype) if x.dtype.is_float else result)


def _matrices(kernel: Operand, params: ParamsConvolution) -> Array:
    """The kernels of each group as a matrix, (groups, c_out / groups, c_in / groups * taps)."""
    inner, outer = params.channels
    return cast.widen(kernel.array, kernel.dtype).reshape(params.groups, outer, inner * params.taps)


def _grouped(x: Operand, params: ParamsConvolution) -> Array:
    """View a tensor of the result's shape as (b, groups, c_out / groups, elements of a channel)."""
    wide = cast.widen(x.array, x.dtype)
    return wide.reshape(len(wide), params.groups, params.channels[1], math.prod(params.result_sizes))


def _padded(x: Operand, params: ParamsConvolution) -> Array:
    """The input with zeros as far as windows reach."""
    wide = cast.widen(x.array, x.dtype)
    edges = [(before, max(after, 0)) for before, after in zip(params.padding, params.padding_after, strict=True)]
    return np.pad(wide, [(0, 0), (0, 0), *edges]) if any(map(any, edges)) else wide


def _parts(x: Array, params: ParamsConvolution) -> Iterator[tuple[slice, slice, Array]]:
    """Some images, some positions along the first dim of them, and what is under the taps of the kernel there.

    The elements under taps are (images, groups, c_in / groups * taps, elements of a channel).
    """
    outer, inner = x.strides[:2], x.strides[2:]
    taps = [step * stride for step, stride in zip(params.dilation, inner, strict=True)]
    steps = [step * stride for step, stride in zip(params.stride, inner, strict=True)]
    shape = (*x.shape[:2], *params.kernel, *params.result_sizes)
    windows = np.lib.stride_tricks.as_strided(x, shape, (*outer, *taps, *steps), writeable=False)
    axis = 2 + len(params.kernel)
    row_bytes = math.prod(shape[1:axis]) * math.prod(shape[axis + 1 :]) * _LARGEST_ITEM
    max_rows = min(max(_PART_BYTES // row_bytes, 1), shape[axis])
    max_images = max(_PART_BYTES // (row_bytes * shape[axis]), 1)
    for image, row in itertools.product(range(0, len(x), max_images), range(0, shape[axis], max_rows)):
        images, rows = slice(image, image + max_images), slice(row, row + max_rows)
        part = windows[images, *[slice(None)] * (axis - 1), rows]
        yield images, rows, part.reshape(len(part), params.groups, params.channels[0] * params.taps, -1)


def _add_taps(full: Array, product: Array, params: ParamsConvolution) -> None:
    """Add the products of each tap of the kernel and each element, (g, c, *taps, *sizes), to (g, c, ..)."""
    steps = list(zip(params.dilation, params.stride, params.result_sizes, strict=True))
    for taps in itertools.product(*map(range, params.kernel)):
        begins = [tap * dilation for tap, (dilation, _, _) in zip(taps, steps, strict=True)]
        window = tuple(
            slice(begin, begin + (count - 1) * stride + 1, stride)
            for begin, (_, stride, count) in zip(begins, steps, strict=True)
        )
        part: Array = full[:, :, *window]
        chosen: tuple[int | slice, ...] = (slice(None), slice(None), *taps)
        with np.errstate(all="ignore"):
            np.add(part, product[chosen], out=part)
