"""Plans: how calls are carried out, by all that decides it. docs/architecture.md explains them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from ..program.builder import OpCall

Plan: TypeAlias = Callable[..., Any]
"""A function of the storages of a call, and then of its numbers."""
Key: TypeAlias = Hashable
"""What decides how a call is carried out: the method, and all of its arguments but the numbers. None is that of a call
without a plan. Looking for a plan fails where an argument is of a wrong class, and the checks then name that; an error
that has another reason is in the place of the key."""

MAX_PLANS: Final = 1 << 14

_kinds: BoundedCache[tuple[DType | GgmlDType, int, int], int] = BoundedCache(1 << 16)
_next_kind: Final = itertools.count()


def kind_of(dtype: DType | GgmlDType, length: int, form: int = 0) -> int:
    """The number of a kind of storages: those of a dtype, a length, and what a backend tells apart besides."""
    key = dtype, length, form
    kind = _kinds.get(key)
    # Numbers are never given again: a kind that is met after the others are forgotten has another one, and new plans.
    return _kinds.keep(key, next(_next_kind)) if kind is None else kind


class Observer(Protocol):
    """Something that takes part in each call on a device: a capture that holds operands, a profiler."""

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """The plan that runs in the place of another, which it runs; `is_known` says that there was a call like it."""


class Plans(BoundedCache[Key, Plan]):
    """The plans of a device. While there are observers, the plans in here are those that the observers made of them."""

    def __init__(self) -> None:
        super().__init__(MAX_PLANS)
        self.observers: tuple[Observer, ...] = ()
        self._known: BoundedCache[Key, Plan] = self
        self._lock = threading.Lock()

    def known(self, key: Key) -> Plan | None:
        """The plan of a key, without observers."""
        return self._known.get(key)

    def remember(self, key: Key, plan: Plan) -> None:
        """Keep a plan without observers."""
        self._known.keep(key, plan)

    def keep_observed(self, key: Key, plan: Plan, observers: tuple[Observer, ...]) -> None:
        """Keep what observers made of a plan, unless these have changed since."""
        with self._lock:
            if self.observers is observers:
                self.keep(key, plan)

    def observe(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """The plan that observers make of one; see `Observer`."""
        run = plan
        for observer in self.observers:
            run = observer.observed(key, call, run, is_known)
        return run

    def observed(self, key: Key, call: OpCall, plan: Plan) -> Plan:
        """The plan that observers made of one that is known."""
        observers = self.observers
        run = self.get(key)
        if run is None:
            run = self.observe(key, call, plan, is_known=True)
            self.keep_observed(key, run, observers)
        return run

    @contextmanager
    def observed_by(self, observer: Observer, *, is_innermost: bool = False) -> Iterator[None]:
        """Let an observer take part in the calls on the device inside, whichever thread makes them.

        The innermost one is shown the plans first: it may run their programs itself, in the place of the plans.
        """
        with self._lock:
            if not self.observers:
                self._known = BoundedCache(MAX_PLANS)
                self._known.update(self)
            self._observe((observer, *self.observers) if is_innermost else (*self.observers, observer))
        try:
            yield
        finally:
            with self._lock:
                self._observe(tuple([other for other in self.observers if other is not observer]))
                if not self.observers:
                    self.update(self._known)
                    self._known = self

    def _observe(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        super().clear()

    def clear(self) -> None:
        """Forget all plans."""
        super().clear()
        if self._known is not self:
            self._known.clear()
