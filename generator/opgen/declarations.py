"""Declarations: entries of the spec whose key is a call, such as `alloc(size)`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from opgen.notes import exactly
from opgen.problem import Location

_NAME = r"[a-z]\w*"
_PARAMETERS = rf"{_NAME}(?:, {_NAME})*"
_CALL = re.compile(rf"({_NAME})\(((?:{_PARAMETERS})?)\)")


@dataclass(frozen=True)
class CallForm:
    """The form of a call: a name and its parameters."""

    noun: str
    example: str
    pattern: str = _CALL.pattern

    def __call__(self, _: object, text: str) -> Iterator[str]:
        """Report a text of another form."""
        if not re.fullmatch(self.pattern, text):
            yield f"'{text}' is no {self.noun}; write its name and parameters, as '{self.example}'"

    def schema(self) -> Mapping[str, object]:
        """The pattern."""
        return exactly(self.pattern).schema()


WITH_PARAMETERS = rf"({_NAME})\(({_PARAMETERS})\)"
"""The pattern of a call with one parameter or more."""


class Declared:
    """The name and the parameters of a declaration; an empty name where the call is malformed."""

    call: str

    @property
    def name(self) -> str:
        """The name before the parentheses."""
        match = _CALL.fullmatch(self.call)
        return match[1] if match else ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        match = _CALL.fullmatch(self.call)
        return tuple(match[2].split(", ")) if match and match[2] else ()


class Named(Protocol):
    """An entry with a name."""

    @property
    def name(self) -> str:
        """Its name; empty if it is malformed."""

    @property
    def location(self) -> Location:
        """The location of its key."""


Entry = TypeVar("Entry", bound=Named)


def by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The first entry of each name; malformed entries have none."""
    first: dict[str, Entry] = {}
    for entry in entries:
        if entry.name:
            first.setdefault(entry.name, entry)
    return first


def repetitions(noun: str, entries: Iterable[Entry]) -> Iterator[tuple[Location, str]]:
    """The entries whose name an earlier one has, each with its location and an error message."""
    entries = tuple(entries)
    named = by_name(entries)
    for entry in entries:
        first = named.get(entry.name, entry)
        if entry is not first:
            yield entry.location, f"{noun} '{entry.name}' stands twice, first at line {first.location.line}; keep one"
