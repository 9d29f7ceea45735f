"""The gradients of both operands of ops."""

from __future__ import annotations

from typing import Any

from .....array_functors import functors
from .....op import BinaryGradientsOp
from ..errors import tells_errors
from . import cast
from .operand import Operand


@tells_errors
def joint(op: BinaryGradientsOp, *operands: Operand) -> Any:
    """The two results of `op` of every element, each rounded once."""
    first, library, dtype = operands[0], operands[0].library, operands[0].dtype
    arrays = [cast.widen(library, operand.array, dtype) for operand in operands]
    found = functors(library).elementwise[op].compute(*arrays)
    return tuple([first.result(cast.narrow(library, each, dtype)) for each in found])
