"""Results that are kept while what they were found of is there: one file of many changes at a time."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")
Container = TypeVar("Container", dict[Any, Any], list[Any])

# More than a run has of any kind, so that none makes room for another; a process that goes on has bounds all the same.
_MOST_RESULTS = 100_000
# A result that so many runs did not ask for is not kept for the next one.
_MOST_RUNS = 8
# What is kept, by the names of what keeps it: results of functions, with the objects that they were found of and how
# many runs did not ask for them; and containers.
_results: dict[str, OrderedDict[tuple[object, ...], tuple[tuple[object, ...], Any, int]]] = {}
_containers: dict[str, dict[Any, Any] | list[Any]] = {}


def once_for(
    key: Callable[..., tuple[object, ...]], size: int = _MOST_RESULTS
) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """Keep the last `size` results of a function, by the objects that `key` gives for its arguments.

    Objects are the same if they are one object, as those are that are read of a file that did not change; texts,
    numbers and paths are if they are equal. What is found of them must not be changed, and can be pickled.
    """

    def decorate(function: Callable[Given, Found]) -> Callable[Given, Found]:
        # With each result stand its objects, so that nothing else gets their identity.
        kept = _results[f"{function.__module__}.{function.__qualname__}"] = OrderedDict()

        @wraps(function)
        def remembered(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            parts = key(*args, **kwargs)
            place = _place(parts)
            if place in kept:
                kept.move_to_end(place)
                found: Found
                _, found, age = kept[place]
                if age:
                    kept[place] = parts, found, 0
                return found
            found = function(*args, **kwargs)
            kept[place] = parts, found, 0
            if len(kept) > size:
                kept.popitem(last=False)
            return found

        return remembered

    return decorate


_EQUAL = frozenset((str, int, bool, type(None), *(type(kind()) for kind in (Path, PurePath, PurePosixPath))))


def _place(parts: Iterable[object]) -> tuple[object, ...]:
    return tuple([part if type(part) in _EQUAL else id(part) for part in parts])


def lasting(name: str, container: Container) -> Container:
    """A container that what `remember` restores is in too."""
    _containers[name] = container
    return container


def recalled() -> Mapping[str, Any]:
    """All that is kept, for `remember` in another process. It has to be pickled as one, which keeps identities."""
    results = {
        name: [(parts, found, age + 1) for parts, found, age in kept.values() if age < _MOST_RUNS]
        for name, kept in _results.items()
    }
    return {"results": results, "containers": _containers}


def remember(state: Mapping[str, Any]) -> None:
    """Keep what an earlier process kept, in the place of what this one did."""
    for name, kept in _results.items():
        kept.clear()
        kept.update((_place(parts), (parts, found, age)) for parts, found, age in state["results"].get(name, ()))
    for name, content in state["containers"].items():
        container = _containers.get(name)
        if isinstance(container, dict):
            container.clear()
            container.update(content)
        elif container is not None:
            container[:] = content
