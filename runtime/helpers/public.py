"""The names by which users know what the package defines."""

from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import TypeVar

Owner = TypeVar("Owner", bound=type)


def publish(module: str, names: Iterable[str], defined: Mapping[str, object]) -> None:
    """Let the package's classes in a module that users import say that they are of it, in tracebacks and pickles."""
    package = module.partition(".")[0]
    for name in names:
        value = defined.get(name)  # of a function that is imported later there is nothing yet
        # Of a class with two names, its own is the one that counts.
        is_own = isinstance(value, type) and value.__name__ == name
        if is_own and value.__module__.partition(".")[0] == package:
            value.__module__ = module


def assembled(owner: Owner) -> Owner:
    """Name the methods of a class by it, in errors of Python too, and not by the private bases that define them."""
    for base in owner.__mro__[1:]:
        for name, method in vars(base).items():
            function = getattr(method, "__func__", method)
            while isinstance(function, FunctionType) and function.__qualname__ == f"{base.__qualname__}.{name}":
                function.__module__, function.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
                function = getattr(function, "__wrapped__", None)
    return owner
