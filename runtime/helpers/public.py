"""The names by which users know what the package defines."""

from collections.abc import Iterable, Mapping


def publish(module: str, names: Iterable[str], defined: Mapping[str, object]) -> None:
    """Let the package's classes in a module that users import say that they are of it, in tracebacks and pickles."""
    package = module.partition(".")[0]
    for name in names:
        value = defined[name]
        if isinstance(value, type) and value.__module__.partition(".")[0] == package:
            value.__module__ = module
