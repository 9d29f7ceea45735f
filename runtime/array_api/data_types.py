"""Dtypes of the array API, their limits, and the dtype that several operands have together."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ...device import Device
from ...dtype import DType
from ...promotion import promoted
from ..base.error import DTypeMismatch, InvalidArgument, describe
from ..core.argument import boolean
from ..storage.calls import require_instance
from ..tensor import Tensor
from ..tensor.promotion import KINDS, common_dtype

Scalar: TypeAlias = "builtins.bool | int | float | complex"

# The dtypes that a kind of the standard's has, by the kinds of the spec.
_KINDS: Final = {
    "bool": ("bool",),
    "signed integer": ("signed",),
    "unsigned integer": ("unsigned",),
    "integral": ("signed", "unsigned"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("signed", "unsigned", "float", "complex"),
}
# The standard's dtypes by its names, which are NumPy's: NumPy's own, but for f16.
STANDARD: Final = {dtype.numpy.name: dtype for dtype in DType if dtype.is_of_numpy and dtype is not DType.F16}
# The default dtype of Python's numbers, from the narrowest kind to the widest: a bool is an int, too.
_DEFAULTS: Final = {bool: DType.BOOL, int: DType.I64, float: DType.F32, complex: DType.COMPLEX64}


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Tell whether a dtype is `kind`, is of that kind, or is or is of one of a tuple of them.

    The kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" and
    "numeric".
    """
    require_instance("isdtype", "dtype", dtype, DType, "DType")
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidArgument("isdtype", f"{describe(kind)} is no kind; the kinds are {', '.join(_KINDS)}")
    return dtype.kind in _KINDS[kind]


@dataclass(frozen=True)
class finfo_object:  # noqa: N801 - the standard's name
    """Limits of a floating-point dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class iinfo_object:  # noqa: N801 - the standard's name
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> finfo_object:
    """Return the limits of a floating-point dtype, or of a tensor's; of complex ones, those of their parts."""
    dtype = _dtype_of("finfo", "type", type).real
    if not dtype.is_float:
        raise InvalidArgument("finfo", f"{dtype.value} is no floating-point dtype; use iinfo")
    limits = dtype.format
    return finfo_object(limits.bits, limits.eps, limits.max, -limits.max, limits.smallest_normal, dtype)


def iinfo(type: DType | Tensor, /) -> iinfo_object:
    """Return the limits of an integer dtype, or of a tensor's."""
    dtype = _dtype_of("iinfo", "type", type)
    if dtype.kind not in _KINDS["integral"]:
        raise InvalidArgument("iinfo", f"{dtype.value} is no integer dtype; use finfo")
    limits = np.iinfo(dtype.numpy)
    return iinfo_object(limits.bits, int(limits.max), int(limits.min), dtype)


def can_cast(from_: DType | Tensor, to: DType, /) -> builtins.bool:
    """Tell whether promotion can lead from one dtype to another."""
    source = _dtype_of("can_cast", "from_", from_)
    require_instance("can_cast", "to", to, DType, "DType")
    return promoted(source, to) is to


def _dtype_of(op: str, name: str, value: DType | Tensor) -> DType:
    if isinstance(value, Tensor):
        return value.dtype
    require_instance(op, name, value, DType, "Tensor or DType")
    return value


def astype(x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: Device | None = None) -> Tensor:
    """Convert the elements, as `Tensor.to_dtype` does; a copy unless `copy` is False."""
    moved = x if device is None else x.to(device)
    result = moved.to_dtype(dtype)
    return result.copy() if boolean("astype", "copy", copy) and result is x else result


def result_type(*arrays_and_dtypes: Tensor | Scalar | DType) -> DType:
    """Return the dtype that tensors, dtypes and Python numbers have together.

    A number counts for its kind alone. `DTypeMismatch` where the table of docs/promotion.md has none.
    """
    dtypes: list[DType] = []
    numbers: list[Scalar] = []
    for item in arrays_and_dtypes:
        if isinstance(item, Tensor):
            dtypes.append(item.dtype)
        elif isinstance(item, DType):
            dtypes.append(item)
        else:
            require_instance("result_type", "an operand", item, bool | int | float | complex, "Tensor, DType or number")
            numbers.append(item)
    if not arrays_and_dtypes:
        raise InvalidArgument("result_type", "there are no operands; give at least one")
    if not dtypes:
        dtypes = [_default(number) for number in numbers]
        return common_dtype("result_type", *dtypes)
    result = common_dtype("result_type", *dtypes)
    for number in numbers:
        result = _with_number("result_type", result, number)
    return result


def _default(number: Scalar) -> DType:
    return next(dtype for kind, dtype in _DEFAULTS.items() if isinstance(number, kind))


# By the default dtype of a number, the first of KINDS that it fits.
_LEAST: Final = {DType.BOOL: "bool", DType.I64: "unsigned", DType.F32: "float", DType.COMPLEX64: "complex"}


def _with_number(op: str, dtype: DType, number: Scalar) -> DType:
    if KINDS.index(dtype.kind) >= KINDS.index(_LEAST[_default(number)]):
        return dtype
    if dtype.is_float and isinstance(number, complex) and dtype.complex is not None:
        return dtype.complex
    reason = f"a tensor of {dtype.value} and a Python {type(number).__name__} have no dtype together"
    raise DTypeMismatch(op, (dtype,), reason)


def promoted_operands(op: str, *operands: Tensor | Scalar) -> tuple[Tensor, ...]:
    """Return operands as tensors of the dtype that they have together, numbers on the device of a tensor."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        raise InvalidArgument(op, "at least one operand is a tensor; make one with asarray")
    dtypes = [tensor.dtype for tensor in tensors]
    if len(tensors) == len(operands) and dtypes.count(dtypes[0]) == len(dtypes):
        return tuple(tensors)
    dtype = common_dtype(op, *dict.fromkeys(dtypes))
    for operand in operands:
        if not isinstance(operand, Tensor):
            require_instance(op, "an operand", operand, bool | int | float | complex, "Tensor or number")
            dtype = _with_number(op, dtype, operand)
    device = tensors[0].device
    return tuple(
        operand.to_dtype(dtype) if isinstance(operand, Tensor) else Tensor.full((), operand, dtype=dtype, device=device)
        for operand in operands
    )
