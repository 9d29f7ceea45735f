"""Results that are kept while what they were found of is there: an editor changes one file of many."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


def once_for(
    key: Callable[..., tuple[object, ...]], size: int
) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """Keep the last `size` results of a function, by the objects that `key` gives for its arguments.

    Objects are the same if they are one object, as those are that are read of a file that did not change; texts and
    numbers are if they are equal. What is found of them must not be changed.
    """

    def decorate(function: Callable[Given, Found]) -> Callable[Given, Found]:
        # With each result stand its objects, so that nothing else gets their identity.
        kept: OrderedDict[tuple[object, ...], tuple[tuple[object, ...], Found]] = OrderedDict()

        @wraps(function)
        def remembered(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            parts = key(*args, **kwargs)
            place = tuple(part if isinstance(part, str | int | None) else id(part) for part in parts)
            if place in kept:
                kept.move_to_end(place)
                return kept[place][1]
            found = function(*args, **kwargs)
            kept[place] = parts, found
            if len(kept) > size:
                kept.popitem(last=False)
            return found

        return remembered

    return decorate
