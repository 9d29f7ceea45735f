"""What each run of a plan has anew: addresses and numbers, and the structs of kernels that hold them.

While a plan is recorded (see `recorder`), a variable is what it is in that run, and knows what it is called in others.
"""

from __future__ import annotations

import re
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ...dtype import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.gpu_backend.recorder import Recorder


class Variable(int):
    """An integer that is `name` in a run."""

    name: str


class Address(Variable):
    """A place in memory: `offset` bytes from `name` on.

    What is worked out of it may depend on how it is aligned, which is the same in all runs, and on nothing else.
    """

    offset: int

    @classmethod
    def of(cls, value: int, name: str, offset: int = 0) -> Address:
        """The place `value`."""
        address = cls(value)
        address.name = name
        address.offset = offset
        return address

    def __add__(self, other: int) -> Address:
        return Address.of(int(self) + other, self.name, self.offset + other)

    __radd__ = __add__


class Number(Variable):
    """A number. A run can't repeat what is worked out of it."""

    _recorder: Recorder

    @classmethod
    def made(cls, recorder: Recorder, value: int, name: str) -> Number:
        """The number `value`."""
        number = cls(value)
        number.name = name
        number._recorder = recorder
        return number

    def changed(self) -> None:
        """Say that another run does something else."""
        self._recorder.changed()


def _working_out(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def work_out(self: Number, *others: Any, **options: Any) -> Any:
        self.changed()
        return plain(int(self), *others, **options)

    return work_out


_WORKED_OUT: Final = (
    *("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "radd", "rmul", "rand", "ror"),
    *("eq", "ne", "lt", "le", "gt", "ge", "bool", "hash", "neg", "invert"),
)
for _name in (*(f"__{name}__" for name in _WORKED_OUT), "to_bytes", "bit_length"):
    setattr(Number, _name, _working_out(_name))


class Parameter:
    """A number of a call."""

    def __init__(self, recorder: Recorder, value: float, name: str) -> None:
        self._recorder = recorder
        self._value = value
        self._name = name

    def bits(self, find: Callable[[float, DType, int], int], dtype: DType, times: int) -> Number:
        """What `find` makes of the number, a dtype, and how many elements there are of it, in each run."""
        constants = ", ".join(map(self._recorder.constant, (dtype, times)))
        expression = f"{self._recorder.constant(find)}({self._name}, {constants})"
        name = f"{self._name}_{dtype.value}_{times}"
        return self._recorder.variable(find(self._value, dtype, times), name, expression)


_VARIABLES: Final = frozenset((Address, Number))


class PackedArguments(bytes):
    """The bytes of a kernel's struct, and its variables, each with the place of its 8 bytes."""

    variables: tuple[tuple[int, Variable], ...]


class ArgumentStruct(struct.Struct):
    """The struct of a kernel's arguments."""

    def pack(self, *fields: Any) -> bytes:
        """The bytes of the fields, which know what of them is a variable."""
        packed = super().pack(*fields)
        if _VARIABLES.isdisjoint(map(type, fields)):
            return packed
        variables = [(place, field) for place, field in enumerate(fields) if isinstance(field, Variable)]
        noted = PackedArguments(packed)
        noted.variables = tuple((self._places[place], field) for place, field in variables)
        return noted

    @cached_property
    def _places(self) -> list[int]:
        """Where each field begins."""
        places, size = [], 0
        for count, code in re.findall(r"(\d*)([a-zA-Z])", self.format):
            for _ in range(int(count or 1)):
                if code != "x":
                    places.append(size)
                size += struct.calcsize(f"={code}")
        return places
