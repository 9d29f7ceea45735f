"""Lists, tuples and dicts, nested in each other, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(value: object) -> Iterator[Any]:
    """List what nested lists, tuples and dicts hold, in order; a value that is none of these is the only leaf."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Replace each leaf by what a function gives for it; lists, tuples and dicts are copied."""
    if isinstance(value, Mapping):
        return {key: mapped(function, each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(function, each) for each in value])
    if isinstance(value, list | tuple):
        return type(value)([mapped(function, each) for each in value])
    return function(value)
