"""Gradients of ops of rows, written and derived: whether they are the slopes that differences show, in f64.

A derived gradient trusts `detach`; this check reports a detached value whose gradient matters.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from opgen.claims.comparison import format_number, format_numbers
from opgen.claims.context import Context, parameters_of
from opgen.claims.evaluation import Unknown
from opgen.claims.slopes import slope_of
from opgen.formula.nodes import INCOMING, RESULT, Node
from opgen.model.functors import Functor
from opgen.model.kinds import ROW
from opgen.problem import Problem
from opgen.row_passes import passes_of
from opgen.rows import COUNT, MAX, MIN, POSITION, SUM
from opgen.scopes import derivatives, is_differentiable, joined_results

# What each operand has; the others begin one number later.
_ROW = (0.3, -0.45, 0.8, 1.7, -1.3)
# Whether the index of the row names each element.
_AT_INDEX = (0, 0, 1, 0, 0)
# The gradients of the results.
_INCOMING = (1.5, -0.5, 0.75, 2.0, -1.25)
_JOINS: Mapping[str, Callable[[Sequence[float]], float]] = {SUM: math.fsum, MAX: max, MIN: min}
Columns = Mapping[str, Sequence[float]]


def row_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    """Yield the gradients of an op of rows that are not the slopes of its formula."""
    if functor.kind != ROW or not is_differentiable(context.spec, functor):
        return
    numbers = dict(zip(functor.parameters, parameters_of(functor), strict=True))
    shifted: dict[str, Sequence[float]] = {
        name: (*_ROW[offset:], *_ROW[:offset]) for offset, name in enumerate(functor.operands)
    }
    if functor.index is not None:
        shifted[functor.index] = _AT_INDEX
    # All elements of a row share the gradient of a number.
    incoming = _INCOMING[:1] * len(_ROW) if functor.per_row else _INCOMING
    formula, *_ = joined_results(context.spec, functor)
    try:
        result = _evaluated(context, formula, shifted, numbers)
        for operand, node in derivatives(context.spec, functor).items():
            actual = _evaluated(context, node, {**shifted, INCOMING: incoming, RESULT: result}, numbers)
            for index, gradient in enumerate(actual):

                def loss(x: float, operand: str = operand, index: int = index) -> float:
                    row = [*shifted[operand]]
                    row[index] = x
                    moved = _evaluated(context, formula, {**shifted, operand: row}, numbers)
                    moved = moved[:1] if functor.per_row else moved
                    return math.fsum(g * y for g, y in zip(incoming, moved, strict=False))

                slope = slope_of(loss, shifted[operand][index])
                if slope is not None and not slope.allows(gradient, 1e-3):
                    yield _problem(functor, operand, index, gradient, (slope.min + slope.max) / 2)
                    break
    except Unknown:
        return


def _problem(functor: Functor, operand: str, index: int, gradient: float, slope: float) -> Problem:
    written = functor.gradients.get(operand)
    what = f"the gradient of '{operand}' of op '{functor.name}'"
    fix = "write the slope" if written is not None else "write 'gradient', or remove 'detach' from the formula"
    return Problem(
        functor.location if written is None else written.location,
        f"{what} is {format_number(gradient)} for element {index + 1} of {format_numbers(_ROW)}, where differences "
        f"give {format_number(slope)}; {fix}",
    )


def _evaluated(context: Context, node: Node, elements: Columns, numbers: Mapping[str, float]) -> list[float]:
    """Evaluate a row formula of the columns of a row. Raises Unknown for a function that opgen does not compute."""
    length = len(_ROW)
    columns: dict[str, Sequence[float]] = {**elements, POSITION: [float(index) for index in range(length)]}
    known: dict[str, float] = {**numbers, COUNT: float(length)}

    def of_each(node: Node) -> list[float]:
        function = context.floats.function(node, (*columns, *known))
        return [float(function(*each, *known.values())) for each in zip(*columns.values(), strict=True)]

    passes = passes_of([node], columns)
    for each in passes.passes:
        known |= {join.name: _JOINS[join.kind](of_each(join.contribution)) for join in each.joins}
        for name, constant in each.constants.items():
            known[name] = of_each(constant)[0]
    return of_each(passes.results[0])
