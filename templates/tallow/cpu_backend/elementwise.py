"""One result for each element. Operands are views of any strides."""

from collections.abc import Callable

import numpy as np

from ..dtype import Array, DType
from ..op import BinaryOp, CmpOp, UnaryOp
from . import cast, numerics
from .array import bits, contiguous, distinct, in_parts
from .functors import BINARY, CMP, UNARY


def unary(op: UnaryOp, x: Array, dtype: DType) -> Array:
    """`op` of every element."""
    return _mapped(UNARY[op], dtype, dtype, x)


def binary(op: BinaryOp, x: Array, y: Array, dtype: DType) -> Array:
    """`op` of every pair of elements."""
    return _mapped(BINARY[op], dtype, dtype, x, y)


def compare(op: CmpOp, x: Array, y: Array, dtype: DType) -> Array:
    """`op` of every pair of elements as u8, 0 or 1."""
    return _mapped(CMP[op], dtype, DType.U8, x, y)


def affine(x: Array, mul: float, add: float, dtype: DType) -> Array:
    """x * mul + add, rounded once; integers wrap."""
    factor, summand = cast.scalar(mul, dtype.compute), cast.scalar(add, dtype.compute)

    def in_one_step(part: Array) -> Array:
        result: Array = part * factor + summand
        return result

    # Where one of the two steps is exact, the other is all that rounds.
    if dtype.is_integer or factor[0] == 1 or summand[0] == 0:
        return _mapped(in_one_step, dtype, dtype, x)
    wide_factor, wide_summand = float(factor[0]), float(summand[0])
    return _mapped_in_parts(lambda part: numerics.multiply_add(part, wide_factor, wide_summand), dtype, dtype, x)


def power(x: Array, alpha: float, dtype: DType) -> Array:
    """x to the power alpha."""
    exponent = cast.scalar(alpha, dtype.compute)
    return _mapped(lambda part: numerics.power(part, exponent), dtype, dtype, x)


def elu(x: Array, alpha: float, dtype: DType) -> Array:
    """x where x > 0, else alpha * expm1(x)."""
    factor = float(cast.scalar(alpha, dtype.compute)[0])
    return _mapped_in_parts(lambda part: numerics.elu(part, factor), dtype, dtype, x)


def to_dtype(x: Array, source: DType, target: DType) -> Array:
    """The elements, of dtype `source`, converted to dtype `target`."""
    values = contiguous(distinct(x))
    return _repeated(in_parts(lambda part: cast.convert(part, source, target), target.numpy, values), x)


def where(condition: Array, on_true: Array, on_false: Array) -> Array:
    """The element of `on_true` where the condition is not 0, else that of `on_false`."""
    result = np.where(distinct(condition) != 0, bits(distinct(on_true)), bits(distinct(on_false)))
    return _repeated(result.view(on_true.dtype), condition)


def _mapped(function: Callable[..., Array], source: DType, target: DType, *operands: Array) -> Array:
    """What `function` makes of the operands, of dtype `source`, in its compute dtype, rounded once to `target`."""
    if source.compute is not source:
        return _mapped_in_parts(function, source, target, *operands)
    values = [contiguous(distinct(operand)) for operand in operands]
    with np.errstate(all="ignore"):
        result = function(*values)
    # The floor of an integer, for one, is the operand itself.
    result = result.copy() if result is values[0] else result
    return _repeated(result.view(target.numpy), operands[0])


def _mapped_in_parts(function: Callable[..., Array], source: DType, target: DType, *operands: Array) -> Array:
    """`_mapped` for functions whose way to the result is long."""

    def rounded(*parts: Array) -> Array:
        result = function(*(cast.widen(part, source) for part in parts))
        return cast.narrow(result, target) if target.is_float else result

    with np.errstate(all="ignore"):
        result = in_parts(rounded, target.numpy, *(contiguous(distinct(operand)) for operand in operands))
    return _repeated(result, operands[0])


def _repeated(values: Array, x: Array) -> Array:
    """The values in the shape of the operand `x`, with what all operands repeat repeated."""
    # A broadcast array is read-only, so that the storage copies it.
    return values if values.shape == x.shape else np.broadcast_to(values, x.shape)
