"""What each run of a plan has anew: addresses and numbers, and the structs of kernels that hold them.

While a plan is recorded (see `recorder`), a variable is what it is in that run, and knows what it is called in others.
"""

from __future__ import annotations

import re
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast

from ...dtype import DType

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.gpu_backend.execute.recorder import Recorder

    class Count(Protocol):
        """An int that is no address."""

        def bit_length(self) -> int:
            """As of an int."""

    class Address(int):
        """A place in memory: an int, which type checkers tell from a count."""

        bit_length: None  # type: ignore[assignment]

        def __add__(self, offset: int) -> Address: ...
        def __radd__(self, offset: int) -> Address: ...

else:
    Address = Count = int

NOWHERE: Final = cast("Address", 0)
"""The address of what is not there."""


_VARIABLES: Final[set[type]] = set()


class Variable:
    """What differs from run to run."""

    code: ClassVar = "Q"
    """What it is in a struct, as the module `struct` says it."""

    def __init_subclass__(cls) -> None:
        _VARIABLES.add(cls)


class Recorded(Variable, int):
    """An integer that is `name` in a run."""

    name: str


class RecordedAddress(Recorded, Address):
    """A place in memory: `offset` bytes from `name` on.

    What is worked out of it may depend on how it is aligned, which is the same in all runs, and on nothing else.
    """

    offset: int

    @classmethod
    def of(cls, value: int, name: str, offset: int = 0) -> RecordedAddress:
        """The place `value`."""
        address = cls(value)
        address.name = name
        address.offset = offset
        return address

    def __add__(self, other: int) -> RecordedAddress:
        return RecordedAddress.of(int(self) + other, self.name, self.offset + other)

    __radd__ = __add__


class Number(Recorded):
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

    def __init__(self, recorder: Recorder, value: complex, name: str) -> None:
        self._recorder = recorder
        self._value = value
        self._name = name

    def bits(self, find: Callable[[complex, DType, int], int], dtype: DType, times: int) -> Number:
        """What `find` makes of the number, a dtype, and how many elements there are of it, in each run."""
        constants = ", ".join(map(self._recorder.constant, (dtype, times)))
        expression = f"{self._recorder.constant(find)}({self._name}, {constants})"
        name = f"{self._name}_{find.__name__}_{dtype.value}_{times}"
        return self._recorder.variable(find(self._value, dtype, times), name, expression)


class PackedArguments(bytes):
    """The bytes of a kernel's struct, and its variables, each with its place."""

    variables: tuple[tuple[int, Variable], ...]

    def parts(self) -> tuple[str, list[bytes | Variable]]:
        """The format and the values that pack them with other variables: these, and the bytes in front and behind."""
        form, values, end = "=", list[bytes | Variable](), 0
        for place, variable in self.variables:
            if place > end:
                form += f"{place - end}s"
                values.append(bytes(self[end:place]))
            form += variable.code
            values.append(variable)
            end = place + struct.calcsize(variable.code)
        if end < len(self):
            form += f"{len(self) - end}s"
            values.append(bytes(self[end:]))
        return form, values


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
