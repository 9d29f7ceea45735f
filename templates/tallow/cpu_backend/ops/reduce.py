"""Reductions of any dims, by way of the last axis of a 2-d array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...host_memory import tells_lack_of_memory
from ...op import MethodOp, ReduceOp
from . import cast
from .functors import REDUCTIONS
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def reduce(op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...], *parameters: float) -> CpuStorage:
    """`op` over `dims`, in row-major order of them, in the dtype of the op's result; the numbers are its parameters."""
    x, dtype = operand.array, operand.dtype
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    order = kept + sorted(dims)
    moved = cast.widen(x, dtype).transpose(order)
    count = math.prod(x.shape[dim] for dim in kept)
    target = op.result or dtype
    if count == 0:
        return operand.result(np.empty(0, target.numpy), target)
    numbers = [cast.scalar(number, dtype.compute) for number in parameters]
    with np.errstate(all="ignore"):
        result = REDUCTIONS[op](moved.reshape(count, -1 if x.size else 0), *numbers)
    return operand.result(cast.narrow(result, target) if target.is_float else result, target)
