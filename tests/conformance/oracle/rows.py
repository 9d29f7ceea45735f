"""Functions of the elements of a row and of reductions over it, along the last axis, in extended precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from .formats import Array


def softmin(x: Array, temperature: float) -> Array:
    """The exponentials of -x / temperature, which add up to 1."""
    powers = np.exp(-x / temperature - (-x / temperature).max(axis=-1, keepdims=True, initial=-np.inf))
    result: Array = powers / powers.sum(axis=-1, keepdims=True)
    return result


def normalize(x: Array, eps: float) -> Array:
    """Vectors of length 1, unless they are shorter than eps."""
    lengths = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    normalized: Array = x / np.where(lengths.real <= eps, eps, lengths)
    return normalized


def norm(x: Array) -> Array:
    """The lengths of vectors."""
    lengths: Array = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return lengths


def var(x: Array, correction: float) -> Array:
    """The sums of squared distances from the mean, over the number of elements less a correction."""
    distances = x - x.mean(axis=-1, keepdims=True)
    variances: Array = (distances * distances).sum(axis=-1, keepdims=True) / max(x.shape[-1] - correction, 0)
    return variances


def std(x: Array, correction: float) -> Array:
    """The square roots of variances."""
    deviations: Array = np.sqrt(var(x, correction))
    return deviations


def logsumexp(x: Array) -> Array:
    """The logarithms of the sums of the exponentials."""
    largest = x.real.max(axis=-1, keepdims=True, initial=-np.inf)
    sums: Array = largest + np.log(np.exp(x - largest).sum(axis=-1, keepdims=True))
    return sums


ROWS: Final[Mapping[str, Callable[..., Array]]] = {"normalize": normalize, "softmin": softmin}
# Those of which only the gradients are ops of rows.
REDUCTIONS: Final[Mapping[str, Callable[..., Array]]] = {"norm": norm, "var": var, "std": std, "logsumexp": logsumexp}
