"""Storages seen as NumPy arrays."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...dtype import Array
from ..base.error import OutOfMemory
from ..core.layout import Layout

# No unsigned integer of NumPy has 16 bytes; complex numbers are moved as they are.
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}

# So many elements in f64, several times over, fit in the cache.
MIN_PART = 1 << 15

# Rows up to this long are reduced column by column if there are more rows than columns.
_SHORT = 16

# So many rows at once stay in the first-level cache, also where a power of two between them maps all to one set of it.
_STRIP = 16


def view(data: Array, layout: Layout) -> Array:
    """The elements that `layout` reaches in the flat array `data`, without a copy.

    The shape is the layout's, but (1,) for rank 0, so that no operation on it gives a scalar.
    """
    shape = layout.shape or (1,)
    if layout.is_contiguous:
        start, count = layout.start_offset, prod(shape)
        return (data if count == data.size else data[start : start + count]).reshape(shape)
    size = data.itemsize
    strides = tuple(stride * size for stride in layout.strides)
    try:
        # The types of ml_dtypes export no buffer, their bytes do; as_strided takes ten times as long.
        return np.ndarray(shape, data.dtype, data.view(np.uint8).data, layout.start_offset * size, strides)
    except ValueError:
        # There are repeated elements, more than NumPy could allocate; an op on them would need that memory.
        raise OutOfMemory("cpu", layout.elem_count * size) from None


def bits(array: Array) -> Array:
    """View the memory as unsigned integers, for moves: NumPy moves types that are not its own slowly."""
    return array.view(_UNSIGNED[array.itemsize])


def normalised(array: Array) -> Array:
    """Replace bytes other than 0 and 1 by 1 in an array of bools; return the array itself if there are none."""
    if array.dtype != np.bool_ or array.size == 0 or bits(array).max() <= 1:
        return array
    return np.asarray(bits(array) != 0)


def distinct(array: Array) -> Array:
    """The array without its repetitions: a dim of stride 0 becomes one of size 1."""
    if 0 not in array.strides or array.size == 0:
        return array
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]


def contiguous(array: Array) -> Array:
    """The array in row-major order: itself if it is, else a copy."""
    if array.flags.c_contiguous:
        return array
    result = np.empty(array.shape, array.dtype)
    copy(result, array)
    return result


def in_parts(function: Callable[..., Array], dtype: np.dtype[Any], *operands: Array) -> Array:
    """Apply `function` to operands, contiguous arrays that broadcast, into a new array each time.

    Its parts are so small that all intermediate arrays stay in the cache.
    """
    if max(operand.size for operand in operands) <= MIN_PART:
        return function(*operands).view(dtype)
    shape = operands[0].shape
    if all(operand.shape == shape for operand in operands):
        operands = tuple(operand.reshape(-1) for operand in operands)
    else:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        operands = tuple(np.broadcast_to(operand, shape) for operand in operands)
    result = np.empty(shape, dtype)
    target = bits(result).reshape(operands[0].shape)
    length = len(target)
    rows = max(MIN_PART * length // max(target.size, 1), 1)
    for first in range(0, length, rows):
        part = slice(first, first + rows)
        target[part] = bits(function(*(operand[part] for operand in operands)))
    return result


def reduced(combine: np.ufunc, x: Array, axis: int, dtype: Any) -> Array:
    """Reduce the elements along an axis, which is not removed, by `combine` in a dtype."""
    if x.ndim == 2 and axis == 1 and 0 < x.shape[1] <= _SHORT < x.shape[0]:
        # NumPy takes one row at a time, which short ones are too many for.
        result = x[:, :1].astype(dtype)
        for column in range(1, x.shape[1]):
            combine(result, x[:, column : column + 1], out=result)
        return result
    # It adds pairwise only what lies side by side, and what has parts of f64 has no wider type to add in.
    operand = contiguous(x) if combine is np.add and x.dtype in (np.float64, np.complex128) else x
    return np.asarray(combine.reduce(operand, axis=axis, dtype=dtype, keepdims=True))


def copy(target: Array, source: Array) -> None:
    """Assign `source` to `target`, of one shape and dtype; they may overlap."""
    target, source = bits(target), bits(source)
    if target.ndim == 1 and target.strides != source.strides and np.may_share_memory(target, source):
        # NumPy takes care of arrays that overlap, but of those of rank 1 as if both had one stride.
        source = source.copy()
    if _is_transposed(target, source) and not np.may_share_memory(target, source):
        for first in range(0, target.shape[-1], _STRIP):
            target[..., first : first + _STRIP] = source[..., first : first + _STRIP]
    else:
        target[...] = source


def _is_transposed(target: Array, source: Array) -> bool:
    """Whether the last two dims are large and step in opposite orders, which NumPy copies with a cache miss each."""
    if source.ndim < 2 or min(source.shape[-2:]) < 4 * _STRIP:
        return False
    return source.strides[-2] < source.strides[-1] and target.strides[-2] > target.strides[-1]
