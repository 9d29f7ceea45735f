"""Reductions of rows of numbers, as array libraries combine contributions and as kernels combine states."""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from opgen.claims.context import Context
from opgen.claims.evaluation import Evaluator, Unknown
from opgen.claims.scalars import Function
from opgen.formula.nodes import Node, calls
from opgen.model.functors import Functor
from opgen.model.reductions import BOUNDS, Monoid, Position, State
from opgen.monoids import COUNT, UNIT, reads_unit

ROWS: Sequence[Sequence[float]] = (
    (2.5,),
    (1.0, 2.5, -2.0),
    (0.5, 0.5, -1.25, 3.0),
    (0.0, 1.5, -2.5),
    (3.0, 0.0, 0.0),
    (-1.5, -1.5),
    (-3.0, -0.5, -2.0),
    (4.0, 1.0, 4.0, 2.0, 0.25),
)


class Reducer:
    """A reduction of elements of one dtype, without states."""

    def __init__(
        self, context: Context, functor: Functor, elements: Evaluator, callers: frozenset[str] = frozenset()
    ) -> None:
        self.functor, self.elements = functor, elements
        self._context = context
        # The row that formulas are evaluated for, and its other reductions.
        self._row: Sequence[float] = ()
        self._reduced: dict[str, float] = {}
        monoid = functor.reduction
        if not isinstance(monoid, Monoid):
            return
        results = elements if functor.result is None else context.evaluator(functor.result)
        if results is None:
            raise Unknown(functor.result or "")
        self.results = results
        self.element = None
        if monoid.element is not None:
            self.element = self.over_row(monoid.element.node, ("x",), callers | {functor.name})
        self.combine = results.function(monoid.combine.node, ("x", "y"))
        names = (*functor.parameters, "x", COUNT, UNIT)
        self._has_unit = reads_unit(monoid)
        self._finish = None if monoid.finish is None else results.function(monoid.finish.node, names)
        self.identity = self._number(monoid)

    def _number(self, monoid: Monoid) -> float:
        integers = self.results.integers
        if monoid.identity in BOUNDS:
            bounds = (-math.inf, math.inf) if integers is None else (integers.min, integers.max)
            return bounds[monoid.identity == "highest"]
        return monoid.number if integers is None else integers.round(monoid.number)

    def over_row(self, node: Node, names: Sequence[str], callers: frozenset[str] = frozenset()) -> Function:
        """Compile a formula that may call other reductions of the row, except for `callers`."""
        reductions = {functor.name: functor for functor in self._context.spec.reductions}
        called = {call.primitive for call in calls(node)} & reductions.keys()
        return self.elements.function(node, names, {name: self._of_row(reductions[name], callers) for name in called})

    def _of_row(self, functor: Functor, callers: frozenset[str]) -> Function:
        if functor.name in callers:
            raise Unknown(functor.name)
        reducer = Reducer(self._context, functor, self.elements, callers)

        def of_row(_: float) -> float:
            if functor.name not in self._reduced:
                self._reduced[functor.name] = reducer.reduce(self._row, ())
            return self._reduced[functor.name]

        return of_row

    def set_row(self, row: Sequence[float]) -> None:
        """Set the row whose reductions formulas call."""
        self._row, self._reduced = row, {}

    def contributions(self, row: Sequence[float]) -> list[Any]:
        """Return the contributions of a row's elements, in the dtype of the result."""
        self.set_row(row)
        contributions = row if self.element is None else [self.element(x) for x in row]
        integers = self.results.integers
        if integers is None:
            return [float(each) for each in contributions]
        return [integers.wrap(int(each)) if isinstance(each, int) else integers.round(each) for each in contributions]

    def combine_all(self, contributions: Sequence[Any]) -> Any:
        """Combine contributions in order."""
        return reduce(self.combine, contributions, self.identity)

    def finish(self, total: Any, count: int, parameters: Sequence[float], unit: float = 1.0) -> Any:
        """Return the result for the combined contributions of `count` elements, which were divided by `unit`."""
        return total if self._finish is None else self._finish(*parameters, total, count, unit)

    def reduce(self, row: Sequence[float], parameters: Sequence[float]) -> Any:
        """Return the result for a row."""
        if isinstance(self.functor.reduction, Position):
            return self._position(row, self.functor.reduction.of)
        unit = _unit_of(row) if self._has_unit else 1.0
        row = row if unit == 1 else [x / unit for x in row]
        return self.finish(self.combine_all(self.contributions(row)), len(row), parameters, unit)

    def _position(self, row: Sequence[float], of: str) -> int:
        reduction = next((functor for functor in self._context.spec.reductions if functor.name == of), None)
        if reduction is None:
            raise Unknown(of)
        chosen = Reducer(self._context, reduction, self.elements).reduce(row, ())
        return next(index for index, x in enumerate(row) if x == chosen or math.isnan(x))


def _unit_of(row: Sequence[float]) -> float:
    """Return the power of two that makes the largest magnitude of a row about 1, within a wide range."""
    largest = max(map(abs, row), default=0.0)
    return 2.0 ** min(max(math.frexp(largest)[1], -1000), 1000) if math.isfinite(largest) and largest else 1.0


def reducer_of(context: Context, functor: Functor, elements: Evaluator) -> Reducer:
    """Return the reducer of an op for one evaluator of its elements."""
    key = functor.name, id(elements)
    if key not in context.reducers:
        context.reducers[key] = Reducer(context, functor, elements)
    reducer: Reducer = context.reducers[key]
    return reducer


class StateReducer:
    """A reduction of floats by a state."""

    def __init__(self, state: State, evaluator: Evaluator) -> None:
        parts = [part.name for part in state.parts]
        names = [f"{side}.{part}" for side in "xy" for part in parts]
        self._let = []
        for name, formula in state.let.items():
            self._let.append(evaluator.function(formula.node, names))
            names = [*names, name]
        self._elements = [evaluator.function(part.element.node, ("x",)) for part in state.parts]
        self._combine = [evaluator.function(part.combine.node, names) for part in state.parts]
        self._results = [evaluator.function(formula.node, parts) for formula in state.results]
        self._empty = (0.0,) * len(parts)

    def results(self, state: tuple[float, ...]) -> tuple[float, float]:
        """Return what the contributions come to, and the number by which their elements were divided."""
        total, unit = [*(function(*state) for function in self._results), 1.0][:2]
        return total, unit

    def _begin(self, x: float) -> tuple[float, ...]:
        return tuple(element(x) for element in self._elements)

    def _combined(self, x: tuple[float, ...], y: tuple[float, ...]) -> tuple[float, ...]:
        values = [*x, *y]
        for function in self._let:
            values.append(function(*values))
        return tuple(combine(*values) for combine in self._combine)

    def orders(self, row: Sequence[float]) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the states of a row, combined in several orders, with an empty state first or last."""
        states = [self._begin(x) for x in row]
        yield "in order", reduce(self._combined, states, self._empty)
        yield "in reverse", reduce(self._combined, [*states[::-1], self._empty])
        pairs = [reduce(self._combined, states[index : index + 2]) for index in range(0, len(states), 2)]
        yield "in pairs", reduce(self._combined, [*pairs, self._empty])
