"""Elements moved by the kernels for the host.

An op that writes to its operands returns no buffers, and None where NumPy does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from ..... import results
from .....kernels import host_arguments
from .....kernels.constants import JOIN_ROWS_SOURCES
from .....limits import MAX_RANK
from .....op import BinaryOp
from ....core.layout import Layout, collapse
from ....core.padding import packed_runs, padded_dims
from ....program.builder import ProgramBuilder
from ....program.dynamic import dynamic
from ....program.values import (
    NULL,
    Address,
    Buffer,
    Constant,
    Operand,
    Parameter,
    StorageOrBuffer,
    filled,
    views_of_rows,
)
from ...numbers import element_bits
from ..values import THREADS, Snapshot
from .native import MOVE, copied, launch_map, runs_of

if TYPE_CHECKING:
    from ..kernels import HostKernels

Written: TypeAlias = tuple[()] | None

# Of an element that the kernel which pads moves.
_MAX_BYTES: Final = 8


@dynamic
def fill(build: ProgramBuilder, kernels: HostKernels, target: Operand, value: complex | Parameter) -> Written:
    """As `copy.const_set`."""
    layout, kernel = target.layout, f"fill_b{8 * target.itemsize}"
    if not kernels.has("span", kernel):
        return None
    if not layout.elem_count:
        return ()
    if layout.is_contiguous:
        launch_map(build, kernel, [target], [], [value], count=build.count(layout.elem_count))
    else:
        launch_map(build, kernel, [Operand(target.storage, layout.distinct)], [], [value])
    return ()


def assign(build: ProgramBuilder, _kernels: HostKernels, target: Operand, source: Operand) -> Written:
    """As `copy.assign`."""
    return _write(build, MOVE, target, source)


def binary_assign(
    build: ProgramBuilder, kernels: HostKernels, op: BinaryOp, target: Operand, source: Operand
) -> Written:
    """As `elementwise.binary_assign`."""
    kernel = op.kernel(target.dtype)
    return _write(build, kernel, target, source, target) if kernels.has("span", kernel) else None


def copy_to(
    build: ProgramBuilder, _kernels: HostKernels, source: Operand, target: StorageOrBuffer, offset: int
) -> Written:
    """As `copy.copy_strided_src`."""
    return _write(build, MOVE, Operand(target, Layout.contiguous(source.shape, offset)), source)


def copy_rows(
    build: ProgramBuilder, _kernels: HostKernels, source: StorageOrBuffer, target: StorageOrBuffer, *numbers: int
) -> Written:
    """As `copy.copy2d`."""
    rows, written = views_of_rows(source, target, *numbers)
    return _write(build, MOVE, written, rows)


def _write(build: ProgramBuilder, kernel: str | None, target: Operand, source: Operand, *read: Operand) -> Written:
    """Write to a target what a kernel computes of what is read and of the source, as that was before."""
    if target.layout.elem_count == 0:
        return ()
    # In which order elements are written is not specified.
    if target.layout.overlaps_itself:
        return None
    address = source.address if build.are_same(target, source) else Snapshot(source, target)
    launch_map(build, kernel, [target], [*read, source], source=address)
    return ()


def cat(build: ProgramBuilder, _kernels: HostKernels, first: Operand, dim: int, *others: Operand) -> Buffer | None:
    """As `copy.cat`; None where NumPy does it."""
    concatenated = results.cat(first, others, dim)
    if math.prod(concatenated.shape) == 0:
        return None
    result = build.output(concatenated)
    strides = Layout.contiguous(concatenated.shape).strides
    row_stride = math.prod(concatenated.shape[dim:]) * first.itemsize
    # Adjacent operands that one launch joins, and where they begin along the dim.
    group: list[_Source] = []
    begin = end = 0
    for operand in (first, *others):
        if operand.layout.elem_count == 0:
            continue
        source = _source(operand, dim)
        if group and (source is None or len(group) == JOIN_ROWS_SOURCES):
            _join(build, result.address + begin * strides[dim] * first.itemsize, group, row_stride)
            group = []
        if source is None:
            launch_map(build, MOVE, [Operand(result, Layout(operand.shape, strides, end * strides[dim]))], [operand])
        else:
            begin = begin if group else end
            group.append(source)
        end += operand.shape[dim]
    if group:
        _join(build, result.address + begin * strides[dim] * first.itemsize, group, row_stride)
    return result


class _Source(NamedTuple):
    """An operand of `join_rows`: its rows, and the numbers of its ConcatenatedSource."""

    operand: Operand
    rows: int
    numbers: tuple[int, ...]


def _source(operand: Operand, dim: int) -> _Source | None:
    """The rows of an operand from a dim on; None if they, or the elements of one, have more strides than the kernel."""
    shape, strides = operand.shape, operand.strides
    _, (row_strides,) = collapse(shape[:dim], (strides[:dim],))
    runs = runs_of(shape[dim:], strides[dim:], operand.itemsize)
    if len(row_strides) > 1 or runs is None:
        return None
    length, row_stride = math.prod(shape[dim:]) * operand.itemsize, sum(row_strides) * operand.itemsize
    return _Source(operand, math.prod(shape[:dim]), (length, row_stride, *runs))


def _join(build: ProgramBuilder, result: Address, sources: Sequence[_Source], row_stride: int) -> None:
    """Concatenate rows of sources in each row of a result."""
    table = np.array([source.numbers for source in sources], np.uint64)
    packed = host_arguments.join_rows(
        result=result, table=Constant(table.ravel()).address, rows=sources[0].rows, width=int(table[:, 0].sum()),
        row_stride=row_stride, itemsize=sources[0].operand.itemsize, operands=len(sources), threads=THREADS,
        sources=filled([source.operand.address for source in sources], JOIN_ROWS_SOURCES, NULL),
    )  # fmt: skip
    build.launch("span", "join_rows", 1, packed)


def pad(
    build: ProgramBuilder,
    _kernels: HostKernels,
    x: Operand,
    border: str,
    before: tuple[int, ...],
    after: tuple[int, ...],
    value: complex | Parameter,
) -> Buffer | None:
    """As `copy.pad`; None where NumPy does it."""
    padded = results.pad(x, before, after)
    if x.itemsize > _MAX_BYTES or math.prod(padded.shape) == 0:
        return None
    dims = padded_dims(x.shape, x.strides, border, before, after)[::-1]
    if dims[0].stride != 1:
        # The kernel takes dense rows.
        x = copied(build, x)
        dims = padded_dims(x.shape, x.strides, border, before, after)[::-1]
    result = build.output(padded)
    packed = host_arguments.pad_rows(
        result=result.address, source=x.address, value=element_bits(value, x.dtype), itemsize=x.itemsize,
        threads=THREADS, rank=len(dims), dims=filled([dim.size for dim in dims], MAX_RANK, 1),
        strides=filled([dim.stride for dim in dims], MAX_RANK, 0), runs=host_arguments.Runs(packed_runs(dims)),
    )  # fmt: skip
    build.launch("span", "pad_rows", 1, packed, work=result.length)
    return result
