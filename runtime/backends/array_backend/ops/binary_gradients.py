"""The gradients of both operands of ops."""

from __future__ import annotations

from typing import Any

from .....array_functors import functors
from .....op import BinaryGradientsOp, MethodOp
from . import cast, elementwise
from .operand import Operand


def binary_gradients(op: BinaryGradientsOp | MethodOp, *arguments: Operand | float) -> Any:
    """Compute the two results of `op` of every element, each rounded once; numbers are its parameters."""
    operands = [it for it in arguments if isinstance(it, Operand)]
    last, library, dtype = operands[-1], operands[-1].library, operands[-1].dtype
    compute = functors(library).elementwise[op].of(dtype)
    if op.moves:
        condition, moved = operands
        is_chosen = elementwise.numbered(library, condition.array, condition.dtype)
        return tuple([last.result(each) for each in compute(is_chosen, moved.array)])
    arrays = [cast.widen(library, operand.array, dtype) for operand in operands]
    handle = last.device.handle
    numbers = [cast.scalar(library, it, dtype.compute, handle) for it in arguments if not isinstance(it, Operand)]
    return tuple([last.result(cast.narrow(library, each, dtype)) for each in compute(*arrays, *numbers)])
