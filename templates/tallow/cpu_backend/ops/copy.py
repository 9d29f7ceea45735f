"""Elements moved and filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...host_memory import tells_lack_of_memory
from ...layout import Layout
from ...shape import Shape
from . import array, cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def clone(source: Operand) -> CpuStorage:
    """A new storage of all elements of a storage, wherever the layout reaches."""
    return source.result(source.storage.data.copy())


@tells_lack_of_memory
def fill(target: Operand, value: float) -> None:
    """Set every element to `value`, converted to the dtype."""
    array.bits(array.distinct(target.array))[...] = array.bits(cast.scalar(value, target.dtype))


@tells_lack_of_memory
def assign(target: Operand, source: Operand) -> None:
    """Set every element to that of `source`, which may share memory with it."""
    array.copy(target.array, source.array)


@tells_lack_of_memory
def copy_to(source: Operand, target: CpuStorage, offset: int) -> None:
    """Move elements, in row-major order, to those of `target` from `offset` on."""
    array.copy(target.view(Layout.contiguous(source.layout.shape, offset)), source.array)


@tells_lack_of_memory
def cat(first: Operand, dim: int, *others: Operand) -> CpuStorage:
    """The elements of several operands, one behind the other along `dim`."""
    operands = [first, *others]
    shape = first.layout.shape
    total = sum(operand.layout.shape[dim] for operand in operands)
    result = np.empty((*shape[:dim], total, *shape[dim + 1 :]), first.dtype.numpy)
    place = 0
    for operand in operands:
        size = operand.layout.shape[dim]
        array.copy(result[(*(slice(None),) * dim, slice(place, place + size))], operand.array)
        place += size
    return first.result(result)


@tells_lack_of_memory
def copy_rows(
    source: CpuStorage,
    target: CpuStorage,
    rows: int,
    columns: int,
    source_stride: int,
    target_stride: int,
    source_offset: int,
    target_offset: int,
) -> None:
    """Copy rows of dense elements."""
    shape = Shape((rows, columns))
    array.copy(
        target.view(Layout(shape, (target_stride, 1), target_offset)),
        source.view(Layout(shape, (source_stride, 1), source_offset)),
    )
