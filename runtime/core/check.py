"""Checks of shapes and arguments that precede every backend.

Each function raises one of the errors of `tallow.error` or returns None. The first argument is the op's name.
Those of layers, blocks of weights and optimisers are in `layer_check`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...dtype import DType
from ..base.error import EmptyTensor, InvalidArgument, ShapeMismatch, UnsupportedDType, describe
from . import padding
from .layout import Layout, distinct
from .random import uniform_range
from .result_shapes import reduced
from .shape import Shape

if TYPE_CHECKING:
    from ...op import BinaryOp, ReduceOp
    from .protocols import DeviceLike, OnDevice, Ranks, Sized, Typed

# Of a dtype, why complex numbers are not converted to it.
LACKS_PARTS: Final = "has no imaginary part; take real(), imag() or abs() first"


def known_dtype(op: str, dtype: DType, dtypes: frozenset[DType], device: DeviceLike, reason: str) -> None:
    """Check that an op of a device has the dtype."""
    if dtype not in dtypes:
        raise UnsupportedDType(op, dtype, device.backend, reason)


def same_shape(op: str, *layouts: Layout | None) -> None:
    """Check that all operands that are not None have one shape."""
    present = [layout for layout in layouts if layout is not None]
    shape = present[0].shape
    for layout in present:
        if layout.shape is not shape and layout.shape != shape:
            shapes = tuple(layout.shape for layout in present)
            raise ShapeMismatch(op, shapes, "the shapes must be equal; use broadcast_as or reshape first")


def no_repeats(op: str, layout: Layout) -> None:
    """Check that what is written has no dim along which all elements are one."""
    if 0 in layout.strides and layout.elem_count and layout.repeated_dims:
        raise InvalidArgument(op, f"shape {layout.shape} repeats elements, which stand in memory once; write to a copy")


def keeps_dtype(op: str, binary: BinaryOp, dtype: DType) -> None:
    """Check that the result of an op has the dtype of its operand, so that it can be written in place."""
    result = binary.result_of(dtype)
    if result is not dtype:
        raise InvalidArgument(op, f"it gives {result.value}, which {dtype.value} cannot represent; make a new tensor")


def keeps_parts(op: str, storage: OnDevice, dtype: DType) -> None:
    """Check that no imaginary part is lost but in truth values."""
    source = storage.dtype
    if source.is_complex and not dtype.is_complex and dtype.kind != "bool":
        reason = f"{dtype.value} {LACKS_PARTS}"
        raise UnsupportedDType(op, source, storage.device.backend, reason)


def dim_in_range(op: str, layout: Layout, dim: int) -> None:
    """Check that `dim` is one of the dims, counted from the front."""
    if not 0 <= dim < layout.rank:
        raise InvalidArgument(op, f"dim {dim} does not exist in shape {layout.shape}; use one from 0 below its rank")


def has_last_dim(op: str, layout: Layout) -> None:
    """Check that there is a dim along which rows lie."""
    if not layout.shape:
        raise ShapeMismatch(op, (layout.shape,), "there is no dim to go over; unsqueeze it first")


def along_dim(op: str, layout: Layout, vector: Layout | None, dim: int) -> None:
    """Check that an operand that may be left out is a vector of the size of a dim."""
    if vector is not None and vector.shape != (layout.shape[dim],):
        which = "the last dim" if dim == -1 else f"dim {dim}"
        reason = f"an operand along the row is a vector of the size of {which}, {layout.shape[dim]}"
        raise ShapeMismatch(op, (layout.shape, vector.shape), reason)


def has_each_row(op: str, layout: Layout, numbers: Layout, dim: int) -> None:
    """Check that an operand has an element for each row along a dim."""
    shape, dim = layout.shape, dim % len(layout.shape)
    if numbers.shape != (*shape[:dim], *shape[dim + 1 :]):
        reason = f"an operand for each row has the shape without dim {dim}, along which rows are; reshape or narrow it"
        raise ShapeMismatch(op, (shape, numbers.shape), reason)


def in_compute_dtype(op: str, dtype: DType, numbers: DType) -> None:
    """Check that numbers of rows of a dtype are in its compute dtype."""
    has_compute_dtype(op, "numbers of rows", dtype, numbers)


def sorted_count(op: str, count: int, layout: Layout) -> None:
    """Check that a line of a layout has `count` elements."""
    length = layout.shape[-1] if layout.shape else 1
    if not 0 <= count <= length:
        raise InvalidArgument(op, f"count is from 0 to {length}, the elements along the last dim, not {count}")


def searched_lines(op: str, layout: Layout, values_layout: Layout) -> None:
    """Check that there is a line of elements for each line of values, or one for all."""
    if not layout.rank:
        raise ShapeMismatch(op, (layout.shape,), "what is in order is a line of elements; unsqueeze it first")
    if layout.rank > 1 and layout.shape[:-1] != values_layout.shape[:-1]:
        reason = "each line of values has its line in order, or all have one, a vector; reshape or expand them first"
        raise ShapeMismatch(op, (layout.shape, values_layout.shape), reason)


def has_points(op: str, layout: Layout) -> None:
    """Check that there is a last dim to transform along."""
    if not layout.shape.rank or not layout.shape[-1]:
        raise ShapeMismatch(op, (layout.shape,), "a transform has at least 1 point along the last dim")


def half_transform(op: str, layout: Layout, count: int) -> None:
    """Check that lines have the first half of transforms of `count` real points."""
    has_points(op, layout)
    length = layout.shape[-1]
    if count < 1 or length != count // 2 + 1:
        counts = "1 real point" if length == 1 else f"{2 * length - 2} or {2 * length - 1} real points"
        raise InvalidArgument(op, f"{length} elements are half of the transform of {counts}, not of {count}")


def matrices(op: str, layout: Layout) -> None:
    """Check that the last two dims are those of matrices."""
    if layout.rank < 2:
        raise ShapeMismatch(op, (layout.shape,), "a matrix has 2 dims; unsqueeze the tensor first")


def square(op: str, layout: Layout) -> None:
    """Check that matrices have as many rows as columns."""
    matrices(op, layout)
    if layout.shape[-1] != layout.shape[-2]:
        raise ShapeMismatch(op, (layout.shape,), "the matrices are square; narrow them, or use qr or svd")


def has_diagonal(op: str, layout: Layout, diagonal: int) -> None:
    """Check that a diagonal goes through matrices, or along an edge of them."""
    matrices(op, layout)
    rows, columns = layout.shape[-2:]
    if not -rows <= diagonal <= columns:
        raise InvalidArgument(
            op, f"the diagonals of {layout.shape} are {-rows} to {columns}; {diagonal} is none of them"
        )


def columns_for(op: str, layout: Layout, values_layout: Layout) -> None:
    """Check that there is a matrix of columns for each matrix, with as many rows."""
    matrices(op, values_layout)
    if layout.shape[:-1] != values_layout.shape[:-1]:
        reason = "there are columns for each of the matrices, as long as these; unsqueeze or broadcast them first"
        raise ShapeMismatch(op, (layout.shape, values_layout.shape), reason)


def reduce_dims(op: str, reduce: ReduceOp, layout: Layout, dims: Sequence[int]) -> None:
    """Check that the dims exist, that none is named twice, and that no op without an identity reduces zero elements."""
    distinct_dims(op, layout, dims)
    if reduce.needs_elements and 0 in layout.shape and 0 not in reduced(layout.shape, dims):
        raise EmptyTensor(reduce.value)


def distinct_dims(op: str, layout: Layout, dims: Sequence[int]) -> None:
    """Check that the dims exist, and that none is named twice."""
    for dim in dims:
        dim_in_range(op, layout, dim)
    if len(set(dims)) != len(dims):
        raise InvalidArgument(op, f"dims {tuple(dims)} name a dim twice; name each once")


def distinct_positions(op: str, shape: Shape, dims: Iterable[int]) -> list[int]:
    """Return dims counted from the front; `InvalidArgument` where one is named twice."""
    positions = [shape.dim(op, dim) for dim in dims]
    if len({*positions}) != len(positions):
        raise InvalidArgument(op, f"dims {tuple(positions)} name a dim twice; name each once")
    return positions


def several_layouts(op: str, storages: Sequence[Sized], layouts: Sequence[Layout]) -> None:
    """Check that there is a layout for each storage, and that it stays inside of it."""
    if len(storages) != len(layouts):
        raise InvalidArgument(op, f"there are {len(storages)} storages and {len(layouts)} layouts; give each its own")
    for storage, layout in zip(storages, layouts, strict=True):
        layout.check(op, storage.length)


def cat_shapes(op: str, layout: Layout, other_layouts: Sequence[Layout], dim: int) -> None:
    """Check that `dim` exists, and that the others have the same sizes in every dim but this one."""
    dim_in_range(op, layout, dim)
    for other in distinct(other_layouts):
        require_alike_but(op, dim, layout.shape, other.shape)


def require_alike_but(op: str, dim: int, shape: Shape, other: Shape) -> None:
    """Raise `ShapeMismatch` unless two shapes are equal in every dim but one."""
    if len(other) != len(shape) or other[:dim] != shape[:dim] or other[dim + 1 :] != shape[dim + 1 :]:
        reason = f"the shapes must be equal in every dim but {dim}; reshape or narrow one of the tensors"
        raise ShapeMismatch(op, (shape, other), reason)


def pad_dims(op: str, layout: Layout, border: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Check that the border exists, and that each dim has the elements that its padding takes."""
    if border not in padding.MODES:
        raise InvalidArgument(op, f"border is {', '.join(map(repr, padding.MODES))}, not {describe(border)}")
    shape = layout.shape
    if not len(shape) == len(before) == len(after):
        reason = f"before and after have a number for each of the {len(shape)} dims, not {len(before)} and {len(after)}"
        raise InvalidArgument(op, reason)
    for dim, (size, front, back) in enumerate(zip(shape, before, after, strict=True)):
        require_enough(op, border, dim, size, max(front, back))
        if min(front, back, front + back) < -size:
            raise InvalidArgument(op, f"dim {dim} has {size} elements, of which {front} and {back} leave too few")


