"""Elements moved by the kernels for the host.

An op that writes to its operands returns no buffers, and None where NumPy does it.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from ..... import results
from .....kernels import host_arguments
from .....op import BinaryOp
from ....core.layout import Layout
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.values import NOWHERE, Buffer, Operand, Parameter, StorageOrBuffer, filled
from ..values import THREADS, Snapshot
from .native import MOVE, launch_map

if TYPE_CHECKING:
    from ..kernels import HostKernels

# What JOIN_ROWS has room for.
_MOST_JOINED: Final = 8
# Of more operands, NumPy joins those of fewer bytes on average in less time than calls for each take.
_MOST_SHORT: Final = 16
_LONG: Final = 1 << 20

Written: TypeAlias = tuple[()] | None


def fill(build: ProgramBuilder, kernels: HostKernels, target: Operand, value: complex | Parameter) -> Written:
    """As `copy.const_set`."""
    layout, kernel = target.layout, f"fill_b{8 * target.itemsize}"
    if not kernels.has("span", kernel):
        return None
    if layout.elem_count:
        # What a stride of 0 repeats is written once.
        shape = Shape(size if stride else 1 for size, stride in zip(layout.shape, layout.strides, strict=True))
        distinct = Operand(target.storage, Layout(shape, layout.strides, layout.start_offset))
        launch_map(build, kernel, [distinct], [], [value])
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
    build: ProgramBuilder,
    _kernels: HostKernels,
    source: StorageOrBuffer,
    target: StorageOrBuffer,
    rows: int,
    columns: int,
    source_stride: int,
    target_stride: int,
    source_offset: int,
    target_offset: int,
) -> Written:
    """As `copy.copy2d`."""
    shape = Shape((rows, columns))
    from_ = Operand(source, Layout(shape, (source_stride, 1), source_offset))
    to = Operand(target, Layout(shape, (target_stride, 1), target_offset))
    return _write(build, MOVE, to, from_)


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
    operands = [first, *others]
    *begins, _ = itertools.accumulate([operand.shape[dim] for operand in operands], initial=0)
    joined = results.cat(first, others, dim)
    whole = Layout.contiguous(joined.shape)
    if len(operands) > _MOST_SHORT and whole.elem_count * first.itemsize < _LONG * len(operands):
        return None
    if whole.elem_count == 0:
        return None
    result = build.output(joined)
    if len(operands) <= _MOST_JOINED and all(each.layout.is_contiguous and each.layout.elem_count for each in operands):
        _join(build, result, operands, dim)
        return result
    for begin, operand in zip(begins, operands, strict=True):
        if operand.layout.elem_count:
            part = Layout(operand.shape, whole.strides, begin * whole.strides[dim])
            launch_map(build, MOVE, [Operand(result, part)], [operand])
    return result


def _join(build: ProgramBuilder, result: Buffer, operands: list[Operand], dim: int) -> None:
    """Join contiguous operands along a dim: of each, the dims from that one on are rows."""
    rows = math.prod(operands[0].shape[:dim])
    lengths = [operand.layout.elem_count // rows * operand.itemsize for operand in operands]
    packed = host_arguments.join_rows(
        result=result.address, sources=filled([each.address for each in operands], _MOST_JOINED, NOWHERE),
        lengths=filled(lengths, _MOST_JOINED, 0), rows=rows, operands=len(operands), threads=THREADS,
    )  # fmt: skip
    build.launch("span", "join_rows", 1, packed)
