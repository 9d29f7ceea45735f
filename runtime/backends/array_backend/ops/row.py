"""Functions of the elements of a row and of reductions over it: in f64 where the library has it, else in f32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....array_functors import functors
from .....kernels.constants import ROWS
from .....op import MethodOp
from ....numerics.numerics import accumulated
from . import cast
from .operand import Operand


def row(op: MethodOp, *arguments: Operand | float | None) -> Any:
    """`op` of operands along a dim, which comes behind them; then which totals are asked for, and the parameters.

    Operands have one shape or are vectors along the row; those that are left out are None.
    """
    facts = ROWS[op.value]
    count = len(facts.absent)
    operands: list[Any] = [*arguments[:count]]
    rest: list[Any] = [*arguments[count:]]
    residual = rest.pop(0) if facts.adds_residual else None
    x = operands[0]
    library, shape = x.library, x.layout.shape
    axis = len(shape) - 1 if facts.last_dim else int(rest.pop(0))
    asked = [bool(is_asked) for is_asked in rest[: facts.totals]]
    numbers: Sequence[float] = rest[facts.totals :]
    sums = []
    if residual is not None:
        wide = [cast.widen(library, each.array, x.dtype) for each in (x, residual)]
        sums = [x.result(cast.narrow(library, wide[0] + wide[1], x.dtype))]
        operands[0] = type(x)(sums[0], residual.layout.dense)
    if x.layout.elem_count == 0:
        made = [x.result(x.array) for _ in range(facts.results)]
        return _several(facts.outputs, [*made, *[x.result(_zeros(x, shape[axis])) for it in asked if it], *sums])
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
    compute = functors(library).rows[op].compute
    found = compute(*arrays, *parameters, library.constant(float(shape[axis]), first), positions)
    whole = [library.broadcast_to(each, first.shape) for each in found]
    elements = [library.permute_dims(each, back) for each in whole[: facts.results]]
    totals = [_total(library, each) for each, it in zip(whole[facts.results :], asked, strict=True) if it]
    made = [x.result(cast.narrow(library, each, x.dtype)) for each in (*elements, *totals)]
    return _several(facts.outputs, [*made, *sums])


def _several(count: int, made: Sequence[Any]) -> Any:
    return tuple(made) if count > 1 else made[0]


def _total(library: Any, x: Any) -> Any:
    """The sum over all rows, which lie along the last axis."""
    size = x.shape[-1]
    columns = library.permute_dims(library.reshape(x, (-1, size)), (1, 0))
    return library.reshape(accumulated(library, library.sum, columns), (size,))


def _zeros(x: Operand, size: int) -> Any:
    return x.library.full((size,), 0, x.library.DTYPES[x.dtype], x.device.handle)
