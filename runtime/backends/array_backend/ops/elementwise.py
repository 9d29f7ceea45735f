"""One result for each element. Operands have any strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .....array_functors import functors
from .....dtype import DType
from .....op import BinaryOp, CmpOp, MethodOp, UnaryOp
from .. import strided
from ..errors import tells_errors
from ..transfer import native
from . import cast
from .operand import Operand

Op = UnaryOp | BinaryOp | CmpOp | MethodOp


@tells_errors
def elementwise(op: Op, x: Operand, *others: Operand | float, result: DType | None = None) -> Any:
    """`op` of every element, or of those of several operands of one shape; numbers are its parameters.

    The last operand is of the dtype in whose compute dtype it is computed; the result is rounded once, to `result`
    where that is given.
    """
    operands = [x, *(other for other in others if isinstance(other, Operand))]
    numbers = [other for other in others if not isinstance(other, Operand)]
    return _prepared(op, operands, result)(*(operand.storage for operand in operands), *numbers)


def plan(arguments: tuple[Any, ...], result: DType | None = None) -> Callable[..., Any]:
    """What does as `elementwise` with other storages and numbers, and finds out nothing anew."""
    op, *operands = arguments
    return tells_errors(_prepared(op, [operand for operand in operands if isinstance(operand, Operand)], result))


def _prepared(op: Op, operands: Sequence[Operand], result: DType | None) -> Callable[..., Any]:
    """The function of storages, and then of numbers, that computes `op` of what the operands' layouts reach."""
    library, device = operands[0].library, operands[0].device
    source = operands[-1].dtype
    target = result or op.result or source
    views = _views(library, operands)
    count = len(operands)
    compute = functors(library).elementwise[op].compute if op is not MethodOp.TO_DTYPE else None
    is_wide, is_rounded = source.compute is not source, source.is_float and target.is_float
    own = native(library, target, op.value)

    def run(*given: Any) -> Any:
        arrays = [
            storage.data if view is None else view(storage.data)
            for storage, view in zip(given[:count], views, strict=True)
        ]
        if compute is None:
            return given[0].result(cast.convert(library, arrays[0], source, target), target)
        if op.moves:
            return given[0].result(compute(*arrays), target)
        if is_wide:
            arrays = [cast.widen(library, array, source) for array in arrays]
        found = compute(
            *arrays, *(cast.scalar(library, number, source.compute, device.handle) for number in given[count:])
        )
        if is_rounded:
            return given[0].result(cast.narrow(library, found, target), target)
        if found.dtype != own:
            # Truth values are no numbers yet.
            found = library.astype(found, own)
        return given[0].result(cast.wrap(library, found, target), target)

    return run


def _views(library: Any, operands: Sequence[Operand]) -> list[Callable[[Any], Any] | None]:
    """What each storage's array is seen through; None for itself."""
    is_whole = [layout.dense is layout and storage.length == layout.elem_count for storage, layout in operands]
    is_one = [layout.repeated is layout for _, layout in operands]
    if any(is_whole) and all(whole or one for whole, one in zip(is_whole, is_one, strict=True)):
        # Whole storages need no shape, and one element is one for any.
        return [None if whole else lambda data: data[:1] for whole in is_whole]
    return [partial(strided.view, library, layout=layout, device=storage.device.handle) for storage, layout in operands]


@tells_errors
def binary_assign(op: BinaryOp, target: Operand, source: Operand) -> None:
    """Set every element to `op` of it and that of `source`, which may share memory with it."""
    found = elementwise(op, target, source)
    target.write(found.data)
