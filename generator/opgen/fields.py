"""Reads the keys of a mapping: every key is asked for, and whatever was not asked for is a mistake."""

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from opgen.decoder import Mark, Spot
from opgen.loader import Scalar, Value
from opgen.problem import Location, Problem, did_you_mean, nearest

# Names become file names, module names and identifiers, so nothing else may stand in one: no path leaves the output.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# A placeholder, and a brace that belongs to none. Where braces stand for themselves too, a placeholder holds a word.
_PLACEHOLDER = re.compile(r"{([^{}]*)}|[{}]")
_PLACEHOLDER_AMONG_BRACES = re.compile(r"{(\w*)}")
# YAML wants a point before an exponent, and a sign in it.
_EXPONENT = re.compile(r"(?P<number>[+-]?\d+\.?\d*)[eE](?P<exponent>[+-]?\d+)")
_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")

ScalarType = TypeVar("ScalarType", str, int, bool)
_TYPE_NAMES = {str: "text", int: "an integer", bool: "true or false"}


@dataclass(frozen=True)
class Names:
    """Dtypes as the spec names them: one group's name, or a list. `check` resolves them."""

    texts: tuple[str, ...]
    locations: tuple[Location, ...]
    listed: bool  # written as a list

    @classmethod
    def decode(cls, spot: Spot) -> "Names":
        """A group's name, or a list."""
        content = spot.value.content
        if not content or not isinstance(content, str | list):
            is_empty = content in ([], "")
            wrong = "is empty; write what it holds" if is_empty else "must be a group or a list of dtypes"
            spot.no_value(f"{spot.what} {wrong}")
            return cls((), (), listed=True)
        elements = spot.elements(Mark.ONE_OR_MORE)
        places = tuple(element.value.location for element in elements)
        return cls(tuple(element.scalar(str) or "" for element in elements), places, isinstance(content, list))


