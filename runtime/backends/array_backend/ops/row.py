"""Functions of the elements of a row and of reductions over it: in f64 where the library has it, else in f32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....array_functors import functors
from .....dtype import DType
from .....kernels.constants import ROWS
from .....op import MethodOp
from ....numerics.numerics import accumulated
from ....program.row_variants import variant_for
from .. import strided
from . import cast
from .operand import Operand


def row(op: MethodOp, *values: Operand | float | None) -> Any:
    """`op` of operands along a dim, which comes after them; then which totals are wanted, and the parameters.

    Operands have one shape or are vectors along the row; those that are left out are None.
    """
    variant, arguments = variant_for(op.value, values)
    facts = ROWS[variant]
    if facts.has_numbers:
        return _with_numbers(op, variant, *arguments)
    count = len(facts.absent)
    operands: list[Any] = [*arguments[:count]]
    options: list[Any] = [*arguments[count:]]
    residual = options.pop(0) if facts.adds_residual else None
    x = operands[0]
    library, shape = x.library, x.layout.shape
    axis = len(shape) - 1 if facts.last_dim else int(options.pop(0))
    wanted = [bool(is_wanted) for is_wanted in options[: facts.totals]]
    numbers: Sequence[float] = options[facts.totals :]
    sums = []
    if residual is not None:
        wide = [cast.widen(library, each.array, x.dtype) for each in (x, residual)]
        sums = [x.result(cast.narrow(library, wide[0] + wide[1], x.dtype))]
        operands[0] = type(x)(sums[0], residual.layout.dense)
    if x.layout.elem_count == 0:
        outputs = [x.result(x.array) for _ in range(facts.results)]
        return _several(facts.outputs, [*outputs, *[x.result(_zeros(x, shape[axis])) for it in wanted if it], *sums])
    order = (*[other for other in range(len(shape)) if other != axis], axis)
    back = tuple([order.index(other) for other in range(len(shape))])

    def moved(operand: Operand) -> Any:
        """The elements with rows along the last axis, with which vectors along the row are broadcast."""
        wide = cast.widest(library, operand.array, operand.dtype)
        return library.permute_dims(wide, order) if len(operand.layout.shape) == len(shape) else wide

    first = moved(operands[0])
    arrays = [first]
    for operand, number in zip(operands[1:], facts.absent[1:], strict=True):
        arrays.append(library.constant(number, first) if operand is None else moved(operand))
    parameters = [library.constant(float(number), first) for number in numbers]
    positions = library.astype(library.arange(shape[axis], library.device_of(first)), first.dtype)
    compute = functors(library).rows[variant].compute
    results = compute(*arrays, *parameters, library.constant(float(shape[axis]), first), positions)
    full = [library.broadcast_to(each, first.shape) for each in results]
    elements = [library.permute_dims(each, back) for each in full[: facts.results]]
    totals = [_total(library, each) for each, it in zip(full[facts.results :], wanted, strict=True) if it]
    outputs = [x.result(cast.narrow(library, each, x.dtype)) for each in (*elements, *totals)]
    return _several(facts.outputs, [*outputs, *sums])


def _with_numbers(op: MethodOp, variant: str, *arguments: Any) -> Any:
    """Compute an op that takes or returns numbers of rows, or reads an index of each."""
    facts = ROWS[variant]
    count = len(facts.absent)
    operands, numbers = arguments[:count], arguments[count : count + facts.numbers]
    options = [*arguments[count + facts.numbers :]]
    x, index = operands[0], options.pop(0) if facts.has_index else None
    library, shape, compute = x.library, x.layout.shape, x.dtype.compute
    axis = len(shape) - 1 if facts.last_dim else int(options.pop(0))
    ignored = options.pop(0) if facts.has_index else 0
    drops = facts.saved > 0 and not options[0]
    parameters = options[facts.numbers > 0 or facts.saved > 0 :]
    rows, size = (*shape[:axis], *shape[axis + 1 :]), shape[axis]
    order = (*[other for other in range(len(shape)) if other != axis], axis)
    back = tuple([order.index(other) for other in range(len(shape))])
    first = library.permute_dims(cast.widest(library, x.array, x.dtype), order)
    arrays = [first]
    for operand, absent in zip(operands[1:], facts.absent[1:], strict=True):
        if operand is None:
            # Sums of it have as many terms as those of a vector along the row.
            arrays.append(library.broadcast_to(library.constant(absent, first), (size,)))
        else:
            wide = cast.widest(library, operand.array, operand.dtype)
            arrays.append(library.permute_dims(wide, order) if len(operand.layout.shape) == len(shape) else wide)
    column = (*rows, 1)
    arrays += [library.reshape(cast.widest(library, each.array, each.dtype), column) for each in numbers]
    counts = None
    if index is not None:
        columns, is_counted = _indexes(op.value, index, ignored, size)
        counts = library.reshape(is_counted, column)
        arrays.append(library.reshape(columns, column) == library.arange(size, library.device_of(first)))
    constants = [library.constant(float(number), first) for number in parameters]
    positions = library.astype(library.arange(size, library.device_of(first)), first.dtype)
    compute_rows = functors(library).rows[variant].compute
    if x.layout.elem_count == 0:
        empty = library.full(column, 0, first.dtype, x.device.handle)
        results = (*[empty] * facts.number_results, *[first] * facts.results)
    else:
        results = compute_rows(*arrays, *constants, library.constant(float(size), first), positions)
    if counts is not None:
        results = tuple([library.where(counts, each, library.constant(0, first)) for each in results])
    if not facts.number_results:
        outputs = library.permute_dims(library.broadcast_to(results[0], first.shape), back)
        return x.result(cast.narrow(library, outputs, x.dtype))
    results = results[: len(results) - facts.saved * drops]
    outputs = [library.reshape(library.broadcast_to(each, column), rows) for each in results]
    return tuple([x.result(library.astype(each, library.DTYPES[compute]), compute) for each in outputs])


def _indexes(op: str, index: Operand, ignored: int, size: int) -> tuple[Any, Any]:
    """The position that each index names, and whether it counts; one that is out of range is noted."""
    library = index.library
    columns = library.reshape(library.astype(index.array, library.DTYPES[DType.I64]), tuple(index.layout.shape))
    is_counted = columns != ignored
    if index.dtype.index_mark is not None:
        is_counted = is_counted & (columns != library.constant(index.dtype.index_form[0], columns))
    if strided.size(columns):
        is_wrong = is_counted & ((columns < 0) | (columns >= size))
        index.device.note(op, library.reshape(index.array, tuple(index.layout.shape)), is_wrong, size)
    return columns, is_counted


def _several(count: int, outputs: Sequence[Any]) -> Any:
    return tuple(outputs) if count > 1 else outputs[0]


def _total(library: Any, x: Any) -> Any:
    """The sum over all rows, which lie along the last axis."""
    size = x.shape[-1]
    columns = library.permute_dims(library.reshape(x, (-1, size)), (1, 0))
    return library.reshape(accumulated(library, library.sum, columns), (size,))


def _zeros(x: Operand, size: int) -> Any:
    return x.library.full((size,), 0, x.library.DTYPES[x.dtype], x.device.handle)
