"""Memoized functions and persistent containers, whose contents the next run may take over."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, ParamSpec, TypeAlias, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Container = TypeVar("Container", dict[Any, Any], list[Any])
Key = tuple[object, ...]

# More than a run has of any function, so that nothing is evicted; a process that goes on has bounds all the same.
_MAX_RESULTS = 100_000
# Results that were unused for this many runs are dropped.
_MAX_AGE = 8


# The inputs of a result, referenced so that no other object gets the identity of one; the result; and in how many runs
# it was not used. A plain tuple, as thousands are pickled.
_Entry: TypeAlias = tuple[Key, Any, int]
# By the names of functions and containers.
_tables: dict[str, OrderedDict[Key, _Entry]] = {}
_containers: dict[str, dict[Any, Any] | list[Any]] = {}


def memoize(
    key: Callable[..., Key], size: int = _MAX_RESULTS
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Memoize the last `size` results of a function, by the identities of the objects that `key` gives for a call.

    Records of a file that has not changed are the same objects. Texts, numbers and paths are the same if they are
    equal and have one type. Results must not be changed, and can be pickled.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        table = _tables[f"{function.__module__}.{function.__qualname__}"] = OrderedDict()

        @wraps(function)
        def memoized(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            parts = key(*args, **kwargs)
            arguments_key = _hashable(parts)
            result: Result
            if arguments_key in table:
                table.move_to_end(arguments_key)
                _, result, age = table[arguments_key]
                if age:
                    table[arguments_key] = parts, result, 0
                return result
            result = function(*args, **kwargs)
            table[arguments_key] = parts, result, 0
            if len(table) > size:
                table.popitem(last=False)
            return result

        return memoized

    return decorate


_BY_VALUE = frozenset((str, bytes, type(None), *(type(kind()) for kind in (Path, PurePath, PurePosixPath))))
_BY_TYPE_AND_VALUE = frozenset((int, bool))  # 1 == True


def _hashable(parts: Key) -> Key:
    return tuple(
        [
            part if (kind := type(part)) in _BY_VALUE else (kind, part) if kind in _BY_TYPE_AND_VALUE else id(part)
            for part in parts
        ]
    )


def persistent(name: str, container: Container) -> Container:
    """Register a container whose content the next run takes over."""
    _containers[name] = container
    return container


def snapshot() -> Mapping[str, Any]:
    """All results and containers, for `restore` in another process. Pickle it as one value, which keeps identities."""
    results = {
        name: [(parts, result, age + 1) for parts, result, age in table.values() if age < _MAX_AGE]
        for name, table in _tables.items()
    }
    return {"results": results, "containers": _containers}


def restore(state: Mapping[str, Any]) -> None:
    """Replace the results and containers of this process by those of a snapshot."""
    for name, table in _tables.items():
        table.clear()
        table.update((_hashable(entry[0]), entry) for entry in state["results"].get(name, ()))
    for name, container in _containers.items():
        content = state["containers"].get(name, ())
        container.clear()
        if isinstance(container, dict):
            container.update(content)
        else:
            container.extend(content)


def forget() -> None:
    """Drop all results, and what is in the containers."""
    restore({"results": {}, "containers": {}})
