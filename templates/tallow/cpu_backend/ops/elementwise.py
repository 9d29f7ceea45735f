"""One result for each element. Operands have any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import Array, DType
from ...host_memory import tells_lack_of_memory
from ...op import BinaryOp, CmpOp, MethodOp, UnaryOp
from . import cast
from .array import bits, contiguous, distinct, in_parts
from .functors import ELEMENTWISE
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def elementwise(op: UnaryOp | BinaryOp | CmpOp | MethodOp, x: Operand, *others: Operand | float) -> CpuStorage:
    """`op` of every element, or of those of several operands of one dtype and shape; numbers are its parameters.

    It is computed in the compute dtype, and rounded once.
    """
    function = ELEMENTWISE[op]
    source, target = x.dtype, op.result or x.dtype
    compute = function.compute
    operands = [x, *(other for other in others if isinstance(other, Operand))]
    numbers = [cast.scalar(other, source.compute) for other in others if not isinstance(other, Operand)]
    arrays = [operand.array for operand in operands]
    values = [contiguous(distinct(array)) for array in arrays]

    def rounded(*parts: Array) -> Array:
        result = compute(*(cast.widen(part, source) for part in parts), *numbers)
        if result is parts[0]:  # the floor of an integer, for one
            result = result.copy()
        return cast.narrow(result, target) if target.is_float else result

    with np.errstate(all="ignore"):
        if function.is_one_step and source.compute is source:
            result = rounded(*values).view(target.numpy)
        else:
            # What is left behind on a long way stays in the cache.
            result = in_parts(rounded, target.numpy, *values)
    return x.result(_repeated(result, arrays[0]), target)


@tells_lack_of_memory
def to_dtype(x: Operand, target: DType) -> CpuStorage:
    """The elements converted to dtype `target`."""
    array, source = x.array, x.dtype
    values = contiguous(distinct(array))
    result = in_parts(lambda part: cast.convert(part, source, target), target.numpy, values)
    return x.result(_repeated(result, array), target)


@tells_lack_of_memory
def where(condition: Operand, on_true: Operand, on_false: Operand) -> CpuStorage:
    """The element of `on_true` where the condition is not 0, else that of `on_false`."""
    chosen, first, second = condition.array, on_true.array, on_false.array
    result = np.where(distinct(chosen) != 0, bits(distinct(first)), bits(distinct(second)))
    return on_true.result(_repeated(result.view(first.dtype), chosen))


def _repeated(values: Array, x: Array) -> Array:
    """The values in the shape of the operand `x`, with what all operands repeat repeated."""
    # A broadcast array is read-only, so that the storage copies it.
    return values if values.shape == x.shape else np.broadcast_to(values, x.shape)
