"""One result for each element. Operands have any strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .....array_functors import functors
from .....dtype import DType
from .....op import BinaryOp, ElementwiseOp, MethodOp
from ....program.builder import ProgramBuilder
from ....program.program import HostCall
from ....program.values import Parameter
from .. import strided
from ..transfer import native
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import ArrayStorage


def elementwise(
    build: ProgramBuilder,
    op: ElementwiseOp,
    x: Operand,
    *others: Operand | float | Parameter,
    result: DType | None = None,
) -> HostCall:
    """`op` of every element, or of those of several operands of one shape; numbers are its parameters.

    The last operand is of the dtype in whose compute dtype it is computed; the result is rounded once, to `result`
    if that is not None.
    """
    operands = [x, *(other for other in others if isinstance(other, Operand))]
    numbers = [other for other in others if not isinstance(other, Operand)]
    function = computing(build.facts.library, build.facts.handle, op, operands, result)
    return build.host(function, *[operand.storage for operand in operands], *numbers)


def computing(
    library: Any, handle: Any, op: ElementwiseOp, operands: Sequence[Operand], result: DType | None = None
) -> Callable[..., ArrayStorage]:
    """The function of storages like those of the operands, and of numbers, that computes `op` as `elementwise` does."""
    source = operands[-1].dtype
    target = result or op.result_of(source)
    views = _views(library, handle, operands)
    count = len(operands)
    compute = functors(library).elementwise[op].of(source) if op is not MethodOp.TO_DTYPE else None
    is_wide, is_rounded = source.compute is not source, source.is_float and target.is_float
    own = native(library, target, op.value)
    condition = operands[0].dtype

    def run(*arguments: Any) -> ArrayStorage:
        storages, numbers = arguments[:count], arguments[count:]
        arrays = [
            storage.data if view is None else view(storage.data) for storage, view in zip(storages, views, strict=True)
        ]
        if compute is None:
            output = cast.convert(library, arrays[0], source, target)
        elif op.moves:
            output = compute(numbered(library, arrays[0], condition), *arrays[1:])
        else:
            if is_wide:
                arrays = [cast.widen(library, array, source) for array in arrays]
            output = compute(*arrays, *(cast.scalar(library, number, source.compute, handle) for number in numbers))
            if is_rounded:
                output = cast.narrow(library, output, target)
            else:
                # Truth values are no numbers yet.
                output = cast.wrap(library, output if output.dtype == own else library.astype(output, own), target)
        storage: ArrayStorage = storages[0].result(output, target)
        return storage

    return run


def numbered(library: Any, condition: Any, dtype: DType) -> Any:
    """A condition as numbers: the standard compares truth values with none."""
    return library.astype(condition, library.DTYPES[DType.U8]) if dtype.kind == "bool" else condition


def _views(library: Any, handle: Any, operands: Sequence[Operand]) -> list[Callable[[Any], Any] | None]:
    """Return the views of each storage's array; None for the array itself."""
    is_full = [layout.dense is layout and storage.length == layout.elem_count for storage, layout in operands]
    is_one = [layout.repeated is layout for _, layout in operands]
    if any(is_full) and all(full or one for full, one in zip(is_full, is_one, strict=True)):
        # Full storages need no shape, and one element broadcasts to any.
        return [None if full else lambda data: data[:1] for full in is_full]
    return [partial(strided.view, library, layout=layout, device=handle) for _, layout in operands]


def binary_assign(op: BinaryOp, target: Operand, source: Operand) -> None:
    """Set every element to `op` of it and that of `source`, which may share memory with it."""
    function = computing(target.library, target.device.handle, op, [target, source])
    target.write(function(target.storage, source.storage).data)
