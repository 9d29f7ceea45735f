"""Replay of calls on the CPU: runs of plans, without the Python code around them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..backend import BackendDevice
from ..plan import Key, Plan
from .storage import CpuStorage

if TYPE_CHECKING:
    from ...program.builder import OpCall


class Replay:
    """A recording of a thread's calls with storages of the CPU in a `with` block, replayed with the same storages.

    The block returns its results, and a replay overwrites the same storages. A block is `complete`
    if all of its calls are like earlier ones: else some had no plan.
    """

    def __init__(self, device: BackendDevice) -> None:
        self._device = device
        self._thread = 0
        self._runs: list[tuple[Plan, tuple[Any, ...], Any]] = []
        self._calls: list[tuple[Key, OpCall]] = []
        self._observation = ExitStack()
        self.complete = False

    def __enter__(self) -> None:
        self.complete, self._thread = True, threading.get_ident()
        self._observation.enter_context(self._device.plans.observed_by(self))

    def __exit__(self, kind: object, *_: object) -> None:
        self.complete &= kind is None
        self._thread = 0
        self._observation.close()

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """A plan that notes its runs by the thread of the block."""
        # Replays have observers of their own.
        own = self._device.plans.known(key) if is_known else None

        def run(*operands: Any) -> Any:
            result = plan(*operands)
            if threading.get_ident() == self._thread:
                # None is of a call that leaves its work to another one.
                self.complete &= own is not None and result is not None
                self._runs.append((own or plan, operands, result))
                self._calls.append((key, call))
            return result

        return run

    def replay(self) -> None:
        """Replay a complete block."""
        plans, runs = self._device.plans, self._runs
        if plans.observers:
            each = zip(self._calls, runs, strict=True)
            runs = [(plans.observed(*call, plan), operands, result) for call, (plan, operands, result) in each]
        for plan, operands, result in runs:
            again = plan(*operands)
            if type(result) is CpuStorage:
                result.take(again)
            elif type(result) is tuple:
                for storage, other in zip(result, again, strict=True):
                    storage.take(other)
