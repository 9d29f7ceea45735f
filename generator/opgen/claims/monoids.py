"""Claims of reductions: the identity, the order of `combine`, the state, and a result that holds the values."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from opgen.claims.comparison import are_close, format_number, format_numbers
from opgen.claims.context import Context, parameters_of
from opgen.claims.evaluation import Unknown
from opgen.claims.formats import Floats, Format, Integers
from opgen.claims.reductions import ROWS, Reducer, StateReducer, reducer_of
from opgen.formula.printing import text_of
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid, Position
from opgen.monoids import reads_unit
from opgen.problem import Problem

# Sums of squares lose some digits.
_STATE_TOLERANCE = 1e-7
# Larger contributions are combined with large rounding errors.
_MAX_CONTRIBUTION = 1e6
# What divides elements, and what multiplies them so that their squares leave f64.
_UNITS = (0.125, 8.0)
_FAR = (2.0**600, 2.0**-600)
# The last position of a long row.
_LAST_POSITION = 2**31 - 1


def reduction_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    """Yield the false claims of a reduction, each for the first dtype that shows it."""
    reduction = functor.reduction
    if isinstance(reduction, Position):
        yield from _position_problems(context, functor)
    if not isinstance(reduction, Monoid) or functor.borrows:
        return
    problems: dict[str, Problem] = {}
    for name, numbers, evaluator in context.formats(functor):
        try:
            reducer = reducer_of(context, functor, evaluator)
            rows = ROWS if isinstance(numbers, Floats) else [numbers.samples[:4]]
            contributions = [
                each for row in (*([x] for x in numbers.samples), *rows) for each in reducer.contributions(row)
            ]
        except Unknown:
            return
        contradictions = {
            "identity": _identity_problem(functor, reduction, reducer, contributions, name),
            "combine": _order_problem(functor, reduction, reducer, contributions, name),
            "result": _result_problem(context, functor, reducer, numbers, name),
        }
        problems = {**{key: problem for key, problem in contradictions.items() if problem is not None}, **problems}
    for key, find in (("finish", _unit_problem), ("state", _state_problem)):
        if not problems and (problem := find(context, functor, reduction)) is not None:
            problems[key] = problem
    yield from problems.values()


def _identity_problem(
    functor: Functor, monoid: Monoid, reducer: Reducer, contributions: Sequence[Any], dtype: str
) -> Problem | None:
    changed = _changed(reducer, reducer.identity, contributions)
    if changed is None:
        return None
    integers = reducer.results.integers
    bounds = (-math.inf, math.inf) if integers is None else (integers.min, integers.max)
    candidates = {bounds[0]: "lowest", bounds[1]: "highest", 0: "0", 1: "1"}
    right = [text for number, text in candidates.items() if _changed(reducer, number, contributions) is None]
    fix = f"write {' or '.join(right)}" if right else "write a number that changes none, or another 'combine'"
    message = (
        f"'identity' of op '{functor.name}' is {monoid.identity}, but '{text_of(monoid.combine.node)}' of it and "
        f"{format_number(changed[0])} is {format_number(changed[1])} in {dtype}; {fix}"
    )
    return Problem(monoid.identity_location, message)


def _changed(reducer: Reducer, identity: Any, contributions: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return a contribution that an identity changes, and its new value; None if there is none."""
    for x in contributions:
        for combined in (reducer.combine(identity, x), reducer.combine(x, identity)):
            if not are_close(combined, x):
                return x, combined
    return None


def _order_problem(
    functor: Functor, monoid: Monoid, reducer: Reducer, contributions: Sequence[Any], dtype: str
) -> Problem | None:
    """Report a `combine` that is not commutative or not associative: threads combine in an order of their own."""
    is_exact = reducer.results.integers is not None
    values = [*dict.fromkeys(x for x in contributions if is_exact or abs(x) < _MAX_CONTRIBUTION)]
    combine = reducer.combine
    for index in range(len(values)):
        x, y, z = (values[position % len(values)] for position in (index, 3 * index + 1, 5 * index + 2))
        commuted = combine(x, y), combine(y, x)
        associated = combine(combine(x, y), z), combine(x, combine(y, z))
        for (one, other), numbers, orders, rule in (
            (commuted, (x, y), ("in this order", "in the other"), "commutative"),
            (associated, (x, y, z), ("from the left", "from the right"), "associative"),
        ):
            if not are_close(one, other, max(map(abs, numbers))):
                message = (
                    f"'combine' of op '{functor.name}' gives {format_number(one)} for {format_numbers(numbers)} "
                    f"{orders[0]}, and {format_number(other)} {orders[1]} in {dtype}; write one that is {rule}"
                )
                return Problem(monoid.combine.location, message)
    return None


