"""The tokens in the metadata of a model, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import numpy as np

from ..base.error import InvalidArgument, describe

T = TypeVar("T")

# The kinds of tokens that are handled differently.
CONTROL: Final = 3
USER_DEFINED: Final = 4

_KEYS: Final = "tokenizer.ggml."


class Vocabulary:
    """The tokens of a model with their scores and kinds, and what else stands below `tokenizer.ggml`."""

    def __init__(self, operation: str, metadata: Mapping[str, object]) -> None:
        self._operation = operation
        self._metadata = metadata
        self.model = self.required("model", str)
        self.tokens = self.texts("tokens")
        self.ids = {token: number for number, token in reversed([*enumerate(self.tokens)])}
        """The first number of each token."""
        if not self.tokens:
            raise self.refused("tokens", "is empty")
        self.kinds = self._numbers("token_type")
        self.scores = self._numbers("scores")

    def refused(self, key: str, reason: str) -> InvalidArgument:
        """The error of an invalid value of a key."""
        return InvalidArgument(self._operation, f"metadata: key '{_KEYS}{key}' {reason}; get the file again")

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of a key; None where there is none."""
        value = self._metadata.get(_KEYS + key)
        if value is None:
            return None
        if type(value) is not kind:
            raise self.refused(key, f"must be of type {kind.__name__}, not {describe(value)}")
        return value

    def required(self, key: str, kind: type[T]) -> T:
        """The value of a key."""
        value = self.optional(key, kind)
        if value is None:
            raise self.refused(key, "is missing")
        return value

    def texts(self, key: str) -> list[str]:
        """The texts of a key."""
        values = self.required(key, list)
        if not all(isinstance(text, str) for text in values):
            raise self.refused(key, "holds what is no text")
        return values

    def token(self, key: str) -> int | None:
        """The number of a token that has a part of its own; None where the model has none."""
        number = self.optional(f"{key}_token_id", int)
        if number is not None and not 0 <= number < len(self.tokens):
            raise self.refused(f"{key}_token_id", f"is {number}, where there are {len(self.tokens)} tokens")
        return number

    def of_kind(self, kind: int) -> list[str]:
        """The tokens of a kind."""
        return [self.tokens[number] for number in self.numbers_of_kind(kind)]

    def numbers_of_kind(self, kind: int) -> list[int]:
        """The numbers of the tokens of a kind."""
        numbers: list[int] = np.flatnonzero(np.equal(self.kinds, kind)).tolist()
        return numbers

    def _numbers(self, key: str) -> list[float]:
        array = self.optional(key, np.ndarray)
        if array is None:
            return []
        if array.ndim != 1 or array.size != len(self.tokens):
            raise self.refused(key, f"has {array.size} numbers for {len(self.tokens)} tokens")
        numbers: list[float] = array.tolist()
        return numbers
