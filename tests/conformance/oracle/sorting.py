"""Elements in order, by Python's own sort, which is stable."""

from __future__ import annotations

import math

import numpy as np

from .formats import INTEGERS, Array, decode


def places(name: str, lines: Array, expected: Array, *, right: bool) -> Array:
    """How many elements of its line come before each value; NaN comes last, and -0.0 is 0.0."""
    rows, keys = (each if name in INTEGERS else decode(name, each).astype(np.float64) for each in (lines, expected))
    result = np.zeros(expected.shape, np.int64)
    for index in np.ndindex(expected.shape):
        line = rows if rows.ndim == 1 else rows[index[:-1]]
        x = keys[index]
        before = line <= x if right else line < x
        # Of NaN all numbers are below.
        result[index] = np.sum(before if x == x else (line == line) | right)
    return result


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
