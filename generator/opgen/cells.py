"""The cells' part of the model: for each op what the branch of a backend calls, or why the backend lacks it."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeAlias

from opgen.decoder import Mark, Name, Spot
from opgen.names import Names
from opgen.problem import Location, nearest

LOWERING_KINDS = ("call", "attribute", "forward", "unsupported")
_CALL = re.compile(r"([a-z]\w*)\.([a-z]\w*)")
_FORM = f"write a call such as 'module.function', or one of {', '.join(LOWERING_KINDS)}"


@dataclass(frozen=True)
class FunctionCall:
    """A call that a branch makes: a function of a module of the backend's ops, with a library where it needs one."""

    module: str
    function: str
    library: str | None  # the call is made where this library is there; its result is None for what it refuses
    any_order: bool  # the call is made where the user lets floats be added in any order
    location: Location

    def __str__(self) -> str:
        name = f"{self.module}.{self.function}"
        condition = ", ".join([*filter(None, [self.library]), *["any_order"] * self.any_order])
        return f"{condition}: {name}" if condition else name

    @classmethod
    def decode(cls, spot: Spot) -> "FunctionCall":
        """The call that a text names."""
        content = spot.value.content
        match = _CALL.fullmatch(content) if isinstance(content, str) else None
        if match is None:
            given = f"'{content}'" if isinstance(content, str) else spot.value.type_name
            spot.problem(f"{spot.owner} cannot call {given}; write 'module.function'")
        return cls(match[1] if match else "", match[2] if match else "", None, False, spot.value.location)

    @property
    def is_conditional(self) -> bool:
        """Whether another call follows, which takes what this one does not."""
        return self.any_order or self.library is not None


@dataclass(frozen=True)
class _Keys:
    """The keys of a cell, or of one of several; what else is a key there is a library."""

    any_order: Annotated[bool, "the call is made where the user lets floats be added in any order"]
    call: FunctionCall | None
    attribute: Annotated[Name | None, "of the backend's storage"]
    forward: Annotated[Name | None, "the method of a user's op"]
    unsupported: Annotated[str | None, "the reason"]
    dtypes: Annotated[Names | None, "those that it is for; all that the op has where it is not written"]


CELL_KEYS = tuple(field.name for field in dataclasses.fields(_Keys))


@dataclass(frozen=True)
class Lowering:
    """What the branch of a backend does for an op and some of its dtypes. It is of one of four kinds.

    A cell has several in order of preference, each with one call at most. Of those that are for a dtype, the branch has
    the calls up to the first that takes everything.
    """

    calls: tuple[FunctionCall, ...]  # all but the last may hand on what they refuse
    attribute: str | None
    forward: str | None
    unsupported: str | None
    dtypes: Names | None
    location: Location

    @classmethod
    def decode(cls, spot: Spot) -> "Lowering":
        """What a call says that stands alone, or a mapping."""
        # The key's place: an alias has the place of its anchor.
        content, place = spot.value.content, spot.value.key_location
        if isinstance(content, str):
            return cls(
                (FunctionCall.decode(spot.inside(spot.value, "call", spot.what)),), None, None, None, None, place
            )
        if not isinstance(content, dict):
            spot.problem(f"{spot.what} is {spot.value.type_name}; {_FORM}")
            return cls((), None, None, None, None, place)
        before = len(spot.problems)
        # What is no key of the language, and no misspelling of one, is a library.
        library = next((key for key in content if key not in CELL_KEYS and nearest(key, CELL_KEYS) is None), None)
        rest = {key: value for key, value in content.items() if key != library}
        keys: _Keys = spot.inside(replace(spot.value, content=rest)).decode(_Keys)
        calls = [] if keys.call is None else [keys.call]
        if library is not None:
            call = FunctionCall.decode(spot.inside(content[library], library, spot.what))
            calls.append(replace(call, library=library))
        said = [*calls, *filter(None, (keys.attribute, keys.forward, keys.unsupported))]
        if len(spot.problems) == before and len(said) != 1:
            spot.problem(f"{spot.what} must say one thing; {_FORM}", place)
        elif len(spot.problems) == before and keys.any_order and not calls:
            spot.problem(f"{spot.what} has 'any_order' without a call; remove it", place)
        calls = [replace(call, any_order=keys.any_order) for call in calls]
        return cls(tuple(calls), keys.attribute, keys.forward, keys.unsupported, keys.dtypes, place)

    @property
    def is_open(self) -> bool:
        """Whether its calls may all refuse, and no other follows."""
        others = (self.attribute, self.forward, self.unsupported)
        return bool(self.calls) and (self.calls[-1].is_conditional or any(other is not None for other in others))

    @property
    def via(self) -> str | None:
        """What the matrix says of it; None where it is unsupported."""
        if self.calls:
            return " or ".join(map(str, self.calls))
        return f"attribute {self.attribute}" if self.attribute else f"op.{self.forward}" if self.forward else None


# By method and op, then by dtype.
Lowerings: TypeAlias = Mapping[tuple[str, str | None], Mapping[str | None, Lowering]]


@dataclass(frozen=True)
class Cell:
    """What one file says of an op, or of a kind of ops, in order of preference."""

    lowerings: tuple[Lowering, ...]
    location: Location

    @classmethod
    def decode(cls, spot: Spot) -> "Cell":
        """What a cell says; nothing where a part is wrong, so that nothing else is looked for."""
        before = len(spot.problems)
        lowerings = tuple(element.decode(Lowering) for element in spot.elements(Mark.ONE_OR_MORE))
        if not lowerings:
            spot.problem(f"{spot.what} is an empty list; {_FORM}")
        return cls(lowerings if len(spot.problems) == before else (), spot.value.key_location)


@dataclass(frozen=True)
class CellFile:
    """What every file with cells has."""

    functors: Annotated[Mapping[str, Cell], Mark.OPTIONAL, "by the kind or the `kind.op`"]
    storage: Annotated[Mapping[str, Cell], Mark.OPTIONAL, "by the method"]
    device: Annotated[Mapping[str, Cell], Mark.OPTIONAL, "by the method"]
    locations: Annotated[Mapping[str, Location], Mark.KEYS]
    path: Path

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Cell]:
        """The cells, by the part of the file and the key there."""
        return {(part, key): cell for part in PARTS for key, cell in getattr(self, part).items()}

    def place(self, *keys: str) -> Location:
        """Where the first of `keys` stands that is written; the top of the file where none is."""
        return next((self.locations[key] for key in keys if key in self.locations), Location(self.path))


# The parts of a file that has cells.
PARTS = ("functors", "storage", "device")
