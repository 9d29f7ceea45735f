"""Pooling along any dims by its definition: each window by itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .formats import EXTENDED, INTEGERS, Array, decode, wide


@dataclass(frozen=True)
class Axis:
    """Along one dim: element t of window i is at i * stride + t * dilation - padding. Or `count` adaptive windows."""

    size: int
    count: int
    window: int = 1
    padding: int = 0
    stride: int = 1
    dilation: int = 1
    adaptive: bool = False

    def windows(self, include_padding: bool) -> list[tuple[list[int], int]]:
        """The elements of each window, and by how many an average divides."""
        if self.adaptive:
            bounds = [
                (math.floor(i * self.size / self.count), math.ceil((i + 1) * self.size / self.count))
                for i in range(self.count)
            ]
            return [(list(range(*each)), each[1] - each[0]) for each in bounds]
        results = []
        for i in range(self.count):
            every = [i * self.stride + t * self.dilation - self.padding for t in range(self.window)]
            inside = [position for position in every if 0 <= position < self.size]
            counted = [position for position in every if position < self.size + self.padding]
            results.append((inside, len(counted) if include_padding else len(inside)))
        return results


@dataclass(frozen=True)
class Pool:
    """A pool along some dims."""

    axes: tuple[Axis, ...]
    include_padding: bool = True

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(axis.count for axis in self.axes)

    def each(self) -> Iterator[tuple[tuple[int, ...], list[list[int]], int]]:
        """Each window's place, its elements along each dim, and by how many an average divides."""
        for window in itertools.product(*(enumerate(axis.windows(self.include_padding)) for axis in self.axes)):
            indices, chosen = zip(*window, strict=True)
            yield indices, [positions for positions, _ in chosen], math.prod(divisor for _, divisor in chosen)


def _elements(x: Array, positions: list[list[int]]) -> tuple[Array, ...]:
    return np.ix_(*map(range, x.shape[:2]), *positions)


def _flat(window: Array) -> Array:
    return window.reshape(*window.shape[:2], math.prod(window.shape[2:]))


def _place(indices: tuple[int, ...]) -> tuple[slice | int, ...]:
    return (slice(None), slice(None), *indices)


def average(name: str, x: Array, pool: Pool) -> tuple[Array, Array]:
    """The means of windows, and the means of absolute values."""
    x = decode(name, x)
    total, magnitude = (np.zeros((*x.shape[:2], *pool.counts), EXTENDED) for _ in range(2))
    for indices, positions, divisor in pool.each():
        window = _flat(x[_elements(x, positions)])
        with np.errstate(all="ignore"):
            total[_place(indices)] = window.sum(-1) / divisor
            magnitude[_place(indices)] = np.abs(window).sum(-1) / divisor
    return total, magnitude


def average_gradient(name: str, g: Array, pool: Pool) -> tuple[Array, Array]:
    """The gradient of the input, and the sum of the absolute values of what it is made of."""
    g = decode(name, g)
    total, magnitude = (np.zeros((*g.shape[:2], *(axis.size for axis in pool.axes)), EXTENDED) for _ in range(2))
    for indices, positions, divisor in pool.each():
        share = (g[_place(indices)] / divisor).reshape(*g.shape[:2], *[1] * len(indices))
        with np.errstate(all="ignore"):
            total[_elements(total, positions)] += share
            magnitude[_elements(total, positions)] += np.abs(share)
    return total, magnitude


def maximum(name: str, x: Array, pool: Pool) -> Array:
    """The largest elements; NaN wins, and of no elements it is the lowest number."""
    values = wide(name, x) if name in INTEGERS else decode(name, x)
    lowest = np.iinfo(x.dtype).min if name in INTEGERS else EXTENDED("-inf")
    result = np.zeros((*x.shape[:2], *pool.counts), values.dtype)
    for indices, positions, _ in pool.each():
        window = _flat(values[_elements(x, positions)])
        result[_place(indices)] = np.max(window, -1) if window.shape[-1] else lowest
    return result


def _largest(x: Array, positions: list[list[int]]) -> Array:
    """Where the elements of a window are its largest."""
    window = x[_elements(x, positions)]
    axes = tuple(range(2, x.ndim))
    has_nan = np.isnan(window).any(axes, keepdims=True)
    return np.where(has_nan, np.isnan(window), window == window.max(axes, keepdims=True, initial=EXTENDED("-inf")))


def maximum_gradient(name: str, x: Array, g: Array, pool: Pool) -> tuple[Array, Array]:
    """As `average_gradient`, of elements of which the largest share."""
    x, g = decode(name, x), decode(name, g)
    total, magnitude = np.zeros(x.shape, EXTENDED), np.zeros(x.shape, EXTENDED)
    for indices, positions, _ in pool.each():
        chosen = _largest(x, positions)
        count = chosen.sum(tuple(range(2, x.ndim)), keepdims=True)
        share = g[_place(indices)].reshape(count.shape) / np.maximum(count, 1)
        with np.errstate(all="ignore"):
            total[_elements(x, positions)] += np.where(chosen, share, 0)
            magnitude[_elements(x, positions)] += np.where(chosen, np.abs(share), 0)
    return total, magnitude


def maximum_tangent(name: str, x: Array, tangent: Array, pool: Pool) -> tuple[Array, Array]:
    """The means of the tangents of the largest elements, and of their absolute values."""
    x, tangent = decode(name, x), decode(name, tangent)
    total, magnitude = (np.zeros((*x.shape[:2], *pool.counts), EXTENDED) for _ in range(2))
    axes = tuple(range(2, x.ndim))
    for indices, positions, _ in pool.each():
        chosen = _largest(x, positions)
        count = np.maximum(chosen.sum(axes), 1)
        parts = np.where(chosen, tangent[_elements(x, positions)], 0)
        with np.errstate(all="ignore"):
            total[_place(indices)] = parts.sum(axes) / count
            magnitude[_place(indices)] = np.abs(parts).sum(axes) / count
    return total, magnitude
