"""Filling, counting and copying, on flat buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .formats import Array, convert, from_number


def const_set(name: str, buffer: Array, reached: Array, value: complex) -> Array:
    """`buffer` with the elements at `reached` set."""
    result = buffer.copy()
    result[reached] = from_number(name, value)
    return result


def arange(name: str, start: float, step: float, count: int) -> Array:
    """`count` numbers from `start` on: integers modulo 2**64, or floats as NumPy's arange makes them."""
    if isinstance(start, int) and isinstance(step, int):
        numbers = [(start + i * step) % 2**64 for i in range(count)]
        return convert("i64", name, np.array(numbers, np.uint64).view(np.int64))
    second = float(start) + step
    floats = [float(start), second, *(start + i * (second - start) for i in range(2, count))][:count]
    return convert("f64", name, np.array(floats, np.float64))


def assign(buffer: Array, reached: Array, values: Array) -> Array:
    """`buffer` with `values` at `reached`."""
    result = buffer.copy()
    result[reached] = values
    return result


def copy_strided_src(values: Array, destination: Array, offset: int) -> Array:
    """`destination` with the elements of `values` in row-major order from `offset` on."""
    result = destination.copy()
    result[offset : offset + values.size] = values.ravel()
    return result


def cat(arrays: Sequence[Array], dim: int) -> Array:
    """One array behind the other along `dim`."""
    total = sum(array.shape[dim] for array in arrays)
    result = np.empty((*arrays[0].shape[:dim], total, *arrays[0].shape[dim + 1 :]), arrays[0].dtype)
    index = 0
    for array in arrays:
        for position in range(array.shape[dim]):
            result[(*(slice(None),) * dim, index)] = array.take(position, dim)
            index += 1
    return result


def pad(name: str, values: Array, border: str, before: Sequence[int], after: Sequence[int], number: complex) -> Array:
    """New elements in front of and behind those of each dim, one position after the other."""
    for dim, (front, back) in enumerate(zip(before, after, strict=True)):
        size = values.shape[dim]
        rows = []
        for position in range(-front, size + back):
            nearest = min(max(position, 0), size - 1)
            if border == "constant" and not 0 <= position < size:
                shape = (*values.shape[:dim], *values.shape[dim + 1 :])
                row = np.full(shape, from_number(name, number), values.dtype)
            else:
                at = {"reflect": 2 * nearest - position, "replicate": nearest, "circular": position % max(size, 1)}
                row = values.take(at.get(border, position), dim)
            rows.append(row)
        shape = (*values.shape[:dim], 0, *values.shape[dim + 1 :])
        values = np.stack(rows, dim) if rows else np.empty(shape, values.dtype)
    return values


def copy2d(
    source: Array, destination: Array, rows: int, columns: int, strides: tuple[int, int], offsets: tuple[int, int]
) -> Array:
    """`strides` and `offsets` are those of the source and of the destination."""
    result = destination.copy()
    for row in range(rows):
        for column in range(columns):
            result[offsets[1] + row * strides[1] + column] = source[offsets[0] + row * strides[0] + column]
    return result
