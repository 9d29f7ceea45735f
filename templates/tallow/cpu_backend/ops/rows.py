"""Reductions of the last axis of a 2-d array."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...dtype import Array, DType
from .array import contiguous

# Rows up to this long are reduced column by column where there are more of them.
_SHORT = 16


class Monoid(NamedTuple):
    """A reduction that joins what the elements contribute, beginning with the identity where that is a number."""

    combine: np.ufunc
    identity: float | None
    element: Callable[..., Array] | None
    """Makes what an element contributes, which may depend on the result of `given`."""
    accumulate: DType | None
    """The dtype in which floats are joined; None for their own."""
    result: DType | None
    """The dtype of the result, where it is not that of the elements."""
    finish: Callable[..., Array] | None
    """Makes the result of what so many elements contribute together, and of parameters."""
    given: "Monoid | None"

    def __call__(self, x: Array, *parameters: Array) -> Array:
        """The result of each row."""
        joined = self._joined(x)
        return joined if self.finish is None else self.finish(joined, x.shape[1], *parameters)

    def _joined(self, x: Array) -> Array:
        if self.element is not None:
            x = self.element(x) if self.given is None else self.element(x, self.given(x)[:, None])
            x = x.view(np.uint8) if x.dtype == np.bool_ else x
        if self.result is not None:
            x = x.astype(self.result.compute.numpy, copy=False)
        dtype = self.accumulate.numpy if self.accumulate is not None and x.dtype.kind == "f" else x.dtype
        if self.combine is np.add:
            x = _near(x)
        rows, columns = x.shape
        if not 0 < columns <= _SHORT < rows:
            begin = {} if self.identity is None else {"initial": dtype.type(self.identity)}
            return np.asarray(self.combine.reduce(x, axis=1, dtype=dtype, **begin))
        # NumPy takes one row at a time, which short ones are too many for.
        result = x[:, 0].astype(dtype)
        if self.identity is not None:
            self.combine(result, dtype.type(self.identity), out=result)
        for column in range(1, columns):
            self.combine(result, x[:, column], out=result)
        return result


class Position(NamedTuple):
    """A reduction that says where its element is: the first of equals, and the first NaN before any number."""

    find: Callable[..., Array]

    def __call__(self, x: Array) -> Array:
        """The u32 position in each row."""
        return np.asarray(self.find(contiguous(x), axis=1)).astype(np.uint32)


def _near(x: Array) -> Array:
    """An f64 array of the same sums whose rows are neighbours in memory: NumPy sums pairwise only along such."""
    while x.dtype == np.float64 and x.strides[1] != x.itemsize and x.shape[1] > 1:
        half, is_odd = divmod(x.shape[1], 2)
        sums = x[:, :half] + x[:, half : 2 * half]
        sums[:, :is_odd] += x[:, 2 * half :]
        x = sums
    return x
