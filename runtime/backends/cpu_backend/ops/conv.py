"""Convolutions of one group, each as a matrix product.

A 1-d convolution is a 2-d one of height 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....dtype import Array, DType
from ....core.conv import Params
from ....helpers.host_memory import require_room
from ....host import cast
from ...array_backend.ops.operand import Operand
from .matmul import multiply

# The unfolded input of a convolution repeats each element for every tap of the kernel, so it is made in parts.
_PART_BYTES = 1 << 26

# Integers of any size are multiplied as f64.
_LARGEST_ITEM = 8


def convolve(x: Operand, kernel: Operand, params: Params) -> Any:
    """(b, c_in, h, w) with a kernel (c_out, c_in, kh, kw), or (b, c_in, l) with (c_out, c_in, k): `params.out_dims`."""
    return _computed(_convolve, x, kernel, params)


def convolve_transposed(x: Operand, kernel: Operand, params: Params) -> Any:
    """The same with a kernel (c_in, c_out, kh, kw) or (c_in, c_out, k), of which each element makes a window."""
    return _computed(_spread, x, kernel, params)


def _computed(compute: Callable[..., Array], x: Operand, kernel: Operand, params: Params) -> Any:
    require_room(x.dtype, params.out_dims)
    window = params.window
    images = [each.array if each.array.ndim == 4 else each.array[:, :, None] for each in (x, kernel)]
    return x.result(compute(*images, window.padding, params.stride, params.dilation, window.result, x.dtype))


def _convolve(
    x: Array, kernel: Array, pad: tuple[int, int], stride: int, dilation: int, size: tuple[int, ...], dtype: DType
) -> Array:
    batch, c_in = x.shape[:2]
    c_out, _, k_h, k_w = kernel.shape
    out_h, out_w = size
    result = np.zeros((batch, c_out, out_h, out_w), dtype.compute.numpy)
    taps = c_in * k_h * k_w
    if result.size and taps:
        matrix = cast.widen(kernel, dtype).reshape(c_out, taps)
        windows = _windows(_padded(cast.widen(x, dtype), pad), (k_h, k_w), stride, dilation, size)
        row_bytes = taps * out_w * _LARGEST_ITEM
        rows = min(max(_PART_BYTES // row_bytes, 1), out_h)
        images = max(_PART_BYTES // (row_bytes * out_h), 1)
        for image in range(0, batch, images):
            for row in range(0, out_h, rows):
                part = (slice(image, image + images), slice(None), slice(row, row + rows))
                unfolded = windows[image : image + images, :, :, :, row : row + rows]
                count = len(unfolded)
                product = multiply(matrix, unfolded.reshape(count, taps, -1))
                result[part] = product.reshape(count, c_out, -1, out_w)
    return cast.narrow(result, dtype) if dtype.is_float else result


def _padded(x: Array, pad: tuple[int, int]) -> Array:
    if pad == (0, 0):
        return x
    (rows, columns), (height, width) = pad, x.shape[2:]
    result = np.zeros((*x.shape[:2], height + 2 * rows, width + 2 * columns), x.dtype)
    result[:, :, rows : rows + height, columns : columns + width] = x
    return result


def _windows(x: Array, kernel: tuple[int, int], stride: int, dilation: int, size: tuple[int, ...]) -> Array:
    """The input element under each tap of the kernel for each result: a view (b, c, kh, kw, h, w) of (b, c, h, w)."""
    rows, columns = x.strides[2:]
    strides = (*x.strides[:2], dilation * rows, dilation * columns, stride * rows, stride * columns)
    return np.lib.stride_tricks.as_strided(x, (*x.shape[:2], *kernel, *size), strides, writeable=False)


def _spread(
    x: Array, kernel: Array, pad: tuple[int, int], stride: int, dilation: int, size: tuple[int, ...], dtype: DType
) -> Array:
    batch, c_in, height, width = x.shape
    _, c_out, k_h, k_w = kernel.shape
    # The result with its padding: what the kernel reaches from the last element, or more by output_padding.
    reach = tuple(
        max((count - 1) * stride + dilation * (taps - 1) + 1, edge + out)
        for count, taps, edge, out in zip((height, width), (k_h, k_w), pad, size, strict=True)
    )
    full = np.zeros((batch, c_out, *reach), dtype.compute.numpy)
    if full.size and x.size:
        columns = cast.widen(x, dtype).reshape(batch, c_in, height * width)
        weights = cast.widen(kernel, dtype)
        channels = max(_PART_BYTES // (k_h * k_w * height * width * _LARGEST_ITEM), 1)
        for image in range(batch):
            for channel in range(0, c_out, channels):
                part = slice(channel, channel + channels)
                matrix = weights[:, part].reshape(c_in, -1)
                product = multiply(matrix.T, columns[image]).reshape(-1, k_h, k_w, height, width)
                with np.errstate(all="ignore"):
                    _add_taps(full[image, part], product, stride, dilation)
    rows, places = (slice(edge, edge + out) for edge, out in zip(pad, size, strict=True))
    result = full[:, :, rows, places]
    return cast.narrow(result, dtype) if dtype.is_float else result


def _add_taps(full: Array, product: Array, stride: int, dilation: int) -> None:
    """Add what each tap of the kernel made of each element, (c, kh, kw, h, w), to where it belongs in (c, h, w)."""
    _, k_h, k_w, height, width = product.shape
    for row in range(k_h):
        for column in range(k_w):
            top, left = row * dilation, column * dilation
            bottom, right = top + (height - 1) * stride + 1, left + (width - 1) * stride + 1
            full[:, top:bottom:stride, left:right:stride] += product[:, row, column]
