"""Conversion of arguments: integers, numbers and flags of any library become int, float and bool.

The dispatch calls these functions for every argument, by its type in the spec, and so do the constructors of shapes,
layouts and parameters. What is then computed with, cached or packed for a kernel can't wrap as NumPy's integers do, and
no float or bool stands for the integer that it equals. What names a dtype becomes that dtype. The first two arguments
are the op and the name of the argument.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar, cast, overload

import numpy as np

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.error import InvalidArgument, describe, type_name

# A dtype, its name, or NumPy's type, dtype or name of it.
DTypeLike: TypeAlias = "DType | str | np.dtype[Any] | type[np.generic]"

# Beyond this nothing is counted in integers, and an error could not even print them.
_MOST: Final = 1 << 256
# Below this floats have all integers.
_EXACT: Final = 1 << 53


class _Required:
    """The type of `REQUIRED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<required>"


class Default:
    """The default of an argument that has two names, which differs from the same number in a call."""

    __slots__ = ()


class _DefaultInteger(Default, int):
    __slots__ = ()


class DefaultFloat(Default, float):
    """Such a default that is a float."""

    __slots__ = ()


# The default of a required argument that has two names, which no parameter without a default may follow.
REQUIRED: Final[Any] = _Required()
# The first dim and the last one, as such defaults.
FIRST: Final = _DefaultInteger(0)
LAST: Final = _DefaultInteger(-1)
# The number of dims of a matrix.
PAIR: Final = _DefaultInteger(2)

Integers = TypeVar("Integers", bound=tuple[int, ...])
Object = TypeVar("Object")


def wrong_type(op: str, name: str, value: object, expected: str) -> InvalidArgument:
    """Return the error for an argument that is not of the type `expected`."""
    return InvalidArgument(op, f"{name} must be of type {expected}, not {type_name(value)}")


def by_other_name(op: str, name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return an argument that a call gives by its other name; `InvalidArgument` if it gives both."""
    if value is None or value is False or value is REQUIRED or isinstance(value, Default):
        return other
    raise InvalidArgument(op, f"{name} and {other_name} are two names of one argument; give one of them")


def dim_of(op: str, dim: Any, axis: Any) -> Any:
    """Return the dim of a call that names it `axis`, as NumPy does; `InvalidArgument` if it gives both."""
    return by_other_name(op, "dim", dim, "axis", axis)


def both_or_neither(op: str, name: str, layout_name: str, storage: object, layout: object) -> None:
    """Check that there is a layout where there is an optional storage, and nowhere else."""
    if (storage is None) is not (layout is None):
        present, lacking = (name, layout_name) if layout is None else (layout_name, name)
        raise InvalidArgument(op, f"{present} is passed without {lacking}; pass both or neither")


def integer(op: str, name: str, value: Any) -> int:
    """Return an integer as Python's int."""
    try:
        if type(value) is int:
            number: int = value
        elif getattr(value, "ndim", 0):
            # PyTorch makes an integer of a tensor with one element, whatever its shape; NumPy does not.
            raise TypeError
        else:
            number = int(operator.index(value))
    except TypeError:
        if value is REQUIRED:
            raise InvalidArgument(op, f"the argument {name} is missing; state it") from None
        raise InvalidArgument(op, f"{name} must be an integer, not {describe(value)}") from None
    if -_MOST < number < _MOST:
        return number
    raise InvalidArgument(op, f"{name} must have at most 256 bits, not {number.bit_length()}")


class Checked(tuple[int, ...]):
    """Integers that are already validated: a call that takes them is faster."""

    __slots__ = ()


def checked(values: Integers) -> Integers:
    """Return integers as such."""
    return cast("Integers", Checked(values))


@overload
def integers(
    op: str, name: str, values: Integers, count: int | None = None, expected: str | None = None
) -> Integers: ...


@overload
def integers(
    op: str, name: str, values: Iterable[Any], count: int | None = None, expected: str | None = None
) -> tuple[int, ...]: ...


def integers(
    op: str, name: str, values: Iterable[Any], count: int | None = None, expected: str | None = None
) -> tuple[int, ...]:
    """Return a sequence of integers, `count` of them unless it is None, as a tuple of Python's."""
    try:
        items = values if type(values) is tuple else tuple(values)
        for value in items:
            # Nearly all are Python's own; a call for each would take most of the time.
            if type(value) is not int or not -_EXACT < value < _EXACT:
                items = tuple([integer(op, name, value) for value in items])
                break
    except (InvalidArgument, TypeError):
        items = None
    if items is None or (count is not None and len(items) != count):
        expected = expected or f"a sequence of {'' if count is None else f'{count} '}integers"
        raise InvalidArgument(op, f"{name} must be {expected}, not {describe(values)}")
    return items


def number(op: str, name: str, value: Any, expected: str = "a Python number") -> int | float:
    """Return a number as Python's int or float; an int is one that floats reach."""
    if type(value) is float or (type(value) is int and -_EXACT < value < _EXACT):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float | np.longdouble):
        return float(value)
    if not isinstance(value, int):
        raise InvalidArgument(op, f"{name} must be {expected}, not of type {type_name(value)}")
    try:
        float(value)
    except OverflowError:
        reason = f"{name} is an integer beyond the range of floating point; use a smaller one, or float('inf')"
        raise InvalidArgument(op, reason) from None
    return int(value)


def complex_number(op: str, name: str, value: Any, expected: str = "a Python number") -> complex:
    """Return a number as Python's int, float or complex."""
    if isinstance(value, complex | np.complexfloating):
        return complex(value)
    return number(op, name, value, expected)


def real(op: str, name: str, value: Any, expected: str = "a Python number") -> float:
    """Return a number as Python's float."""
    return value if type(value) is float else float(number(op, name, value, expected))


def _elements(op: str, name: str, values: Iterable[Object], expected: str) -> tuple[Object, ...]:
    """The elements of a sequence. An array without dims has a method for them, which raises an error."""
    try:
        iterator = iter(values)
    except TypeError:
        raise InvalidArgument(op, f"{name} must be a sequence of {expected}, not {describe(values)}") from None
    return tuple(iterator)


def objects(op: str, name: str, values: Iterable[Object], kind: type[Any], expected: str) -> tuple[Object, ...]:
    """Return a sequence of objects of a class as a tuple."""
    items = _elements(op, name, values, expected)
    for value in items:
        if not isinstance(value, kind):
            reason = f"each of {name} must be of type {expected}, not {type_name(value)}"
            raise InvalidArgument(op, reason)
    return items


def boolean(op: str, name: str, value: Any) -> bool:
    """Return a flag as Python's bool."""
    if type(value) is bool:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise InvalidArgument(op, f"{name} must be True or False, not {describe(value)}")


def text(op: str, name: str, value: Any) -> str:
    """Return a text that C can hold: UTF-8 without a null character."""
    if type(value) is str and value.isidentifier():
        return value
    if not isinstance(value, str):
        raise wrong_type(op, name, value, "str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(op, f"{name} must be UTF-8, which has no {describe(value[error.start])}") from None
    if "\0" in value:
        raise InvalidArgument(op, f"{name} must be without null characters, not {describe(value)}")
    return str(value)


def texts(op: str, name: str, values: Any) -> tuple[str, ...]:
    """Return a sequence of such texts as a tuple."""
    if isinstance(values, str):
        raise InvalidArgument(op, f"{name} must be a sequence of str, not {describe(values)}")
    return tuple([text(op, name, value) for value in _elements(op, name, values, "str")])


def device_label(value: Any, backends: Collection[str]) -> tuple[str, int]:
    """Return the backend and the number of the device that a label such as `name:1` names."""
    if not isinstance(value, str):
        raise wrong_type("device", "label", value, "str")
    name, colon, number = value.partition(":")
    if name not in backends:
        raise InvalidArgument("device", f"unknown backend {describe(name)}; known are {', '.join(backends)}")
    if colon and not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise InvalidArgument("device", f"{describe(value)} has no device number; write it as '{name}:0'")
    return name, int(number or 0)


def is_dtype(value: object) -> TypeGuard[DTypeLike]:
    """Tell whether a value may stand for a dtype: a DType, a name of one, or NumPy's type or dtype."""
    is_numpys = isinstance(value, type) and issubclass(value, np.generic | bool)
    return (
        is_numpys or isinstance(value, DType | np.dtype) or (isinstance(value, str) and DType.named(value) is not None)
    )


def dtype(op: str, name: str, value: DTypeLike) -> DType:
    """Return the dtype that is meant by its name or by one of NumPy's types."""
    if isinstance(value, DType):
        return value
    meant: object = value
    if isinstance(meant, type) and issubclass(meant, np.generic | bool):
        meant = np.dtype(meant)
    if isinstance(meant, np.dtype) and meant.isnative:
        meant = meant.name
    member = DType.named(meant) if isinstance(meant, str) else None
    if member is None:
        known = ", ".join(known.value for known in DType)
        reason = f"{name} must be a DType, its name or NumPy's type of it, not {describe(value)}"
        raise InvalidArgument(op, f"{reason}; use one of {known}")
    return member


def ggml_dtype(op: str, name: str, value: GgmlDType | str) -> GgmlDType:
    """Return the block format that is meant by its name."""
    if isinstance(value, GgmlDType):
        return value
    # Looking up an enum's member compares it with the value, and an array has no truth.
    if isinstance(value, str):
        with suppress(InvalidArgument):
            return GgmlDType(value)
    known = ", ".join(known.value for known in GgmlDType)
    raise InvalidArgument(op, f"{name} must be a GgmlDType or its name, not {describe(value)}; use one of {known}")


def array(op: str, name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return an array of NumPy's; a scalar of NumPy's as one of rank 0."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    raise wrong_type(op, name, value, "numpy.ndarray")
