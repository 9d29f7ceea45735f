"""Stage 2, in general: values become frozen dataclasses, the records of the spec, as the types of their fields say.

Messages call a record as its Entry says, or as `CALLED`, or after the key that holds it.

A field is the key of its name. It must be written unless it is a bool, may be None or is `OPTIONAL`. Its type says what
it holds: text in one line, a number, a record, `tuple[X, ...]` for a list, or for a mapping to records with an `Entry`,
`Mapping[str, X]`, `Mapping[str, Location]` for a list of texts and their locations, `tuple[X, Location]` for a value
with its location; of two types the last is for mappings. A class with `parse` is decoded from a text, one with `decode`
of a `Cursor`; its `FORM` is the type that a schema takes for it. A `Location` is where the record's key is, a `Path`
its file. `Annotated` holds the rules for the value, marks, and as text what the key means: editors show this text, and
spec/README.md consists of it. What a rule says to a schema is its `schema`, or a `Form` next to it.

Every error is reported, and an empty value stands for what cannot be read. A record yields in `diagnostics` what
is wrong between its keys, where each has a value.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from opgen.cache.memo import memoize, persistent
from opgen.loader import Document, Value
from opgen.notes import Choice, Entry, Example, Key, LocationOf, Mark, Of, Using
from opgen.problem import Location, Problem, did_you_mean, nearest
from opgen.yaml_errors import key_fix, mapping_fix, value_fix

Found = TypeVar("Found")
# Where an error of a record is, and what it is: in the value of a key, or in that to which a path of keys and
# positions leads; where the path ends with None in its key, so that (None,) is the key of the record; or anywhere.
Diagnostics: TypeAlias = Iterator[tuple[str | tuple[str | int | None, ...] | Location, str]]
Notes: TypeAlias = tuple[object, ...]
Rule: TypeAlias = Callable[["Cursor", Any], Iterator[str]]

# A few times the longest so far: emitted code repeats texts, and tools take long over longer lines.
_MAX_CHARACTERS = 20_000
_SCALARS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


def decode(kind: type[Found], document: Document, problems: list[Problem], variant: str = "") -> Found:
    """The record that a file holds. It is called after the file where it has no Entry."""
    record: Found
    record, errors = _decoded(kind, document, variant)  # type: ignore[arg-type]  # mypy takes a type for no Hashable
    problems += errors
    return record


@memoize(lambda kind, document, variant: (kind, document, variant), size=1024)
def _decoded(kind: Hashable, document: Document, variant: str) -> tuple[Any, Sequence[Problem]]:
    """The record, and what is wrong with it."""
    problems: list[Problem] = []
    cursor = Cursor(document.root, document.stem, document.path.name, problems, variant)
    return _Keys(cursor, document.path.name, kind).decode_all(), problems


@dataclass(frozen=True)
class Cursor:
    """A value that is read, the key that leads to it, and what holds both, as messages call it."""

    value: Value
    key: str
    owner: str
    problems: list[Problem]
    variant: str = ""
    unreadable: list[Location] = field(default_factory=list)  # where an empty value stands for an invalid one

    @property
    def what(self) -> str:
        """The value in messages."""
        return f"'{self.key}' of {self.owner}"

    def problem(self, message: str, location: Location | None = None) -> None:
        """Report an error, by default at the value."""
        self.problems.append(Problem(location or self.value.location, message))

    def no_value(self, message: str) -> None:
        """Note an error of which no value comes, so that nothing else can be said of what holds it."""
        self.unreadable.append(self.value.location)
        self.problem(message)

    def inside(self, value: Value, key: str | None = None, owner: str | None = None) -> "Cursor":
        """A value that this one holds."""
        # There are many cursors: this takes a third of the time of `replace`.
        return Cursor(value, key or self.key, owner or self.owner, self.problems, self.variant, self.unreadable)

    def decode(self, hint: Any, *notes: object) -> Any:
        """Decode the value by its type."""
        hint, notes = split(hint, notes)
        if self.value.content is None and Mark.NULL in notes:
            return None
        hint, notes = split(options(hint)[-1 if isinstance(self.value.content, dict) else 0], notes)
        before = len(self.problems)
        record = _decode(self, hint, notes)
        return record if len(self.problems) > before else self.keep_rules(record, hint, notes)

    def keep_rules(self, record: Any, hint: Any, notes: Notes, location: Location | None = None) -> Any:
        """Return a value, or an empty one if it is not among its choices; report broken rules."""
        for rule in notes:
            for message in rule(self, record) if callable(rule) else ():
                self.problem(message, location)
                if isinstance(rule, Choice):
                    self.unreadable.append(self.value.location)
                    record = blank(hint, self.value.location)
        return record

    def elements(self, *notes: object) -> list["Cursor"]:
        """The elements of a list."""
        content = self.value.content
        if isinstance(content, list):
            return [self.inside(element) for element in content]
        if Mark.ONE_OR_MORE in notes:
            return [self]
        self.no_value(f"{self.what} must be a list, not {self.value.type_name}")
        return []

    def entries(self, hint: Any = str, *notes: object) -> dict[str, "Cursor"]:
        """The entries of a mapping, whose keys keep the rules of their type."""
        if not isinstance(self.value.content, dict):
            fix = f"; write it like '{example.text}'" if (example := first(notes, Example)) else ""
            fix = mapping_fix(self.value.content) or fix
            self.no_value(f"{self.what} must be a mapping, not {self.value.type_name}{fix}")
            return {}
        entries = {key: self.inside(value, key) for key, value in self.value.content.items()}
        for key, entry in entries.items():
            entry.keep_rules(key, *split(hint), entry.value.key_location)
        return entries

    def scalar(self, kind: type, *notes: object) -> Any:
        """A text, a number or a bool; None where it is none."""
        content = self.value.content
        is_one = isinstance(content, int | float if kind is float else kind)
        if not is_one or isinstance(content, bool) != (kind is bool):
            wanted = f"{_SCALARS[kind]} or null" if Mark.NULL in notes else _SCALARS[kind]
            self.no_value(
                f"{self.what} must be {wanted}, not {self.value.type_name}{value_fix(_SCALARS[kind], content)}"
            )
            return None
        if isinstance(content, str) and len(content) > _MAX_CHARACTERS:
            self.no_value(f"{self.what} has {len(content)} characters; write at most {_MAX_CHARACTERS}")
            return None
        # Texts become docstrings and comments, in which such a character could not stand.
        hidden = next((c for c in str(content) if not c.isprintable() and not c.isspace()), None)
        if hidden is not None:
            self.problem(f"{self.what} holds U+{ord(hidden):04X}, which cannot be printed; remove it")
        if isinstance(content, float) and not math.isfinite(content):
            self.problem(f"{self.what} must be a finite number, not {content}")
        return content


def _decode(cursor: Cursor, hint: Any, notes: Notes) -> Any:
    """Decode the value by its type, before any rule."""
    if (using := first(notes, Using)) is not None:
        return using.read(cursor)
    origin, inner = get_origin(hint), get_args(hint)
    if hasattr(hint, "decode"):
        return hint.decode(cursor)
    if dataclasses.is_dataclass(hint) and not hasattr(hint, "parse"):
        return _Keys(cursor, cursor.what, hint).decode_all()
    if origin is tuple and inner[1] is Location:
        return cursor.decode(inner[0], *notes), cursor.value.location
    if origin is tuple:
        leading = entry(split(inner[0])[0])
        if leading is not None:
            return tuple(_kept(entry, inner[0], cursor.key) for entry in cursor.entries(leading, *notes).values())
        return tuple(element.decode(inner[0]) for element in cursor.elements(*notes))
    if origin is Mapping and inner[1] is not Location:
        return {key: _kept(entry, inner[1], cursor.key) for key, entry in cursor.entries(inner[0], *notes).items()}
    if origin is Mapping:
        return _places(cursor, inner[0])
    return _scalar(cursor, hint, notes)


# By location: the digest of the value that an entry had last, its record, its errors, and the locations that were
# unreadable.
_KEPT: dict[Hashable, tuple[bytes, Any, list[Problem], list[Location]]] = persistent("entries", {})


def _kept(cursor: Cursor, hint: Any, holder: str) -> Any:
    """The record of an entry: the same one as long as the entry is the same, as an editor changes one of many.

    `holder` is the key of the mapping that has the entry.
    """
    # All values at such a location have one type. Types of an earlier process are not equal to those of this one.
    key = (cursor.value.location.path, cursor.variant, cursor.owner, holder, cursor.key)
    if key not in _KEPT or _KEPT[key][0] != cursor.value.digest:
        own = dataclasses.replace(cursor, problems=[], unreadable=[])
        _KEPT[key] = cursor.value.digest, own.decode(hint), own.problems, own.unreadable
    _, record, problems, unreadable = _KEPT[key]
    cursor.problems.extend(problems)
    cursor.unreadable.extend(unreadable)
    return record


def _places(cursor: Cursor, hint: Any) -> dict[str, Location]:
    locations: dict[str, Location] = {}
    for element in cursor.elements():
        text = element.decode(hint)
        if text in locations:
            element.problem(f"{cursor.what} has '{text}' twice; keep one")
        locations[text] = element.value.location
    return locations


def _scalar(cursor: Cursor, kind: Any, notes: Notes) -> Any:
    content = cursor.scalar(str if hasattr(kind, "parse") else kind, *notes)
    try:
        if content is not None and hasattr(kind, "parse"):
            return kind.parse(content)
    except ValueError as error:
        cursor.no_value(str(error))
        content = None
    if content is None or kind is not str:
        return blank(kind, cursor.value.location) if content is None else content
    if not content.strip() and Mark.MAY_BE_EMPTY not in notes:
        cursor.problem(f"{cursor.what} is empty; write its text")
    return content.strip() if Mark.PARAGRAPHS in notes else " ".join(content.split())


class _Keys:
    """The keys of one mapping, and the records that they become: one, and perhaps others inside it."""

    def __init__(self, cursor: Cursor, what: str, kind: Any) -> None:
        leading = first(split(entry(kind))[1], Entry)
        self.cursor, self.kind = cursor, kind
        self.what = leading.what.format(cursor.key) if leading else getattr(kind, "CALLED", what)
        self.written: Mapping[str, Value] = cursor.value.content if isinstance(cursor.value.content, dict) else {}
        self.expected: dict[str, bool] = {}  # whether a key must be written

    def decode_all(self) -> Any:
        """The record that all of them are."""
        if self.written is not self.cursor.value.content:
            fix = mapping_fix(self.cursor.value.content)
            self.cursor.no_value(f"{self.what} must be a mapping, not {self.cursor.value.type_name}{fix}")
        record = self.record(self.kind)
        meant = set()
        for key, value in self.written.items():
            if key not in self.expected:
                fix = key_fix(key)
                meant.add(nearest(key.partition(":")[0] if fix else key, self.expected))
                message = f"unknown key '{key}' in {self.what}{fix or did_you_mean(key, self.expected)}"
                self.cursor.problem(message, value.key_location)
        # A key that is there but misspelt, or one of a value that is no mapping, is not missing as well.
        for key in self.missing() if self.written is self.cursor.value.content else ():
            if key not in meant:
                self.cursor.problem(f"{self.what} lacks the key '{key}'; add it", self.cursor.value.key_location)
        return record

    def record(self, kind: Any) -> Any:
        """A record of some of them."""
        before = len(self.cursor.unreadable)
        keys = members(kind, self.cursor.variant)
        record = kind(
            **{
                name: self.member(keys[name]) if name in keys else self.other(hint, notes, keys.values())
                for name, (hint, notes) in _fields(kind).items()
            }
        )
        if len(self.cursor.unreadable) == before and not self.missing():
            self.note_diagnostics(record)
        return record

    def note_diagnostics(self, record: Any) -> None:
        """Note what is wrong between the keys of a record."""
        for at, message in record.diagnostics(self.what) if hasattr(record, "diagnostics") else ():
            self.cursor.problem(message, self.location_of(at))

    def missing(self) -> list[str]:
        """Those that must be written and are not."""
        return [key for key, is_required in self.expected.items() if is_required and key not in self.written]

    def member(self, member: "Member") -> Any:
        """Decode the value of a field's key."""
        key, hint, notes = member.key, member.hint, member.notes
        self.expected[key] = member.is_required
        if key not in self.written:
            return blank(hint, self.cursor.value.location)
        cursor = self.at(key)
        if cursor.value.content in ([], {}) and not member.may_be_empty:
            cursor.problem(f"{cursor.what} is empty; write what it holds")
        record = cursor.decode(hint, *notes)
        if hint is bool and cursor.value.content is False:
            cursor.problem(f"{cursor.what} is false without the key; remove it")
        return record

    def other(self, hint: Any, notes: Notes, members: Iterable["Member"]) -> Any:
        """Return the value of a field that is no key."""
        for note in () if Mark.LATER in notes or not _is_of(self.cursor.variant, notes) else notes:
            match note:
                case Entry():
                    return self.cursor.key
                case Mark.VARIANT:
                    return self.cursor.variant
                case Mark.KEYS:
                    return {key: value.key_location for key, value in self.written.items()}
                case Mark.OTHERS:
                    known = {member.key for member in members}
                    others = {key: value for key, value in self.written.items() if key not in known}
                    self.expected.update(dict.fromkeys(others, False))
                    entries = self.cursor.inside(
                        dataclasses.replace(self.cursor.value, content=others), owner=self.what
                    )
                    return entries.decode(hint)
                case LocationOf(key) if hint is Location:
                    return self.location_of(key)
                case LocationOf(key) if hint is bool:
                    return key in self.written
                case LocationOf(key):
                    content = self.written[key].content if key in self.written else None
                    return {name: each.location for name, each in content.items()} if isinstance(content, dict) else {}
                case Mark.INLINE:
                    return self.inline(*options(hint))
        return self.cursor.value.key_location if hint is Location else blank(hint, self.cursor.value.location)

    def at(self, key: str) -> Cursor:
        """The value of one."""
        return self.cursor.inside(self.written[key], key, self.what)

    def inline(self, kind: Any, other: Any) -> Any:
        """The one of two records whose first key is there, or else the other one."""
        key = next(iter(members(kind, self.cursor.variant).values())).key
        if key in self.written:
            return self.record(kind)
        self.expected[key] = False
        return self.record(other)

    def location_of(self, at: str | tuple[str | int | None, ...] | Location) -> Location:
        """Where an error is."""
        if isinstance(at, str):
            return self.written.get(at, self.cursor.value).location
        if isinstance(at, Location):
            return at
        value: Any = self.cursor.value
        for step in at:
            value = value if step is None else value.content[step]
        location: Location = value.key_location if at[-1] is None else value.location
        return location


