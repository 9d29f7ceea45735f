"""Matrix products."""

import numpy as np

from ..dtype import Array, DType
from . import cast
from .array import contiguous


def matmul(lhs: Array, rhs: Array, dtype: DType) -> Array:
    """The products of matrices (.., m, k) and (.., k, n): (.., m, n), accumulated in the compute dtype."""
    with np.errstate(all="ignore"):
        result = np.matmul(_operand(lhs, dtype), _operand(rhs, dtype))
    return cast.narrow(result, dtype) if dtype.is_float else result


def _operand(x: Array, dtype: DType) -> Array:
    """The matrices in the compute dtype, laid out so that BLAS takes them: NumPy's loop for others is far slower."""
    wide = cast.widen(x, dtype)
    steps = wide.strides[-2:]
    is_blas = wide.itemsize in steps and min(steps) > 0
    return wide if is_blas else contiguous(wide)
