"""Calls on the CPU that are made again: those of plans, without what Python does around them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...base.bounded_cache import BoundedCache
from ..backend import BackendDevice
from ..plan import Plan
from .storage import CpuStorage

_one_at_a_time = threading.Lock()


class Replay(BoundedCache[object, Plan]):
    """What a thread does with storages of the CPU inside a `with` block, to be done again with the same storages.

    The block is left with what it made, and a replay writes what it makes then to the same storages. Only calls of
    plans are noted: a block that makes its calls for the first time, or others, is not `whole`. While another block is
    noted this one is not.
    """

    def __init__(self, device: BackendDevice) -> None:
        super().__init__(0)
        self._device = device
        self._plans = device.plans
        self._thread = 0
        self._calls: list[tuple[Plan, tuple[Any, ...], Any]] = []
        self.whole = False

    def __enter__(self) -> None:
        if _one_at_a_time.acquire(blocking=False):
            self.whole, self._thread = True, threading.get_ident()
            self._plans, self._device.plans = self._device.plans, self

    def __exit__(self, kind: object, *_: object) -> None:
        self.whole &= kind is None
        if self._thread:
            self._device.plans, self._thread = self._plans, 0
            _one_at_a_time.release()

    def get(self, key: object, default: Any = None) -> Any:
        """The plan of a key, which notes its calls by the thread of the block."""
        plan = self._plans.get(key, default)
        return plan if plan is None or threading.get_ident() != self._thread else self._noted(plan)

    def keep(self, key: object, value: Plan) -> Plan:
        """Keep a plan where the others are."""
        return self._plans.keep(key, value)

    def clear(self) -> None:
        """Forget the plans that are kept."""
        self._plans.clear()

    def _noted(self, plan: Plan) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            made = plan(*operands)
            # A call that leaves its work to another one.
            self.whole &= made is not None and made is not False
            self._calls.append((plan, operands, made))
            return made

        return call

    def replay(self) -> None:
        """Make the calls of a whole block again."""
        for plan, operands, made in self._calls:
            again = plan(*operands)
            if type(made) is CpuStorage:
                made.take(again)
            elif type(made) is tuple:
                for storage, other in zip(made, again, strict=True):
                    storage.take(other)
