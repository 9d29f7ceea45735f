"""Plans: how calls are done, kept for the calls that are like them. docs/architecture.md explains them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache

P = ParamSpec("P")
Result = TypeVar("Result")
Plan: TypeAlias = Callable[..., Any]
"""A function of the storages of a call, and then of its numbers."""
Key: TypeAlias = Hashable
"""What decides how a call is done: the method, and all of its arguments but the numbers. None is that of a call without
a plan. Looking for a plan fails where an argument is of a wrong class, and the checks then name that; an error that has
another reason is in the place of the key."""

MOST_PLANS: Final = 1 << 14

_kinds: BoundedCache[tuple[DType | GgmlDType, int, int], int] = BoundedCache(1 << 16)
_next_kind: Final = itertools.count()
_makers: Final[dict[Callable[..., Any], Callable[..., Plan | None]]] = {}


def kind_of(dtype: DType | GgmlDType, length: int, form: int = 0) -> int:
    """The number of a kind of storages: those of a dtype, a length, and what a backend tells apart besides."""
    key = dtype, length, form
    kind = _kinds.get(key)
    # Numbers are never given again: a kind that is met after the others are forgotten has another one, and new plans.
    return _kinds.keep(key, next(_next_kind)) if kind is None else kind


def planned_by(make: Callable[..., Plan | None]) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Let `make` plan the calls of a function, from the same arguments; None where the function itself does as well."""

    def register(function: Callable[P, Result]) -> Callable[P, Result]:
        _makers[function] = make
        return function

    return register


def by_plan(make: Callable[P, Callable[..., Result] | None]) -> Callable[P, Result]:
    """The function whose plans `make` gives. What it makes is None too where there is no plan.

    A plan that is given storages alone takes the numbers from which it was made.
    """

    @planned_by(make)
    @wraps(make)
    def function(*arguments: P.args, **options: P.kwargs) -> Any:
        plan = make(*arguments, **options)
        return None if plan is None else plan(*storages_of(arguments))

    return function


class Call:
    """A call of a function of a backend, which can be made again with other storages and numbers: a plan itself.

    `quicker` is a plan that does the same in less time; None where the function has no better one.
    """

    def __init__(
        self,
        numbers: int,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        self._function = function
        self._options = options
        # Nothing is kept of the storages.
        self.parts: list[Any] = [_Place.of(part) or part for part in arguments[: len(arguments) - numbers]]
        make = _makers.get(function)
        self.quicker = None if make is None else make(*arguments, **options)

    def __call__(self, *operands: Any) -> Any:
        """Make the call with storages and then numbers."""
        return self.made_of(self.parts, operands)

    def operands(self, arguments: tuple[Any, ...]) -> list[Any]:
        """What the plan of the call is given of its arguments: storages, and then numbers."""
        return [*storages_of(arguments[: len(self.parts)]), *arguments[len(self.parts) :]]

    def made_of(self, parts: Iterable[Any], operands: Iterable[Any]) -> Any:
        """What the function makes of parts, with storages in their places, and of the numbers that come after them."""
        rest = iter(operands)
        arguments = [part.filled(next(rest)) if isinstance(part, _Place) else part for part in parts]
        return self._function(*arguments, *rest, **self._options)


class _Place(NamedTuple):
    """The place of a storage among arguments, or of an operand, which is a tuple that begins with a storage."""

    kind: type[Any] | None
    rest: tuple[Any, ...]

    @classmethod
    def of(cls, part: object) -> Self | None:
        """The place of an argument; None for what is the same in all calls."""
        if isinstance(part, Planned):
            return cls(None, ())
        if isinstance(part, tuple) and part and isinstance(part[0], Planned):
            return cls(type(part), part[1:])
        return None

    def filled(self, storage: object) -> Any:
        """The argument with a storage in its place."""
        return storage if self.kind is None else self.kind(storage, *self.rest)


class Planned:
    """What plans are given anew in each run: a storage."""

    __slots__ = ()

    kind: int
    """Its `kind_of`: what is done with one is done with another one of its kind."""


def storages_of(arguments: Iterable[Any]) -> list[Any]:
    """The storages among arguments, and those that operands begin with: what a plan is given, in their order."""
    return [part[0] if isinstance(part, tuple) else part for part in arguments if _Place.of(part)]
