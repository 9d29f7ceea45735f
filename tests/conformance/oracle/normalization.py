"""Normalisation of channels (b, c, s), or (b, s, c) where `dim` is 2.

Each function gives extended results, and how much each may be off besides its units in the last place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .formats import EXTENDED, Array, decode
from .network import epsilon

Bounded = tuple[Array, Array]


class Groups(NamedTuple):
    """The groups of channels that have a mean and a variance each."""

    groups: int
    dim: int
    whole_batch: bool

    def split(self, x: Array) -> Array:
        """Elements as (b, groups, channels, s)."""
        x = x if self.dim == 1 else x.swapaxes(1, 2)
        return x.reshape(x.shape[0], self.groups, x.shape[1] // max(self.groups, 1), x.shape[2])

    def joined(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])
        return x if self.dim == 1 else x.swapaxes(1, 2)

    def mean(self, x: Array) -> Array:
        """The mean of each group."""
        axes = (0, 2, 3) if self.whole_batch else (2, 3)
        count = EXTENDED(np.prod([x.shape[axis] for axis in axes]))
        return x.sum(axis=axes, keepdims=True) / count

    def vector(self, name: str, values: Array | None, absent: float) -> Array:
        """A number for each channel, beside the elements."""
        if values is None:
            return np.full((1, 1, 1, 1), absent, EXTENDED)
        return decode(name, values).reshape(1, self.groups, -1, 1)


def normalized(
    name: str, x: Array, weight: tuple[str, Array] | None, bias: tuple[str, Array] | None, groups: Groups, eps: float
) -> tuple[Bounded, Bounded, Bounded]:
    """(x - mean) / sqrt(variance + eps) * weight + bias, the mean and the biased variance."""
    value = groups.split(decode(name, x))
    with np.errstate(all="ignore"):
        mean = groups.mean(value)
        variance = groups.mean((value - mean) ** 2)
        scale = groups.vector(*(weight or ("f64", None)), 1.0) / np.sqrt(variance + EXTENDED(np.float64(eps)))
        scaled = (value - mean) * scale
        result = scaled + groups.vector(*(bias or ("f64", None)), 0.0)
        terms = np.log2(EXTENDED(max(x.size, 2))) + 8
        magnitude = groups.mean(np.abs(value))
        off = np.abs(scaled) * terms + np.abs(scale) * (np.abs(value) + magnitude * terms) + np.abs(result)
        spread = terms * (variance + magnitude * np.sqrt(variance))
    rounding = epsilon(name)
    return (
        (groups.joined(result), np.nan_to_num(rounding * groups.joined(off))),
        (mean.reshape(-1, groups.groups), np.nan_to_num(rounding * (terms * magnitude).reshape(-1, groups.groups))),
        (variance.reshape(-1, groups.groups), np.nan_to_num(rounding * spread.reshape(-1, groups.groups))),
    )


def gradients(
    name: str,
    x: Array,
    weight: tuple[str, Array] | None,
    statistics: tuple[tuple[str, Array], tuple[str, Array]],
    gradient: Array,
    groups: Groups,
    eps: float,
) -> tuple[Bounded, Bounded, Bounded]:
    """Those of the elements, the weight and the bias, from the mean and the variance as they are given."""
    value, incoming = groups.split(decode(name, x)), groups.split(decode(name, gradient))
    shape = (-1, groups.groups, 1, 1)
    mean, variance = [decode(*each).reshape(shape) for each in statistics]
    with np.errstate(all="ignore"):
        root = 1 / np.sqrt(variance + EXTENDED(np.float64(eps)))
        normal = (value - mean) * root
        part = incoming * groups.vector(*(weight or ("f64", None)), 1.0)
        result = root * (part - groups.mean(part) - normal * groups.mean(part * normal))
        terms = np.log2(EXTENDED(max(x.size, 2))) + 8
        sizes = np.abs(part) + groups.mean(np.abs(part)) + np.abs(normal) * groups.mean(np.abs(part * normal))
        axes = (0, 3)
        of_weight, of_bias = [
            (each.sum(axis=axes), np.abs(each).sum(axis=axes)) for each in (incoming * normal, incoming)
        ]
    rounding = epsilon(name) * terms
    return (
        (groups.joined(result), np.nan_to_num(rounding * groups.joined(root * sizes))),
        (of_weight[0].reshape(-1), np.nan_to_num(rounding * of_weight[1].reshape(-1))),
        (of_bias[0].reshape(-1), np.nan_to_num(rounding * of_bias[1].reshape(-1))),
    )


def by_statistics(
    name: str,
    x: Array,
    statistics: tuple[tuple[str, Array], tuple[str, Array]],
    weight: tuple[str, Array] | None,
    bias: tuple[str, Array] | None,
    dim: int,
    eps: float,
) -> Bounded:
    """(x - mean) / sqrt(variance + eps) * weight + bias, with a mean and a variance given for each channel."""
    groups = Groups(x.shape[dim], dim, True)
    value = groups.split(decode(name, x))
    mean, variance = [groups.vector(*each, 0.0) for each in statistics]
    with np.errstate(all="ignore"):
        scaled = (value - mean) / np.sqrt(variance + EXTENDED(np.float64(eps)))
        scaled = scaled * groups.vector(*(weight or ("f64", None)), 1.0)
        result = scaled + groups.vector(*(bias or ("f64", None)), 0.0)
        off = 8 * np.abs(scaled) + np.abs(result)
    return groups.joined(result), np.nan_to_num(epsilon(name) * groups.joined(off))


def moved(name: str, old: Array, new: Array, compute: str, share: float, factor: float) -> Bounded:
    """A running statistic that takes a share of a new one times a factor."""
    kept, added = decode(name, old) * EXTENDED(1 - share), decode(compute, new) * EXTENDED(share) * EXTENDED(factor)
    return kept + added, 4 * epsilon(name) * (np.abs(kept) + np.abs(added))
