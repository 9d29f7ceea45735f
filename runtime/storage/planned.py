"""Calls of backends whose plans are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, ParamSpec, Self, TypeAlias, TypeVar

from ..backends.backend import MOST_PLANNED, BackendDevice, BackendStorage
from ..core.layout import Layout

P = ParamSpec("P")
Result = TypeVar("Result")
Key: TypeAlias = tuple[Any, ...] | None
"""The method, and all else on which it depends how a call is done; None for a call without a plan."""

new: Final = object.__new__
"""Makes an object of a class without its `__init__`. Methods that are called often do so in place."""


def operands_of(
    device: BackendDevice, storages: Sequence[Any], layouts: Sequence[Layout]
) -> tuple[list[Any], tuple[int, ...] | None]:
    """The storages of the backend, and what plans depend on of them: the numbers of their layouts and their kinds.

    That is None where one is on another device, where there are more storages than layouts or fewer, and where there
    are too many for a plan.
    """
    inners: list[Any] = []
    numbers: list[int] = []
    if len(storages) != len(layouts) or len(storages) >= MOST_PLANNED:
        return inners, None
    # Of a few operands, this loop takes less time than comprehensions, or zip with a keyword.
    for storage, layout in zip(storages, layouts):  # noqa: B905
        inner = storage.inner
        if inner.device is not device:
            return inners, None
        inners.append(inner)
        numbers.append(layout.number)
        numbers.append(inner.kind)
    return inners, tuple(numbers)


class Plans:
    """What a storage, of elements or of blocks, has its backend do: see `BackendDevice.planned`."""

    __slots__ = ()

    # The class Device, which makes storages and so is made after their classes; it writes itself here.
    device_class: ClassVar[Any]

    numbers: ClassVar[Mapping[str, int]] = {}
    """The methods whose last arguments are numbers, on which it does not depend, and how many these are."""

    inner: Any

    def _change_planned(self, key: Key, function: Callable[P, None], *arguments: P.args, **options: P.kwargs) -> None:
        self._plan(key, function, arguments, options)

    def _change_attempted(
        self, key: Key, function: Callable[P, bool | None], *arguments: P.args, **options: P.kwargs
    ) -> bool | None:
        """Whether a function of a backend did it."""
        return self._plan(key, function, arguments, options)

    def _plan(
        self, key: Key, function: Callable[..., Result], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Result:
        device: BackendDevice = self.inner.device
        numbers = 0 if key is None else self.numbers.get(key[0], 0)
        return device.planned(key, numbers, function, arguments, options)


class PlannedCalls(Plans):
    """What a storage of elements has its backend do: make others like it."""

    __slots__ = ()

    def _new(self, inner: Any) -> Self:
        storage = new(type(self))
        storage.inner = inner
        return storage

    def _new_each(self, inners: Iterable[Any]) -> tuple[Self, ...]:
        made = []
        for inner in inners:
            storage = new(type(self))
            storage.inner = inner
            made.append(storage)
        return tuple(made)

    def _planned(
        self, key: Key, function: Callable[P, BackendStorage], *arguments: P.args, **options: P.kwargs
    ) -> Self:
        """What a function of a backend makes: see `BackendDevice.planned`."""
        return self._new(self._plan(key, function, arguments, options))

    def _planned_each(
        self, key: Key, function: Callable[P, Iterable[BackendStorage]], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Self, ...]:
        return self._new_each(self._plan(key, function, arguments, options))

    def _attempt_planned(
        self, key: Key, function: Callable[P, BackendStorage | None], *arguments: P.args, **options: P.kwargs
    ) -> Self | None:
        inner = self._plan(key, function, arguments, options)
        return None if inner is None else self._new(inner)

    def _attempt_planned_each(
        self, key: Key, function: Callable[P, Iterable[BackendStorage] | None], *arguments: P.args, **options: P.kwargs
    ) -> tuple[Self, ...] | None:
        inners = self._plan(key, function, arguments, options)
        return None if inners is None else self._new_each(inners)
