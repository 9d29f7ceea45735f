"""Reductions of any dims, as reductions of the last axis of a 2-d array."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .....array_functors import functors
from .....dtype import DType
from .....op import MethodOp, ReduceOp
from ....numerics.numerics import accumulated
from ....numerics.rows import Monoid, Position
from ....program.builder import ProgramBuilder
from ....program.program import HostCall
from ....program.values import Parameter
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import ArrayStorage

# Reductions of distances from the mean.
_CENTRED: Final = (MethodOp.VAR, MethodOp.STD)


def reduce(
    build: ProgramBuilder,
    op: ReduceOp | MethodOp,
    operand: Operand,
    dims: tuple[int, ...],
    *parameters: float | Parameter,
) -> HostCall:
    """`op` over `dims`, in row-major order of them, in the dtype of the op's result; the numbers are its parameters."""
    function = reducing(build.facts.library, build.facts.handle, op, operand, dims)
    return build.host(function, operand.storage, *parameters)


def reducing(
    library: Any, device: Any, op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...]
) -> Callable[..., ArrayStorage]:
    """The function of a storage like that of the operand, and of numbers, that reduces as `reduce` does."""
    dtype, layout = operand.dtype, operand.layout
    shape = tuple(layout.shape) or (1,)
    remaining = [dim for dim in range(len(shape)) if dim not in dims]
    count = math.prod(shape[dim] for dim in remaining)
    columns = math.prod(shape[dim] for dim in dims)
    target = op.result_of(dtype)
    order = (*remaining, *sorted(dims))
    is_moved = order != tuple(range(len(shape)))
    is_full = not is_moved and layout.dense is layout and operand.storage.length == layout.elem_count
    # A full storage that is reduced to one element needs no shape.
    rows = () if is_full and count == 1 else (count, columns)
    reduction = functors(library).reductions[op]
    if isinstance(reduction, Position):
        of = functors(library).reductions[reduction.of]
        assert isinstance(of, Monoid)
        reduced = _found(library, reduction.find or partial(_first, library, of.combine, device), target)
    else:
        wide = cast.accumulating(library, dtype) if dtype.is_inexact else None
        reduced = _joined(library, reduction, columns, dtype.is_float or wide is not None, wide, device)

    def run(storage: ArrayStorage, *numbers: float) -> ArrayStorage:
        if count == 0:
            return storage.result(library.full((0,), 0, library.DTYPES[target], device), target)
        x = storage.data if is_full else storage.view(layout)
        x = cast.widen(library, library.permute_dims(x, order) if is_moved else x, dtype)
        if rows:
            x = library.reshape(x, rows)
        unit = None
        if isinstance(reduction, Monoid) and reduction.reads_unit and columns:
            f64 = library.DTYPES.get(DType.F64)
            if f64 is not None and dtype is DType.F32:
                # Squares of f32 are numbers of f64, and then are not rounded before they are added up.
                x = library.astype(x, f64)
            else:
                unit = _unit_of(library, x)
                x = x / unit
        if op in _CENTRED and columns:
            # The mean of equal elements may be rounded, their distances from the first one are 0.
            x = x - x[..., :1]
        if op is ReduceOp.CENTRE and columns:
            # The mean of the distances from a mean makes up for the rounding of this one.
            mean = reduced(x)
            result = mean + reduced(x - mean)
            result = result if unit is None else result * unit
        else:
            result = reduced(x, unit, *[cast.scalar(library, number, dtype.compute, device) for number in numbers])
        if target.is_inexact:
            result = cast.narrow(library, result, target)
        else:
            # Truth values are reduced as numbers.
            own = library.DTYPES[target]
            result = cast.wrap(library, result if result.dtype == own else library.astype(result, own), target)
        return storage.result(result, target)

    return run


def _found(library: Any, find: Callable[[Any, int], Any], target: DType) -> Callable[..., Any]:
    """The function that says where in each row of an array something is, as an array of one column."""
    own = library.DTYPES[target]
    return lambda x, _: library.astype(find(x, len(x.shape) - 1), own)


def _joined(
    library: Any, monoid: Monoid, columns: int, is_widened: bool, accumulating: Any, device: Any
) -> Callable[..., Any]:
    """The function of the elements of rows, their units and parameters, whose result is an array of a column."""
    units = None if monoid.inner is None else _joined(library, monoid.inner, columns, is_widened, accumulating, device)
    element, finish, combine, identity = monoid.element, monoid.finish, monoid.combine, monoid.identity
    result = None if monoid.result is None else library.DTYPES[monoid.result.compute]
    is_accumulated = monoid.accumulate is not None and is_widened and result is None
    wide = accumulating if is_accumulated else None

    def run(x: Any, unit: Any = None, *parameters: Any) -> Any:
        axis = len(x.shape) - 1
        if element is not None and columns:
            x = element(x) if units is None else element(x, units(x))
        own = x.dtype if result is None else result
        if columns == 0:
            assert identity is not None
            result_of = library.full((*x.shape[:axis], 1), identity, own, device)
        elif is_accumulated and wide is None:
            result_of = accumulated(library, combine, x, identity)
        else:
            # A library may join elements in their own dtype.
            x = x if x.dtype == own else library.astype(x, own)
            result_of = combine(x, axis, own if wide is None else wide)
        return result_of if finish is None else finish(result_of, columns, 1 if unit is None else unit, *parameters)

    return run


def _unit_of(library: Any, x: Any) -> Any:
    """The power of two of about the largest magnitude along the last axis; 1 where that is 0 or no number."""
    largest, one = library.max(library.abs(x), len(x.shape) - 1), library.constant(1, x)
    largest = library.where((largest > library.constant(0, x)) & ~library.isinf(largest), largest, one)
    # Both the power and its inverse are ordinary numbers.
    bound = 120 if x.dtype == library.DTYPES[DType.F32] else 1000
    exponent = library.floor(library.log2(largest))
    exponent = library.minimum(library.maximum(exponent, library.constant(-bound, x)), library.constant(bound, x))
    return library.exp2(exponent)


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