@cache
def _hints(kind: Hashable) -> Mapping[str, Any]:
    """The fields of a record, and their types; none of any other type."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@cache
def _fields(kind: Hashable) -> Mapping[str, tuple[Any, Notes]]:
    """The fields of a record, their types, and what is said of them."""
    return {name: split(hint) for name, hint in _hints(kind).items()}


@dataclass(frozen=True)
class Member:
    """A key of a record, and what is said of it."""

    key: str
    hint: Any
    notes: Notes

    @property
    def doc(self) -> str:
        """The description."""
        return first(reversed(self.notes), str) or ""

    @property
    def is_required(self) -> bool:
        """Whether it must be written."""
        may_be_none = NoneType in get_args(self.hint) and Mark.NULL not in self.notes
        return not (may_be_none or self.hint is bool or Mark.OPTIONAL in self.notes)

    @property
    def may_be_empty(self) -> bool:
        """Whether a list or a mapping in it may be."""
        is_open = get_origin(self.hint) not in (tuple, Mapping) or Mark.MAY_BE_EMPTY in self.notes
        return is_open or not (self.is_required or first(self.notes, Example) is not None)


@cache
def members(kind: Hashable, variant: str) -> Mapping[str, Member]:
    """The keys of a record of a variant, by their fields; the other fields are none."""
    no_keys = {Mark.LATER, Mark.VARIANT, Mark.KEYS, Mark.OTHERS, Mark.INLINE}
    keys = {}
    for name, (hint, notes) in _fields(kind).items():
        is_key = hint not in (Location, Path) and not any(isinstance(note, Entry | LocationOf) for note in notes)
        if is_key and no_keys.isdisjoint(note for note in notes if isinstance(note, Mark)) and _is_of(variant, notes):
            keys[name] = Member((first(notes, Key) or Key(name)).name, hint, notes)
    return keys


def others(kind: Any, variant: str, mark: Mark) -> Iterator[tuple[Any, Notes]]:
    """The fields of a record that are no keys for the reason `mark`, and what is said of them."""
    for hint, notes in _fields(kind).values():
        if mark in notes and _is_of(variant, notes):
            yield hint, notes


def _is_of(variant: str, notes: Notes) -> bool:
    """Whether records of a variant have a field."""
    return variant in (first(notes, Of) or [variant])


@cache
def entry(kind: Any) -> Any:
    """The type of the field that is the key which leads to a record; None where there is none."""
    return next((hint for hint in _hints(kind).values() if first(split(hint)[1], Entry)), None)


def split(hint: Any, notes: Notes = ()) -> tuple[Any, Notes]:
    """A type without what is said of it, and that with `notes`."""
    if get_origin(hint) is not Annotated:
        return hint, notes
    hint, *more = get_args(hint)
    return hint, (*more, *notes)


@cache
def options(hint: Any) -> tuple[Any, ...]:
    """The types of a value that is not None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(option for option in options if option is not NoneType)


def first(notes: Iterable[object], kind: type[Found]) -> Found | None:
    """The first note of a kind."""
    return next((note for note in notes if isinstance(note, kind)), None)


def blank(hint: Any, location: Location) -> Any:
    """Something empty of a type."""
    hint, _ = split(hint)
    if NoneType in get_args(hint):
        return None
    hint, _ = split(options(hint)[0])
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Location, Path):
        return location if hint is Location else location.path
    if dataclasses.is_dataclass(origin):
        return hint(**{field: blank(each, location) for field, each in _hints(hint).items()})
    if origin is tuple and inner[1] is not ...:
        return tuple(blank(each, location) for each in inner)
    return {} if origin is Mapping else origin()
