"""Reads the keys of a mapping: every key is asked for, and whatever was not asked for is a mistake."""

import re
from typing import TypeVar

from opgen.loader import Scalar, Value
from opgen.problem import Location, Problem, did_you_mean

# Names become file names, module names and identifiers, so nothing else may stand in one: no path leaves the output.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")

ScalarType = TypeVar("ScalarType", str, int, bool)
_TYPE_NAMES = {str: "text", int: "an integer", bool: "true or false"}


class Fields:
    """The keys of one mapping, popped as they are read."""

    def __init__(self, value: Value, what: str, problems: list[Problem]) -> None:
        self.location = value.location
        self.key_location = value.key_location
        self.what = what
        self.problems = problems
        self._asked: list[str] = []
        self._rest: dict[str, Value] = {}
        if isinstance(value.content, dict):
            self._rest = dict(value.content)
        else:
            self.problem(value.location, f"{what} must be a mapping, not {value.type_name}")

    def problem(self, location: Location, message: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(location, message))

    def optional(self, key: str) -> Value | None:
        """The value of `key`, or None where it is not written."""
        self._asked.append(key)
        return self._rest.pop(key, None)

    def required(self, key: str) -> Value | None:
        """The value of `key`; that it is missing is noted."""
        value = self.optional(key)
        if value is None:
            self.problem(self.key_location, f"{self.what} lacks the key '{key}'")
        return value

    def scalar(self, value: Value | None, kind: type[ScalarType], key: str) -> ScalarType | None:
        """The content of `value` where it has the type `kind`; otherwise a mistake is noted."""
        if value is None:
            return None
        content = value.content
        if isinstance(content, kind) and isinstance(content, bool) == (kind is bool):
            return content
        self.problem(value.location, f"'{key}' of {self.what} must be {_TYPE_NAMES[kind]}, not {value.type_name}")
        return None

    def text(self, key: str) -> str:
        """Required text."""
        return (self.scalar(self.required(key), str, key) or "").strip()

    def text_or_none(self, key: str) -> str | None:
        """Text, or None where the key is not written."""
        value = self.scalar(self.optional(key), str, key)
        return None if value is None else value.strip()

    def integer(self, key: str) -> int:
        """A required integer."""
        return self.scalar(self.required(key), int, key) or 0

    def flag(self, key: str) -> bool:
        """True or false; false where it is not written."""
        return self.scalar(self.optional(key), bool, key) or False

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Required text, one of `choices`."""
        value = self.required(key)
        text = self.scalar(value, str, key)
        if value is None or text is None:
            return choices[0]
        if text not in choices:
            self.problem(value.location, f"unknown {key} '{text}' of {self.what}{did_you_mean(text, choices)}")
        return text

    def name(self, key: str) -> str:
        """Required text that can name a module: small letters, digits and underscores."""
        value = self.required(key)
        text = self.scalar(value, str, key)
        if value is None or text is None:
            return ""
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

    def check_name(self, text: str, location: Location) -> None:
        """Note a mistake where `text` cannot be a file's and a module's name."""
        if not _NAME.fullmatch(text):
            self.problem(location, f"'{text}' cannot be a name; use small letters, digits and underscores")

    def mapping(self, key: str) -> dict[str, Value]:
        """A required mapping from names to values."""
        value = self.required(key)
        return self._named(value, key) if value is not None else {}

    def mapping_or_empty(self, key: str) -> dict[str, Value]:
        """A mapping from names to values; empty where the key is not written."""
        value = self.optional(key)
        return self._named(value, key) if value is not None else {}

    def _named(self, value: Value, key: str) -> dict[str, Value]:
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

    def text_list(self, value: Value, key: str) -> tuple[tuple[str, Location], ...]:
        """The texts in a list with their places."""
        if not isinstance(value.content, list):
            self.problem(value.location, f"'{key}' of {self.what} must be a list, not {value.type_name}")
            return ()
        found = []
        for element in value.content:
            text = self.scalar(element, str, key)
            if text is not None:
                found.append((text, element.location))
        return tuple(found)

    def number_or_none(self, key: str) -> Scalar:
        """A number, or None where null or nothing is written."""
        value = self.optional(key)
        if value is None or value.content is None:
            return None
        return self.scalar(value, int, key)

    def finish(self) -> None:
        """Note every key that nobody asked for."""
        for key, value in self._rest.items():
            near = did_you_mean(key, self._asked)
            self.problem(value.key_location, f"unknown key '{key}' in {self.what}{near}")
