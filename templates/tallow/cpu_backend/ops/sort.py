"""Elements in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import DType
from ...host_memory import tells_lack_of_memory
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def argsort(operand: Operand, descending: bool) -> CpuStorage:
    """The positions of the elements in order along the last dim, as u32; NaN comes last."""
    x, dtype = operand.array, operand.dtype
    if dtype.is_float:
        x = cast.widen(x, dtype)
    if descending:
        # NumPy sorts in ascending order, and keeps the order of equals in that one only.
        x = -x if dtype.is_float else ~x
    return operand.result(np.argsort(x, axis=-1, kind="stable").astype(np.uint32), DType.U32)
