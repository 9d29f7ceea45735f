"""Storages seen as NumPy arrays."""

import numpy as np

from ..dtype import Array
from ..layout import Layout

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

# A square of 16-bit to 64-bit elements with this side fits in the first-level cache twice over.
_TILE = 64


def view(data: Array, layout: Layout) -> Array:
    """The elements that `layout` reaches in the flat array `data`, without a copy.

    The shape is the layout's, but (1,) for rank 0, so that no operation on it gives a scalar.
    """
    shape = layout.shape or (1,)
    if layout.is_contiguous:
        start = layout.start_offset
        return data[start : start + layout.elem_count].reshape(shape)
    size = data.itemsize
    strides = tuple(stride * size for stride in layout.strides)
    # The types of ml_dtypes export no buffer, their bytes do; as_strided takes ten times as long.
    return np.ndarray(shape, data.dtype, data.view(np.uint8).data, layout.start_offset * size, strides)


def bits(array: Array) -> Array:
    """The same memory as unsigned integers, for moves: NumPy is slow at moving types that are not its own."""
    return array.view(_UNSIGNED[array.itemsize])


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


def copy(target: Array, source: Array) -> None:
    """Assign `source` to `target`, of one shape and dtype; they may overlap."""
    target, source = bits(target), bits(source)
    if _is_transposed(target, source) and not np.may_share_memory(target, source):
        for row in range(0, target.shape[-2], _TILE):
            for column in range(0, target.shape[-1], _TILE):
                tile = (..., slice(row, row + _TILE), slice(column, column + _TILE))
                target[tile] = source[tile]
    else:
        target[...] = source


def _is_transposed(target: Array, source: Array) -> bool:
    """Whether the last two dims are large and step in opposite orders, which NumPy copies with a cache miss each."""
    if source.ndim < 2 or min(source.shape[-2:]) < _TILE:
        return False
    return source.strides[-2] < source.strides[-1] and target.strides[-2] > target.strides[-1]
