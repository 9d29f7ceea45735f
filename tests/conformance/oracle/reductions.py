"""Reductions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from . import complex_numbers
from .formats import COMPLEX, EXTENDED, FLOATS, INTEGERS, NUMPY, Array, compute_name, decode, encode, wrap

# The reductions that are sums: what each element adds, as an integer or extended.
TERMS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda x: x,
}


def sum_exact(name: str, values: Array, dims: Sequence[int], op: str = "sum") -> tuple[Array, Array]:
    """The sum over `dims`, kept with size 1, and that of absolute values; extended, or wrapped integers and zeros."""
    axes = tuple(dims)
    if name in INTEGERS:
        with np.errstate(over="ignore"):
            terms = TERMS[op](values.astype(np.int64))
        total = wrap(name, terms.sum(axis=axes, keepdims=True, dtype=np.int64))
        return total, np.zeros(total.shape, EXTENDED)
    with np.errstate(all="ignore"):
        extended = TERMS[op](decode(name, values))
        total = np.asarray(extended.sum(axis=axes, keepdims=True))
        return total, np.asarray(np.abs(extended).sum(axis=axes, keepdims=True, dtype=EXTENDED))


def mean_exact(name: str, values: Array, dims: Sequence[int]) -> tuple[Array, Array]:
    """The mean over `dims`, kept with size 1, and that of absolute values, extended; NaN of nothing."""
    total, magnitude = sum_exact(name, values, dims)
    count = math.prod(values.shape[dim] for dim in dims)
    with np.errstate(all="ignore"):
        if name in COMPLEX:
            return complex_numbers.scaled(total, 1 / EXTENDED(count)), magnitude / EXTENDED(count)
        return total / EXTENDED(count), magnitude / EXTENDED(count)


def norm_exact(name: str, values: Array, dims: Sequence[int]) -> Array:
    """The square root of the sum of squares over `dims`, kept with size 1, extended."""
    with np.errstate(all="ignore"):
        squares = np.square(decode(name, values))
        return np.sqrt(np.asarray(squares.sum(axis=tuple(dims), keepdims=True, dtype=EXTENDED)))


def variance(name: str, values: Array, dims: Sequence[int], correction: float) -> tuple[Array, Array]:
    """The variance over `dims`, kept with size 1, extended, and what sums in the compute dtype may be off; not the
    rounding of the result. NaN of too few elements.
    """
    extended, axes = decode(name, values), tuple(dims)
    count = EXTENDED(math.prod(values.shape[dim] for dim in dims))
    off = EXTENDED(2) ** -FLOATS[compute_name(name)].precision * (np.log2(max(count, 1)) + 8)
    with np.errstate(all="ignore"):
        magnitude = np.abs(extended).sum(axis=axes, keepdims=True) / count
        distances = extended - extended.sum(axis=axes, keepdims=True) / count
        squares = np.asarray(np.square(distances).sum(axis=axes, keepdims=True))
        mean = squares / count
        slack = off * (mean + np.sqrt(mean) * magnitude) + np.square(off * magnitude)
        left = max(count - EXTENDED(correction), EXTENDED(0))
        return squares / left, np.nan_to_num(slack * count / left, posinf=0)


def product_exact(name: str, values: Array, dims: Sequence[int]) -> Array:
    """The product over `dims`, kept with size 1; extended, or wrapped integers."""
    axes = tuple(dims)
    if name in INTEGERS:
        return wrap(name, values.astype(np.int64).prod(axis=axes, keepdims=True, dtype=np.int64))
    with np.errstate(all="ignore"):
        return np.asarray(decode(name, values).prod(axis=axes, keepdims=True))


def slope_of_product(name: str, values: Array, dims: Sequence[int]) -> Array:
    """What the slope of a product by an element has besides the quotient of both: see prod_slope; extended."""
    numbers, axes = decode(name, values), tuple(dims)
    zeros = (numbers == 0).sum(axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        others = np.where(numbers == 0, EXTENDED(1), numbers).prod(axis=axes, keepdims=True)
    return np.select([zeros == 0, zeros == 1], [EXTENDED(1), others], EXTENDED(0))


def counted(op: str, name: str, values: Array, dims: Sequence[int]) -> Array:
    """How many elements are the smallest or the largest, in dtype `name`, or NaN where there is one."""
    rows, shape = rows_of(decode(name, values), dims)
    extremes = [getattr(np, op)(row, initial=-np.inf if op == "max" else np.inf) for row in rows]
    return encode(
        name, np.array([EXTENDED(((row == it) | np.isnan(row)).sum()) for row, it in zip(rows, extremes, strict=True)])
    ).reshape(shape)


def rows_of(values: Array, dims: Sequence[int]) -> tuple[Array, tuple[int, ...]]:
    """The reduced elements in row-major order along a last axis, and the shape of the result with its ones."""
    reduced = sorted(dims)
    kept = [dim for dim in range(values.ndim) if dim not in reduced]
    count = math.prod(values.shape[dim] for dim in reduced)
    moved = values.transpose([*kept, *reduced])
    rows = math.prod(values.shape[dim] for dim in kept)
    shape = tuple(1 if dim in reduced else size for dim, size in enumerate(values.shape))
    return moved.reshape(rows, count), shape


def extreme_position(op: str, name: str, values: Array, dims: Sequence[int]) -> Array:
    """Where the smallest (min, argmin) or largest element is in each row: the first NaN, or the first of equals."""
    rows, shape = rows_of(decode(name, values), dims)
    positions = np.zeros(len(rows), np.uint32)
    for number, row in enumerate(rows):
        nans = np.flatnonzero(np.isnan(row))
        best = row.max() if op.endswith("max") else row.min()
        positions[number] = nans[0] if len(nans) else np.flatnonzero(row == best)[0]
    return positions.reshape(shape)


def extreme(op: str, name: str, values: Array, dims: Sequence[int]) -> Array:
    """min and max, in dtype `name`."""
    rows, shape = rows_of(values, dims)
    positions = extreme_position(op, name, values, dims).ravel()
    return rows[np.arange(len(rows)), positions].reshape(shape)


def logsumexp_exact(name: str, values: Array, dims: Sequence[int]) -> Array:
    """The logarithm of the sum of exponentials over `dims`, kept with size 1, extended; -inf of nothing."""
    extended, axes = decode(name, values), tuple(dims)
    with np.errstate(all="ignore"):
        most = extended.max(axis=axes, keepdims=True, initial=-np.inf)
        pivot = np.where(np.isinf(most), EXTENDED(0), most)
        return np.asarray(pivot + np.log(np.exp(extended - pivot).sum(axis=axes, keepdims=True, dtype=EXTENDED)))


def sum_of_powers(name: str, values: Array, dims: Sequence[int]) -> Array:
    """The sum of e**(element - largest) over `dims`, kept with size 1, extended; 0 of nothing."""
    extended, axes = decode(name, values), tuple(dims)
    with np.errstate(all="ignore"):
        most = extended.max(axis=axes, keepdims=True, initial=-np.inf)
        powers = np.exp(np.where(extended == most, EXTENDED(0), extended - most))
        return np.asarray(powers.sum(axis=axes, keepdims=True, dtype=EXTENDED))


# The reductions with an exact result, in its dtype: of the elements over `dims`, which are kept with size 1.
EXACT: dict[str, Callable[[str, Array, tuple[int, ...]], Array]] = {
    "any": lambda name, values, dims: np.any(decode(name, values) != 0, axis=dims, keepdims=True),
    "all": lambda name, values, dims: np.all(decode(name, values) != 0, axis=dims, keepdims=True),
    "sum_i64": lambda _, values, dims: values.sum(axis=dims, keepdims=True, dtype=np.int64),
    "prod_i64": lambda _, values, dims: values.prod(axis=dims, keepdims=True, dtype=np.int64),
    "min": lambda name, values, dims: extreme("min", name, values, dims),
    "max": lambda name, values, dims: extreme("max", name, values, dims),
    "count_min": lambda name, values, dims: counted("min", name, values, dims),
    "count_max": lambda name, values, dims: counted("max", name, values, dims),
    "count_zero": lambda name, values, dims: encode(
        name, (decode(name, values) == 0).sum(axis=dims, keepdims=True).astype(EXTENDED)
    ),
    "argmin": lambda name, values, dims: extreme_position("argmin", name, values, dims),
    "argmax": lambda name, values, dims: extreme_position("argmax", name, values, dims),
}
# Those of which nothing has no result.
FINDS_ELEMENT = ("min", "max", "argmin", "argmax")


def matmul(name: str, lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """(b, m, k) times (b, k, n): extended sums and sums of absolute values; integers wrapped, and zeros."""
    batch, rows, inner = lhs.shape
    columns = rhs.shape[-1]
    if name in INTEGERS:
        left, right = lhs.astype(np.int64), rhs.astype(np.int64)
        total = np.zeros((batch, rows, columns), np.int64)
        for k in range(inner):
            total = total + left[:, :, k, None] * right[:, None, k, :]
        return wrap(name, total), np.zeros(total.shape, EXTENDED)
    left, right = decode(name, lhs), decode(name, rhs)
    total = np.zeros((batch, rows, columns), left.dtype)
    magnitude = np.zeros((batch, rows, columns), EXTENDED)
    with np.errstate(all="ignore"):
        for k in range(inner):
            product = left[:, :, k, None] * right[:, None, k, :]
            total = total + product
            magnitude = magnitude + np.abs(product)
    return total, magnitude


def sum_in_order(name: str, start: Array, terms: Sequence[Array]) -> Array:
    """start + terms[0] + terms[1] ..., each step rounded to the compute dtype, the last one to `name`."""
    if name in INTEGERS:
        total = start.astype(np.int64)
        with np.errstate(over="ignore"):
            for term in terms:
                total = total + term.astype(np.int64)
        return wrap(name, total)
    compute = NUMPY[compute_name(name)]
    running = decode(name, start).astype(compute)
    with np.errstate(all="ignore"):
        for term in terms:
            running = running + decode(name, term).astype(compute)
    return encode(name, decode(compute_name(name), running))
