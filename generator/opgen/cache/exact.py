"""Exact comparison: the type, the order and the sign of zero count, which `==` ignores.

With `==`, 2 is 2.0, 0.0 is -0.0, and mappings are equal whatever their order. Each of these changes what is emitted.
Fields of dataclasses that are declared with `compare=False`, such as locations, do not count.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any


class Comparison:
    """Compares values exactly. Pairs of equal parts are cached, since values share many."""

    def __init__(self) -> None:
        # The objects stay with their identities, so that no others get these.
        self._equal: dict[tuple[int, int], tuple[object, object]] = {}

    def same(self, left: object, right: object) -> bool:
        """Return True if two values are exactly the same."""
        equal: dict[tuple[int, int], tuple[object, object]] = {}
        # A formula may be nested deeper than Python recurses.
        waiting = [(left, right)] if left is not right else []
        while waiting:
            pair = one, other = waiting.pop()
            if type(one) is not type(other):
                return False
            if type(one) is str:
                if one != other:
                    return False
                continue
            key = id(one), id(other)
            if key in self._equal or key in equal:
                continue
            parts, others = _parts(one), _parts(other)
            if parts is None or others is None:
                content = _content(one)
                if content is None or content != _content(other):
                    return False
            elif len(parts) != len(others):
                return False
            else:
                equal[key] = pair
                # Most parts are one object.
                waiting += [pair for pair in zip(parts, others, strict=True) if pair[0] is not pair[1]]
        self._equal |= equal
        return True


def digest(value: object) -> bytes:
    """A checksum of a value: two values have the same one only if they are exactly the same.

    TypeError if an object in it is neither a scalar, a container nor a dataclass with a comparison of its fields.
    """
    hasher = hashlib.sha256()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        kind, parts = type(part), _parts(part)
        hasher.update(f"{kind.__module__}.{kind.__qualname__} ".encode())
        if parts is not None:
            hasher.update(b"%d " % len(parts))
            waiting += reversed(parts)
            continue
        content = _content(part)
        if content is None:
            raise TypeError(f"{kind.__qualname__} has no exact digest")
        hasher.update(b"%d %s" % (len(content), content))
    return hasher.digest()


def _parts(value: object) -> Sequence[object] | None:
    """Return the parts of a container or a record in order; None for any other object."""
    taken_apart = _taking_apart(type(value))  # type: ignore[arg-type]  # which mypy takes for no Hashable
    return None if taken_apart is None else taken_apart(value)


@cache
def _taking_apart(kind: Hashable) -> Callable[[Any], Sequence[object]] | None:
    """Return a function that gives the parts of values of a class; None if it has none, or compares by identity."""
    assert isinstance(kind, type)
    if issubclass(kind, Mapping):
        return lambda mapping: [part for entry in mapping.items() for part in entry]
    if issubclass(kind, tuple | list):
        return lambda items: items
    if issubclass(kind, set | frozenset):
        return lambda items: sorted(map(digest, items))
    if not dataclasses.is_dataclass(kind) or kind.__eq__ is object.__eq__:
        return None
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    return lambda record: [getattr(record, name) for name in names]


def _content(value: object) -> bytes | None:
    """Return a key that distinguishes a scalar from others of its type; None for any other object."""
    match value:
        case None:
            return b""
        case bytes():
            return value
        case str():
            return value.encode(errors="surrogatepass")
        case Enum():
            return value.name.encode()
        case int():
            return b"%x" % value  # of any length
        case float() | complex():
            return repr(value).encode()
        case PurePath():
            return str(value).encode(errors="surrogateescape")
        case type() | FunctionType() | BuiltinFunctionType():
            return f"{value.__module__}.{value.__qualname__}".encode()
    return None
