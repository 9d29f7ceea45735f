"""Functions of the elements of a row and of reductions over it: in f64 where the library has it, else in f32."""

from __future__ import annotations

from typing import Any

from .....array_functors import functors
from .....op import MethodOp
from . import cast
from .operand import Operand


def row(op: MethodOp, *arguments: Operand | float) -> Any:
    """`op` of operands of one shape along a dim, which comes behind them; then come the parameters of the op."""
    operands = [argument for argument in arguments if isinstance(argument, Operand)]
    dim, *numbers = [argument for argument in arguments if not isinstance(argument, Operand)]
    x, axis = operands[0], int(dim)
    library, shape = x.library, x.layout.shape
    count, compute = functors(library).rows[op]
    if x.layout.elem_count:
        order = (*[other for other in range(len(shape)) if other != axis], axis)
        arrays = [library.permute_dims(cast.widest(library, each.array, each.dtype), order) for each in operands]
        first = arrays[0]
        parameters = [library.constant(float(number), first) for number in numbers]
        positions = library.astype(library.arange(shape[axis], library.device_of(first)), first.dtype)
        found = compute(*arrays, *parameters, library.constant(float(shape[axis]), first), positions)
        back = tuple([order.index(other) for other in range(len(shape))])
        whole = [library.permute_dims(library.broadcast_to(each, first.shape), back) for each in found]
        made = tuple([x.result(cast.narrow(library, each, x.dtype)) for each in whole])
    else:
        made = tuple([x.result(x.array) for _ in range(count)])
    return made if count > 1 else made[0]