def require_enough(op: str, mode: str, dim: int, size: int, count: int) -> None:
    """Raise InvalidArgument if a dim has too few elements to pad an end with `count` new ones."""
    needed = padding.needed(mode, count) if count > 0 else 0
    if size < needed:
        reason = f"mode {mode!r} with a padding of {count} needs {needed} elements, and dim {dim} has {size}"
        raise InvalidArgument(op, reason)


def gather_shapes(op: str, layout: Layout, indexes_layout: Layout, dim: int) -> None:
    """Check that the indexes have the rank of the tensor and, in every dim but `dim`, at most its size."""
    shape, indexes = layout.shape, indexes_layout.shape
    fits = len(indexes) == len(shape) and all(
        count <= size for position, (count, size) in enumerate(zip(indexes, shape, strict=True)) if position != dim
    )
    if not fits:
        reason = f"the indexes need the rank of the tensor and, in every dim but {dim}, at most its size"
        raise ShapeMismatch(op, (shape, indexes), reason)


def scatter_shapes(op: str, layout: Layout, indexes_layout: Layout, source_layout: Layout, dim: int) -> None:
    """Check that the source has the shape of the indexes, and that those fit the tensor as for gather.

    The tensor is written: InvalidArgument if elements of it share memory, as in a broadcast view.
    """
    if source_layout.shape != indexes_layout.shape:
        reason = "the source must have the shape of the indexes; narrow or broadcast one of them"
        raise ShapeMismatch(op, (source_layout.shape, indexes_layout.shape), reason)
    gather_shapes(op, layout, indexes_layout, dim)
    if layout.overlaps_itself:
        raise InvalidArgument(op, "the tensor has one element at several positions; call contiguous() on it first")


