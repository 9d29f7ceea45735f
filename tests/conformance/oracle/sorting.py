"""Elements in order, by Python's own sort, which is stable."""

from __future__ import annotations

import math

import numpy as np

from .formats import INTEGERS, Array, decode


def argsort(name: str, values: Array, *, descending: bool) -> Array:
    """The positions along the last dim: NaN comes last, and -0.0 is 0.0."""
    # A float of 64 bits has all numbers of the float dtypes, and Python all integers.
    exact = values if name in INTEGERS else decode(name, values).astype(np.float64)
    result = np.zeros(values.shape, np.uint32)
    for line in np.ndindex(values.shape[:-1]):
        numbers = np.atleast_1d(exact[line]).tolist()
        keys = [(True, 0) if math.isnan(x) else (False, -x if descending else x) for x in numbers]
        result[line] = sorted(range(len(keys)), key=keys.__getitem__) if values.ndim else 0
    return result
