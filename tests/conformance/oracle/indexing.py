"""Elements chosen by an index, one element after the other."""

from __future__ import annotations

import numpy as np

from .formats import NO_ROW, Array
from .reductions import sum_in_order


def gather(values: Array, indexes: Array, index_name: str, dim: int) -> Array:
    """0 at a "no row" mark."""
    result = np.zeros(indexes.shape, values.dtype)
    for position in np.ndindex(indexes.shape):
        row = int(indexes[position])
        if row != NO_ROW[index_name]:
            result[position] = values[_replaced(position, dim, row)]
    return result


def index_select(values: Array, indexes: Array, index_name: str, dim: int) -> Array:
    """0 at a "no row" mark."""
    shape = (*values.shape[:dim], len(indexes), *values.shape[dim + 1 :])
    result = np.zeros(shape, values.dtype)
    for number, row in enumerate(indexes.tolist()):
        if row != NO_ROW[index_name]:
            result[_slice(values.ndim, dim, number)] = values[_slice(values.ndim, dim, row)]
    return result


def scatter_set(values: Array, indexes: Array, index_name: str, source: Array, dim: int) -> Array:
    """The last of several writes wins."""
    result = values.copy()
    for position in np.ndindex(indexes.shape):
        row = int(indexes[position])
        if row != NO_ROW[index_name]:
            result[_replaced(position, dim, row)] = source[position]
    return result


def scatter_add(name: str, values: Array, indexes: Array, index_name: str, source: Array, dim: int) -> Array:
    """Summed in row-major order of the source in the compute dtype, rounded once."""
    terms: dict[tuple[int, ...], list[Array]] = {}
    for position in np.ndindex(indexes.shape):
        row = int(indexes[position])
        if row != NO_ROW[index_name]:
            terms.setdefault(_replaced(position, dim, row), []).append(np.asarray(source[position]))
    result = values.copy()
    for position, sources in terms.items():
        result[position] = sum_in_order(name, np.asarray(values[position]), sources)
    return result


def index_add(name: str, values: Array, indexes: Array, index_name: str, source: Array, dim: int) -> Array:
    """Row i of the source added to row indexes[i], in order of i in the compute dtype, rounded once."""
    terms: dict[int, list[Array]] = {}
    for number, row in enumerate(indexes.tolist()):
        if row != NO_ROW[index_name]:
            terms.setdefault(row, []).append(source[_slice(values.ndim, dim, number)])
    result = values.copy()
    for row, sources in terms.items():
        place = _slice(values.ndim, dim, row)
        result[place] = sum_in_order(name, values[place], sources)
    return result


def _replaced(position: tuple[int, ...], dim: int, row: int) -> tuple[int, ...]:
    return (*position[:dim], row, *position[dim + 1 :])


def _slice(rank: int, dim: int, row: int) -> tuple[slice | int, ...]:
    return tuple(row if axis == dim else slice(None) for axis in range(rank))
