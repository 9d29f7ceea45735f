"""Reductions of any dims, by way of the last axis of a 2-d array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ...dtype import DType
from ...op import MethodOp, ReduceOp
from ..errors import tells_errors
from ..functors import functors
from ..rows import Monoid, Position
from . import cast
from .operand import Operand

# Sums of so many f32 in a row are added up by a library as it likes.
_BLOCK: Final = 1 << 7


@tells_errors
def reduce(op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...], *parameters: float) -> Any:
    """`op` over `dims`, in row-major order of them, in the dtype of the op's result; the numbers are its parameters."""
    return _prepared(op, operand, dims)(operand.storage, *parameters)


def plan(arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """What does as `reduce` with another storage and other numbers, and finds out nothing anew."""
    return tells_errors(_prepared(*arguments[:3]))


def _prepared(op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...]) -> Callable[..., Any]:
    """The function that reduces what the operand's layout reaches in a storage."""
    library, dtype, device, layout = operand.library, operand.dtype, operand.device.handle, operand.layout
    shape = tuple(layout.shape) or (1,)
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    count = math.prod(shape[dim] for dim in kept)
    columns = math.prod(shape[dim] for dim in dims)
    target = op.result or dtype
    order = (*kept, *sorted(dims))
    is_moved = order != tuple(range(len(shape)))
    is_whole = not is_moved and layout.dense is layout and operand.storage.length == layout.elem_count
    reduction = functors(library).reductions[op]
    of = functors(library).reductions[reduction.of] if isinstance(reduction, Position) else reduction
    assert isinstance(of, Monoid)

    def run(storage: Any, *parameters: float) -> Any:
        if count == 0:
            return storage.result(library.full((0,), 0, library.DTYPES[target], device), target)
        x = storage.data if is_whole else storage.view(layout)
        x = cast.widen(library, library.permute_dims(x, order) if is_moved else x, dtype)
        if not (is_whole and count == 1):
            x = library.reshape(x, (count, columns))
        if isinstance(reduction, Position):
            find = reduction.find or partial(_first, library, of.combine, device)
            return storage.result(library.astype(find(x, len(x.shape) - 1), library.DTYPES[target]), target)
        numbers = [cast.scalar(library, number, dtype.compute, device) for number in parameters]
        found = _joined(library, of, x, device, numbers)
        found = cast.narrow(library, found, target) if target.is_float else cast.wrap(library, found, target)
        return storage.result(found, target)

    return run


def _joined(library: Any, monoid: Monoid, x: Any, device: Any, parameters: Sequence[Any] = ()) -> Any:
    """What the elements of each row make, as an array of one column."""
    axis = len(x.shape) - 1
    columns = x.shape[axis]
    if monoid.element is not None:
        given = () if monoid.given is None else (_joined(library, monoid.given, x, device),)
        x = monoid.element(x, *given)
    if monoid.result is not None:
        x = library.astype(x, library.DTYPES[monoid.result.compute])
    if columns == 0:
        assert monoid.identity is not None
        joined = library.full((*x.shape[:axis], 1), monoid.identity, x.dtype, device)
    elif monoid.accumulate is not None and not library.is_integer(x):
        joined = accumulated(library, monoid.combine, x, monoid.identity)
    else:
        joined = monoid.combine(x, axis, x.dtype)
    return joined if monoid.finish is None else monoid.finish(joined, columns, *parameters)


def accumulated(library: Any, combine: Any, x: Any, identity: float | None = 0) -> Any:
    """Floats joined along the last axis: in f64 where there is one, else in blocks of blocks."""
    wide, axis = library.DTYPES.get(DType.F64), len(x.shape) - 1
    if wide is not None:
        return combine(x, axis, wide)
    while x.shape[axis] > _BLOCK:
        columns = x.shape[axis]
        parts = math.isqrt(columns - 1) + 1
        rest = parts * -(-columns // parts) - columns
        if rest:
            begin = library.reshape(library.constant(identity, x), (1,) * (axis + 1))
            x = library.concat([x, library.broadcast_to(begin, (*x.shape[:axis], rest))], axis)
        x = combine(library.reshape(x, (*x.shape[:axis], parts, -1)), axis + 1, x.dtype)
        x = library.reshape(x, x.shape[:-1])
    return combine(x, axis, x.dtype)


def _first(library: Any, combine: Any, device: Any, x: Any, axis: int) -> Any:
    """The position of the element that `combine` finds in each row: the first of equals, or the first NaN."""
    columns = x.shape[axis]
    is_found = x == combine(x, axis, x.dtype)
    if not library.is_integer(x):
        is_nan = library.isnan(x)
        has_nan = library.max(library.astype(is_nan, library.DTYPES[DType.U8]), axis) != 0
        is_found = library.where(has_nan, is_nan, is_found)
    every = library.arange(columns, device)
    positions = library.where(is_found, every, library.constant(columns, every))
    return library.min(positions, axis)
