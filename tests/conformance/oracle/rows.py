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


ROWS: Final[Mapping[str, Callable[..., Array]]] = {"softmin": softmin}
