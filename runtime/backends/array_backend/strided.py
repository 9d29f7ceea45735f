"""Flat arrays of a library seen through layouts."""

from __future__ import annotations

import math
from typing import Any

from ...core.layout import Layout


def view(library: Any, data: Any, layout: Layout, device: Any) -> Any:
    """The elements of the flat array `data` that a layout reaches; the shape is the layout's, but (1,) for rank 0."""
    shape, start = tuple(layout.shape) or (1,), layout.start_offset
    if layout.is_contiguous:
        count = layout.elem_count
        return library.reshape(data if count == data.shape[0] else _part(data, start, count), shape)
    if 0 in layout.strides:
        sizes = tuple(size if stride else 1 for size, stride in zip(layout.shape, layout.strides, strict=True))
        strides = tuple(stride or 1 for stride in layout.strides)
        return library.broadcast_to(view(library, data, Layout(sizes, strides, start), device), shape)
    if library.as_strided is not None:
        return library.as_strided(data, shape, tuple(layout.strides), start)
    return take(library, data, positions(library, layout, device))


def positions(library: Any, layout: Layout, device: Any) -> Any:
    """Where in a flat array the elements are that a layout reaches: i64, in its shape, but (1,) for rank 0."""
    return offsets(library, layout, tuple(layout.shape), None, device)


def offsets(library: Any, layout: Layout, shape: tuple[int, ...], dim: int | None, device: Any) -> Any:
    """Return the offsets of the first elements along the dims, `shape` of them; as if all were at 0 along `dim`."""
    rank = len(shape)
    result = library.arange(1, device) + layout.start_offset
    for axis, (count, stride) in enumerate(zip(shape, layout.strides, strict=True)):
        if axis != dim:
            steps = library.reshape(library.arange(count, device), (-1,) + (1,) * (rank - 1 - axis))
            result = result + steps * stride
    return library.broadcast_to(result, shape or (1,))


def take(library: Any, data: Any, where: Any) -> Any:
    """The elements of a flat array at positions, in the shape of these."""
    shape = tuple(where.shape)
    return library.reshape(library.take(data, library.reshape(where, (-1,)), 0), shape)


def put(library: Any, data: Any, where: Any, values: Any, device: Any) -> Any:
    """A flat array with each of the flat `values` at its position; of several at one position the last one."""
    if where.shape[0] == 0:
        return data
    order = library.astype(library.argsort(where), where.dtype)
    ascending = library.take(where, order, 0)
    every = library.arange(data.shape[0], device)
    # The last of the sorted positions that is not after each element.
    last = library.astype(library.searchsorted(ascending, every), where.dtype) - 1
    last = library.maximum(last, library.constant(0, last))
    is_hit = library.take(ascending, last, 0) == every
    return library.where(is_hit, library.take(values, library.take(order, last, 0), 0), data)


def write(library: Any, data: Any, layout: Layout, values: Any, device: Any) -> Any:
    """A flat array with `values`, of the layout's shape, where the layout reaches; it reaches no element twice."""
    count, start = layout.elem_count, layout.start_offset
    if count == 0:
        return data
    flat = library.reshape(values, (-1,))
    if not layout.is_contiguous:
        where = library.reshape(positions(library, layout, device), (-1,))
        return library.put(data, where, flat) if library.put is not None else put(library, data, where, flat, device)
    if count == data.shape[0]:
        return flat
    end = start + count
    return library.concat([_part(data, 0, start), flat, _part(data, end, data.shape[0] - end)], 0)


def _part(data: Any, start: int, count: int) -> Any:
    # A library may refuse to begin after the end.
    return data[start : start + count] if count else data[:0]


def size(x: Any) -> int:
    """How many elements an array has; libraries disagree on what x.size is."""
    return math.prod(x.shape)
