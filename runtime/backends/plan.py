"""Plans: how calls are carried out, by all that decides it. docs/architecture.md explains them."""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from operator import itemgetter
from time import perf_counter_ns
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from ...dtype import DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache
from ..program.builder import Facts, Op, OpCall, builds
from ..program.dynamic import dynamic_call, dynamic_ops
from ..program.program import Results

P = ParamSpec("P")
Result = TypeVar("Result")
Plan: TypeAlias = Callable[..., Any]
"""A function of the storages of a call, and then of its numbers."""
Key: TypeAlias = Hashable
"""All that decides how a call is carried out: the method, and its arguments except numbers. None is that of a call
without a plan. Looking for a plan fails where an argument is of a wrong class, and the checks then name that; an error
that has another reason replaces the key."""

SizedPlans: TypeAlias = Callable[[Key, int, Sequence[Any]], tuple[Any, Plan]]
"""Makes a first call by a dynamic program, with a key, a number of elements and operands: its result, and the plan of
calls like it."""

MAX_PLANS: Final = 1 << 14

_kinds: BoundedCache[tuple[DType | GgmlDType, int, int], int] = BoundedCache(1 << 16)
_next_kind: Final = itertools.count()


def kind_of(dtype: DType | GgmlDType, length: int, form: int = 0) -> int:
    """The number of a kind of storages: those of a dtype, a length, and a form that the backend distinguishes."""
    key = dtype, length, form
    kind = _kinds.get(key)
    # Numbers are never reused: a kind that comes again after the others are forgotten has a new one, and new plans.
    return _kinds.put(key, next(_next_kind)) if kind is None else kind


def sized_call(plan_of: Callable[[int], Plan], _: Key, count: int, operands: Sequence[Any]) -> tuple[Any, Plan]:
    """Make a first call by the plan that later ones have too, as `SizedPlans` does."""
    plan = plan_of(count)
    return plan(*operands), plan


class _NumbersOf(dict[Callable[..., Any], Callable[[tuple[Any, ...]], tuple[Any, ...]] | bool]):
    """The getter of the arguments of an op without operands that may be numbers: False where none may, and True where
    the function builds no program."""

    def __missing__(self, function: Callable[..., Any]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]] | bool:
        if not builds(function):
            self[function] = True
            return True
        _, *parameters = signature(function).parameters.values()
        positions = [k for k, parameter in enumerate(parameters) if parameter.annotation not in _NO_NUMBERS]
        if len(positions) == 1:
            # The getter of one returns no tuple.
            positions *= 2
        numbers_of = self[function] = itemgetter(*positions) if positions else False
        return numbers_of


_NO_NUMBERS: Final = frozenset(("HostKernels", "Shape", "DType"))
_numbers_of: Final = _NumbersOf()


class Observer(Protocol):
    """Something that takes part in each call on a device: a capture that holds operands, a profiler."""

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """The plan that replaces another one and runs it; `is_known` says that there was a call like it."""