def _result_problem(
    context: Context, functor: Functor, reducer: Reducer, numbers: Format, dtype: str
) -> Problem | None:
    """Report a result dtype that lacks the contribution of an element."""
    result = context.format(functor.result)
    if functor.result is None or result is None:
        return None
    formats = [each for each in map(context.format, context.spec.groups["integer"]) if isinstance(each, Integers)]
    # All numbers of the widest signed dtype; a wider contribution wraps whatever the result is.
    widest = max(formats, key=lambda each: (each.max - each.min, each.min < 0), default=None)
    for x in numbers.samples:
        if abs(x) > _MAX_CONTRIBUTION if isinstance(numbers, Floats) else widest is not None and not widest.holds(x):
            continue
        reducer.set_row([x])
        value = x if reducer.element is None else reducer.element(x)
        if not (result.holds(value) if isinstance(result, Integers) else abs(result.round(value)) <= result.max):
            message = (
                f"'result' of op '{functor.name}' is {functor.result}, which cannot hold {format_number(value)}, the "
                f"contribution of {format_number(x)} in {dtype}; write a wider dtype"
            )
            return Problem(functor.result_location, message)
    return None


def _position_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    result = context.format(functor.result)
    if result is not None and not (isinstance(result, Integers) and result.holds(_LAST_POSITION)):
        message = f"'result' of op '{functor.name}' is {functor.result}, which cannot hold position {_LAST_POSITION}"
        yield Problem(functor.result_location, f"{message}; write an integer of 4 or 8 bytes")


def _unit_problem(context: Context, functor: Functor, monoid: Monoid) -> Problem | None:
    """Report a `finish` that does not undo the division of the elements by `unit`."""
    floats = [(name, evaluator) for name, _, evaluator in context.formats(functor) if evaluator.integers is None]
    if monoid.finish is None or not reads_unit(monoid) or not floats:
        return None
    name, evaluator = floats[-1]
    try:
        reducer = reducer_of(context, functor, evaluator)
    except Unknown:
        return None
    parameters = parameters_of(functor)
    for row, unit in itertools.product(ROWS, _UNITS):
        expected, actual = (
            reducer.finish(reducer.combine_all(reducer.contributions(divided)), len(row), parameters, by)
            for divided, by in ((row, 1.0), ([x / unit for x in row], unit))
        )
        if not are_close(actual, expected):
            message = (
                f"'finish' of op '{functor.name}' gives {format_number(expected)} for the row [{format_numbers(row)}] "
                f"in {name}, but {format_number(actual)} for the same divided by a 'unit' of {format_number(unit)}; "
                "multiply by the power of 'unit' that undoes it"
            )
            return Problem(monoid.finish.location, message)
    return None


def _state_problem(context: Context, functor: Functor, monoid: Monoid) -> Problem | None:
    """Report a state with other results than `element` and `combine`."""
    floats = [(name, evaluator) for name, _, evaluator in context.formats(functor) if evaluator.integers is None]
    state = context.spec.states.get(monoid.state or "")
    if state is None or not floats:
        return None
    name, evaluator = floats[-1]
    try:
        by_state, reducer = StateReducer(state, evaluator), reducer_of(context, functor, evaluator)
    except Unknown:
        return None
    parameters = parameters_of(functor)
    # Edges are where a reduction is easily wrong, and a unit is there for numbers far from 1.
    far = [] if state.unit is None else [[x * by for x in row] for by in _FAR for row in ROWS]
    for row in ((), *ROWS, *(edge.numbers({})[0] for edge in functor.edges), *far):
        for order, combined in by_state.orders(row):
            total, unit = by_state.results(combined)
            # Equal elements, which are at no distance, may have any unit.
            divided = [x / unit for x in row] if row in far and len({*row}) > 1 else row
            expected = reducer.combine_all(reducer.contributions(divided))
            if divided is row:
                expected = reducer.reduce(row, parameters)
                total = reducer.finish(total, len(row), parameters, unit)
            scale = max((x * x for x in divided), default=0)
            if not are_close(total, expected, scale, _STATE_TOLERANCE):
                message = (
                    f"'state' of op '{functor.name}' gives {format_number(total)} for the row "
                    f"[{format_numbers(divided)}] {order} in {name}, but 'element' and 'combine' give "
                    f"{format_number(expected)}; write a state of the same reduction"
                )
                return Problem(monoid.state_location, message)
    return None
