"""Elements moved by the kernels for the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.host_arguments import UnaliasedItems
from .....op import BinaryOp
from ....core.layout import Layout
from ....core.shape import Shape
from ....helpers.host_memory import tells_lack_of_memory
from ....program.values import NOWHERE, Address
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Source
from .native import MOVE, by_plan, filled, plan_map, source_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# What JOIN_ROWS has room for.
_MOST_JOINED: Final = 8
# Of more operands, NumPy joins those of fewer bytes on average in less time than calls for each take.
_MOST_SHORT: Final = 16
_LONG: Final = 1 << 20

Write: TypeAlias = Callable[..., bool]
"""Writes to the first storage what it makes of the others, and says so."""


@by_plan
def fill(kernels: HostKernels, target: Operand, value: complex) -> Write | None:
    """As `copy.const_set`; None where NumPy does it."""
    layout, dtype = target.layout, target.dtype
    if layout.elem_count == 0:
        return lambda *_: True
    kernel = kernels.elementwise(f"fill_b{8 * dtype.itemsize}")
    if kernel is None:
        return None
    # What a stride of 0 repeats is written once.
    shape = Shape(size if stride else 1 for size, stride in zip(layout.shape, layout.strides, strict=True))
    distinct = Layout(shape, layout.strides, layout.start_offset)
    return plan_map(kernels, kernel, target.storage, distinct, dtype, [], numbers=[value])


@by_plan
def assign(kernels: HostKernels, target: Operand, source: Operand) -> Write | None:
    """As `copy.assign`; None where NumPy does it."""
    return _plan(kernels, MOVE, target, source)


@by_plan
def binary_assign(kernels: HostKernels, op: BinaryOp, target: Operand, source: Operand) -> Write | None:
    """As `elementwise.binary_assign`; None where NumPy does it."""
    return _plan(kernels, kernels.elementwise(op.kernel(target.dtype)), target, source, is_read=True)


@by_plan
def copy_to(kernels: HostKernels, source: Operand, target: CpuStorage, offset: int) -> Write | None:
    """As `copy.copy_strided_src`; None where NumPy does it."""
    there = Operand(target, Layout.contiguous(source.layout.shape, offset))
    return _plan(kernels, MOVE, there, source, given=(1, 0))


@by_plan
def copy_rows(
    kernels: HostKernels,
    source: CpuStorage,
    target: CpuStorage,
    rows: int,
    columns: int,
    source_stride: int,
    target_stride: int,
    source_offset: int,
    target_offset: int,
) -> Write | None:
    """As `copy.copy2d`; None where NumPy does it."""
    shape = Shape((rows, columns))
    here = Operand(source, Layout(shape, (source_stride, 1), source_offset))
    there = Operand(target, Layout(shape, (target_stride, 1), target_offset))
    return _plan(kernels, MOVE, there, here, given=(1, 0))


@by_plan
def cat(kernels: HostKernels, first: Operand, dim: int, *others: Operand) -> Callable[..., CpuStorage] | None:
    """As `copy.cat`; None where NumPy does it."""
    operands = [first, *others]
    shape = first.layout.shape
    *begins, size = itertools.accumulate([operand.layout.shape[dim] for operand in operands], initial=0)
    whole = Layout.contiguous((*shape[:dim], size, *shape[dim + 1 :]))
    if len(operands) > _MOST_SHORT and whole.elem_count * first.dtype.itemsize < _LONG * len(operands):
        return None
    filled = [i for i, operand in enumerate(operands) if operand.layout.elem_count]
    if not filled:
        return None
    if len(operands) <= _MOST_JOINED and all(each.layout.is_contiguous and each.layout.elem_count for each in operands):
        return _plan_join(kernels, operands, dim, whole.elem_count)
    dtype = first.dtype
    calls: list[Callable[..., CpuStorage]] = []
    for i in filled:
        there = Layout(operands[i].layout.shape, whole.strides, begins[i] * whole.strides[dim])
        # The first one makes the result, which begins with its elements; the others write to it.
        made = None if calls else whole.elem_count
        calls.append(plan_map(kernels, MOVE, first.storage, there, dtype, [operands[i]], made=made))
    make, *write = calls

    def run(*storages: CpuStorage) -> CpuStorage:
        made = make(storages[filled[0]])
        for call, i in zip(write, filled[1:], strict=True):
            call(made, storages[i])
        return made

    return run


def _plan_join(kernels: HostKernels, operands: Sequence[Operand], dim: int, count: int) -> Callable[..., CpuStorage]:
    """What joins contiguous operands along a dim: of each, the dims from that one on are rows."""
    dtype = operands[0].dtype
    kernel = kernels.elementwise("join_rows")
    assert kernel is not None
    rows = math.prod(operands[0].layout.shape[:dim])
    lengths = [operand.layout.elem_count // rows * dtype.itemsize for operand in operands]
    sources: list[Address] = [source_of(operand, given) for given, operand in enumerate(operands)]
    packed = host_arguments.join_rows(
        result=Result(count, dtype), sources=filled(sources, _MOST_JOINED, NOWHERE),
        lengths=filled(lengths, _MOST_JOINED, 0), rows=rows, operands=len(operands), threads=THREADS,
    )  # fmt: skip
    return kernels.call(kernel, packed, operands[0].storage)


def plan_dense(kernels: HostKernels, x: Operand) -> Callable[[CpuStorage], CpuStorage]:
    """What makes a storage of the elements that an operand's layout reaches in one like its own, in row-major order."""
    layout, dtype = x.layout, x.dtype
    return plan_map(kernels, MOVE, x.storage, layout.dense, dtype, [x], made=layout.elem_count)