class Plans(BoundedCache[Key, Plan]):
    """The plans of a device. While there are observers, these are the plans that the observers wrap."""

    def __init__(self) -> None:
        super().__init__(MAX_PLANS)
        self.dynamic: BoundedCache[Hashable, SizedPlans] = BoundedCache(MAX_PLANS)
        """The plans of dynamic programs, by all that decides what these are."""
        self.observers: tuple[Observer, ...] = ()
        self._known: BoundedCache[Key, Plan] = self
        self._lock = threading.Lock()

    def known(self, key: Key) -> Plan | None:
        """The plan of a key, without observers."""
        return self._known.get(key)

    def store(self, key: Key, plan: Plan) -> None:
        """Keep a plan without observers."""
        self._known.put(key, plan)

    def keep_observed(self, key: Key, plan: Plan, observers: tuple[Observer, ...]) -> None:
        """Cache the plan that observers wrapped, unless these have changed since."""
        with self._lock:
            if self.observers is observers:
                self.put(key, plan)

    def observe(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """The plan that observers make of one; see `Observer`."""
        run = plan
        for observer in self.observers:
            run = observer.observed(key, call, run, is_known)
        return run

    def observed(self, key: Key, call: OpCall, plan: Plan) -> Plan:
        """Wrap a known plan by the observers."""
        observers = self.observers
        run = self.get(key)
        if run is None:
            run = self.observe(key, call, plan, is_known=True)
            self.keep_observed(key, run, observers)
        return run

    @contextmanager
    def observed_by(self, observer: Observer, *, is_innermost: bool = False) -> Iterator[None]:
        """Let an observer take part in the calls on the device inside, whichever thread makes them.

        The innermost one is shown the plans first: it may run their programs itself.
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
        self.dynamic.clear()
        if self._known is not self:
            self._known.clear()


class Planner:
    """A device as the dispatch sees it: it has programs of calls built, stores plans that run them, and runs these."""

    # Every call reads `plans`, and a slot takes less time than an item of a dict.
    __slots__ = ("plans",)

    plans: Plans
    """How calls are carried out on the device, by all that decides it."""
    facts: Facts
    """The facts of the device on which ops may depend."""

    def planned(
        self,
        key: Key,
        numbers: int,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        may_refuse: bool = False,
    ) -> Any:
        """Call an op with its arguments, the last `numbers` of which are numbers, and return its result.

        What runs its program is cached as the plan of the key, if there is one: the dispatch then gives it other
        storages and numbers. An op that may refuse returns None, and so does a program whose library refuses; the
        dispatch goes on to another op, whose plan has the same key. True is the result of what writes to its operands
        alone.
        """
        if isinstance(key, Exception):
            raise key
        if function in dynamic_ops and not self.plans.observers:
            dynamic = dynamic_call(function, arguments, options, numbers)
            if dynamic is not None:
                dynamic_key, operands, count = dynamic
                plans_of = self.plans.dynamic.get(dynamic_key)
                if plans_of is None:
                    call, _ = OpCall.of(function, arguments, options, numbers)
                    plans_of = self._dynamic(dynamic_key, call, may_refuse)
                return None if plans_of is None else self._sized(key, plans_of, count, operands)
        call, operands = OpCall.of(function, arguments, options, numbers)
        return self._first(key, call, operands, may_refuse)

    def _dynamic(self, dynamic_key: Hashable, call: OpCall, may_refuse: bool) -> SizedPlans | None:
        """Keep the plans of the dynamic program of a call; None where the op refuses."""
        plans_of = self.sized_plans_of(call.dynamic(), may_refuse=may_refuse)
        return None if plans_of is None else self.plans.dynamic.put(dynamic_key, plans_of)

    def _sized(self, key: Key, plans_of: SizedPlans, count: int, operands: Sequence[Any]) -> Any:
        """Make a call of `count` elements that has no plan so far by a dynamic program."""
        result, plan = plans_of(key, count, operands)
        if key is not None:
            self.plans.store(key, plan)
        return result

    def _first(self, key: Key, call: OpCall, operands: Sequence[Any], may_refuse: bool) -> Any:
        """Make a call that has no plan so far, or in which observers take part."""
        plans = self.plans
        if plans.observers:
            return self._observed(key, call, operands, may_refuse)
        plan = self.plan_of(key, call, may_refuse=may_refuse)
        if plan is None:
            return None
        result = plan(*operands)
        if key is not None and not (may_refuse and result is None):
            plans.store(key, plan)
        return result

    def _observed(self, key: Key, call: OpCall, operands: Sequence[Any], may_refuse: bool) -> Any:
        """Make a call in which observers take part."""
        plans = self.plans
        observers = plans.observers
        call.begin_ns = perf_counter_ns()
        plan = None if key is None else plans.known(key)
        is_known = plan is not None
        if plan is None:
            plan = self.plan_of(key, call, may_refuse=may_refuse)
            if plan is None:
                return None
        elif may_refuse and call.program(self.facts, may_refuse=True) is None:
            # The plan is that of another op of the cell.
            return None
        run = plans.observe(key, call, plan, is_known)
        result = run(*operands)
        if key is not None and not (may_refuse and result is None):
            if not is_known:
                plans.store(key, plan)
            plans.keep_observed(key, run, observers)
        return result

    @overload
    def make(self, function: Op[P, Results], *arguments: P.args, **_: P.kwargs) -> Any: ...

    @overload
    def make(self, function: Callable[Concatenate[Any, P], Result], *arguments: P.args, **_: P.kwargs) -> Result: ...

    def make(self, function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        """Call an op without operands, which creates a storage or asks the device for something."""
        numbers_of = _numbers_of[function]
        if numbers_of is True:
            return self.call(function, *arguments)
        # 1 is no 1.0, and 0.0 no -0.0.
        key = (function, *arguments, repr(numbers_of(arguments))) if numbers_of else (function, *arguments)
        plans = self.plans
        plan = plans.get(key)
        if plan is not None:
            return plan()
        op = dynamic_ops.get(function)
        position = None if op is None else op.shape
        if op is not None and position is not None and not plans.observers:
            count = arguments[position].elem_count
            if 0 < count <= op.limit:
                # All but the shape.
                dynamic_key = key[: position + 1] + key[position + 2 :]
                plans_of = plans.dynamic.get(dynamic_key)
                if plans_of is None:
                    plans_of = self._dynamic(dynamic_key, OpCall(function, arguments), may_refuse=True)
                return None if plans_of is None else self._sized(key, plans_of, count, ())
        return self._first(key, OpCall(function, arguments), (), may_refuse=True)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the device that has no program."""
        return function(self, *arguments)

    @abstractmethod
    def plan_of(self, key: Key, call: OpCall, *, may_refuse: bool) -> Plan | None:
        """A plan that runs the program of a first call; None where the op refuses."""

    @abstractmethod
    def sized_plans_of(self, call: OpCall, *, may_refuse: bool) -> SizedPlans | None:
        """Plans that run the dynamic program of a call; None where the op refuses."""