class Fields:
    """The keys of one mapping, popped as they are read."""

    def __init__(self, value: Value, what: str, problems: list[Problem]) -> None:
        self.location = value.location
        self.key_location = value.key_location
        self.what = what
        self.problems = problems
        self._places: dict[str, Location] = {}
        self._asked: list[str] = []
        self._missing: list[str] = []
        self._rest: dict[str, Value] = {}
        self._is_mapping = isinstance(value.content, dict)
        if isinstance(value.content, dict):
            self._rest = dict(value.content)
            self._places = {key: inner.location for key, inner in value.content.items()}
        else:
            self.problem(value.location, f"{what} must be a mapping, not {value.type_name}")

    def problem(self, location: Location, message: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(location, message))

    def place(self, key: str) -> Location:
        """Where the value of `key` stands; where the mapping stands if the key is not written."""
        return self._places.get(key, self.location)

    def optional(self, key: str) -> Value | None:
        """The value of `key`, or None where it is not written."""
        self._asked.append(key)
        return self._rest.pop(key, None)

    def required(self, key: str) -> Value | None:
        """The value of `key`; `finish` notes that it is missing."""
        value = self.optional(key)
        if value is None:
            self._missing.append(key)
        return value

    def scalar(self, value: Value | None, kind: type[ScalarType], key: str) -> ScalarType | None:
        """The content of `value` where it has the type `kind`; otherwise a mistake is noted."""
        if value is None:
            return None
        content = value.content
        if isinstance(content, kind) and isinstance(content, bool) == (kind is bool):
            self._check_printable(value.location, str(content), key)
            return content
        mend = "; put it in quotes" if kind is str and isinstance(content, int | float) else ""
        message = f"'{key}' of {self.what} must be {_TYPE_NAMES[kind]}, not {value.type_name}"
        self.problem(value.location, message + mend)
        return None

    def text(self, key: str, *, may_be_empty: bool = False) -> str:
        """Required text, in one line whatever lines it was written in."""
        return self.line(self.required(key), key, may_be_empty=may_be_empty) or ""

    def paragraphs(self, key: str) -> str:
        """Required text that keeps its lines."""
        value = self.required(key)
        self.line(value, key)
        return value.content.strip() if value is not None and isinstance(value.content, str) else ""

    def text_or_none(self, key: str) -> str | None:
        """Text in one line, or None where the key is not written."""
        return self.line(self.optional(key), key)

    def line(self, value: Value | None, key: str, *, may_be_empty: bool = False) -> str | None:
        """The text that `value` holds, in one line; None where it holds none."""
        text = self.scalar(value, str, key)
        if value is None or text is None:
            return None
        if not text.strip() and not may_be_empty:
            self.problem(value.location, f"'{key}' of {self.what} is empty; write its text")
        return " ".join(text.split())

    def matching(self, key: str, pattern: re.Pattern[str], example: str) -> str:
        """Required text of one form."""
        value = self.required(key)
        text = self.line(value, key)
        if value is not None and text and not pattern.fullmatch(text):
            self.problem(value.location, f"'{text}' cannot be the {key} of {self.what}; write it like '{example}'")
        return text or ""

    def check_placeholders(
        self, key: str, text: str, location: Location, known: Sequence[str], *, has_braces: bool = False
    ) -> None:
        """Note placeholders in `text` other than those `known`; with `has_braces`, other braces stay as they are."""
        for match in (_PLACEHOLDER_AMONG_BRACES if has_braces else _PLACEHOLDER).finditer(text):
            if match[1] is None:
                message = f"'{key}' of {self.what} has a '{match[0]}' that stands alone; write '{{name}}'"
                self.problem(location, message)
            elif match[1] not in known:
                message = f"'{key}' of {self.what} has an unknown placeholder '{match[1]}'"
                self.problem(location, message + did_you_mean(match[1], known))

    def _check_printable(self, location: Location, text: str, key: str) -> None:
        # Texts become docstrings and comments, in which such a character could not stand.
        for character in () if text.isprintable() else text:
            if not character.isprintable() and not character.isspace():
                message = f"'{key}' of {self.what} holds U+{ord(character):04X}, which cannot be printed; remove it"
                self.problem(location, message)
                return

    def integer(self, key: str) -> int:
        """A required integer."""
        return self.scalar(self.required(key), int, key) or 0

    def flag(self, key: str) -> bool:
        """True or false; false where it is not written."""
        return self.scalar(self.optional(key), bool, key) or False

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Required text, one of `choices`; empty where it is none of them."""
        value = self.required(key)
        text = self.scalar(value, str, key)
        if value is not None and text is not None and text not in choices:
            self.problem(value.location, f"unknown {key} '{text}' of {self.what}{did_you_mean(text, choices)}")
        return text if text in choices else ""

    def name(self, key: str) -> str:
        """Required text that can name a module: small letters, digits and underscores."""
        value = self.required(key)
        text = self.scalar(value, str, key)
        if value is None or text is None:
            return ""
        self.check_name(text, value.location)
        return text

    def name_or_none(self, key: str) -> str | None:
        """Text that can name a module, or None where the key is not written."""
        value = self.optional(key)
        text = self.scalar(value, str, key)
        if value is not None and text is not None:
            self.check_name(text, value.location)
        return text

    def class_name(self, key: str) -> str:
        """Required text that can name a class."""
        value = self.required(key)
        text = self.scalar(value, str, key)
        if value is None or text is None:
            return ""
        if not _CLASS_NAME.fullmatch(text):
            self.problem(value.location, f"'{text}' cannot name a class; write it like 'Name'")
        return text

    def check_name(self, text: str, location: Location) -> bool:
        """Whether `text` can be a file's and a module's name; that it cannot is noted."""
        if not _NAME.fullmatch(text):
            self.problem(location, f"'{text}' cannot be a name; use small letters, digits and underscores")
        elif keyword.iskeyword(text):
            self.problem(location, f"'{text}' cannot be a name, it is a word of Python; use another one")
        return is_name(text)

    def mapping(self, key: str, *, may_be_empty: bool = False) -> dict[str, Value]:
        """A required mapping from names to values."""
        value = self.required(key)
        if value is not None and value.content == {} and not may_be_empty:
            self.problem(value.location, f"'{key}' of {self.what} is empty; write what it holds")
        return self.named_in(value, key) if value is not None else {}

    def named(self, key: str) -> dict[str, Value]:
        """A mapping from names to values; empty where the key is not written."""
        value = self.optional(key)
        return {} if value is None else self.named_in(value, key)

    def named_in(self, value: Value, key: str) -> dict[str, Value]:
        """A value as a mapping from names to values."""
        if not isinstance(value.content, dict):
            self.problem(value.location, f"'{key}' of {self.what} must be a mapping, not {value.type_name}")
            return {}
        for name, inner in value.content.items():
            self.check_name(name, inner.key_location)
        return value.content

    def texts(self, key: str) -> tuple[tuple[str, Location], ...]:
        """A list of texts with their places; empty where the key is not written."""
        value = self.optional(key)
        return () if value is None else self.text_list(value, key)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """A mapping from names to texts; empty where the key is not written."""
        return {name: self.line(inner, name) or "" for name, inner in self.named(key).items()}

    def text_lists_by_name(self, key: str) -> dict[str, tuple[str, ...]]:
        """A mapping from names to lists of texts; empty where the key is not written."""
        value = self.optional(key)
        named = {} if value is None else self.named_in(value, key)
        return {name: tuple(text for text, _ in self.text_list(inner, name)) for name, inner in named.items()}

    def text_list(self, value: Value, key: str) -> tuple[tuple[str, Location], ...]:
        """The texts in a list with their places."""
        found = []
        for element in self._listed(value, key):
            text = self.scalar(element, str, key)
            if text is not None:
                found.append((text, element.location))
        return tuple(found)

    def elements(self, key: str) -> list[Value]:
        """The elements of a list; none where the key is not written."""
        value = self.optional(key)
        return [] if value is None else self._listed(value, key)

    def _listed(self, value: Value, key: str) -> list[Value]:
        if isinstance(value.content, list):
            return value.content
        self.problem(value.location, f"'{key}' of {self.what} must be a list, not {value.type_name}")
        return []

    def number_or_none(self, key: str) -> Scalar:
        """A number, or None where null or nothing is written."""
        value = self.optional(key)
        if value is None or value.content is None:
            return None
        return self.scalar(value, int, key)

    def finish(self) -> None:
        """Note every key that nobody asked for, and every required one that is missing."""
        meant = set()
        for key, value in self._rest.items():
            meant.add(nearest(key, self._asked))
            hint = did_you_mean(key, self._asked)
            self.problem(value.key_location, f"unknown key '{key}' in {self.what}{hint}")
        # A key that is there but misspelt, or one of a value that is no mapping, is not missing as well.
        for key in self._missing:
            if self._is_mapping and key not in meant:
                self.problem(self.key_location, f"{self.what} lacks the key '{key}'; add it")


def number_mend(value: Value) -> str:
    """The end of the message about a text that a person takes for a number, and YAML does not."""
    match = _EXPONENT.fullmatch(str(value.content)) if isinstance(value.content, str) else None
    if match is None:
        return ""
    number, exponent = match["number"], match["exponent"]
    spelled = f"{number if '.' in number else f'{number}.0'}e{exponent if exponent[0] in '+-' else f'+{exponent}'}"
    return f"; YAML reads {value.content} as text, write {spelled}"


def is_name(text: str) -> bool:
    """Whether `text` can be a file's and a module's name."""
    return _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)


def build_names(fields: Fields, value: Value | None, key: str) -> Names:
    """The dtypes that `value` names: a group's name, or a list."""
    if value is None:
        return Names((), (), listed=True)
    if isinstance(value.content, str):
        return Names((value.content,), (value.location,), listed=False)
    if isinstance(value.content, list):
        pairs = fields.text_list(value, key)
        if not value.content:
            fields.problem(value.location, f"'{key}' of {fields.what} is empty; write what it holds")
        return Names(tuple(text for text, _ in pairs), tuple(place for _, place in pairs), listed=True)
    fields.problem(value.location, f"'{key}' of {fields.what} must be a group or a list of dtypes")
    return Names((), (), listed=True)
