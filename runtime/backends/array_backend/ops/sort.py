"""Elements in order."""

from __future__ import annotations

from typing import Any

from .....dtype import DType
from ..errors import tells_errors
from . import cast
from .operand import Operand


@tells_errors
def argsort(operand: Operand, descending: bool, count: int) -> Any:
    """The positions of the first elements in order along the last dim, as u32; NaN comes last."""
    library, dtype, x = operand.library, operand.dtype, operand.array
    x = cast.widen(library, x, dtype)
    if descending:
        # The order of equals is kept in ascending order only.
        x = -x if dtype.is_float else ~x
    if dtype.is_float:
        # Equal, so that they stay in their order, as some libraries look at the sign of zeros.
        x = x + library.constant(0, x)
    return operand.result(library.astype(library.argsort(x)[..., :count], library.DTYPES[DType.U32]), DType.U32)
