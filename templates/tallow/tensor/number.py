"""Python numbers as operands: they take the dtype of the tensor that they meet."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..device import Device
from ..dtype import DType
from ..error import InvalidArgument
from ..op import BinaryOp


def as_number(op: str, value: object, dtype: DType) -> float:
    """Return the number that `value` is in a tensor of `dtype`: an int for integers, else a float.

    `InvalidArgument` if it is no number, or one that an integer dtype does not have.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, int | float):
        reason = f"an operand is a Tensor or a Python number, not a {type(value).__name__}; make it a Tensor first"
        raise InvalidArgument(op, reason)
    if dtype.is_integer:
        return _integer(op, value, dtype)
    try:
        return float(value)
    except OverflowError:
        reason = "the integer is beyond the range of floating point; use float('inf') if that is meant"
        raise InvalidArgument(op, reason) from None


def _integer(op: str, number: float, dtype: DType) -> int:
    if isinstance(number, float) and not number.is_integer():
        reason = f"{number} is not an integer, but the tensor's dtype is {dtype.value}"
        raise InvalidArgument(op, f"{reason}; convert the tensor to a floating-point dtype with to_dtype first")
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= number <= limits.max:
        reason = f"{number} is outside the range of {dtype.value}, {limits.min} to {limits.max}"
        raise InvalidArgument(op, f"{reason}; convert the tensor to a wider dtype with to_dtype first")
    return int(number)


def as_affine(op: BinaryOp, number: float, dtype: DType, *, reflected: bool) -> tuple[float, float] | None:
    """Return (mul, add) such that x * mul + add, rounded once, has the bits of `op` of x and the number; None if none.

    With `reflected` the number is on the left. An affine op takes its numbers along, where a second operand would have
    to be brought to the device first. Adding -0.0 changes nothing, not even the sign of a zero. The number must be
    rounded to the dtype, as an operand is; integers wrap in ways that numbers can't.
    """
    if not dtype.is_float:
        return None
    number = _rounded(number, dtype)
    match op:
        case BinaryOp.MUL:
            return number, -0.0
        case BinaryOp.ADD:
            return 1.0, number
        case BinaryOp.SUB:
            return (-1.0, number) if reflected else (1.0, -number)
    return None


def _rounded(number: float, dtype: DType) -> float:
    # The cache can't tell the two zeros from each other.
    return number if number == 0 or dtype is DType.F64 else _rounded_nonzero(number, dtype)


@lru_cache(maxsize=256)
def _rounded_nonzero(number: float, dtype: DType) -> float:
    return float(Device.cpu().storage_from_slice([number], dtype).to_numpy()[0])
