"""Enums whose values are names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Never, Self, TypeVar

from .error import InvalidArgument, describe

Fact = TypeVar("Fact")


class Named(Enum):
    """An enum whose members are looked up and printed by name."""

    if not TYPE_CHECKING:
        # Enum's own takes three times as long, and every op asks for it several times.
        value = property(attrgetter("_value_"))

    # Enum's own would call "f32" another dtype without a word.
    def __eq__(self, other: object) -> bool:
        """Compare with a member or its name; InvalidArgument for text that looks like a misspelt name.

        Other text, such as "object", is simply no name: libraries that take any dtype compare with it.
        """
        if isinstance(other, str):
            member = self.named(other)
            if member is None and self._is_misspelt(other):
                self._missing_(other)
            return self is member
        return self is other if isinstance(other, Named) else NotImplemented

    # Members are parts of cache keys, and Enum's own __hash__ is a slow Python function.
    __hash__ = object.__hash__

    @classmethod
    def named(cls, name: str) -> Self | None:
        """The member of a name; None where there is none."""
        return cls._value2member_map_.get(name)  # type: ignore[return-value]

    @classmethod
    def _is_misspelt(cls, text: str) -> bool:
        """Whether text is much like a name, or like one but for a number of bits at the end."""
        from difflib import get_close_matches

        stem = text.rstrip("0123456789")
        alike = get_close_matches(text, [member.value for member in cls], cutoff=0.8)
        return bool(alike) or any(cls.named(f"{stem}{bits}") is not None for bits in (8, 16, 32, 64))

    @classmethod
    def known(cls, said: Mapping[str, Fact]) -> dict[Self, Fact]:
        """Map members to facts, by name; names that this package does not have are left out."""
        return {member: fact for name, fact in said.items() if (member := cls.named(name)) is not None}

    @classmethod
    def _missing_(cls, value: object) -> Never:
        known = ", ".join(member.value for member in cls)
        raise InvalidArgument(cls.__name__, f"{describe(value)} is no {cls.__name__}; use one of {known}")

    def __str__(self) -> str:
        return str(self.value)
