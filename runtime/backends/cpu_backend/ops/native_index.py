"""Elements chosen by indexes, by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Never

from .....dtype import DType
from .....kernels import host_arguments
from .....limits import MAX_RANK
from ....base.error import InvalidIndex
from ....core.layout import Layout
from ....helpers.host_memory import require_room
from ...array_backend.ops.operand import Operand
from ..kernels import Result, Source
from .native import by_plan, filled, sources_of
from .native_copy import Write, plan_dense, unaliased

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage


# The fields before the sizes.
_GATHER_ADDRESSES: Final = 4
_SCATTER_ADDRESSES: Final = 5


@by_plan
def gather(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.gather`; None where NumPy does it."""
    return _plan_gather("gather", kernels, x, indexes, indexes.layout, dim)


@by_plan
def select(kernels: HostKernels, x: Operand, indexes: Operand, dim: int) -> Callable[..., CpuStorage] | None:
    """As `index.index_select`; None where NumPy does it."""
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


def few_indexes(indexes: Operand) -> tuple[int, int, int, int]:
    """How far indexes of a vector are from each other, or 0 for a single one, and the fields of their dtype."""
    layout, (mark, itemsize, shift) = indexes.layout, indexes.dtype.index_form
    return 0 if layout.elem_count == 1 else layout.strides[0], itemsize, shift, mark


def _packed(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The dims of the last layout, and the strides of all."""
    strides = [stride for layout in layouts for stride in filled(layout.strides[::-1], MAX_RANK)]
    return (*filled(layouts[-1].shape[::-1], MAX_RANK), *strides)


def wrong_index(op: str, place: int, indexes: DType, size: int) -> tuple[int, Callable[[int], Never]]:
    """The place of the record of an index that is out of range of a dim of a size, and what raises that."""

    def tell(word: int) -> Never:
        raise InvalidIndex(op, indexes.index_of(word), size)

    return place, tell


def _plan_gather(
    op: str, kernels: HostKernels, x: Operand, indexes: Operand, layout: Layout, dim: int
) -> Callable[..., CpuStorage] | None:
    """What chooses elements by indexes of the layout, which has the shape of the result."""
    kernel = kernels.address("host_index", "gather")
    shape, dtype, source, packer = layout.shape, x.dtype, x.layout, host_arguments.GATHER_ELEMENTS
    require_room(shape, dtype)
    count, size, places = layout.elem_count, source.shape[dim], packer.places
    # NumPy finds no element, or a mark.
    if kernel is None or count == 0:
        return None
    # In the chosen dim an index steps.
    others = Layout(shape, [0 if axis == dim else step for axis, step in enumerate(source.strides)])
    mark, *fields = indexes.dtype.index_form
    packed = packer.pack(
        *(0,) * _GATHER_ADDRESSES, kernels.run_parts, 1, dtype.itemsize, *fields, len(shape), mark, size,
        source.strides[dim], count, *_packed((layout.dense, others, layout)),
    )  # fmt: skip
    sources = sources_of(packer, {"source": x, "indexes": indexes})
    result, wrong = Result(places["result"], count, dtype), wrong_index(op, places["wrong"], indexes.dtype, size)
    return kernels.call(kernel, packer, packed, x.storage, result, sources, wrong=wrong)


def _plan_scatter(
    op: str, kernels: HostKernels, name: str, x: Operand, index_dtype: DType, layouts: Sequence[Layout], dim: int
) -> Write | None:
    """What brings a source to a storage: the layouts are those of the storage, the source and the indexes."""
    target, source, indexes = layouts
    dtype, shape, size = x.dtype, indexes.shape, x.layout.shape[dim]
    kernel, packer = kernels.address("host_index", name), host_arguments.SCATTER_ELEMENTS
    # NumPy looks at indexes of no elements.
    if kernel is None or indexes.elem_count == 0:
        return None
    sizes = dtype.itemsize, dtype.itemsize, index_dtype.itemsize
    begins = [layout.start_offset * itemsize for layout, itemsize in zip(layouts, sizes, strict=True)]
    places = packer.places
    mark, *fields = index_dtype.index_form
    packed = packer.pack(
        *(0,) * _SCATTER_ADDRESSES, kernels.run_parts, 1, len(shape) - 1 - dim, *fields, len(shape), mark, size,
        *_packed(layouts),
    )  # fmt: skip
    lines = indexes.elem_count // shape[dim]
    has_sums = name.startswith("scatter_add") and dtype.is_float and dtype.itemsize < DType.F32.itemsize
    # The plan is given the storage, that of the indexes, and that of the source.
    given = {"destination": 0, "source": 2, "indexes": 1}
    return kernels.call(
        kernel,
        packer,
        packed,
        x.storage,
        (),
        [Source(places[name], first, given[name]) for name, first in zip(given, begins, strict=True)],
        unaliased=[
            unaliased(1, source, dtype, 0, target, dtype),
            unaliased(2, indexes, index_dtype, 0, target, dtype),
        ],
        scratch=Result(places["sums"], lines * size, DType.F32) if has_sums else None,
        wrong=wrong_index(op, places["wrong"], index_dtype, size),
    )
