"""Elements chosen by an index, one element after the other."""

from __future__ import annotations

import numpy as np

from .exact import exact
from .formats import NO_ROW, Array, name_of
from .reductions import sum_in_order

# The shape of the tensor, that of the indexes, the dim, and how tensor, indexes and source lie.
GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[str, str, str]]] = [
    ((7,), (9,), 0, ("contiguous", "contiguous", "contiguous")),
    ((1,), (1,), 0, ("offset", "offset", "offset")),
    ((5, 4, 3), (6, 4, 3), 0, ("contiguous", "contiguous", "contiguous")),
    ((5, 4, 3), (5, 2, 3), 1, ("transposed", "offset", "rolled")),
    ((5, 4, 3), (4, 3, 7), 2, ("narrowed columns", "rolled", "broadcast middle")),
    ((5, 6), (5, 6), 1, ("offset", "broadcast rows", "transposed")),
    ((5, 6), (5, 6), 0, ("narrowed rows", "broadcast columns", "broadcast all")),
    ((2, 3, 2, 3, 2), (2, 3, 4, 2, 1), 2, ("rolled", "transposed", "contiguous")),
    ((5, 64), (4, 64), 1, ("offset", "offset", "offset")),
    ((6, 65), (3, 65), 0, ("contiguous", "contiguous", "narrowed columns")),
    ((2, 40), (2, 257), 1, ("contiguous", "contiguous", "contiguous")),
    ((4, 3), (0, 3), 0, ("contiguous", "contiguous", "contiguous")),
    ((4, 0), (2, 0), 0, ("contiguous", "contiguous", "contiguous")),
    # More elements than some index dtypes can name: there the largest value of u8 is an index, of i16 the mark.
    ((300,), (500,), 0, ("contiguous", "contiguous", "contiguous")),
    ((33000,), (90,), 0, ("contiguous", "contiguous", "contiguous")),
]
# The shape of the tensor, the number of indexes, the dim, and how tensor, indexes and source lie.
SELECTIONS: list[tuple[tuple[int, ...], int, int, tuple[str, str, str]]] = [
    ((7,), 9, 0, ("contiguous", "contiguous", "contiguous")),
    ((5, 4), 8, 0, ("offset", "offset", "offset")),
    ((5, 4), 3, 1, ("transposed", "contiguous", "transposed")),
    ((3, 6, 5), 8, 1, ("narrowed columns", "narrowed columns", "rolled")),
    ((3, 6, 5), 4, 2, ("broadcast rows", "broadcast all", "broadcast middle")),
    ((2, 3, 2, 3, 2), 5, 3, ("rolled", "contiguous", "transposed")),
    ((20, 65), 33, 0, ("contiguous", "contiguous", "contiguous")),
    ((2, 40), 257, 1, ("contiguous", "contiguous", "contiguous")),
    ((4, 3), 0, 0, ("contiguous", "contiguous", "contiguous")),
    ((0, 3), 0, 0, ("contiguous", "contiguous", "contiguous")),
    ((4, 0), 2, 0, ("contiguous", "contiguous", "contiguous")),
]


@exact(
    *({"self": (shape, lie), "indexes": (chosen, lies), "dim": dim} for shape, chosen, dim, (lie, lies, _) in GATHERS),
    {"self": (0, 3), "indexes": (2, 3), "dim": 0},
)
def gather(values: Array, indexes: Array, dim: int) -> Array:
    """0 at a "no row" mark."""
    mark = NO_ROW[name_of(indexes)]
    result = np.zeros(indexes.shape, values.dtype)
    for position in np.ndindex(indexes.shape):
        row = int(indexes[position])
        if row != mark:
            result[position] = values[_replaced(position, dim, row)]
    return result


@exact(
    *(
        {"self": (shape, lie), "indexes": ((count,), lies), "dim": dim}
        for shape, count, dim, (lie, lies, _) in SELECTIONS
    ),
    {"self": (5, 0), "indexes": (6,), "dim": 0},
)
def index_select(values: Array, indexes: Array, dim: int) -> Array:
    """0 at a "no row" mark."""
    mark = NO_ROW[name_of(indexes)]
    shape = (*values.shape[:dim], len(indexes), *values.shape[dim + 1 :])
    result = np.zeros(shape, values.dtype)
    for number, row in enumerate(indexes.tolist()):
        if row != mark:
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
        index = _slice(values.ndim, dim, row)
        result[index] = sum_in_order(name, values[index], sources)
    return result


def _replaced(position: tuple[int, ...], dim: int, row: int) -> tuple[int, ...]:
    return (*position[:dim], row, *position[dim + 1 :])


def _slice(rank: int, dim: int, row: int) -> tuple[slice | int, ...]:
    return tuple(row if axis == dim else slice(None) for axis in range(rank))
