"""Calls of backends whose plans are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, ParamSpec, Self, TypeAlias, TypeVar

from ..backend import BackendDevice, BackendStorage
from ..layout import Layout

P = ParamSpec("P")
Result = TypeVar("Result")
Key: TypeAlias = tuple[Any, ...]
"""The method, and all else on which it depends how a call is done."""

new: Final = object.__new__
"""Makes an object of a class without its `__init__`. Methods that are called often do so in place."""


# Of a few operands, comprehensions and generators take longer than these loops.
def inners_of(storages: Iterable[Any]) -> tuple[Any, ...]:
    """The storages of the backend."""
    inners = []
    for storage in storages:
        inners.append(storage.inner)
    return tuple(inners)


def kinds_of(inners: Iterable[Any]) -> tuple[int, ...]:
    """The kinds of storages of a backend."""
    kinds = []
    for inner in inners:
        kinds.append(inner.kind)
    return tuple(kinds)


def numbers_of(layouts: Iterable[Layout]) -> tuple[int, ...]:
    """The numbers of layouts."""
    numbers = []
    for layout in layouts:
        numbers.append(layout.number)
    return tuple(numbers)


def are_on(device: BackendDevice, inners: Iterable[Any]) -> bool:
    """Whether storages of backends are on a device."""
    for inner in inners:  # noqa: SIM110
        if inner.device is not device:
            return False
    return True


class Plans:
    """What a storage, of elements or of blocks, has its backend do: see `BackendDevice.planned`."""

    __slots__ = ()

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
        return device.planned(key, self.numbers.get(key[0], 0), function, arguments, options)


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
