"""One result for each element. Operands are views of any strides; results are fresh arrays, of any strides too."""

import numpy as np

from ..dtype import Array, DType
from ..op import BinaryOp, CmpOp, UnaryOp
from . import cast, numerics
from .array import bits, contiguous, distinct
from .functors import BINARY, CMP, UNARY


def unary(op: UnaryOp, x: Array, dtype: DType) -> Array:
    """`op` of every element."""
    values = _operand(x, dtype)
    with np.errstate(all="ignore"):
        result = UNARY[op](values)
    # The floor of an integer, for one, is the operand itself.
    return _result(result.copy() if result is values else result, dtype, x)


def binary(op: BinaryOp, x: Array, y: Array, dtype: DType) -> Array:
    """`op` of every pair of elements."""
    with np.errstate(all="ignore"):
        result = BINARY[op](_operand(x, dtype), _operand(y, dtype))
    return _result(result, dtype, x)


def compare(op: CmpOp, x: Array, y: Array, dtype: DType) -> Array:
    """`op` of every pair of elements as u8, 0 or 1."""
    with np.errstate(invalid="ignore"):
        result = CMP[op](_operand(x, dtype), _operand(y, dtype))
    return _repeated(result.view(np.uint8), x)


def affine(x: Array, mul: float, add: float, dtype: DType) -> Array:
    """x * mul + add, rounded once; integers wrap."""
    factor, summand = cast.scalar(mul, dtype.compute), cast.scalar(add, dtype.compute)
    values = _operand(x, dtype)
    with np.errstate(all="ignore"):
        # Where one of the two steps is exact, the other is all that rounds.
        if dtype.is_integer or factor[0] == 1 or summand[0] == 0:
            result = values * factor + summand
        elif dtype is DType.F64:
            result = numerics.multiply_add(values, float(factor[0]), float(summand[0]))
        else:
            # The product of two f32 is an f64.
            result = values.astype(np.float64)
            result *= factor
            result += summand
    return _result(result, dtype, x)


def power(x: Array, alpha: float, dtype: DType) -> Array:
    """x to the power alpha."""
    with np.errstate(all="ignore"):
        result = numerics.power(_operand(x, dtype), cast.scalar(alpha, dtype.compute))
    return _result(result, dtype, x)


def elu(x: Array, alpha: float, dtype: DType) -> Array:
    """x where x > 0, else alpha * expm1(x)."""
    with np.errstate(all="ignore"):
        result = numerics.elu(_operand(x, dtype), float(cast.scalar(alpha, dtype.compute)[0]))
    return _result(result, dtype, x)


def where(condition: Array, on_true: Array, on_false: Array) -> Array:
    """The element of `on_true` where the condition is not 0, else that of `on_false`."""
    result = np.where(distinct(condition) != 0, bits(distinct(on_true)), bits(distinct(on_false)))
    return _repeated(result.view(on_true.dtype), condition)


def _operand(x: Array, dtype: DType) -> Array:
    return cast.widen(contiguous(distinct(x)), dtype)


def _result(values: Array, dtype: DType, x: Array) -> Array:
    """The values rounded to `dtype`, with what all operands repeat repeated as in the operand `x`."""
    rounded = cast.narrow(values, dtype) if dtype.is_float else values
    return _repeated(rounded, x)


def _repeated(values: Array, x: Array) -> Array:
    # Only a broadcast array is read-only; the storage copies it.
    return values if values.shape == x.shape else np.broadcast_to(values, x.shape)