def index_add_shapes(op: str, layout: Layout, indexes_layout: Layout, source_layout: Layout, dim: int) -> None:
    """Check that each row of the source along `dim` has an index, and that its other dims are the tensor's."""
    index_vector(op, indexes_layout)
    shape, source, (count,) = layout.shape, source_layout.shape, indexes_layout.shape
    expected = Shape((*shape[:dim], count, *shape[dim + 1 :]))
    if source != expected:
        reason = f"{count} indexes along dim {dim} of the first need a source of shape {expected}"
        raise ShapeMismatch(op, (shape, source), reason)


def index_vector(op: str, indexes_layout: Layout) -> None:
    """Check that the indexes are a vector."""
    if indexes_layout.rank != 1:
        raise ShapeMismatch(op, (indexes_layout.shape,), "the indexes must have rank 1; flatten them first")


def matmul_shapes(op: str, bmnk: tuple[int, int, int, int], lhs_layout: Layout, rhs_layout: Layout) -> None:
    """Check that the layouts hold b matrices (m, k) and b matrices (k, n), in the same batch dims."""
    b, m, n, k = bmnk
    lhs, rhs = lhs_layout.shape, rhs_layout.shape
    fits = lhs[-2:] == (m, k) and rhs[-2:] == (k, n) and lhs[:-2] == rhs[:-2] and math.prod(lhs[:-2]) == b
    if not fits:
        raise ShapeMismatch(op, (lhs, rhs), f"{b} products need equal batch dims, then ({m}, {k}) and ({k}, {n})")


def is_vector(op: str, layout: Layout) -> None:
    """Check that there is one dim."""
    has_rank(op, layout, 1)


