"""Elements chosen by indexes, by the kernels for the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Never

from .....dtype import DType
from .....kernels import host_arguments
from .....limits import MAX_RANK
from ....base.error import InvalidIndex
from ....core.layout import Layout
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, filled
from ..values import RUN_PARTS, THREADS, IndexRecord, Snapshot
from .native import copied
from .native_copy import Written

if TYPE_CHECKING:
    from ..kernels import HostKernels


def gather(build: ProgramBuilder, _kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Buffer | None:
    """As `index.gather`; None where NumPy does it."""
    return gathered(build, "gather", x, indexes, dim)


def select(build: ProgramBuilder, _kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Buffer | None:
    """As `index.index_select`; None where NumPy does it."""
    return gathered(build, "index_select", x, _along(indexes, x.shape, dim), dim)


def scatter_set(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, indexes: Operand, source: Operand, dim: int
) -> Written:
    """As `index.scatter_set`; None where NumPy does it."""
    return _scatter(build, kernels, "scatter_set", f"scatter_set_b{8 * x.itemsize}", x, indexes, source, dim)


def scatter_add(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, indexes: Operand, source: Operand, dim: int
) -> Written:
    """As `index.scatter_add`; None where NumPy does it."""
    return _scatter(build, kernels, "scatter_add", f"scatter_add_{x.dtype.value}", x, indexes, source, dim)


def index_add(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, indexes: Operand, terms: Operand, dim: int
) -> Buffer | None:
    """As `index.index_add`; None where NumPy does it."""
    kernel = f"scatter_add_{x.dtype.value}"
    if not kernels.has("host_index", kernel) or indexes.layout.elem_count == 0 or terms.layout.elem_count == 0:
        return None
    copy = copied(build, x)
    _scatter(build, kernels, "index_add", kernel, copy, _along(indexes, terms.shape, dim), terms, dim)
    result: Buffer = copy.storage
    return result


def _along(vector: Operand, shape: Sequence[int], dim: int) -> Operand:
    """A vector of indexes for all elements of a shape, but in the chosen dim as many as it has."""
    sizes = (*shape[:dim], *vector.shape, *shape[dim + 1 :])
    strides = [vector.strides[0] if axis == dim else 0 for axis in range(len(shape))]
    return Operand(vector.storage, Layout(sizes, strides, vector.layout.start_offset))


def index_record(op: str, indexes: DType, size: int) -> IndexRecord:
    """The record of an index that is out of range of a dim of a size."""

    def fail(word: int) -> Never:
        raise InvalidIndex(op, indexes.index_of(word), size)

    return IndexRecord(fail)


def gathered(build: ProgramBuilder, op: str, x: Operand, indexes: Operand, dim: int) -> Buffer | None:
    """Choose elements along a dim by indexes, in the shape of these; None where NumPy does it."""
    shape, count, size = indexes.shape, indexes.layout.elem_count, x.shape[dim]
    # NumPy finds no element, or a mark.
    if count == 0:
        return None
    # In the chosen dim an index steps.
    others = [0 if axis == dim else step for axis, step in enumerate(x.strides)]
    mark, index_bytes, index_shift = indexes.dtype.index_form
    result = build.empty(x.dtype, count)
    packed = host_arguments.gather_elements(
        result=result.address, source=x.address, indexes=indexes.address,
        wrong=index_record(op, indexes.dtype, size), run_parts=RUN_PARTS, threads=THREADS, itemsize=x.itemsize,
        index_bytes=index_bytes, index_shift=index_shift, rank=len(shape), index_mark=mark, size=size,
        row_stride=x.strides[dim], count=count, dims=filled(shape[::-1], MAX_RANK, 0),
        strides=_strides(indexes.layout.dense.strides, others, indexes.strides),
    )  # fmt: skip
    build.launch("host_index", "gather", 1, packed)
    return result


def _scatter(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    kernel: str,
    x: Operand,
    indexes: Operand,
    source: Operand,
    dim: int,
) -> Written:
    """Write or add each element of a source to its index along a dim; None where NumPy does it."""
    count, size = indexes.layout.elem_count, x.shape[dim]
    # NumPy looks at indexes of no elements.
    if not kernels.has("host_index", kernel) or count == 0:
        return None
    dtype, shape = x.dtype, indexes.shape
    mark, index_bytes, index_shift = indexes.dtype.index_form
    has_sums = kernel.startswith("scatter_add") and dtype.is_float and dtype.itemsize < DType.F32.itemsize
    sums = build.empty(DType.F32, count // shape[dim] * size).address if has_sums else NULL
    # Nothing shares memory that is new.
    is_new = x.storage.memory.argument is None
    packed = host_arguments.scatter_elements(
        destination=x.address, source=source.address if is_new else Snapshot(source, x),
        indexes=indexes.address if is_new else Snapshot(indexes, x), sums=sums,
        wrong=index_record(op, indexes.dtype, size), run_parts=RUN_PARTS, threads=THREADS, dim=len(shape) - 1 - dim,
        index_bytes=index_bytes, index_shift=index_shift, rank=len(shape), index_mark=mark, size=size,
        dims=filled(shape[::-1], MAX_RANK, 0), strides=_strides(x.strides, source.strides, indexes.strides),
    )  # fmt: skip
    build.launch("host_index", kernel, 1, packed, work=max(count, x.layout.elem_count))
    return ()


def _strides(*layouts: Sequence[int]) -> list[int]:
    """Those of all layouts, as kernels take them."""
    return [stride for strides in layouts for stride in filled(strides[::-1], MAX_RANK, 0)]
