"""The cells' part of the model: for each op what the branch of a backend calls, or why the backend lacks it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from opgen.decoder import Cursor, Diagnostics, members
from opgen.names import Names
from opgen.notes import Form, Mark, Name, exactly, names_of
from opgen.problem import Location, did_you_mean, nearest

LOWERING_KINDS = ("call", "attribute", "forward", "unsupported")
_CALL = re.compile(r"([a-z]\w*)\.([a-z]\w*)")
_FORM = f"write a call such as 'module.function', or one of {', '.join(LOWERING_KINDS)}"


@dataclass(frozen=True)
class FunctionCall:
    """A call that a branch makes: a function of a module of the backend's ops, with a library where it needs one."""

    module: str
    function: str
    library: str | None  # the library that makes the call if it is present; its result is None for what it refuses
    nondeterministic: bool  # only used if the user allows nondeterministic sums
    location: Location
    FORM: ClassVar = Annotated[str, exactly(_CALL.pattern), names_of("function", token=r"\w+\.\w+")]

    def __str__(self) -> str:
        name = f"{self.module}.{self.function}"
        condition = ", ".join([*filter(None, [self.library]), *["nondeterministic"] * self.nondeterministic])
        return f"{condition}: {name}" if condition else name

    @classmethod
    def decode(cls, cursor: Cursor) -> "FunctionCall":
        """The call that a text names."""
        content = cursor.value.content
        match = _CALL.fullmatch(content) if isinstance(content, str) else None
        if match is None:
            written = f"'{content}'" if isinstance(content, str) else cursor.value.type_name
            fix = "'{unsupported: why}'" if content == "unsupported" else "'module.function'"
            cursor.problem(f"{cursor.owner} cannot call {written}; write {fix}")
        return cls(match[1] if match else "", match[2] if match else "", None, False, cursor.value.location)

    @property
    def is_conditional(self) -> bool:
        """Whether another call follows, which takes what this one does not."""
        return self.nondeterministic or self.library is not None


def _is_library(cursor: Cursor, key: str) -> Iterator[str]:
    if nearest(key, CELL_KEYS) is not None:
        yield f"unknown key '{key}' in {cursor.owner}{did_you_mean(key, CELL_KEYS)}"


@dataclass(frozen=True)
class _CellKeys:
    """The action of a backend's branch for an op, if it is more than a call `module.function`.

    A cell is such a call, a mapping of these keys, or a list of either in order of preference. After a call that may
    refuse comes the next one; after the last, that of the file that this one extends. An op needs no cell if a launch
    of spec/kernels describes it for devices, or if the module of ops that is named as the op's file of spec/storage has
    a function with the op's name. A call takes the library, the op if there are several, the operands, and the other
    arguments in the order of the signature.
    """

    nondeterministic: Annotated[
        bool,
        "The call, of a library or not, is used where `deterministic(False)` allows sums in any order.",
    ]
    call: Annotated[FunctionCall | None, "A function of the package's ops, or of the backend's own: `module.function`."]
    attribute: Annotated[Name | None, "An attribute of the backend's storage."]
    forward: Annotated[Name | None, "The method `<backend>_<name>` of the user's op."]
    unsupported: Annotated[str | None, "The reason why the backend lacks the op: the branch raises an error with it."]
    dtypes: Annotated[Names | None, "The dtypes that it is for, a set or a list; without, all that the op has."]
    libraries: Annotated[
        Mapping[Annotated[str, _is_library, names_of("library")], FunctionCall],
        Mark.OTHERS,
        "A library of the backend, and the function that is called where it is there; the function gives None for what "
        "the library refuses.",
    ]

    @property
    def calls(self) -> list[FunctionCall]:
        """The calls, of which a cell has one at most."""
        own = [] if self.call is None else [self.call]
        return [*own, *(replace(call, library=library) for library, call in self.libraries.items())]

    def diagnostics(self, what: str) -> Diagnostics:
        """Note that it says nothing, or more than one thing."""
        if len([*self.calls, *filter(None, (self.attribute, self.forward, self.unsupported))]) != 1:
            yield (None,), f"{what} must say one thing; {_FORM}"
        elif self.nondeterministic and not self.calls:
            yield (None,), f"{what} has 'nondeterministic' without a call; remove it"


