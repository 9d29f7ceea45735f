"""Running sums."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from ..errors import tells_errors
from . import cast
from .operand import Operand


@tells_errors
def cumsum(operand: Operand, dim: int) -> Any:
    """Element i along `dim` is the sum of the elements 0 to i, rounded once; integers wrap."""
    library, dtype, x = operand.library, operand.dtype, operand.array
    if not dtype.is_float:
        return operand.result(cast.wrap(library, library.cumsum(x, dim, x.dtype), dtype))
    wide = cast.widen(library, x, dtype)
    sums = library.cumsum(wide, dim, library.DTYPES.get(DType.F64, wide.dtype))
    # It starts at 0.0, so that no sum is -0.0.
    return operand.result(cast.narrow(library, sums + library.constant(0, sums), dtype))
