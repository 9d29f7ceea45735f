"""Convolutions, pools and upsampling by their definitions: a loop over the taps of the window."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .exact import exact
from .formats import EXTENDED, INTEGERS, Array, decode, wide, wrap

# The shape of the image, kernel size, stride, and how the image lies.
POOLS: list[tuple[tuple[int, ...], tuple[int, int], tuple[int, int], str]] = [
    ((1, 1, 1, 1), (1, 1), (1, 1), "contiguous"),
    ((2, 3, 6, 8), (2, 2), (2, 2), "contiguous"),
    ((2, 3, 7, 9), (3, 2), (2, 3), "contiguous"),
    ((1, 2, 5, 6), (3, 3), (1, 1), "offset"),
    ((1, 2, 5, 6), (5, 6), (1, 1), "contiguous"),
    ((1, 2, 5, 7), (1, 1), (3, 4), "contiguous"),
    ((2, 3, 6, 7), (2, 3), (2, 1), "transposed"),
    ((2, 3, 6, 7), (2, 3), (1, 2), "rolled"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "narrowed columns"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "broadcast rows"),
    ((2, 3, 6, 7), (3, 2), (2, 2), "broadcast columns"),
    ((1, 3, 20, 33), (2, 2), (2, 2), "contiguous"),
    # Rows of windows that whole accesses fill, where they may and where they may not.
    ((1, 2, 5, 64), (2, 2), (2, 2), "contiguous"),
    ((1, 2, 5, 64), (3, 2), (1, 2), "offset"),
    ((1, 2, 5, 64), (2, 2), (2, 2), "transposed"),
    ((1, 2, 5, 66), (3, 3), (1, 1), "contiguous"),
    # Rows that end within an access, and the last row with them.
    ((1, 3, 6, 30), (2, 2), (2, 2), "contiguous"),
    ((2, 3, 6, 30), (2, 2), (2, 2), "rolled"),
    ((2, 1, 5, 13), (3, 3), (1, 1), "narrowed columns"),
    ((1, 1, 3, 21), (1, 3), (2, 1), "contiguous"),
    ((0, 3, 4, 4), (2, 2), (2, 2), "contiguous"),
    ((2, 0, 4, 4), (2, 2), (2, 2), "contiguous"),
]
# The shape of the input, then the sizes of the result. From 26 to 44, 30 to 22 and 11 to 55 a scale that is rounded, in
# f32, in f64 or as an inverse, finds a neighbour.
NEAREST_1D = [
    ((1, 1, 1), 1),
    ((2, 3, 5), 10),
    ((2, 3, 7), 3),
    ((1, 2, 9), 9),
    ((1, 2, 3), 0),
    ((0, 2, 3), 5),
    ((1, 1, 7), 257),
    ((1, 1, 26), 44),
    ((1, 1, 30), 22),
    ((1, 1, 11), 55),
]
IMAGES = [
    ((1, 1, 1, 1), (1, 1)),
    ((1, 2, 3, 4), (6, 8)),
    ((2, 3, 5, 7), (3, 11)),
    ((1, 2, 6, 5), (1, 2)),
    ((1, 2, 4, 4), (4, 4)),
    ((1, 1, 1, 3), (5, 7)),
    ((2, 1, 9, 11), (13, 17)),
    ((1, 1, 26, 30), (44, 22)),
    ((1, 1, 11, 26), (55, 22)),
    ((1, 2, 3, 4), (0, 3)),
    ((0, 2, 3, 4), (5, 6)),
]
PLACEMENTS = ("contiguous", "offset", "transposed", "rolled", "narrowed columns", "broadcast rows", "broadcast columns")


@dataclass(frozen=True)
class Window:
    """The parameters of a 2-d convolution; a 1-d one is that of an image of height 1."""

    padding: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    output_padding: tuple[int, int] = (0, 0)


def convolve(name: str, image: Array, kernel: Array, window: Window) -> tuple[Array, Array]:
    """(b, c_in, h, w) with (c_out, c_in, kh, kw): sums and sums of absolute values, see reductions.matmul."""
    (pad_h, pad_w), (step_h, step_w), (dil_h, dil_w) = window.padding, window.stride, window.dilation
    batch, _, height, width = image.shape
    channels, _, kernel_h, kernel_w = kernel.shape
    out_h = (height + 2 * pad_h - dil_h * (kernel_h - 1) - 1) // step_h + 1
    out_w = (width + 2 * pad_w - dil_w * (kernel_w - 1) - 1) // step_w + 1
    x, w = _working(name, image), _working(name, kernel)
    x = np.pad(x, ((0, 0), (0, 0), (pad_h, pad_h), (pad_w, pad_w)))
    total = np.zeros((batch, channels, out_h, out_w), x.dtype)
    magnitude = np.zeros_like(total)
    for tap_h, tap_w in itertools.product(range(kernel_h), range(kernel_w)):
        top, left = tap_h * dil_h, tap_w * dil_w
        part = x[:, :, top : top + (out_h - 1) * step_h + 1 : step_h, left : left + (out_w - 1) * step_w + 1 : step_w]
        tap = w[:, :, tap_h, tap_w]
        total = total + np.einsum("bihw,oi->bohw", part, tap)
        magnitude = magnitude + np.einsum("bihw,oi->bohw", np.abs(part), np.abs(tap))
    return _finished(name, total, magnitude)


def convolve_transposed(name: str, image: Array, kernel: Array, window: Window) -> tuple[Array, Array]:
    """(b, c_in, h, w) with (c_in, c_out, kh, kw): every element of the image stamps the kernel on the result."""
    (pad_h, pad_w), (step_h, step_w), (dil_h, dil_w) = window.padding, window.stride, window.dilation
    batch, _, height, width = image.shape
    _, channels, kernel_h, kernel_w = kernel.shape
    full_h = (height - 1) * step_h + dil_h * (kernel_h - 1) + 1 + window.output_padding[0]
    full_w = (width - 1) * step_w + dil_w * (kernel_w - 1) + 1 + window.output_padding[1]
    x, w = _working(name, image), _working(name, kernel)
    total = np.zeros((batch, channels, full_h, full_w), x.dtype)
    magnitude = np.zeros_like(total)
    for tap_h, tap_w in itertools.product(range(kernel_h), range(kernel_w)):
        top, left = tap_h * dil_h, tap_w * dil_w
        tap = w[:, :, tap_h, tap_w]
        rows = slice(top, top + (height - 1) * step_h + 1, step_h)
        columns = slice(left, left + (width - 1) * step_w + 1, step_w)
        total[:, :, rows, columns] += np.einsum("bihw,io->bohw", x, tap)
        magnitude[:, :, rows, columns] += np.einsum("bihw,io->bohw", np.abs(x), np.abs(tap))
    cropped = (slice(None), slice(None), slice(pad_h, full_h - pad_h), slice(pad_w, full_w - pad_w))
    return _finished(name, total[cropped], magnitude[cropped])


def _working(name: str, array: Array) -> Array:
    return wide(name, array) if name in INTEGERS else decode(name, array)


def _finished(name: str, total: Array, magnitude: Array) -> tuple[Array, Array]:
    if name in INTEGERS:
        return wrap(name, total), np.zeros(total.shape, EXTENDED)
    return total, magnitude


def windows_of(image: Array, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Array:
    """(b, c, out_h, out_w, kh * kw): the elements of every window."""
    height = (image.shape[2] - kernel_size[0]) // stride[0] + 1
    width = (image.shape[3] - kernel_size[1]) // stride[1] + 1
    taps = [
        image[
            :,
            :,
            top : top + (height - 1) * stride[0] + 1 : stride[0],
            left : left + (width - 1) * stride[1] + 1 : stride[1],
        ]
        for top, left in itertools.product(range(kernel_size[0]), range(kernel_size[1]))
    ]
    return np.stack(taps, axis=-1)


def avg_pool2d(name: str, image: Array, kernel_size: tuple[int, int], stride: tuple[int, int]) -> tuple[Array, Array]:
    """The means, extended, and the means of absolute values."""
    windows = decode(name, windows_of(image, kernel_size, stride))
    with np.errstate(all="ignore"):
        count = kernel_size[0] * kernel_size[1]
        return windows.sum(axis=-1) / count, np.abs(windows).sum(axis=-1) / count


@exact(
    *({"self": (shape, lie), "kernel_size": size, "stride": stride} for shape, size, stride, lie in POOLS),
    draws=("modest", "mixed"),
    zero_sign=False,
)
def max_pool2d(image: Array, name: str, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Array:
    """The largest elements, in dtype `name`; NaN wins."""
    windows = windows_of(image, kernel_size, stride)
    values = decode(name, windows)
    ranked = np.where(np.isnan(values), EXTENDED("inf"), values)
    # NaN above infinity: sort by (is NaN, value) by giving NaN its own largest rank.
    best = np.where(np.isnan(values).any(axis=-1), np.isnan(values).argmax(axis=-1), ranked.argmax(axis=-1))
    return np.take_along_axis(windows, best[..., None], axis=-1)[..., 0]


def upsample_nearest(image: Array, sizes: tuple[int, ...]) -> Array:
    """(b, c, *spatial) at `sizes`: element i is element floor(i * in / out)."""
    for axis, size in enumerate(sizes, start=2):
        sources = [number * image.shape[axis] // size for number in range(size)]
        image = image.take(np.array(sources, np.int64), axis=axis)
    return image


PLACEMENTS = ("contiguous", "offset", "transposed", "rolled", "narrowed columns", "broadcast rows", "broadcast columns")


@exact(
    *({"self": shape, "size": size} for shape, size in NEAREST_1D),
    *({"self": ((2, 3, 5), lie), "size": 8} for lie in PLACEMENTS),
)
def upsample_nearest1d(signal: Array, size: int) -> Array:
    """(b, c, l) at a size."""
    return upsample_nearest(signal, (size,))


@exact(
    *({"self": shape, "height": height, "width": width} for shape, (height, width) in IMAGES),
    *({"self": ((2, 3, 4, 5), lie), "height": 7, "width": 3} for lie in PLACEMENTS),
)
def upsample_nearest2d(image: Array, height: int, width: int) -> Array:
    """(b, c, h, w) at a height and a width."""
    return upsample_nearest(image, (height, width))


def upsample_bilinear(
    name: str,
    image: Array,
    sizes: tuple[int, int],
    align_corners: bool,
    scales: tuple[float | None, float | None] = (None, None),
) -> tuple[Array, Array]:
    """The interpolated values, extended, and the interpolated absolute values.

    A dim that keeps its size is copied, whatever its scale (compute_source_index_and_lambda in PyTorch's UpSample.h).
    """
    values = decode(name, image)
    magnitude = np.abs(values)
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True), start=2):
        if size == values.shape[axis]:
            continue
        low, high, weight = _source_positions(values.shape[axis], size, align_corners, scale)
        weight = weight.reshape([-1 if dim == axis else 1 for dim in range(4)])
        with np.errstate(invalid="ignore"):
            values = values.take(low, axis=axis) * (1 - weight) + values.take(high, axis=axis) * weight
            magnitude = magnitude.take(low, axis=axis) * (1 - weight) + magnitude.take(high, axis=axis) * weight
    return values, magnitude


def upsample_bicubic(
    name: str,
    image: Array,
    sizes: tuple[int, int],
    align_corners: bool,
    scales: tuple[float | None, float | None] = (None, None),
) -> tuple[Array, Array]:
    """The values of cubic convolution (Keys 1981, a = -0.75), extended, and the sums of magnitudes.

    Beyond the border is the last element (upsample_get_value_bounded in PyTorch's UpSample.h).
    """
    values = decode(name, image)
    magnitude = np.abs(values)
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True), start=2):
        old = values.shape[axis]
        if size == old:
            continue
        position = _positions(old, size, align_corners, scale)
        low = np.minimum(np.floor(position), EXTENDED(old - 1))
        fraction = np.clip(position - low, EXTENDED(0), EXTENDED(1))
        result, sizes_of_terms = EXTENDED(0), EXTENDED(0)
        for step in (-1, 0, 1, 2):
            weight = _keys(np.abs(fraction - step)).reshape([-1 if dim == axis else 1 for dim in range(4)])
            index = np.clip(low + step, 0, old - 1).astype(np.int64)
            with np.errstate(invalid="ignore"):
                result = result + values.take(index, axis=axis) * weight
                sizes_of_terms = sizes_of_terms + magnitude.take(index, axis=axis) * np.abs(weight)
        values, magnitude = result, sizes_of_terms
    return values, magnitude


def _keys(distance: Array) -> Array:
    """The kernel of cubic convolution at distances below 2."""
    a = EXTENDED(-0.75)
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return np.where(distance <= 1, near, a * (distance**3 - 5 * distance**2 + 8 * distance - 4))


def _source_positions(
    size_in: int, size_out: int, align_corners: bool, scale: float | None
) -> tuple[Array, Array, Array]:
    position = np.maximum(_positions(size_in, size_out, align_corners, scale), EXTENDED(0))
    low = np.minimum(np.floor(position), EXTENDED(size_in - 1)).astype(np.int64)
    weight = np.clip(position - low, EXTENDED(0), EXTENDED(1))
    return low, np.minimum(low + 1, size_in - 1), weight


def _positions(size_in: int, size_out: int, align_corners: bool, scale: float | None) -> Array:
    """PyTorch's area_pixel_compute_source_index (aten/src/ATen/native/UpSample.h), not cut off at 0."""
    number = np.arange(size_out).astype(EXTENDED)
    if align_corners:
        return number * (EXTENDED(size_in - 1) / (size_out - 1) if size_out > 1 else EXTENDED(0))
    ratio = 1 / EXTENDED(scale) if scale is not None else EXTENDED(size_in) / max(size_out, 1)
    return (number + EXTENDED(0.5)) * ratio - EXTENDED(0.5)
