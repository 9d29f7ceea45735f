"""Softmax and its logarithm, along any dim."""

from __future__ import annotations

import math
from typing import Final

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, COLUMN_ELEMENTS, ROW_TEAM
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, address_of
from ..driver.grid import ceil_divide, power_of_two
from . import copy, rows
from .geometry import LIMIT

# The most packs of a row that a thread holds, by the bytes of an element: AMD's registers have no room for more.
_MOST_HELD: Final = {2: 8, 4: 8, 8: 2}
# What the measure kernel knows of a part: so many numbers of the compute dtype.
_KNOWN: Final = 2
# The same of gradients, of which a thread holds two rows.
_MOST_HELD_PAIRS: Final = {2: 4, 4: 4, 8: 2}


def softmax(build: ProgramBuilder, x: Operand, dim: int) -> Buffer:
    """e**(x - m) / sum(e**(x - m)) along `dim`, where m is the largest element."""
    return _softmax(build, "softmax", x, dim, is_log=False)


def log_softmax(build: ProgramBuilder, x: Operand, dim: int) -> Buffer:
    """x - m - log(sum(e**(x - m))) along `dim`, where m is the largest element."""
    return _softmax(build, "log_softmax", x, dim, is_log=True)


def softmax_gradient(build: ProgramBuilder, x: Operand, gradient: Operand, dim: int) -> Buffer:
    """y * (g - sum(g * y)) along `dim`."""
    return _gradient(build, "softmax_gradient", x, gradient, dim, is_log=False)


def log_softmax_gradient(build: ProgramBuilder, x: Operand, gradient: Operand, dim: int) -> Buffer:
    """g - e**y * sum(g) along `dim`."""
    return _gradient(build, "log_softmax_gradient", x, gradient, dim, is_log=True)


def _gradient(build: ProgramBuilder, op: str, x: Operand, gradient: Operand, dim: int, *, is_log: bool) -> Buffer:
    shape, name = x.shape, f"softmax_gradient_{x.dtype.value}"
    result = build.empty(x.dtype, x.layout.elem_count)
    if result.length == 0:
        return result
    x, gradient = (rows.in_rows(build, rows.moved_last(each, dim)) for each in (x, gradient))
    for part in rows.launches(build, op, _MOST_HELD_PAIRS[x.itemsize], x, gradient):
        parts = build.allocate(part.rows * part.splits * x.dtype.compute.itemsize) if part.splits > 1 else None
        packed = arguments.softmax_gradient(
            result=result.address + part.first * part.length * x.itemsize,
            source=x.address + part.offsets[0] * x.itemsize, gradient=gradient.address + part.offsets[1] * x.itemsize,
            parts=address_of(parts), rows=part.rows, length=part.length, team=part.team,
            splits=part.splits, chunk=part.chunk, is_log=is_log, geometry=part.geometry,
        )  # fmt: skip
        if parts:
            build.launch("softmax", f"{name}_measure", part.blocks, packed)
        build.launch("softmax", f"{name}_{part.kernel if part.team else 'long'}", part.blocks, packed)
    return rows.moved_back(build, result, shape, dim)


def _softmax(build: ProgramBuilder, op: str, x: Operand, dim: int, *, is_log: bool) -> Buffer:
    result = build.empty(x.dtype, x.layout.elem_count)
    if result.length == 0:
        return result
    inner = math.prod(x.shape[dim + 1 :])
    if inner > 1:
        _by_columns(build, op, copy.contiguous(build, x), dim, inner, result, is_log=is_log)
    else:
        lines = rows.in_rows(build, x.relaid(x.shape[: dim + 1], x.strides[: dim + 1]))
        _by_rows(build, op, lines, result, is_log=is_log)
    return result


def _by_rows(build: ProgramBuilder, op: str, x: Operand, result: Buffer, *, is_log: bool) -> None:
    name = f"softmax_{x.dtype.value}"
    for part in rows.launches(build, op, _MOST_HELD[x.itemsize], x):
        to = result.address + part.first * part.length * x.itemsize
        source = x.address + part.offsets[0] * x.itemsize
        if part.team:
            packed = arguments.softmax_held(
                result=to, source=source, rows=part.rows, length=part.length, team=part.team, is_log=is_log,
                geometry=part.geometry,
            )  # fmt: skip
            build.launch("softmax", f"{name}_{part.kernel}", part.blocks, packed)
            continue
        parts = build.allocate(part.rows * part.splits * _KNOWN * x.dtype.compute.itemsize)
        packed = arguments.softmax_long(
            result=to, source=source, parts=parts.address, rows=part.rows, length=part.length, splits=part.splits,
            chunk=part.chunk, is_log=is_log, geometry=part.geometry,
        )  # fmt: skip
        if part.splits > 1:
            build.launch("softmax", f"{name}_measure", part.blocks, packed)
        build.launch("softmax", f"{name}_long", part.blocks, packed)


def _by_columns(
    build: ProgramBuilder, op: str, x: Operand, dim: int, inner: int, result: Buffer, *, is_log: bool
) -> None:
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
        result=result.address, source=x.address, inner=inner, length=length, packs=packs, packs_per_row=per_row,
        team=team, is_log=is_log,
    )  # fmt: skip
    build.launch("softmax", f"softmax_{x.dtype.value}_columns", ceil_divide(packs, team), packed)
