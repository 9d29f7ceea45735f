"""Elements chosen by indexes, by the kernels for the host."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ...array_backend.ops.operand import Operand
from ...dtype import DType
from ...error import InvalidIndex
from ...host_memory import require_room, tells_lack_of_memory
from ...kernels import host_arguments
from ...layout import Layout
from ...limits import MAX_RANK
from ...threads import get_threads
from .compiled import by_plan, filled
from .compiled_copy import Write, copied, is_apart, plan_dense

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


# What the arguments begin with: what each call has of its own.
_GATHER: Final = Struct("=5QI")
_FIRST_OF_GATHER: Final = 6
_SCATTER: Final = Struct("=6QI")
_FIRST_OF_SCATTER: Final = 7


class _Record(threading.local):
    """Where kernels note whether an index was out of range, and which."""

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * 2)()
        self.address = ctypes.addressof(self.words)


_record = _Record()


@by_plan
def gather(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.gather`; None where NumPy does it."""
    return _plan_gather("gather", kernels, x, indexes, indexes.layout, dim)


@by_plan
def select(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.select`; None where NumPy does it."""
    return _plan_gather("index_select", kernels, x, indexes, _along(indexes.layout, x.layout.shape, dim), dim)


@by_plan
def scatter_set(kernels: HostKernels, x: Operand, indexes: Operand, source: Operand, dim: int) -> Write | None:
    """As `index.scatter_set`; None where NumPy does it."""
    name = f"scatter_set_b{8 * x.dtype.itemsize}"
    return _plan_scatter("scatter_set", kernels, name, x, indexes.dtype, (x.layout, source.layout, indexes.layout), dim)


@by_plan
def scatter_add(kernels: HostKernels, x: Operand, indexes: Operand, source: Operand, dim: int) -> Write | None:
    """As `index.scatter_add`; None where NumPy does it."""
    name = f"scatter_add_{x.dtype.value}"
    return _plan_scatter("scatter_add", kernels, name, x, indexes.dtype, (x.layout, source.layout, indexes.layout), dim)


@by_plan
def index_add(kernels: HostKernels, x: Operand, indexes: Operand, terms: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.index_add`; None where NumPy does it."""
    layout, dtype = x.layout, x.dtype
    layouts = layout.dense, terms.layout, _along(indexes.layout, terms.layout.shape, dim)
    name = f"scatter_add_{dtype.value}"
    scatter = _plan_scatter("index_add", kernels, name, Operand(x.storage, layout.dense), indexes.dtype, layouts, dim)
    if scatter is None:
        return None
    copy = plan_dense(kernels, layout, dtype)

    @tells_lack_of_memory
    def run(storage: CpuStorage, indexes: CpuStorage, terms: CpuStorage) -> CpuStorage:
        made = copy(storage)
        scatter(made, indexes, terms)
        return made

    return run


def _along(vector: Layout, shape: Sequence[int], dim: int) -> Layout:
    """A vector of indexes for all elements of a shape, but in the chosen dim as many as it has."""
    sizes = (*shape[:dim], *vector.shape, *shape[dim + 1 :])
    strides = [vector.strides[0] if axis == dim else 0 for axis in range(len(shape))]
    return Layout(sizes, strides, vector.start_offset)


def _fields(dtype: DType) -> tuple[int, int, int]:
    """The bytes of an index, how far its sign is from the highest bit of 64, and its mark."""
    bits = 8 * dtype.itemsize
    is_signed = dtype in (DType.I16, DType.I32, DType.I64)
    # No index of a dtype without a mark is negative.
    return dtype.itemsize, 64 - bits if is_signed else 0, -1 if dtype.index_mark is None else dtype.index_mark


def _packed(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The dims of the last layout, and the strides of all."""
    strides = [stride for layout in layouts for stride in filled(layout.strides[::-1], MAX_RANK)]
    return (*filled(layouts[-1].shape[::-1], MAX_RANK), *strides)


def _tell(op: str, size: int) -> None:
    if _record.words[0]:
        raise InvalidIndex(op, _record.words[1], size)


def _plan_gather(
    op: str, kernels: HostKernels, x: Operand, indexes: Operand, layout: Layout, dim: int
) -> Callable[..., CpuStorage] | None:
    """What chooses elements by indexes of the layout, which has the shape of the result."""
    kernel = kernels.kernel("host_index", "gather")
    shape, dtype, source = layout.shape, x.dtype, x.layout
    require_room(shape, dtype)
    count, size, offset = layout.elem_count, source.shape[dim], source.start_offset * dtype.itemsize
    index_offset = layout.start_offset * indexes.dtype.itemsize
    # NumPy finds no element, or a mark.
    if kernel is None or count == 0:
        return None
    # In the chosen dim an index steps.
    others = Layout(shape, [0 if axis == dim else step for axis, step in enumerate(source.strides)])
    *index_fields, mark = _fields(indexes.dtype)
    rest = host_arguments.GATHER_ELEMENTS.pack(
        *(0,) * _FIRST_OF_GATHER, dtype.itemsize, *index_fields, len(shape), mark, size, source.strides[dim], count,
        *_packed((layout.dense, others, layout)),
    )[_GATHER.size :]  # fmt: skip
    run_parts, numpy_type = kernels.run_parts, dtype.numpy

    @tells_lack_of_memory
    def run(storage: CpuStorage, indexes: CpuStorage) -> CpuStorage:
        made = type(storage)(storage.device, dtype, np.empty(count, numpy_type))
        places = made.address, storage.address + offset, indexes.address + index_offset
        kernel(_GATHER.pack(*places, _record.address, run_parts, get_threads()) + rest)
        _tell(op, size)
        return made

    return run


def _plan_scatter(
    op: str, kernels: HostKernels, name: str, x: Operand, index_dtype: DType, layouts: Sequence[Layout], dim: int
) -> Write | None:
    """What brings a source to a storage: the layouts are those of the storage, the source and the indexes."""
    target, source, indexes = layouts
    dtype, shape, size = x.dtype, indexes.shape, x.layout.shape[dim]
    kernel = kernels.kernel("host_index", name)
    # NumPy looks at indexes of no elements.
    if kernel is None or indexes.elem_count == 0:
        return None
    sizes = dtype.itemsize, dtype.itemsize, index_dtype.itemsize
    begins = [layout.start_offset * itemsize for layout, itemsize in zip(layouts, sizes, strict=True)]
    begin, end = begins[0], target.end * dtype.itemsize
    *index_fields, mark = _fields(index_dtype)
    rest = host_arguments.SCATTER_ELEMENTS.pack(
        *(0,) * _FIRST_OF_SCATTER, len(shape) - 1 - dim, *index_fields, len(shape), mark, size, *_packed(layouts)
    )[_SCATTER.size :]
    lines = indexes.elem_count // shape[dim]
    sums_count = lines * size if name.startswith("scatter_add") and dtype.is_float and dtype.itemsize < 4 else 0
    run_parts = kernels.run_parts

    @tells_lack_of_memory
    def run(storage: CpuStorage, chosen: CpuStorage, values: CpuStorage) -> bool:
        # What is read is what was there before.
        values, chosen = (
            operand if is_apart(storage, begin, end, operand, layout) else copied(operand, layout)
            for operand, layout in ((values, source), (chosen, indexes))
        )
        sums = np.empty(sums_count, np.float32) if sums_count else None
        places = [each.address + first for each, first in zip((storage, values, chosen), begins, strict=True)]
        sums_place = 0 if sums is None else sums.ctypes.data
        kernel(_SCATTER.pack(*places, sums_place, _record.address, run_parts, get_threads()) + rest)
        _tell(op, size)
        return True

    return run
