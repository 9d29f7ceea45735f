"""The kernels' part of the model: what spec/kernels says of each family of kernels and of their arguments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from opgen.fields import Fields
from opgen.loader import Document, Value
from opgen.problem import Location, Problem, did_you_mean

# The types of an argument's fields: the C++ type, the letter of Python's struct module, and the bytes of one.
FIELD_TYPES = {
    "address": ("uint64_t", "Q", 8),
    "u32": ("uint32_t", "I", 4),
    "i32": ("int32_t", "i", 4),
    "u64": ("uint64_t", "Q", 8),
    "i64": ("int64_t", "q", 8),
    "f32": ("float", "f", 4),
    "f64": ("double", "d", 8),
}
# The sizes of elements in bytes, as they are written.
SIZES = {"1": 1, "2": 2, "4": 4, "8": 8}
# The last field of a struct of kernels that compute functors with parameters.
_PARAMETERS = "parameters"
# A length is a product of numbers and of lengths that have a name.
_FIELD_TYPE = re.compile(r"(\w+)(?:\[(\w+(?: \w+)*)\])?")
_KERNEL_NAME = re.compile(r"([A-Za-z0-9_]|{[^{}]*}|[{}])+")


@dataclass(frozen=True)
class Room:
    """What the structs of kernels that compute functors of a kind have room for."""

    operands: int
    parameters: int


@dataclass(frozen=True)
class Field:
    """A field of an argument struct."""

    name: str
    type: str  # a key of FIELD_TYPES
    length: int | None  # of an array

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return FIELD_TYPES[self.type][2]


@dataclass(frozen=True)
class Struct:
    """The one argument of a kernel, by value, laid out as C++ lays out its fields."""

    name: str
    fields: tuple[Field, ...]

    @property
    def alignment(self) -> int:
        """Bytes that its address is a multiple of."""
        return max(field.size for field in self.fields)

    def offsets(self) -> tuple[int, ...]:
        """Where each field begins, in bytes, and last where the struct ends."""

        def after(end: int, field: Field) -> int:
            return _rounded(end, field.size) + field.size * (field.length or 1)

        ends = list(accumulate(self.fields, after, initial=0))
        begins = [_rounded(end, field.size) for end, field in zip(ends, self.fields, strict=False)]
        return (*begins, _rounded(ends[-1], self.alignment))


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


@dataclass(frozen=True)
class Kernel:
    """Kernels of one pattern: their names range over ops, dtypes or widths."""

    name: str
    over: Mapping[str, tuple[str, ...]]  # placeholder: a group, a functor kind, `op`, or a list
    arguments: str
    call: str
    location: Location
    call_location: Location
    over_locations: Mapping[str, Location]


@dataclass(frozen=True)
class KernelFamily:
    """A file of spec/kernels: kernels that are compiled together."""

    name: str
    doc: str
    host: bool  # they work on spans of elements on the host, others on GPUs
    early: bool  # they wait themselves for the kernel in front of them
    resident: int  # a multiprocessor of NVIDIA holds so many blocks at least; 0 where the compiler is free
    headers: Mapping[str, Location]
    functors: Mapping[str, Location]
    structs: tuple[Struct, ...]
    kernels: tuple[Kernel, ...]
    path: Path

    @property
    def kinds(self) -> set[str]:
        """The kinds of functors that its kernels are given."""
        ranged = {kind for kernel in self.kernels for kind in kernel.over.get("op", ())}
        return ranged | set(self.functors)


def build_family(document: Document, rank: int, rooms: Mapping[str, Room], problems: list[Problem]) -> KernelFamily:
    """The family that `document` holds; tensors have `rank` dims at most, functors of a kind need `rooms`."""
    fields = Fields(document.root, f"{document.stem}.yaml", problems)
    functors = dict(fields.texts("functors"))
    arguments = fields.required("arguments")
    names = [name for name, _ in _pairs(arguments)]
    kernels = tuple(_kernel(element, names, problems) for element in fields.elements("kernels"))
    structs = []
    lengths = {"rank": rank, **_lengths([rooms[kind] for kind in functors if kind in rooms])}
    for name, value in _pairs(arguments):
        members = [_field(field, inner, lengths, problems) for field, inner in _pairs(value)]
        kinds = [kind for kernel in kernels if kernel.arguments == name for kind in kernel.over.get("op", ())]
        most = max((rooms[kind].parameters for kind in kinds if kind in rooms), default=0)
        structs.append(Struct(name, (*members, *([Field(_PARAMETERS, "u64", most)] if most else []))))
    family = KernelFamily(
        name=document.stem,
        doc=fields.text("doc"),
        host=fields.flag("host"),
        early=fields.flag("early"),
        resident=_resident(fields, problems),
        headers=dict(fields.texts("headers")),
        functors=functors,
        structs=tuple(structs),
        kernels=kernels,
        path=document.path,
    )
    fields.finish()
    return family


def _resident(fields: Fields, problems: list[Problem]) -> int:
    value = fields.optional("resident")
    count = fields.scalar(value, int, "resident")
    if value is not None and count is not None and count < 1:
        problems.append(Problem(value.location, f"resident: {count} is no number of blocks; write 1 or more"))
    return count or 0


def _pairs(value: Value | None) -> list[tuple[str, Value]]:
    return list(value.content.items()) if value is not None and isinstance(value.content, dict) else []


def _lengths(rooms: Sequence[Room]) -> dict[str, int]:
    """What arrays have room for in structs of kernels that compute any of some functors."""
    sources = max((room.operands for room in rooms), default=1)
    # Operand 0 is the result. No array is empty.
    return {
        "sources": sources,
        "operands": sources + 1,
        _PARAMETERS: max((room.parameters for room in rooms), default=1) or 1,
    }


def _field(name: str, value: Value, lengths: Mapping[str, int], problems: list[Problem]) -> Field:
    match = _FIELD_TYPE.fullmatch(str(value.content))
    if match is None or match[1] not in FIELD_TYPES:
        hint = did_you_mean(match[1] if match else str(value.content), FIELD_TYPES)
        problems.append(Problem(value.location, f"unknown type '{value.content}' of field '{name}'{hint}"))
        return Field(name, "u32", None)
    length = 1
    for word in (match[2] or "").split():
        if not word.isdecimal() and word not in lengths:
            message = f"unknown length '{word}' of field '{name}'{did_you_mean(word, lengths)}"
            problems.append(Problem(value.location, message))
        length *= int(word) if word.isdecimal() else lengths.get(word, 1)
    return Field(name, match[1], length if match[2] else None)


def _kernel(value: Value, structs: list[str], problems: list[Problem]) -> Kernel:
    fields = Fields(value, "a kernel", problems)
    name = fields.matching("name", _KERNEL_NAME, "exp_{dtype}")
    call = fields.text("call")
    over, places = {}, {}
    for axis, inner in _pairs(fields.required("over")):
        places[axis] = inner.location
        if isinstance(inner.content, list):
            over[axis] = tuple(str(element.content) for element in inner.content)
        else:
            over[axis] = (str(inner.content),)
    fields.check_placeholders("name", name, fields.place("name"), list(over))
    # What a functor gives is known where its op and dtype are.
    given = ["result", "sources", "sources_but_last"] if {"op", "dtype"} <= set(over) else []
    fields.check_placeholders("call", call, fields.place("call"), [*over, *given])
    kernel = Kernel(
        name=name,
        over=over,
        arguments=fields.text("arguments"),
        call=call,
        location=value.location,
        call_location=fields.place("call"),
        over_locations=places,
    )
    if kernel.arguments not in structs:
        hint = did_you_mean(kernel.arguments, structs)
        problems.append(Problem(value.location, f"kernel '{name}' takes unknown struct '{kernel.arguments}'{hint}"))
    fields.finish()
    return kernel


@dataclass(frozen=True)
class Constant:
    """A number that kernels and their launchers share, or one for each size of an element in bytes."""

    name: str
    doc: str
    value: int | Mapping[int, int]


def build_constants(document: Document, problems: list[Problem]) -> tuple[Constant, ...]:
    """The numbers that kernels and their launchers share."""
    fields = Fields(document.root, "constants.yaml", problems)
    constants = tuple(_constant(name, value, problems) for name, value in fields.mapping("constants").items())
    fields.finish()
    return constants


def _constant(name: str, value: Value, problems: list[Problem]) -> Constant:
    fields = Fields(value, f"constant '{name}'", problems)
    number = fields.required("value")
    by_bytes: dict[int, int] | None = None
    if number is not None and isinstance(number.content, dict):
        by_bytes = {}
        for size, inner in number.content.items():
            if size not in SIZES:
                hint = f"; sizes are {', '.join(SIZES)}"
                fields.problem(inner.key_location, f"'{size}' is no size of an element in bytes{hint}")
                continue
            by_bytes[SIZES[size]] = fields.scalar(inner, int, size) or 0
    single = fields.scalar(number, int, "value") if by_bytes is None else None
    constant = Constant(name, fields.text("doc"), (single or 0) if by_bytes is None else by_bytes)
    fields.finish()
    return constant


def build_widths(document: Document, problems: list[Problem]) -> dict[str, tuple[str, Location]]:
    """The C++ types of elements that are only moved, by width, and where they stand."""
    fields = Fields(document.root, "widths.yaml", problems)
    widths = {name: (str(value.content), value.location) for name, value in fields.mapping("widths").items()}
    fields.finish()
    return widths
