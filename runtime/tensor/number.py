"""Python numbers: as operands, which take the dtype of the tensor that they meet, and in the lists of new tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from ...device import Device
from ...dtype import Array, DType
from ..base.error import InvalidArgument, describe
from ..core import argument

_EXPECTED = "a Tensor or a Python number"
# Beyond this NumPy may have rounded integers: it stores those that no integer type holds as floats.
_INEXACT = np.float64(2**53)

# What is done about a number that the dtype of a tensor lacks.
CONVERT: Final = "convert the tensor to a {} dtype with to_dtype first"


# The default dtypes of numbers by NumPy's names of kinds; a package may lack bool and complex dtypes.
_OF_KINDS: Final = {"b": "bool", "i": "i64", "u": "i64", "c": "complex64"}
_DEFAULTS: Final = {kind: dtype for kind, name in _OF_KINDS.items() for dtype in DType if dtype.value == name}


def default_dtype(*numbers: object) -> DType:
    """Return the dtype of a new tensor of some numbers, f32 unless they are truth values, integers or complex."""
    return _DEFAULTS.get(np.asarray(numbers).dtype.kind, DType.F32)


class NumberLike:
    """A proxy for a number while a function is traced."""

    __slots__ = ()


def as_number(op: str, value: object, dtype: DType, fix: str = CONVERT, name: str = "other") -> complex:
    """Return the number that `value` is in a tensor of `dtype`: an int for integers and bool, for complex
    dtypes any number, else a float.

    `InvalidArgument` if it is no number, or one that the dtype does not have; `fix` says how to get a wider or a
    floating-point dtype.
    """
    if dtype.is_complex:
        return argument.complex_number(op, name, value, _EXPECTED)
    if isinstance(value, complex | np.complexfloating):
        reason = f"{value} is complex, but the tensor's dtype is {dtype.value}"
        raise InvalidArgument(op, f"{reason}; {fix.format('complex')}")
    if dtype.is_integer:
        return _integer(op, argument.number(op, name, value, _EXPECTED), dtype, fix)
    if dtype.kind == "bool":
        number = argument.number(op, name, value, _EXPECTED)
        if number not in (0, 1):
            reason = f"{number} is neither True nor False, but the tensor's dtype is bool"
            raise InvalidArgument(op, f"{reason}; {fix.format('wider')}")
        return int(number)
    return argument.real(op, name, value, _EXPECTED)


def _integer(op: str, number: float, dtype: DType, fix: str) -> int:
    if isinstance(number, float) and not number.is_integer():
        reason = f"{number} is not an integer, but the tensor's dtype is {dtype.value}"
        raise InvalidArgument(op, f"{reason}; {fix.format('floating-point')}")
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= number <= limits.max:
        reason = f"{number} is outside the range of {dtype.value}, {limits.min} to {limits.max}"
        raise InvalidArgument(op, f"{reason}; {fix.format('wider')}")
    return int(number)


def from_lists(data: ArrayLike, dtype: DType | None) -> tuple[Array, DType | None]:
    """Return Python numbers, nested in lists, as an array, and the dtype to convert it to; None to leave it.

    Without `dtype`, ints become i64, floats f32, complex numbers complex64, bools bool. `InvalidArgument` for lists of
    uneven lengths, for what is no number, and for a number that the dtype lacks.
    """
    try:
        array = np.asarray(data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise InvalidArgument("tensor", f"{error}; give nested lists of numbers") from None
        raise InvalidArgument("tensor", "nested lists have different lengths; make them of one length") from None
    if dtype is not None and dtype.kind == "bool" and array.dtype.kind in "biufO":
        return np.asarray(_known(array) != 0 if array.dtype.kind == "O" else array != 0), None
    kind = array.dtype.kind
    pairs = DType.F32.complex if dtype is None else dtype
    if kind == "c" and pairs is not None and pairs.is_complex:
        return _rounded(array, pairs), None
    if kind in "cOSU" or array.dtype == np.uint64 or (kind == "f" and (np.abs(array) >= _INEXACT).any()):
        array = _known(np.asarray(data, object))
        dtype = _dtype_of(array) if dtype is None else dtype
        if dtype.is_inexact:
            storage = Device.cpu().storage_from_slice(array.reshape(-1).tolist(), dtype)
            return storage.to_numpy().reshape(array.shape), None
    elif kind == "f" and (dtype is None or issubclass(dtype.numpy.type, np.floating)):
        return _rounded(array, DType.F32 if dtype is None else dtype), None
    elif dtype is None:
        return array, None
    if dtype.is_inexact or kind == "V":
        return array, dtype
    return exact_integers("tensor", array, dtype), None


def _rounded(array: Array, dtype: DType) -> Array:
    """An array in a dtype of NumPy's own, to which NumPy rounds as `to_dtype` does.

    So a program that runs on a GPU needs no kernels for the CPU, which may not be compiled.
    """
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy)


def _dtype_of(numbers: Array) -> DType:
    return DType.I64 if all(isinstance(number, int | np.integer) for number in numbers.flat) else DType.F32


def _known(numbers: Array) -> Array:
    for number in numbers.flat:
        if not isinstance(number, int | float | np.integer | np.floating):
            reason = f"{describe(number)} is no number; data must be nested lists of integers and floats"
            raise InvalidArgument("tensor", reason)
    return numbers


def exact_integers(op: str, array: Array, dtype: DType) -> Array:
    """Return an array of numbers in an integer dtype; `InvalidArgument` if it lacks one of them."""
    with np.errstate(invalid="ignore"):
        is_whole = array.dtype.kind in "biu" or bool(np.all(array % 1 == 0))
    if not is_whole:
        reason = f"not all of the numbers are integers, as {dtype.value} needs; round them or use a float dtype"
        raise InvalidArgument(op, reason)
    if array.size:
        # As Python's own integers, for in f64 the greatest i64 is 2**63.
        require_range(op, (int(array.min()), int(array.max())), dtype)
    return array.astype(dtype.numpy)


def require_range(op: str, numbers: Iterable[int], dtype: DType) -> None:
    """Raise `InvalidArgument` if an integer dtype lacks one of the integers."""
    limits = np.iinfo(dtype.numpy)
    if not all(limits.min <= number <= limits.max for number in numbers):
        reason = f"not all of the numbers are in the range of {dtype.value}, {limits.min} to {limits.max}"
        raise InvalidArgument(op, f"{reason}; use a wider dtype")