def has_compute_dtype(op: str, what: str, dtype: DType, actual: DType) -> None:
    """Check that what belongs to elements of a dtype is in its compute dtype."""
    if actual is not dtype.compute:
        reason = f"{what} must be in {dtype.compute.value}, the compute dtype of {dtype.value}, not {actual.value}"
        raise InvalidArgument(op, f"{reason}; convert with to_dtype first")


def layout_fits(op: str, storage: Sized, layout: Layout) -> None:
    """Check that a layout reaches elements of a storage alone."""
    layout.check(op, storage.length)


def copy_fits(op: str, dst: Sized, dst_offset: int, src_layout: Layout) -> None:
    """Check that the elements fit into the destination from `dst_offset` on."""
    Layout.contiguous(src_layout.shape, dst_offset).check(op, dst.length)


def copy2d_fits(
    op: str,
    src: Sized,
    dst: Sized,
    d1: int,
    d2: int,
    src_stride: int,
    dst_stride: int,
    src_offset: int,
    dst_offset: int,
) -> None:
    """Check that every row lies inside its storage, and that no two rows of the destination overlap."""
    sizes = d1, d2, src_stride, dst_stride
    if min(sizes) < 0:
        raise InvalidArgument(op, f"d1, d2 and the strides are 0 or more, not {sizes}")
    rows = Shape((d1, d2))
    Layout(rows, (src_stride, 1), src_offset).check(op, src.length)
    Layout(rows, (dst_stride, 1), dst_offset).check(op, dst.length)
    if d1 > 1 and dst_stride < d2:
        raise InvalidArgument(op, f"rows of {d2} elements overlap at a dst_stride of {dst_stride}; use {d2} or more")


def integer_bounds(op: str, lo: int, up: int) -> None:
    """Check that there are i64 integers from `lo` to below `up`, at most 2**63 of them."""
    if not -(1 << 63) <= lo < up <= 1 << 63 or up - lo > 1 << 63:
        reason = f"lo is below up, both from -2**63 to 2**63 and up - lo at most 2**63, not lo {lo} and up {up}"
        raise InvalidArgument(op, reason)


def uniform_bounds(op: str, lo: float, up: float, dtype: DType) -> None:
    """Check that the bounds are finite, that lo is below up, and that the dtype has a number between them."""
    uniform_range(lo, up, dtype, op)


def normal_parameters(op: str, mean: float, std: float) -> None:
    """Check that the mean is finite, and the standard deviation finite and not negative."""
    if not math.isfinite(mean) or not 0 <= std < math.inf:
        raise InvalidArgument(op, f"the mean is finite and std is finite and 0 or more, not mean {mean} and std {std}")


def has_rank(op: str, layout: Layout, rank: int) -> None:
    """Check the number of dims."""
    if layout.rank != rank:
        reason = f"the input has {rank} dims, not {layout.rank}; reshape or unsqueeze it first"
        raise ShapeMismatch(op, (layout.shape,), reason)


_REDUCTIONS = ("sum", "prod", "min", "max", "mean")
# Of the kinds of dtypes that lack some: the others have no order, or no sums.
_REDUCTIONS_OF = {
    "bool": ("min", "max"),
    "complex": ("sum", "mean"),
    "signed": _REDUCTIONS[:-1],
    "unsigned": _REDUCTIONS[:-1],
}


def reduction_known(op: str, storage: Typed, reduction: str) -> None:
    """Check that ranks can join elements of a dtype so."""
    if reduction not in _REDUCTIONS:
        raise InvalidArgument(op, f"reduction is one of {', '.join(_REDUCTIONS)}, not {describe(reduction)}")
    own = _REDUCTIONS_OF.get(storage.dtype.kind, _REDUCTIONS)
    if reduction not in own:
        reason = f"the reduction of {storage.dtype} is {', '.join(own[:-1])} or {own[-1]}, not {reduction}"
        raise InvalidArgument(op, f"{reason}; convert with to_dtype first")


def rank_known(op: str, rank: int, group: Ranks) -> None:
    """Check that a group has a rank of this number."""
    if not 0 <= rank < group.size:
        raise InvalidArgument(op, f"a rank of the group is from 0 to {group.size - 1}, not {rank}")


def divided(op: str, layout: Layout, group: Ranks) -> None:
    """Check that the ranks of a group can divide the first dim."""
    if not layout.shape or layout.shape[0] % group.size:
        reason = f"the first dim must be a multiple of the {group.size} ranks of the group"
        raise ShapeMismatch(op, (layout.shape,), reason)
