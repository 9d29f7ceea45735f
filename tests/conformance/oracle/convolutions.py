"""Convolutions along any dims, in groups, and their gradients: a loop over the elements of the kernel.

Each gives sums and sums of absolute values, see reductions.matmul.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from . import functions
from .formats import EXTENDED, INTEGERS, Array, decode, wide, wrap


@dataclass(frozen=True)
class Geometry:
    """Element i of the result meets t of the kernel, and the input at i * stride + t * dilation - padding."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def taps(self) -> Iterator[tuple[tuple[int, ...], list[Array], Array]]:
        """The elements of the kernel, with the input's indexes along each dim, and whether they are inside."""
        for tap in itertools.product(*map(range, self.kernel)):
            indices = [
                np.arange(count) * stride + t * dilation - padding
                for t, count, stride, dilation, padding in zip(
                    tap, self.result, self.stride, self.dilation, self.padding, strict=True
                )
            ]
            inside = np.ones(self.result, bool)
            for axis, (index, size) in enumerate(zip(indices, self.sizes, strict=True)):
                along = (index >= 0) & (index < size)
                inside &= along.reshape([-1 if dim == axis else 1 for dim in range(len(indices))])
            clipped = [np.clip(index, 0, max(size - 1, 0)) for index, size in zip(indices, self.sizes, strict=True)]
            yield tap, clipped, inside


def _under(x: Array, indices: list[Array], inside: Array) -> Array:
    """The elements of (b, c, ..) at indexes along each dim, and zeros where these are outside."""
    if not x.size:
        return np.zeros((*x.shape[:2], *inside.shape), x.dtype)
    result = x[(slice(None), slice(None), *np.ix_(*indices))]
    return np.where(inside, result, np.zeros((), x.dtype))


def forward(name: str, x: Array, kernel: Array, geometry: Geometry) -> tuple[Array, Array]:
    """(b, c_in, ..) with (c_out, c_in / groups, ..): the zeros around the input take part."""
    x, kernel = _working(name, x), _working(name, kernel)
    groups, (outer, inner) = geometry.groups, kernel.shape[:2]
    totals = [np.zeros((len(x), groups, outer // groups, *geometry.result), x.dtype) for _ in range(2)]
    for tap, indices, inside in geometry.taps():
        part = _under(x, indices, inside).reshape(len(x), groups, inner, *geometry.result)
        weights = kernel[(slice(None), slice(None), *tap)].reshape(groups, outer // groups, inner)
        for total, change in zip(totals, (lambda a: a, np.abs), strict=True):
            total += np.einsum("bgi...,goi->bgo...", change(part), change(weights))
    return _finished(name, *(total.reshape(len(x), outer, *geometry.result) for total in totals))


ACTIVATIONS: dict[str | None, Callable[[Array], Array]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
    "hardswish": functions.hardswish,
    "silu": functions.silu,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def epilogue(
    actual: tuple[Array, Array], scale: Array | None, bias: Array | None, residual: Array | None, activation: str | None
) -> tuple[Array, Array]:
    """activation(total * scale + bias + residual) of a convolution, and the magnitude of its terms."""
    total, magnitude = actual
    shape = (-1, *[1] * (total.ndim - 2))
    if scale is not None:
        total, magnitude = total * scale.reshape(shape), magnitude * np.abs(scale).reshape(shape)
    for term in (None if bias is None else bias.reshape(shape), residual):
        if term is not None:
            total, magnitude = total + term, magnitude + np.abs(term)
    with np.errstate(over="ignore"):
        result = ACTIVATIONS[activation](total)
    # What is no selection is rounded as its terms are.
    return result, magnitude if activation in (None, "relu", "relu6") else magnitude + np.abs(result)


def of_input(name: str, g: Array, kernel: Array, geometry: Geometry) -> tuple[Array, Array]:
    """The gradient of the input: every element of that of the result stamps the kernel on it."""
    g, kernel = _working(name, g), _working(name, kernel)
    groups, (outer, inner) = geometry.groups, kernel.shape[:2]
    totals = [np.zeros((len(g), groups * inner, *geometry.sizes), g.dtype) for _ in range(2)]
    grouped = g.reshape(len(g), groups, outer // groups, *geometry.result)
    for tap, indices, inside in geometry.taps():
        weights = kernel[(slice(None), slice(None), *tap)].reshape(groups, outer // groups, inner)
        chosen = [np.unique(grid[inside]) for grid in np.meshgrid(*indices, indexing="ij")]
        for total, change in zip(totals, (lambda a: a, np.abs), strict=True):
            stamp = np.einsum("bgo...,goi->bgi...", change(grouped), change(weights))
            flat = stamp.reshape(*total.shape[:2], *geometry.result)[:, :, inside]
            where = (slice(None), slice(None), *np.ix_(*chosen))
            total[where] += flat.reshape(*total.shape[:2], *map(len, chosen))
    return _finished(name, *totals)


def of_weight(name: str, x: Array, g: Array, geometry: Geometry) -> tuple[Array, Array]:
    """The gradient of the kernel: of each element a sum over the images and the result."""
    x, g = _working(name, x), _working(name, g)
    groups, inner, outer = geometry.groups, x.shape[1] // geometry.groups, g.shape[1]
    totals = [np.zeros((outer, inner, *geometry.kernel), x.dtype) for _ in range(2)]
    count = math.prod(geometry.result)
    grouped = g.reshape(len(g), groups, outer // groups, count)
    for tap, indices, inside in geometry.taps():
        part = _under(x, indices, inside).reshape(len(x), groups, inner, count)
        for total, change in zip(totals, (lambda a: a, np.abs), strict=True):
            products = np.einsum("bgop,bgip->goi", change(grouped), change(part))
            total[(slice(None), slice(None), *tap)] = products.reshape(outer, inner)
    return _finished(name, *totals)


def _working(name: str, array: Array) -> Array:
    return wide(name, array) if name in INTEGERS else decode(name, array)


def _finished(name: str, total: Array, magnitude: Array) -> tuple[Array, Array]:
    if name in INTEGERS:
        return wrap(name, total), np.zeros(total.shape, EXTENDED)
    return total, magnitude
