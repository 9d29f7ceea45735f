"""Functions of the elements of a row and of reductions over it, along the last axis, in extended precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from .formats import Array


def softmin(x: Array, temperature: float) -> Array:
    """The exponentials of -x / temperature, which add up to 1."""
    powers = np.exp(-x / temperature - (-x / temperature).max(axis=-1, keepdims=True, initial=-np.inf))
    made: Array = powers / powers.sum(axis=-1, keepdims=True)
    return made


def normalize(x: Array, eps: float) -> Array:
    """Vectors of length 1, unless they are shorter than eps."""
    lengths = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    normalized: Array = x / np.where(lengths.real <= eps, eps, lengths)
    return normalized


ROWS: Final[Mapping[str, Callable[..., Array]]] = {"normalize": normalize, "softmin": softmin}
