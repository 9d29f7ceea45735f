"""The kernels' part of the model: what spec/kernels says of each family of kernels and of their arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from opgen.cache.memo import memoize
from opgen.decoder import Cursor, Diagnostics
from opgen.launches import Launch
from opgen.notes import (
    Choice,
    Entry,
    Form,
    LocationOf,
    Mark,
    Name,
    Pattern,
    Placeholders,
    Range,
    Using,
    defines,
    exactly,
    names_of,
)
from opgen.problem import Location, Problem, did_you_mean
from opgen.reserved import no_cpp_word

# The types of an argument's fields: the C++ type, the letter of ArgumentStruct, the bytes of one, and the type that
# launchers pack.
FIELD_TYPES = {
    "address": ("uint64_t", "P", 8, "Pointer"),
    "value": ("uint64_t", "P", 8, "Number"),
    "value32": ("uint32_t", "L", 4, "Number"),
    "u32": ("uint32_t", "I", 4, "int"),
    "i32": ("int32_t", "i", 4, "int"),
    "u64": ("uint64_t", "Q", 8, "int"),
    "i64": ("int64_t", "q", 8, "int"),
    "f32": ("float", "f", 4, "float"),
    "f64": ("double", "d", 8, "float"),
}
# The types of a tuple's items: in C++, how C++ reads one there, and in Python.
ITEM_TYPES = {
    "number": ("uint64_t", "as_number({})", "int"),
    "flag": ("bool", "as_number({}) != 0", "bool"),
    "object": ("PyObject*", "{}", "Any"),
    "slot": ("Slot", "Slot({})", "Any"),
}
# The sizes of elements in bytes, as they are written.
SIZES = {"1": 1, "2": 2, "4": 4, "8": 8, "16": 16}
# The last field of a struct of kernels that compute functors with parameters.
_PARAMETERS = "parameters"
# How many operands the functors of the family have at most; in a group, those that the struct gives it.
_OPERANDS = "operands"
# A length is a product of numbers and of lengths that have a name; that of a group is how many operands it has.
_FIELD_TYPE = re.compile(r"(\w+)(?:\[(\w+(?: \w+)*)\])?")
_Fields: TypeAlias = Mapping[Annotated[Name, no_cpp_word], tuple[Annotated[str, names_of("group")], Location]]


def _element(cursor: Cursor) -> str:
    if isinstance(cursor.value.content, list | dict | bool | float | None):
        cursor.no_value(f"{cursor.what} must be a name or an integer, not {cursor.value.type_name}")
    return str(cursor.value.content)


_ELEMENTS = names_of("set", "dtype", "kind", "width", "format")
# Of an axis: a word or a number.
_Element: TypeAlias = Annotated[
    str, Using(_element, Annotated[str, Mark.MAY_BE_EMPTY, Form(type=["integer", "string"]), _ELEMENTS])
]
_KERNEL_NAME = r"([A-Za-z0-9_]|{[^{}]*}|[{}])+"


@dataclass(frozen=True)
class Limits:
    """The array capacities of structs of kernels that compute functors of a kind."""

    operands: int
    results: int
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
class FieldGroup:
    """Fields that several structs have side by side."""

    name: Annotated[Name, Entry("group '{}'"), defines("group")]
    doc: Annotated[str, "What the fields are, for the docstring of what packs them."]
    fields: Annotated[_Fields, "The fields by name, in order, with their types as in `arguments` of a family."]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class FieldGroups:
    """Fields that the structs of several families of kernels have side by side."""

    groups: Annotated[tuple[FieldGroup, ...], "The groups by name, which is a type of fields."]


@dataclass(frozen=True)
class Member:
    """A member of a struct: a field, or the fields of a group."""

    name: str
    fields: tuple[Field, ...]
    group: str = ""  # the name of the group, if it is one

    @property
    def is_number(self) -> bool:
        """Whether it is one number, and no array."""
        return not self.group and len(self.fields) == 1 and self.fields[0].length is None


@dataclass(frozen=True)
class Struct:
    """The one argument of a kernel, by value, laid out as C++ lays out its fields."""

    name: str
    members: tuple[Member, ...]
    location: Location = field(compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Those of all members, in order."""
        return tuple(field for member in self.members for field in member.fields)

    @property
    def alignment(self) -> int:
        """Bytes that its address is a multiple of."""
        return max((field.size for field in self.fields), default=1)

    def offsets(self) -> tuple[int, ...]:
        """Where each field begins, in bytes, and last where the struct ends."""

        def after(end: int, field: Field) -> int:
            return _rounded(end, field.size) + field.size * (field.length or 1)

        ends = list(accumulate(self.fields, after, initial=0))
        begins = [_rounded(end, field.size) for end, field in zip(ends, self.fields, strict=False)]
        return (*begins, _rounded(ends[-1], self.alignment))


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


