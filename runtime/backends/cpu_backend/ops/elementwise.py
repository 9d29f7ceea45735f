"""One result for each element. Operands have any strides."""

from __future__ import annotations

from collections.abc import Callable
from operator import or_
from typing import Any

import numpy as np

from .....array_functors import functors
from .....dtype import Array, DType
from .....op import BinaryOp, CmpOp, ElementwiseOp, MethodOp
from ....core.layout import Layout
from ....host import cast
from ....host.array import MIN_PART, bits, contiguous, copy, distinct, in_parts
from ....program.builder import ProgramBuilder
from ....program.program import HostCall
from ....program.values import Parameter
from ...array_backend.ops.operand import Operand
from ...plan import kind_of
from ..storage import CpuStorage


def elementwise(
    build: ProgramBuilder,
    op: ElementwiseOp,
    x: Operand,
    *others: Operand | float | Parameter,
    result: DType | None = None,
) -> HostCall:
    """`op` of every element, or of those of several operands of one shape; numbers are its parameters.

    The last operand is of the dtype in whose compute dtype it is computed; the result is rounded once, to `result`
    unless that is None.
    """
    function = _quick(build.facts.library, op, x, *others, result=result)
    if function is None:
        return build.host(computed, op, x, *others, result=result)
    return build.host(function, x.storage, *[other.storage for other in others if isinstance(other, Operand)])


def _quick(
    library: Any, op: ElementwiseOp, *arguments: Operand | float | Parameter, result: DType | None
) -> Callable[..., CpuStorage] | None:
    """Return a fast function like `elementwise` for other storages, whose arrays NumPy takes unchanged, or None.

    That is contiguous elements from the first of each storage on, or one element for all of them.
    """
    operands = [argument for argument in arguments if isinstance(argument, Operand)]
    if len(operands) < len(arguments):
        return None
    function, source = functors(library).elementwise[op], operands[-1].dtype
    compute, target, count = function.of(source), result or op.result_of(source), operands[0].layout.elem_count
    is_kept = source.compute is source and (target is source or isinstance(op, CmpOp))
    is_short = function.is_one_step or count <= MIN_PART
    is_whole = [layout.dense is layout and storage.length == count for storage, layout in operands]
    is_one = [layout.repeated is layout for _, layout in operands]
    if op.moves or not (is_kept and is_short and any(is_whole) and all(map(or_, is_whole, is_one))):
        return None
    kind = kind_of(target, count)
    parts = [slice(None) if full else slice(1) for full in is_whole]

    def run(*storages: CpuStorage) -> CpuStorage:
        arrays = [storage.data[part] for storage, part in zip(storages, parts, strict=True)]
        array = compute(*arrays)
        wrapped = object.__new__(CpuStorage)
        wrapped.device = storages[0].device
        wrapped.dtype = target
        wrapped.length = count
        wrapped.kind = kind
        # Not by the constructor: it checks what comes from outside.
        wrapped._memory = (array.copy() if array.base is not None or array is arrays[0] else array).view(target.numpy)
        wrapped._address = None
        return wrapped

    return run


def computed(op: ElementwiseOp, x: Operand, *others: Operand | float, result: DType | None = None) -> Any:
    """Compute on arrays of any strides, in parts."""
    if op is MethodOp.TO_DTYPE and result is x.dtype:
        same = np.empty(x.layout.shape or (1,), result.numpy)
        copy(same, x.array)
        return x.result(same)
    function = functors(x.library).elementwise[op]
    operands = [x, *(other for other in others if isinstance(other, Operand))]
    source = operands[-1].dtype
    compute = function.of(source)
    target = result or op.result_of(source)
    numbers = [cast.scalar(other, source.compute) for other in others if not isinstance(other, Operand)]
    arrays = [operand.array for operand in operands]
    values = [contiguous(distinct(array)) for array in arrays]

    def rounded(*parts: Array) -> Any:
        if op.moves:
            return compute(*map(bits, parts))
        array = compute(*(cast.widen(part, source) for part in parts), *numbers)
        if source.is_float and target.is_float:
            array = cast.narrow(array, target)
        elif source is not target and array.dtype != np.bool_:
            array = cast.convert(array, source.compute, target)
        return array.copy() if array is parts[0] else array  # the floor of an integer, for one

    if function.is_one_step and source.compute is source:
        array = rounded(*values).view(target.numpy)
    else:
        # Intermediate results of several steps stay in the cache.
        array = in_parts(rounded, target.numpy, *values)
    return x.result(_repeated(array, arrays[0]), target)


def binary_assign(op: BinaryOp, target: Operand, source: Operand) -> None:
    """Set every element to `op` of it and that of `source`, which may share memory with it."""
    result = computed(op, target, source)
    copy(target.array, result.view(Layout.contiguous(target.layout.shape)))


def _repeated(values: Array, x: Array) -> Array:
    """The values in the shape of the operand `x`, with what all operands repeat repeated."""
    # A broadcast array is read-only, so that the storage copies it.
    return values if values.shape == x.shape else np.broadcast_to(values, x.shape)
