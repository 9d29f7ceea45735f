"""Elements moved and filled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.layout import Layout
from ....core.padding import runs
from ....program.values import views_of_rows
from . import cast
from .operand import Operand


def clone(source: Any, _layout: Layout) -> Any:
    """A new storage of all elements of a storage, wherever the layout reaches."""
    # Nothing changes an array, so both may have it.
    return source.result(source.data, source.dtype)


def const_set(target: Operand, value: complex) -> None:
    """Set every element to `value`, converted to the dtype."""
    library, layout = target.library, target.layout
    if layout.elem_count == 0:
        return
    number = cast.scalar(library, value, target.dtype, target.device.handle)
    distinct = layout.distinct
    Operand(target.storage, distinct).write(library.broadcast_to(number, tuple(distinct.shape) or (1,)))


def assign(target: Operand, source: Operand) -> None:
    """Set every element to that of `source`, which may share memory with it."""
    target.write(source.array)


def copy_strided_src(source: Operand, target: Any, offset: int) -> None:
    """Move elements, in row-major order, to those of `target` from `offset` on."""
    Operand(target, Layout.contiguous(source.layout.shape, offset)).write(source.array)


def cat(first: Operand, dim: int, *others: Operand) -> Any:
    """Concatenate the elements of several operands along `dim`."""
    return first.result(first.library.concat([storage.view(layout) for storage, layout in (first, *others)], dim))


def pad(x: Operand, border: str, before: tuple[int, ...], after: tuple[int, ...], value: complex) -> Any:
    """Pad each dim with new elements before and after its own."""
    library, array = x.library, x.array
    for dim, (size, *ends) in enumerate(zip(x.shape, before, after, strict=True)):
        if not any(ends):
            continue
        parts = []
        for run in runs(size, border, *ends):
            if run.is_filled:
                shape = (*array.shape[:dim], run.end - run.begin, *array.shape[dim + 1 :])
                number = cast.scalar(library, value, x.dtype, x.device.handle)
                parts.append(library.broadcast_to(number, shape))
            else:
                rows = run.origin + run.step * np.arange(run.begin, run.end)
                parts.append(library.take(array, library.from_numpy(rows, library.device_of(array)), dim))
        array = library.concat(parts, dim) if parts else array[(slice(None),) * dim + (slice(0, 0),)]
    return x.result(array)


def copy2d(source: Any, target: Any, *numbers: int) -> None:
    """Copy rows of dense elements."""
    rows, written = views_of_rows(source, target, *numbers)
    Operand(*written).write(source.view(rows.layout))