def _bytes(cursor: Cursor) -> dict[int, int]:
    for size, entry in cursor.entries().items():
        if size not in SIZES:
            message = f"'{size}' is no size of an element in bytes; sizes are {', '.join(SIZES)}"
            entry.problem(message, entry.value.key_location)
    return {SIZES.get(size, 0): entry.decode(int) for size, entry in cursor.entries().items()}


# A number for each size of an element.
_BySize = Annotated[Mapping[int, int], Using(_bytes, Mapping[Annotated[str, exactly("|".join(SIZES))], int])]


@dataclass(frozen=True)
class Kernel:
    """Kernels of one pattern: their names range over ops, dtypes or widths."""

    CALLED: ClassVar = "a kernel"
    name: Annotated[
        str, Pattern(_KERNEL_NAME, "exp_{dtype}"), no_cpp_word, "The name, with a placeholder for each axis."
    ]
    over: Annotated[
        Mapping[str, Annotated[tuple[_Element, ...], Mark.ONE_OR_MORE]],
        Mark.MAY_BE_EMPTY,
        "What each placeholder of the name ranges over: a set of dtypes, a kind of ops (for `op`), `op` (the dtypes "
        "of the op), or a list of dtypes, of widths of spec/kernels/widths.yaml, of formats, of numbers, or of ops. "
        "An op with a result of any dtype, or with a condition, is one for each of these: `to_dtype_f16`, "
        "`where_cond_b8`.",
    ]
    only: Annotated[
        str | None,
        Choice(("any_dim", "totals", "without_totals")),
        "Which ops of rows have the kernel: `totals` those with sums over all rows, the gradients of vectors along "
        "the row, `without_totals` the others, and of these `any_dim` those whose rows may lie along any dim.",
    ]
    arguments: Annotated[str, names_of("struct"), "The struct of `arguments` that the kernel takes."]
    call: Annotated[
        str,
        "The function template that is the body of the kernel, with placeholders. With an op and a dtype, {result} is "
        "the type of what the op gives, {sources} are those of its operands, {sources_but_last} all but the last of "
        "these.",
    ]
    resident: Annotated[
        Annotated[int, Range(1)] | _BySize,
        Mark.OPTIONAL,
        "How many blocks a multiprocessor of NVIDIA holds at least, or how many for sizes of an element in bytes: the "
        "compiler uses no more registers than that lets it. Without this key, or a size of it, the compiler is free.",
    ]
    waves: Annotated[int, Range(1), Mark.OPTIONAL, "The same of the waves that a SIMD of CDNA 3 holds."]
    location: Location = field(compare=False)
    call_location: Annotated[Location, LocationOf("call")] = field(compare=False)
    over_locations: Annotated[Mapping[str, Location], LocationOf("over")] = field(compare=False)

    def diagnostics(self, what: str) -> Diagnostics:
        """Note placeholders of no axis."""
        # What a functor gives is known where its op and dtype are.
        implied = ("result", "sources", "sources_but_last") if {"op", "dtype"} <= {*self.over} else ()
        for key, text, known in (("name", self.name, ()), ("call", self.call, implied)):
            yield from ((key, flaw) for flaw in Placeholders((*self.over, *known)).flaws(f"'{key}' of {what}", text))
        if isinstance(self.resident, Mapping):
            if "dtype" not in self.over:
                yield "resident", f"'resident' of {what} has sizes of elements, but 'over' no dtype; give one number"
            for size, number in self.resident.items():
                if number < 1:
                    yield ("resident", str(size)), f"'resident' of {what} must be 1 or more, not {number}"


