"""Reductions of any dims, by way of the last axis of a 2-d array."""

from __future__ import annotations

import math
from typing import Any, Final

from ...dtype import DType
from ...op import ReduceOp
from ..errors import tells_errors
from ..functors import functors
from ..rows import Monoid, Position
from . import cast
from .operand import Operand

# Sums of so many f32 in a row are added up by a library as it likes.
_BLOCK: Final = 1 << 7


@tells_errors
def reduce(op: ReduceOp, operand: Operand, dims: tuple[int, ...]) -> Any:
    """`op` over `dims`, in row-major order of them, in the dtype of the op's result."""
    library, dtype = operand.library, operand.dtype
    x = operand.array
    rank = len(x.shape)
    kept = [dim for dim in range(rank) if dim not in dims]
    count = math.prod(x.shape[dim] for dim in kept)
    columns = math.prod(x.shape[dim] for dim in range(rank) if dim in dims)
    target = op.result or dtype
    device = operand.device.handle
    if count == 0:
        return operand.result(library.full((0,), 0, library.DTYPES[target], device), target)
    order = (*kept, *sorted(dims))
    moved = x if order == tuple(range(rank)) else library.permute_dims(x, order)
    rows = library.reshape(cast.widen(library, moved, dtype), (count, columns))
    reduction = functors(library).reductions[op]
    if isinstance(reduction, Position):
        of = functors(library).reductions[reduction.of]
        assert isinstance(of, Monoid)
        return operand.result(_first(library, rows, of.combine, device), target)
    result = _joined(library, reduction, rows, device)
    return operand.result(cast.narrow(library, result, target) if target.is_float else cast.wrap(library, result, target), target)


def _joined(library: Any, monoid: Monoid, x: Any, device: Any) -> Any:
    """What the elements of each row make, as an array of one column."""
    columns = x.shape[1]
    if monoid.element is not None:
        x = monoid.element(x)
    if monoid.result is not None:
        x = library.astype(x, library.DTYPES[monoid.result.compute])
    is_float = not library.is_integer(x)
    if columns == 0:
        assert monoid.identity is not None
        joined = library.full((x.shape[0], 1), monoid.identity, x.dtype, device)
    elif is_float and monoid.accumulate is not None:
        joined = accumulated(library, monoid.combine, x, monoid.identity or 0)
    else:
        joined = monoid.combine(x, 1)
    return joined if monoid.finish is None else monoid.finish(joined, columns)


def accumulated(library: Any, combine: Any, x: Any, identity: float = 0) -> Any:
    """Floats joined along the last axis: in f64 where there is one, else in blocks of blocks, beginning with 0.0."""
    wide = library.DTYPES.get(DType.F64)
    begin = library.constant(identity, x)
    if wide is not None:
        joined = combine(library.astype(x, wide), len(x.shape) - 1)
        return joined + library.astype(begin, wide) if identity == 0 else joined
    axis = len(x.shape) - 1
    while x.shape[axis] > _BLOCK:
        columns = x.shape[axis]
        parts = math.isqrt(columns - 1) + 1
        rest = parts * -(-columns // parts) - columns
        if rest:
            shape = (*x.shape[:axis], rest)
            x = library.concat([x, library.broadcast_to(library.reshape(begin, (1,) * len(shape)), shape)], axis)
        x = combine(library.reshape(x, (*x.shape[:axis], parts, -1)), axis + 1)
        x = library.reshape(x, x.shape[:-1])
    joined = combine(x, axis)
    return joined + begin if identity == 0 else joined


def _first(library: Any, x: Any, combine: Any, device: Any) -> Any:
    """The u32 position of the element that `combine` finds in each row: the first of equals, or the first NaN."""
    columns = x.shape[1]
    is_found = x == combine(x, 1)
    if not library.is_integer(x):
        is_nan = library.isnan(x)
        has_nan = library.max(library.astype(is_nan, library.DTYPES[DType.U8]), 1) != 0
        is_found = library.where(has_nan, is_nan, is_found)
    every = library.arange(columns, device)
    positions = library.where(is_found, every, library.constant(columns, every))
    return library.astype(library.min(positions, 1), library.DTYPES[DType.U32])


