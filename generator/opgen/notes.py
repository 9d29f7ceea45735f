"""Annotations of fields: marks, forms for schemas, and rules for the values of keys."""

import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Any, Protocol, TypeAlias

from opgen.problem import did_you_mean

# Names become file names, module names and identifiers, so nothing else may stand in one: no path leaves the output.
# Kernels and files are called after several of them together.
_MAX_LETTERS = 64
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{_MAX_LETTERS - 1}}}")
# A placeholder, and a brace that belongs to none. Where braces stand for themselves too, a placeholder holds a word.
_PLACEHOLDER = re.compile(r"{([^{}]*)}|[{}]")
_PLACEHOLDER_AMONG_BRACES = re.compile(r"{(\w*)}")


class Described(Protocol):
    """A value as messages of rules name it."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def owner(self) -> str:
        """The record that has the key."""

    @property
    def what(self) -> str:
        """Both together."""


class Mark(Enum):
    """A property of a key, or of a field that is no key."""

    OPTIONAL = auto()  # it need not be written
    NULL = auto()  # it may be null, but must be written
    PARAGRAPHS = auto()  # its text keeps its lines
    MAY_BE_EMPTY = auto()  # its text or its mapping may be
    ONE_OR_MORE = auto()  # one value stands for a list of it
    OTHERS = auto()  # no key: the keys that belong to no other field, and their values
    INLINE = (
        auto()
    )  # no key: the keys of its record are among its siblings; of two records, the first if its first key is
    VARIANT = auto()  # no key: the variant of the record
    KEYS = auto()  # no key: where each key of the record stands
    LATER = auto()  # no key: filled by another stage


@dataclass(frozen=True)
class Key:
    """The key has another name than the field."""

    name: str


@dataclass(frozen=True)
class Entry:
    """No key, but the one that leads to the record, for which {} stands in what messages call it."""

    what: str


@dataclass(frozen=True)
class LocationOf:
    """No key: where the value of a key stands; of a mapping, each value that it holds; of a bool, whether it stands."""

    key: str


@dataclass(frozen=True)
class Using:
    """A function reads the value, which schemas take for one of another type."""

    read: Callable[[Any], Any]  # its argument is the Cursor
    form: Any


@dataclass(frozen=True)
class Example:
    """How a mapping is written, for messages."""

    text: str


class Form:
    """Keywords of a JSON Schema for a value, besides its type."""

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def schema(self) -> Mapping[str, object]:
        """The keywords of the schema."""
        return self._keywords


def like(pattern: str) -> Form:
    """A text that matches a complete pattern; space around it is ignored."""
    return Form(pattern=rf"^\s*(?:{pattern})\s*$")


def exactly(pattern: str) -> Form:
    """A text that matches a complete pattern, without space around it."""
    return Form(pattern=rf"^(?:{pattern})(?![\s\S])")


def names_of(*kinds: str, token: str = r"[A-Za-z_]\w*") -> Form:
    """A text whose words, or those that match `token`, may name things of these kinds, for editors."""
    return Form(**{"x-names": list(kinds), "x-token": token})


def defines(kind: str, token: str = r"[A-Za-z_]\w*") -> Form:
    """A text that gives something of a kind its name, for editors."""
    return Form(**{"x-defines": kind, "x-token": token})


class Of(tuple[str, ...]):
    """Only records of these variants have the key."""


@dataclass(frozen=True)
class Choice:
    """One of a few texts or numbers."""

    values: tuple[str | int, ...]

    def __call__(self, cursor: Described, value: str | int) -> Iterator[str]:
        """Note another one."""
        known = [str(value) for value in self.values]
        if value not in self.values and isinstance(value, str):
            yield f"unknown {cursor.key} '{value}' of {cursor.owner}{did_you_mean(value, known)}"
        elif value not in self.values:
            yield f"{cursor.what} must be {', '.join(known[:-1])} or {known[-1]}, not {value}"

    def schema(self) -> Mapping[str, object]:
        """The few values, of which a text may have space around it."""
        texts = "|".join(re.escape(value) for value in self.values if isinstance(value, str))
        listed: Mapping[str, object] = {"enum": list(self.values)}
        return {"anyOf": [listed, like(texts).schema()]} if texts else listed


@dataclass(frozen=True)
class Range:
    """A number from `least` on, up to `most` where there is such a number, for a reason."""

    least: int
    most: int | None = None
    reason: str = ""

    def __call__(self, cursor: Described, number: int) -> Iterator[str]:
        """Note a number outside."""
        if number < self.least or (self.most is not None and number > self.most):
            wanted = f"{self.least} or more" if self.most is None else f"from {self.least} to {self.most}"
            yield f"{cursor.what} must be {wanted}{self.reason and f', {self.reason}'}, not {number}"

    def schema(self) -> Mapping[str, object]:
        """The bounds."""
        return {"minimum": self.least} if self.most is None else {"minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Pattern:
    """Text of one form."""

    pattern: str
    example: str

    def __call__(self, cursor: Described, text: str) -> Iterator[str]:
        """Note a text of another form."""
        if text and not re.fullmatch(self.pattern, text):
            yield f"'{text}' cannot be the {cursor.key} of {cursor.owner}; write it like '{self.example}'"

    def schema(self) -> Mapping[str, object]:
        """The form, in which any space stands for one."""
        return {**like(self.pattern.replace(" ", r"\s+").replace(r"\s+?", r"\s*")).schema(), "examples": [self.example]}


@dataclass(frozen=True)
class Placeholders:
    """Text with placeholders of these names alone; among braces, those that hold no word stay as they are."""

    names: tuple[str, ...]
    among_braces: bool = False

    def __call__(self, cursor: Described, text: str) -> Iterator[str]:
        """Note what is wrong."""
        return self.flaws(cursor.what, text)

    def flaws(self, what: str, text: str) -> Iterator[str]:
        """Other placeholders, and single braces."""
        for match in (_PLACEHOLDER_AMONG_BRACES if self.among_braces else _PLACEHOLDER).finditer(text):
            if match[1] is None:
                yield f"{what} has a '{match[0]}' that stands alone; write '{{name}}'"
            elif match[1] not in self.names:
                yield f"{what} has an unknown placeholder '{match[1]}'{did_you_mean(match[1], self.names)}"

    def schema(self) -> Mapping[str, object]:
        """No other placeholder."""
        names = "|".join(self.names)
        if self.among_braces:
            return {"pattern": rf"^(?![\s\S]*\{{(?!(?:{names})\}})\w*\}})"}
        return {"pattern": rf"^(?:[^{{}}]|\{{(?:{names})\}})*$"}


def module_name(_: object, text: str) -> Iterator[str]:
    """Note what cannot be a file's and a module's name."""
    if len(text) > _MAX_LETTERS:
        yield f"'{text}' cannot be a name, it has more than {_MAX_LETTERS} letters; use a shorter one"
    elif not _NAME.fullmatch(text):
        name, is_assigned, value = text.partition("=")
        fix = f"write '{name.strip()}: {value.strip()}'" if is_assigned else "use small letters, digits and underscores"
        yield f"'{text}' cannot be a name; {fix}"
    elif keyword.iskeyword(text):
        yield f"'{text}' cannot be a name, it is a word of Python; use another one"


Name: TypeAlias = Annotated[
    str, module_name, like(rf"(?!(?:{'|'.join(filter(_NAME.fullmatch, keyword.kwlist))})\s*$){_NAME.pattern}")
]


def is_name(text: str) -> bool:
    """Whether `text` can be a file's and a module's name."""
    return not any(module_name(None, text))