class Dense:
    """The elements of an operand in row-major order: where they are, or a copy."""

    def __init__(self, kernels: HostKernels, operand: Operand, *, is_there: bool = False) -> None:
        """Copy nothing either if what is done with the operand takes any layout: `is_there`."""
        layout = operand.layout
        self._copy = None if is_there or layout.is_contiguous else plan_dense(kernels, operand)
        self.is_there = self._copy is None
        self._offset = layout.start_offset * operand.dtype.itemsize if self.is_there else 0

    def of(self, storage: CpuStorage) -> CpuStorage:
        """What has them."""
        return storage if self._copy is None else self._copy(storage)

    def source(self, given: int) -> Source:
        """Where they are in that, which is the storage `given` of those that a plan is given."""
        return Source(given, self._offset)


def _plan(
    kernels: HostKernels,
    kernel: Address | None,
    target: Operand,
    source: Operand,
    *,
    given: tuple[int, int] = (0, 1),
    is_read: bool = False,
) -> Write | None:
    """What writes to the target what a kernel makes of it, if `is_read`, and of the source, as that was before.

    `given` says which of the storages that the plan is given are theirs.
    """
    layout, dtype = target.layout, target.dtype
    if layout.elem_count == 0:
        return lambda *_: True
    # In which order elements are written is told to nobody.
    if kernel is None or layout.overlaps_itself:
        return None
    to, from_ = given
    is_itself = target.storage is source.storage and layout == source.layout
    return plan_map(
        kernels,
        kernel,
        target.storage,
        layout,
        dtype,
        [*[target] * is_read, source],
        given=[*[to] * (1 + is_read), from_],
        unaliased=None if is_itself else unaliased(source.layout, source.dtype, to, layout, dtype),
    )


def unaliased(layout: Layout, dtype: DType, written: int, to: Layout, to_dtype: DType) -> UnaliasedItems:
    """How a source of a layout and a dtype is read as it was before a storage is written where `to` reaches."""
    return UnaliasedItems(
        source=0, first=layout.start_offset * dtype.itemsize, last=layout.end * dtype.itemsize, written=written,
        begin=to.start_offset * to_dtype.itemsize, end=to.end * to_dtype.itemsize,
        copy=tells_lack_of_memory(partial(copied, layout=layout)),
    )  # fmt: skip


def copied(storage: CpuStorage, layout: Layout) -> CpuStorage:
    """A copy of what a layout reaches, seen as a storage in which it is at the same place."""
    data = np.empty(layout.end, storage.dtype.numpy)
    data[layout.start_offset :] = storage.data[layout.start_offset : layout.end]
    return type(storage)(storage.device, storage.dtype, data)