CELL_KEYS = tuple(member.key for member in members(_CellKeys, "").values())


@dataclass(frozen=True)
class Lowering:
    """The action of a backend's branch for an op and some of its dtypes. It is of one of four kinds.

    A cell has several in order of preference, each with one call at most. Of those that are for a dtype, the branch has
    the calls up to the first that takes everything.
    """

    calls: tuple[FunctionCall, ...]  # all but the last may hand on what they refuse
    attribute: str | None
    forward: str | None
    unsupported: str | None
    dtypes: Names | None
    location: Location
    methods: tuple[str, ...] = ()  # of tensors, that a method is composed of
    FORM: ClassVar = FunctionCall | _CellKeys

    @classmethod
    def decode(cls, cursor: Cursor) -> "Lowering":
        """Decode a call, or a mapping."""
        # The location of the key: an alias has that of its anchor.
        content, location = cursor.value.content, cursor.value.key_location
        if isinstance(content, str):
            return cls(
                (FunctionCall.decode(cursor.inside(cursor.value, "call", cursor.what)),),
                None,
                None,
                None,
                None,
                location,
            )
        if not isinstance(content, dict):
            cursor.problem(f"{cursor.what} is {cursor.value.type_name}; {_FORM}")
            return cls((), None, None, None, None, location)
        keys: _CellKeys = cursor.decode(_CellKeys)
        calls = [replace(call, nondeterministic=keys.nondeterministic) for call in keys.calls]
        return cls(tuple(calls), keys.attribute, keys.forward, keys.unsupported, keys.dtypes, location)

    @property
    def is_open(self) -> bool:
        """Whether its calls may all refuse, and no other follows."""
        others = (self.attribute, self.forward, self.unsupported)
        return bool(self.calls) and (self.calls[-1].is_conditional or any(other is not None for other in others))

    @property
    def via(self) -> str | None:
        """The entry in the support matrix; None if it is unsupported."""
        if self.calls:
            return " or ".join(map(str, self.calls))
        if self.methods:
            return f"methods {', '.join(self.methods)}"
        return f"attribute {self.attribute}" if self.attribute else f"op.{self.forward}" if self.forward else None


# By method and op, then by dtype.
Lowerings: TypeAlias = Mapping[tuple[str, str | None], Mapping[str | None, Lowering]]


@dataclass(frozen=True)
class Cell:
    """The cell of an op, or of a kind of ops, in one file: its lowerings in order of preference."""

    lowerings: tuple[Lowering, ...]
    location: Location
    FORM: ClassVar = Annotated[tuple[Lowering, ...], Mark.ONE_OR_MORE, Form(minItems=1)]

    @classmethod
    def decode(cls, cursor: Cursor) -> "Cell":
        """Decode a cell; it is empty if a part is wrong, so that no further errors follow."""
        before = len(cursor.problems)
        lowerings = tuple(element.decode(Lowering) for element in cursor.elements(Mark.ONE_OR_MORE))
        if not lowerings:
            cursor.problem(f"{cursor.what} is an empty list; {_FORM}")
        return cls(lowerings if len(cursor.problems) == before else (), cursor.value.key_location)


_Method: TypeAlias = Annotated[str, names_of("method")]


@dataclass(frozen=True)
class CellFile:
    """The keys of every file with cells."""

    functors: Annotated[
        Mapping[Annotated[str, names_of("kind", "op")], Cell],
        Mark.OPTIONAL,
        "The cells of ops of spec/functors: by the kind of ops, or by `kind.op` for one op alone.",
    ]
    storage: Annotated[Mapping[_Method, Cell], Mark.OPTIONAL, "The cells of storage methods, by method."]
    device: Annotated[Mapping[_Method, Cell], Mark.OPTIONAL, "The cells of device methods, by method."]
    locations: Annotated[Mapping[str, Location], Mark.KEYS]
    path: Path

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Cell]:
        """The cells, by the part of the file and the key there."""
        return {(part, key): cell for part in PARTS for key, cell in getattr(self, part).items()}

    def location_of(self, *keys: str) -> Location:
        """Where the first of `keys` stands that is written; the top of the file where none is."""
        return next((self.locations[key] for key in keys if key in self.locations), Location(self.path))


# The parts of a file that has cells.
PARTS = ("functors", "storage", "device")