@dataclass(frozen=True)
class KernelFamily:
    """A file of spec/kernels: kernels that are compiled together.

    In structs, dims go innermost first and strides count elements, operand after operand, `rank` for each. A divisor
    d > 0 for an index below 2**31 travels as shift = ceil(log2 d) and multiplier = 2**32 * (2**shift - d) // d + 1.
    """

    name: Annotated[str, Entry("{}.yaml")]
    doc: Annotated[str, "What the kernels do: the comment at the top of their source."]
    host: Annotated[bool, "True if the kernels are C++ for the host; otherwise they are HIP for GPUs."]
    needs: Annotated[
        Mapping[Annotated[Name, names_of("feature")], Location],
        Mark.OPTIONAL,
        "What a target must have for the kernels, of `has` in spec/kernels/targets.yaml.",
    ]
    early: Annotated[
        bool,
        "True if the kernels read what no kernel writes before they wait for the one in front of them, by "
        "await_previous_kernel(); others wait before they begin.",
    ]
    cooperative: Annotated[
        bool, "True if blocks of a launch wait for each other: a device that cannot run all of them at once refuses it."
    ]
    headers: Annotated[
        Mapping[Annotated[str, names_of("header", token=r"[\w./]+")], Location],
        Mark.OPTIONAL,
        "The headers of runtime/kernels that the source includes.",
    ]
    functors: Annotated[
        Mapping[Annotated[str, names_of("kind")], Location],
        Mark.OPTIONAL,
        "The files of spec/functors whose ops the source has besides those that its kernels range over: all ops, for "
        "programs that are composed of them at run time.",
    ]
    arguments: Annotated[
        Mapping[Annotated[str, defines("struct")], _Fields],
        Mark.MAY_BE_EMPTY,
        "The structs that kernels take by value, one each: the names and the types of the fields, in order. An "
        "`address` is a pointer as u64; a `value` is a u64, and a `value32` a u32, that may differ between runs. "
        "type[2] is an array of two, type[2 rank] one of twice the most dims of a tensor. Other lengths are what the "
        "family's functors need at most: `sources`, `results`, `operands` (both) and `parameters`. A type of "
        "spec/kernels/groups.yaml stands for the fields of the group. A struct of kernels that range over functors "
        "with parameters ends in an array `parameters`: the bits of each in the compute dtype. Fields lie as C++ lays "
        "them out.",
    ]
    kernels: Annotated[
        tuple[Kernel, ...], Mark.OPTIONAL, "The kernels: patterns that range over ops, dtypes or widths."
    ]
    launches: Annotated[
        tuple[Launch, ...],
        Mark.OPTIONAL,
        "By struct, how ops launch the kernels that take it.",
    ]
    structs: Annotated[tuple[Struct, ...], Mark.LATER]
    path: Path

    @property
    def ranged(self) -> tuple[str, ...]:
        """The kinds of functors that its kernels range over."""
        return tuple(kind for kernel in self.kernels for kind in kernel.over.get("op", ()))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of functors that its source has all of."""
        return tuple(dict.fromkeys((*self.ranged, *self.functors)))


def _needs(
    family: KernelFamily, rank: int, limits: Mapping[str, Limits], groups: Sequence[FieldGroup]
) -> tuple[object, ...]:
    """Return the key on which the structs of a family depend."""
    needed = ((kind, limits[kind]) for kind in family.kinds if kind in limits)
    return (family, rank, groups, *chain.from_iterable(needed))


@memoize(_needs)
def with_structs(
    family: KernelFamily, rank: int, limits: Mapping[str, Limits], groups: Sequence[FieldGroup]
) -> tuple[KernelFamily, Sequence[Problem]]:
    """A family with its structs, and errors; tensors have `rank` dims at most, functors of a kind need `limits`."""
    problems: list[Problem] = []
    lengths = {"rank": rank, **_lengths([limits[kind] for kind in family.kinds if kind in limits])}
    structs = []
    for name, fields in family.arguments.items():
        members = list(_members(fields, lengths, {group.name: group.fields for group in groups}, problems))
        kinds = [kind for kernel in family.kernels if kernel.arguments == name for kind in kernel.over.get("op", ())]
        if kinds:
            # Launchers pack them alike where there are none.
            most = max((limits[kind].parameters for kind in kinds if kind in limits), default=0)
            members.append(Member(_PARAMETERS, (Field(_PARAMETERS, "value", most),) * bool(most)))
        taken = set[str]()
        for (_, location), member in zip(fields.values(), members, strict=False):
            twice = [field.name for field in member.fields if field.name in taken]
            problems += [
                Problem(location, f"struct '{name}' has field '{field}' already; rename one") for field in twice[:1]
            ]
            taken |= {field.name for field in member.fields}
        location = next((location for _, location in fields.values()), Location(family.path))
        structs.append(Struct(name, tuple(members), location))
    for kernel in family.kernels:
        if kernel.arguments not in family.arguments:
            hint = did_you_mean(kernel.arguments, family.arguments)
            message = f"kernel '{kernel.name}' takes unknown struct '{kernel.arguments}'{hint}"
            problems.append(Problem(kernel.location, message))
    return replace(family, structs=tuple(structs)), problems


def _lengths(limits: Sequence[Limits]) -> dict[str, int]:
    """Return the array lengths in structs of kernels that compute any of some functors."""
    sources = max((each.operands for each in limits), default=1)
    results = max((each.results for each in limits), default=1)
    # The first operands are the results. No array is empty.
    return {
        "sources": sources,
        "results": results,
        _OPERANDS: sources + results,
        _PARAMETERS: max((each.parameters for each in limits), default=1) or 1,
    }


def _members(
    written: _Fields, lengths: Mapping[str, int], groups: Mapping[str, _Fields], problems: list[Problem]
) -> Iterator[Member]:
    for name, (text, location) in written.items():
        match = _FIELD_TYPE.fullmatch(text)
        kind, times = (match[1], match[2] or "1") if match else (text, "")
        if kind in groups and times.isdecimal():
            inner = _members(groups[kind], {**lengths, _OPERANDS: int(times)}, {}, problems)
            yield Member(name, tuple(field for member in inner for field in member.fields), kind)
            continue
        if kind not in FIELD_TYPES:
            hint = did_you_mean(kind, (*FIELD_TYPES, *groups))
            problems.append(Problem(location, f"unknown type '{text}' of field '{name}'{hint}"))
            kind, times = "u32", "1"
        length = 1
        for word in times.split():
            if not word.isdecimal() and word not in lengths:
                message = f"unknown length '{word}' of field '{name}'{did_you_mean(word, lengths)}"
                problems.append(Problem(location, message))
            length *= int(word) if word.isdecimal() else lengths.get(word, 1)
        yield Member(name, (Field(name, kind, length if match and match[2] else None),))


_Bracketed: TypeAlias = Annotated[tuple[Annotated[str, names_of("tuple")], ...], Form(minItems=1, maxItems=1)]


def _item(cursor: Cursor) -> tuple[str, Location]:
    content = cursor.value.content
    names = [str(element.content) for element in content] if isinstance(content, list) else []
    return f"[{', '.join(names)}]" if names else str(content), cursor.value.location


@dataclass(frozen=True)
class TupleType:
    """A tuple that Python gives C++."""

    name: Annotated[Name, Entry("tuple '{}'"), defines("tuple")]
    doc: Annotated[str, "What the tuple is, for its docstring."]
    items: Annotated[
        Mapping[Annotated[Name, no_cpp_word], Annotated[tuple[str, Location], Using(_item, str | _Bracketed)]],
        "By name, a `number`, which is 0 or more, a `flag`, an `object`, a `slot`, which is the descriptor of an "
        "attribute, or [name], a tuple of the tuples of this name, which is described above it.",
    ]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class TupleTypes:
    """The tuples that Python passes to call.hpp to make the plans of the host's kernels.

    The tuples are emitted as NamedTuples to kernels/host_arguments.py, and as structs that read them to
    kernels/tuples.hpp. A `field_offset` is an offset in the bytes of a kernel's arguments.
    """

    tuples: Annotated[tuple[TupleType, ...], "The tuples by name."]

    def diagnostics(self, _what: str) -> Diagnostics:
        """Note items of unknown types: tuples hold those that are described above them."""
        known = list(ITEM_TYPES)
        for described in self.tuples:
            for name, (kind, location) in described.items.items():
                if kind not in known:
                    yield location, f"unknown type '{kind}' of item '{name}'{did_you_mean(kind, known)}"
            known.append(f"[{described.name}]")


@dataclass(frozen=True)
class Constant:
    """A number that kernels and their launchers share, or one for each size of an element in bytes."""

    name: Annotated[Name, no_cpp_word, Entry("constant '{}'")]
    doc: Annotated[str, "What the number is, for a comment."]
    value: Annotated[
        int | _BySize,
        "The number, or one for each size of an element in bytes.",
    ]
    location: Location = field(compare=False)


@dataclass(frozen=True)
class Constants:
    """The numbers that kernels and their launchers share."""

    constants: Annotated[tuple[Constant, ...], "The numbers by name."]


@dataclass(frozen=True)
class Widths:
    """The widths of elements that kernels only move."""

    widths: Annotated[
        Mapping[Annotated[Name, defines("width")], tuple[str, Location]],
        "By the name of a width, the C++ type of such an element.",
    ]
