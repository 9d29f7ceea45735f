"""Edges: whether an op gives the results that they say, in each dtype that has their numbers."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from opgen.claims.comparison import are_same, format_number, format_numbers
from opgen.claims.context import Context
from opgen.claims.evaluation import Evaluator, Unknown
from opgen.claims.formats import Format, Integers
from opgen.claims.reductions import reducer_of
from opgen.edges import Edge
from opgen.model.functors import Functor
from opgen.problem import Problem

# A name stands for every finite number.
_FINITE = (0.0, -0.0, 1.0, -2.5)
# A parameter without a default that an edge does not give.
_PARAMETER = 1.0
_TOLERANCE = 1e-12

_Function: TypeAlias = Callable[[list[float], list[float]], Any]  # of operands, or elements, and of parameters


class _Case(NamedTuple):
    """An op of one dtype."""

    dtype: str
    operands: Format
    result: Format
    function: _Function
    evaluator: Evaluator


def edge_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    """Yield the edges of an op that its formulas contradict, or that no dtype has the numbers of."""
    try:
        cases = [
            _Case(name, numbers, result, _function(context, functor, evaluator), evaluator)
            for name, numbers, evaluator in context.formats(functor)
            if (result := context.format(name if functor.keeps_kind else functor.result)) is not None
        ]
    except Unknown:
        return
    real = [name for name in context.spec.resolve(functor.dtypes) if name not in context.spec.groups["complex"]]
    are_all_known = bool(real) and all(context.format(name) for name in real)
    parameters = None if functor.reduction is not None else functor.parameters
    for edge in functor.edges:
        # The decoder reports what is no edge of the op.
        if edge.flaw(functor.name, functor.operands, parameters) is not None:
            continue
        has_dtype, problem = _evaluate(functor, edge, cases)
        if problem is not None:
            yield problem
        elif not has_dtype and are_all_known:
            message = (
                f"no dtype of op '{functor.name}' has the numbers of edge '{edge.call}' and its result {edge.value}"
            )
            yield Problem(edge.location, f"{message}; write numbers that one has")


def _evaluate(functor: Functor, edge: Edge, cases: Sequence[_Case]) -> tuple[bool, Problem | None]:
    """Return whether a dtype has the numbers of an edge, and the first contradiction."""
    values = itertools.product(_FINITE, repeat=len(edge.names))
    calls = [edge.numbers(dict(zip(edge.names, each, strict=True))) for each in values]
    count = len(functor.operands) if functor.reduction is None else len(calls[0][0])
    defaults = [_PARAMETER if default is None else default for default in functor.parameters.values()]
    has_dtype = False
    for case, (arguments, expected) in itertools.product(cases, calls):
        operands = arguments[:count]
        if not all(map(case.operands.holds, operands)) or not case.result.holds(expected):
            continue
        has_dtype = True
        parameters = [*arguments[count:], *defaults[len(arguments) - count :]]
        actual = _convert(
            case.result, case.function(*(_in_compute(case.evaluator, each) for each in (operands, parameters)))
        )
        # In f64 rounding errors are those of math libraries; short floats may be off by a few units.
        tolerance = max(_TOLERANCE, 4 * case.result.epsilon if case.result.epsilon > _TOLERANCE else 0)
        if not are_same(actual, expected, tolerance):
            message = (
                f"edge '{edge.call}' of op '{functor.name}' says {format_number(expected)}, but its formula gives "
                f"{format_number(actual)} for {format_numbers(arguments) or 'no elements'} in {case.dtype}; "
                f"{'correct it' if edge.names else f'write {format_number(actual)}'}, or correct the formula"
            )
            return True, Problem(edge.location, message)
    return has_dtype, None


def _function(context: Context, functor: Functor, evaluator: Evaluator) -> _Function:
    if functor.formula is None:
        return reducer_of(context, functor, evaluator).reduce
    function = evaluator.function(functor.formula.node, (*functor.operands, *functor.parameters))
    return lambda operands, parameters: function(*operands, *parameters)


def _in_compute(evaluator: Evaluator, numbers: list[float]) -> list[float]:
    """Convert numbers to the compute dtype; that of floats is evaluated in f64."""
    return numbers if evaluator.integers is None else [*map(evaluator.integers.round, numbers)]


def _convert(result: Format, value: Any) -> float:
    if isinstance(result, Integers) and isinstance(value, int):
        is_truth = (result.min, result.max) == (0, 1)
        return int(value != 0) if is_truth else result.wrap(value)
    return result.round(float(value))
