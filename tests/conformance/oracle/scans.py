"""Scans along a dim, from the first element to the last: a new one is an entry of `SCANS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from ..comparison import sum_bound
from .formats import COMPLEX, EXTENDED, FLOATS, INTEGERS, Array, compute_name, decode, part_name, wrap

# Of a name of a dtype, elements of it and a dim: what those up to each come to, as the result's integers or extended,
# and how far sums in the compute dtype may be off that.
Compute = Callable[[str, Array, int], tuple[Array, Array]]


class Scan(NamedTuple):
    """A scan."""

    compute: Compute
    empty: float | None
    """The result of no elements; None if there is none."""
    draws: tuple[str, ...] = ("modest",)
    """Functions of handlers/scans.py that make elements to test it with."""

    @property
    def directions(self) -> int:
        """How many arguments say which elements join: `reverse`, and `exclusive` where no elements have a result."""
        return 1 if self.empty is None else 2


def _exact(result: Array) -> tuple[Array, Array]:
    return result, np.zeros(result.shape, EXTENDED)


def sums(name: str, values: Array, dim: int) -> tuple[Array, Array]:
    """The sums of the elements 0 to i; integers wrap."""
    if name in INTEGERS:
        return _exact(wrap(name, np.cumsum(values.astype(np.int64), axis=dim)))
    extended = decode(name, values)
    magnitude = np.cumsum(np.abs(extended), axis=dim)
    bound = sum_bound(name, np.where(np.isfinite(magnitude), magnitude, EXTENDED(0)), values.shape[dim])
    # It starts at 0.0, so that none is -0.0.
    return np.cumsum(extended, axis=dim) + 0.0, bound


def products(name: str, values: Array, dim: int) -> tuple[Array, Array]:
    """The products of the elements 0 to i; integers wrap."""
    if name in INTEGERS:
        return _exact(wrap(name, np.cumprod(values.astype(np.int64), axis=dim)))
    result = np.cumprod(decode(name, values), axis=dim)
    # Each multiplication rounds once, and one of complex numbers thrice.
    roundings = (3 if name in COMPLEX else 1) * values.shape[dim] * EXTENDED(2) ** -FLOATS[part_name(name)].precision
    return result, np.abs(np.where(np.isfinite(result), result, 0)) * roundings


def extremes(ufunc: np.ufunc, name: str, values: Array, dim: int) -> tuple[Array, Array]:
    """The smallest or the largest of the elements 0 to i; NaN wins."""
    if name in INTEGERS:
        return _exact(ufunc.accumulate(values, axis=dim))
    return _exact(ufunc.accumulate(decode(name, values), axis=dim))


def sums_of_exponentials(name: str, values: Array, dim: int) -> tuple[Array, Array]:
    """The logarithms of the sums of the exponentials of the elements 0 to i."""
    result = np.logaddexp.accumulate(decode(name, values), axis=dim)
    # An error of a sum, relative to it, is one of its logarithm. Libraries round logarithms of parts.
    rounding = np.abs(np.where(np.isfinite(result), result, 0)) * EXTENDED(2) ** -FLOATS[compute_name(name)].precision
    count = values.shape[dim]
    return result, 4 * sum_bound(name, np.ones_like(result), count) + np.log2(count + 1) * rounding


SCANS: Final[dict[str, Scan]] = {
    "cumsum": Scan(sums, 0),
    "cumprod": Scan(products, 1, ("powers_of_two", "near_one")),
    "cummax": Scan(partial(extremes, np.maximum), None, ("few_values", "mixed")),
    "cummin": Scan(partial(extremes, np.minimum), None, ("few_values", "mixed")),
    "logcumsumexp": Scan(sums_of_exponentials, -np.inf, ("modest", "spread")),
}


def scanned(op: str, name: str, values: Array, dim: int, *, reverse: bool, exclusive: bool) -> tuple[Array, Array]:
    """Return a scan's result, as integers or extended, and the bound of the error of sums."""
    scan = SCANS[op]
    with np.errstate(all="ignore"):
        output = scan.compute(name, np.flip(values, dim) if reverse else values, dim)
    if exclusive:
        output = _shifted(output[0], scan.empty, dim), _shifted(output[1], 0, dim)
    return (np.flip(output[0], dim), np.flip(output[1], dim)) if reverse else output


def _shifted(results: Array, first: float | None, dim: int) -> Array:
    """Return the exclusive results of a scan."""
    shape = (*results.shape[:dim], 1, *results.shape[dim + 1 :])
    return np.concatenate([np.full(shape, first, results.dtype), results], dim).take(range(results.shape[dim]), dim)


def positions(name: str, values: Array, actual: Array, dim: int, *, reverse: bool) -> Array:
    """Where the elements that are `found`, as a scan gives them, are: the last of equals, and the first NaN."""
    numbers = values if name in INTEGERS else decode(name, values)
    numbers, actual = (np.flip(each, dim) if reverse else each for each in (numbers, actual))
    length = numbers.shape[dim]
    order = np.expand_dims(np.arange(length), [at for at in range(numbers.ndim) if at != dim])
    is_nan = numbers != numbers
    # Behind the first NaN nothing is found.
    is_found = np.where(is_nan, np.cumsum(is_nan, axis=dim) == 1, numbers == actual)
    last = np.maximum.accumulate(np.where(is_found, order, 0), axis=dim)
    return (np.flip(length - 1 - last, dim) if reverse else last).astype(np.uint32)
