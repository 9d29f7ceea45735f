"""Running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...host_memory import tells_lack_of_memory
from . import cast
from .operand import Operand

if TYPE_CHECKING:
    from ..storage import CpuStorage


@tells_lack_of_memory
def cumsum(operand: Operand, dim: int) -> CpuStorage:
    """Element i along `dim` is the sum of the elements 0 to i, rounded once; integers wrap."""
    x, dtype = operand.array, operand.dtype
    with np.errstate(all="ignore"):
        if not dtype.is_float:
            return operand.result(np.cumsum(x, axis=dim, dtype=x.dtype))
        sums = np.cumsum(cast.widen(x, dtype), axis=dim, dtype=np.float64)
        # It starts at 0.0, so that no sum is -0.0.
        return operand.result(cast.narrow(sums + 0.0, dtype))
