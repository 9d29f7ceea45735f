"""Operands of different dtypes: what is computed in the dtype that they have together, and what is written in place.

Storages take operands of one dtype. Tensors call them first, which costs nothing where the dtypes agree, and convert
their operands by the table of docs/promotion.md once a storage has refused them.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol, Self, TypeVar

from ...dtype import DType
from ...promotion import promoted_all
from ..base.error import DTypeMismatch, UnsupportedDType


class _Typed(Protocol):
    """A tensor, as far as its dtype goes."""

    @property
    def dtype(self) -> DType: ...

    def to_dtype(self, dtype: DType, /) -> Self: ...


T = TypeVar("T", bound=_Typed)

DTYPE_ERRORS: Final = (DTypeMismatch, UnsupportedDType)
"""The errors of storages whose operands differ in dtype, one of which the op may not support."""

# From the narrowest to the widest, as NumPy orders them: a dtype fits one of its own kind or of a later one.
KINDS: Final = ("bool", "unsigned", "signed", "float", "complex")


def common_dtype(op: str, *dtypes: DType) -> DType:
    """Return the dtype that operands of some dtypes have together; `DTypeMismatch` if they do not go together."""
    common = promoted_all(*dtypes)
    if common is None:
        raise DTypeMismatch(op, tuple(dict.fromkeys(dtypes))) from None
    return common


def second_dtype(error: DTypeMismatch | UnsupportedDType, *dtypes: DType) -> DType:
    """Return the dtype in which to call an op again that has refused its operands with `error`.

    The error is raised where the dtypes agree, so that it has another cause.
    """
    if dtypes.count(dtypes[0]) == len(dtypes):
        raise error
    return common_dtype(error.op, *dtypes)


def promote(error: DTypeMismatch | UnsupportedDType, *operands: T) -> list[T]:
    """Return operands in the dtype in which to call an op again that has refused them."""
    common = second_dtype(error, *[operand.dtype for operand in operands])
    return [operand.to_dtype(common) for operand in operands]


def promote_given(error: DTypeMismatch | UnsupportedDType, *operands: T | None) -> list[Any]:
    """Return operands as `promote` does; those that are None stay so."""
    promoted = iter(promote(error, *[operand for operand in operands if operand is not None]))
    return [None if operand is None else next(promoted) for operand in operands]


def fits(source: DType, target: DType) -> bool:
    """Tell whether elements of one dtype may be written to a tensor of another: NumPy's casting "same_kind"."""
    return KINDS.index(source.kind) <= KINDS.index(target.kind)


def fitted(op: str, target: _Typed, source: T) -> T:
    """Return what is written to `target` in its dtype; `DTypeMismatch` if the kind of one does not fit the other."""
    if not fits(source.dtype, target.dtype):
        refuse_result(op, target.dtype, source.dtype)
    return source.to_dtype(target.dtype)


def refuse_result(op: str, target: DType, source: DType) -> NoReturn:
    """Raise the `DTypeMismatch` of elements that a tensor cannot hold."""
    reason = f"a tensor of {target.value} is written to in place, and does not take {source.value}"
    raise DTypeMismatch(op, (target, source), reason)
