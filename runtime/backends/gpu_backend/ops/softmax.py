"""Softmax and its logarithm, along any dim."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, COLUMN_ELEMENTS, ROW_TEAM
from ....base.error import InvalidArgument
from ....kernels.argument_struct import NOWHERE
from ..driver.grid import ceil_divide, power_of_two
from . import copy, rows
from .geometry import LIMIT
from .operand import Operand

if TYPE_CHECKING:
    from ..memory.storage import GpuStorage

# The most packs of a row that a thread holds, by the bytes of an element: AMD's registers have no room for more.
_MOST_HELD: Final = {2: 8, 4: 8, 8: 2}
# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 2
# The same of gradients, of which a thread holds two rows.
_MOST_HELD_PAIRS: Final = {2: 4, 4: 4, 8: 2}


def softmax(x: Operand, dim: int) -> GpuStorage:
    """e**(x - m) / sum(e**(x - m)) along `dim`, where m is the largest element."""
    return _softmax("softmax", x, dim, is_log=False)


def log_softmax(x: Operand, dim: int) -> GpuStorage:
    """x - m - log(sum(e**(x - m))) along `dim`, where m is the largest element."""
    return _softmax("log_softmax", x, dim, is_log=True)


def softmax_gradient(x: Operand, gradient: Operand, dim: int) -> GpuStorage:
    """y * (g - sum(g * y)) along `dim`."""
    return _gradient("softmax_gradient", x, gradient, dim, is_log=False)


def log_softmax_gradient(x: Operand, gradient: Operand, dim: int) -> GpuStorage:
    """g - e**y * sum(g) along `dim`."""
    return _gradient("log_softmax_gradient", x, gradient, dim, is_log=True)


def _gradient(op: str, x: Operand, gradient: Operand, dim: int, *, is_log: bool) -> GpuStorage:
    device, shape, name = x.device, x.shape, f"softmax_gradient_{x.dtype.value}"
    result = device.empty(x.dtype, x.layout.elem_count)
    if result.length == 0:
        return result
    x, gradient = (rows.in_rows(rows.moved_last(each, dim)) for each in (x, gradient))
    for part in rows.launches(op, _MOST_HELD_PAIRS[x.itemsize], x, gradient):
        parts = device.allocate(part.rows * part.splits * x.dtype.compute.itemsize) if part.splits > 1 else None
        packed = arguments.softmax_gradient(
            result=result.memory.address + part.first * part.length * x.itemsize,
            source=x.address + part.offsets[0] * x.itemsize, gradient=gradient.address + part.offsets[1] * x.itemsize,
            parts=parts.address if parts else NOWHERE, rows=part.rows, length=part.length, team=part.team,
            splits=part.splits, chunk=part.chunk, is_log=is_log, geometry=part.geometry,
        )  # fmt: skip
        if parts:
            device.kernels.launch("softmax", f"{name}_measure", part.blocks, packed)
        device.kernels.launch("softmax", f"{name}_{part.kernel if part.team else 'long'}", part.blocks, packed)
    return rows.moved_back(result, shape, dim)


def _softmax(op: str, x: Operand, dim: int, *, is_log: bool) -> GpuStorage:
    result = x.device.empty(x.dtype, x.layout.elem_count)
    if result.length == 0:
        return result
    inner = math.prod(x.shape[dim + 1 :])
    if inner > 1:
        _by_columns(op, copy.contiguous(x), dim, inner, result, is_log=is_log)
    else:
        _by_rows(op, rows.in_rows(x.relaid(x.shape[: dim + 1], x.strides[: dim + 1])), result, is_log=is_log)
    return result


def _by_rows(op: str, x: Operand, result: GpuStorage, *, is_log: bool) -> None:
    device, name = x.device, f"softmax_{x.dtype.value}"
    for part in rows.launches(op, _MOST_HELD[x.itemsize], x):
        to = result.memory.address + part.first * part.length * x.itemsize
        source = x.address + part.offsets[0] * x.itemsize
        if part.team:
            packed = arguments.softmax_held(
                result=to, source=source, rows=part.rows, length=part.length, team=part.team, is_log=is_log,
                geometry=part.geometry,
            )  # fmt: skip
            device.kernels.launch("softmax", f"{name}_{part.kernel}", part.blocks, packed)
            continue
        parts = device.allocate(part.rows * part.splits * _KNOWN * x.dtype.compute.itemsize)
        packed = arguments.softmax_long(
            result=to, source=source, parts=parts.address, rows=part.rows, length=part.length, splits=part.splits,
            chunk=part.chunk, is_log=is_log, geometry=part.geometry,
        )  # fmt: skip
        if part.splits > 1:
            device.kernels.launch("softmax", f"{name}_measure", part.blocks, packed)
        device.kernels.launch("softmax", f"{name}_long", part.blocks, packed)


def _by_columns(op: str, x: Operand, dim: int, inner: int, result: GpuStorage, *, is_log: bool) -> None:
    length, per_row = x.shape[dim], ceil_divide(inner, COLUMN_ELEMENTS[x.itemsize])
    packs = math.prod(x.shape[:dim]) * per_row
    if max(packs, inner, length) >= LIMIT:
        raise InvalidArgument(
            op, f"shape {x.shape} has more along a dim than a kernel can number; make dim {dim} the last"
        )
    # Threads across columns read what is side by side; where those are few, the others of a block share out the rows.
    team = min(ROW_TEAM, power_of_two(packs))
    while team < min(BLOCK_SIZE, packs) and BLOCK_SIZE // team > length:
        team *= 2
    packed = arguments.softmax_columns(
        result=result.memory.address, source=x.address, inner=inner, length=length, packs=packs, packs_per_row=per_row,
        team=team, is_log=is_log,
    )  # fmt: skip
    x.device.kernels.launch("softmax", f"softmax_{x.dtype.value}_columns", ceil_divide(packs, team), packed)
