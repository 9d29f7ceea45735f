"""Elements chosen by indexes, by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Never

from .....dtype import DType
from .....kernels import host_arguments
from .....limits import MAX_RANK
from ....base.error import InvalidIndex
from ....core.layout import Layout
from ....helpers.host_memory import require_room
from ....program.values import NOWHERE
from ...array_backend.ops.operand import Operand
from ..kernels import THREADS, Result, Scratch, Source, WrongIndex
from .native import by_plan, filled, source_of
from .native_copy import Write, plan_dense, unaliased

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


@by_plan
def gather(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.gather`; None where NumPy does it."""
    return plan_gather("gather", kernels, x, indexes, indexes.layout, dim)


@by_plan
def select(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.index_select`; None where NumPy does it."""
    return plan_gather("index_select", kernels, x, indexes, _along(indexes.layout, x.layout.shape, dim), dim)


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
def index_add(
    kernels: HostKernels, x: Operand, indexes: Operand, terms: Operand, dim: int
) -> Callable[..., CpuStorage] | None:
    """As `index.index_add`; None where NumPy does it."""
    layout, dtype = x.layout, x.dtype
    layouts = layout.dense, terms.layout, _along(indexes.layout, terms.layout.shape, dim)
    name = f"scatter_add_{dtype.value}"
    scatter = _plan_scatter("index_add", kernels, name, Operand(x.storage, layout.dense), indexes.dtype, layouts, dim)
    if scatter is None:
        return None
    copy = plan_dense(kernels, x)

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


def index_stride(indexes: Operand) -> int:
    """How far indexes of a vector, or contiguous ones, are from each other; 0 for a single one."""
    return 0 if indexes.layout.elem_count == 1 else 1 if indexes.layout.is_contiguous else indexes.layout.strides[0]


def _strides(layouts: Sequence[Layout]) -> list[int]:
    """Those of all layouts, as kernels take them."""
    return [stride for layout in layouts for stride in filled(layout.strides[::-1], MAX_RANK, 0)]


def wrong_index(op: str, indexes: DType, size: int) -> WrongIndex:
    """The record of an index that is out of range of a dim of a size."""

    def tell(word: int) -> Never:
        raise InvalidIndex(op, indexes.index_of(word), size)

    return WrongIndex(tell)


def plan_gather(
    op: str, kernels: HostKernels, x: Operand, indexes: Operand, layout: Layout, dim: int
) -> Callable[..., CpuStorage] | None:
    """What chooses elements by indexes of the layout, which has the shape of the result."""
    kernel = kernels.address("host_index", "gather")
    shape, dtype, source = layout.shape, x.dtype, x.layout
    require_room(shape, dtype)
    count, size = layout.elem_count, source.shape[dim]
    # NumPy finds no element, or a mark.
    if kernel is None or count == 0:
        return None
    # In the chosen dim an index steps.
    others = Layout(shape, [0 if axis == dim else step for axis, step in enumerate(source.strides)])
    mark, index_bytes, index_shift = indexes.dtype.index_form
    packed = host_arguments.gather_elements(
        result=Result(count, dtype), source=source_of(x, 0), indexes=source_of(indexes, 1),
        wrong=wrong_index(op, indexes.dtype, size), run_parts=kernels.run_parts, threads=THREADS,
        itemsize=dtype.itemsize, index_bytes=index_bytes, index_shift=index_shift, rank=len(shape), index_mark=mark,
        size=size, row_stride=source.strides[dim], count=count, dims=filled(shape[::-1], MAX_RANK, 0),
        strides=_strides((layout.dense, others, layout)),
    )  # fmt: skip
    return kernels.call(kernel, packed, x.storage)


def _plan_scatter(
    op: str, kernels: HostKernels, name: str, x: Operand, index_dtype: DType, layouts: Sequence[Layout], dim: int
) -> Write | None:
    """What brings a source to a storage: the layouts are those of the storage, the source and the indexes."""
    target, source, indexes = layouts
    dtype, shape, size = x.dtype, indexes.shape, x.layout.shape[dim]
    kernel = kernels.address("host_index", name)
    # NumPy looks at indexes of no elements.
    if kernel is None or indexes.elem_count == 0:
        return None
    mark, index_bytes, index_shift = index_dtype.index_form
    lines = indexes.elem_count // shape[dim]
    has_sums = name.startswith("scatter_add") and dtype.is_float and dtype.itemsize < DType.F32.itemsize
    # The plan is given the storage, that of the indexes, and that of the source.
    packed = host_arguments.scatter_elements(
        destination=Source(0, target.start_offset * dtype.itemsize),
        source=Source(2, source.start_offset * dtype.itemsize, unaliased(source, dtype, 0, target, dtype)),
        indexes=Source(1, indexes.start_offset * index_bytes, unaliased(indexes, index_dtype, 0, target, dtype)),
        sums=Scratch(lines * size, DType.F32) if has_sums else NOWHERE, wrong=wrong_index(op, index_dtype, size),
        run_parts=kernels.run_parts, threads=THREADS, dim=len(shape) - 1 - dim, index_bytes=index_bytes,
        index_shift=index_shift, rank=len(shape), index_mark=mark, size=size, dims=filled(shape[::-1], MAX_RANK, 0),
        strides=_strides(layouts),
    )  # fmt: skip
    return kernels.call(kernel, packed, x.storage)
