"""Calls of ROCm's libraries, as hip-python binds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..gpu_backend.driver.error import LibraryError


def value_of(call: str, result: tuple[Any, ...], advice: str) -> Any:
    """The value, or values, that a call returns with its status; LibraryError for a status that is an error."""
    status, *values = result
    if status:
        raise LibraryError(call, status.name, advice)
    return tuple(values) if len(values) > 1 else values[0] if values else None


def load_optional(package: str, name: str, required: Iterable[str]) -> Any | None:
    """The binding of a library; None where it, the library or a function of that is missing."""
    try:
        library = getattr(__import__(package, fromlist=[name]), name)
    except ImportError:
        return None
    return library if all(map(library.has_symbol, required)) else None


class Functions(NamedTuple):
    """The functions of a library, by their names without a prefix."""

    prefix: str
    library: Any
    advice: str

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function. Raises LibraryError."""
        function = self.prefix + name
        return value_of(function, getattr(self.library, function)(*arguments), self.advice)
