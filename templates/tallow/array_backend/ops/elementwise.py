"""One result for each element. Operands have any strides."""

from __future__ import annotations

from typing import Any

from ...dtype import DType
from ...op import BinaryOp, CmpOp, MethodOp, UnaryOp
from ..errors import tells_errors
from ..functors import functors
from . import cast
from .operand import Operand


@tells_errors
def elementwise(
    op: UnaryOp | BinaryOp | CmpOp | MethodOp, x: Operand, *others: Operand | float, result: DType | None = None
) -> Any:
    """`op` of every element, or of those of several operands of one shape; numbers are its parameters.

    The last operand is of the dtype in whose compute dtype it is computed; the result is rounded once, to `result`
    where that is given.
    """
    library = x.library
    operands = [x, *(other for other in others if isinstance(other, Operand))]
    source = operands[-1].dtype
    target = result or op.result or source
    if all(layout.dense is layout and storage.length == layout.elem_count for storage, layout in operands):
        # Whole storages need no shape.
        arrays = [operand.storage.data for operand in operands]
    else:
        arrays = [operand.array for operand in operands]
    if op is MethodOp.TO_DTYPE:
        return x.result(cast.convert(library, arrays[0], source, target), target)
    compute = functors(library).elementwise[op].compute
    if op.moves:
        return x.result(compute(*arrays), target)
    handle = x.device.handle
    numbers = [cast.scalar(library, other, source.compute, handle) for other in others if not isinstance(other, Operand)]
    found = compute(*(cast.widen(library, array, source) for array in arrays), *numbers)
    if source.is_float and target.is_float:
        return x.result(cast.narrow(library, found, target), target)
    if found.dtype != library.DTYPES[target]:
        # Truth values are no numbers yet.
        found = library.astype(found, library.DTYPES[target])
    return x.result(cast.wrap(library, found, target), target)


@tells_errors
def binary_assign(op: BinaryOp, target: Operand, source: Operand) -> None:
    """Set every element to `op` of it and that of `source`, which may share memory with it."""
    found = elementwise(op, target, source)
    target.write(found.data)
