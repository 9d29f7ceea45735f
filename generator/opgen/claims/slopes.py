"""Written gradients of ops and of primitives: whether they are the slopes that differences show, in f64."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from opgen.claims.comparison import are_close, format_number, format_numbers
from opgen.claims.context import Context, parameters_of
from opgen.claims.evaluation import Unknown
from opgen.claims.reductions import ROWS, reducer_of
from opgen.claims.scalars import Function
from opgen.formula.nodes import INCOMING, RESULT, Node
from opgen.formula.primitives import Primitive
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid
from opgen.monoids import COUNT
from opgen.problem import Problem
from opgen.scopes import is_differentiable

# The gradient of the result: not 1, which would hide a factor that is missing or squared.
_INCOMING = 1.5
_STEP = 2.0**-10
_TOLERANCE = 1e-6
# The distance to another point where a slope is compared.
_OFFSET = 2.0**-6 / 3
# The rounding error of a difference quotient of a function with values of about 1.
_ROUNDING = 1e-10
# The difference of the one-sided slopes shrinks with the step where there is no kink.
_SMOOTH = 0.25

_SINGLE = (0.3, -0.45, 0.8, -1.3, 1.7, -2.6, 2.9, 5.5, -7.25, 30.0, -30.0, 0.0, 1.0, -1.0, 3.0, -3.0)
_PAIRED = (0.0, 0.4, -0.7, 1.6, 2.5, -3.2)
_OTHERS = (0.4, -0.7)


@dataclass(frozen=True)
class Slope:
    """The slope of a function at a point, between `min` and `max`."""

    min: float
    max: float
    is_kink: bool

    def allows(self, gradient: float, scale: float) -> bool:
        """Return True for a gradient that is this slope, for a function with values of about `scale`.

        At a kink any slope between both sides, and 0, are right.
        """
        if self.min <= gradient <= self.max or (self.is_kink and gradient == 0):
            return True
        return any(are_close(gradient, slope, scale, _TOLERANCE) for slope in (self.min, self.max))


def slope_of(function: Callable[[float], float], x: float) -> Slope | None:
    """Return the slope of a function at x; None where it jumps or ends, or is too steep to be measured."""
    value = function(x)
    sides = [_one_sided(function, x, value, _STEP / divisor) for divisor in (1, 2, 64)]
    if not all(map(math.isfinite, (value, *(slope for pair in sides for slope in pair)))):
        return None
    (left, right), (half_left, half_right), (last_left, last_right) = sides
    gap, last_gap = abs(right - left), abs(last_right - last_left)
    size = max(abs(last_left), abs(last_right))
    rounding = _ROUNDING * max(1.0, abs(value))
    if last_gap <= max(_SMOOTH * gap, rounding):
        # Richardson's extrapolation has an error of the fourth order.
        central, half_central = (left + right) / 2, (half_left + half_right) / 2
        best = half_central + (half_central - central) / 3
        slack = abs(best - half_central) / 8 + rounding
        # Steps of a staircase may be shorter than that of the differences.
        is_measured = max(slack, abs((last_left + last_right) / 2 - best)) < _STEP * (size + 1)
        return Slope(best - slack, best + slack, is_kink=False) if is_measured else None
    if last_gap > 2 * gap:
        return None
    slack = _STEP * (size + 1)
    return Slope(min(last_left, last_right) - slack, max(last_left, last_right) + slack, is_kink=True)


def _one_sided(function: Callable[[float], float], x: float, value: float, step: float) -> tuple[float, float]:
    return (value - function(x - step)) / step, (function(x + step) - value) / step


def gradient_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    """Yield the written gradients of an op that are not the slopes of its formula."""
    if not functor.gradient or not is_differentiable(context.spec, functor) or functor.is_gradient:
        return
    try:
        if functor.is_scan:
            yield from _scan_problems(context, functor)
        elif functor.formula is not None:
            yield from _map_problems(context, functor)
        elif isinstance(functor.reduction, Monoid):
            yield from _reduction_problems(context, functor)
    except Unknown:
        return


def primitive_problems(context: Context, primitive: Primitive) -> Iterator[Problem]:
    """Yield the gradients of a primitive that are not its slopes."""
    if not primitive.gradient or "float" not in primitive.kinds:
        return
    names = primitive.parameters
    try:
        function = context.floats.of(primitive.name)
        gradients = {
            operand: context.floats.function(formula.with_parts(primitive.let).node, (*names, INCOMING))
            for operand, formula in primitive.gradient.items()
        }
    except Unknown:
        return
    for operand, gradient in gradients.items():
        for arguments in _samples(names, primitive.condition):
            message = _contradiction(function, partial(_with_incoming, gradient), names.index(operand), arguments)
            if message is not None:
                what = f"'gradient' of '{operand}' of primitive '{primitive.name}'"
                yield Problem(primitive.gradient[operand].location, f"{what} {message}")
                break


def _with_incoming(gradient: Function, *arguments: float) -> float:
    return float(gradient(*arguments, _INCOMING))


def _samples(names: Sequence[str], condition: str | None = None) -> Iterator[tuple[float, ...]]:
    if len(names) == 1:
        yield from ((x,) for x in _SINGLE)
        return
    first: Sequence[float] = _PAIRED if condition is None else (False, True)
    yield from product(first, _PAIRED, *(_OTHERS for _ in names[2:]))


def _contradiction(function: Function, gradient: Function, index: int, arguments: Sequence[float]) -> str | None:
    """Describe a gradient of one argument that is not the slope; None where it is, or where none is measured.

    Both functions are of all arguments.
    """
    slope, actual = _compare(function, gradient, index, arguments)
    if slope is None:
        return None
    # At a single point ties are shared, and conditions may choose another slope than the one around it.
    if abs(actual) <= max(1.0, abs(slope.min), abs(slope.max)) and not any(
        _compare(function, gradient, index, [*arguments[:index], arguments[index] + delta, *arguments[index + 1 :]])[0]
        for delta in (-_OFFSET, _OFFSET)
    ):
        return None
    return (
        f"is {format_number(actual)} * {INCOMING} at {format_numbers(arguments)}, where differences give "
        f"{format_number((slope.min + slope.max) / 2)}; write the slope"
    )


def _compare(
    function: Function, gradient: Function, index: int, arguments: Sequence[float]
) -> tuple[Slope | None, float]:
    """Return the slope that a gradient contradicts, if there is one, and the gradient for a result's gradient of 1."""

    def of_one(x: float) -> float:
        return float(function(*arguments[:index], x, *arguments[index + 1 :]))

    slope = slope_of(of_one, arguments[index])
    if slope is None:
        return None, 0.0
    actual = gradient(*arguments) / _INCOMING
    return (None if slope.allows(actual, 1e-3 * max(1.0, abs(of_one(arguments[index])))) else slope), actual


def _map_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    assert functor.formula is not None
    yield from _written_problems(context, functor, functor.formula.node, functor.operands)


def _scan_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    assert isinstance(functor.reduction, Monoid)
    yield from _written_problems(context, functor, functor.reduction.combine.node, ("x", "y"))


def _written_problems(context: Context, functor: Functor, node: Node, names: Sequence[str]) -> Iterator[Problem]:
    """Yield the gradients of a functor that are not the slopes of a formula over `names` and the parameters."""
    operands, names = names, (*names, *functor.parameters)
    function = context.floats.function(node, names)
    parameters = tuple(parameters_of(functor))
    for operand, formula in functor.gradient.items():
        # Others are reported elsewhere.
        if operand not in operands:
            continue
        compiled = context.floats.function(formula.node, (*names, INCOMING, RESULT))

        def gradient(*arguments: float, compiled: Function = compiled) -> float:
            return float(compiled(*arguments, _INCOMING, function(*arguments)))

        for sample in _samples(operands):
            message = _contradiction(function, gradient, operands.index(operand), (*sample, *parameters))
            if message is not None:
                what = f"'gradient' of '{operand}' of op '{functor.name}'"
                yield Problem(functor.gradients[operand].location, f"{what} {message}")
                break


def _reduction_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    if "x" not in functor.gradient:
        return
    reducer = reducer_of(context, functor, context.floats)
    parameters = parameters_of(functor)
    compiled = reducer.over_row(functor.gradient["x"].node, (*functor.parameters, "x", INCOMING, RESULT, COUNT))

    def function(*row: float) -> float:
        return float(reducer.reduce(row, parameters))

    for row in ROWS:
        for index in range(len(row)):

            def gradient(*row: float, index: int = index) -> float:
                result = function(*row)
                reducer.set_row(row)
                return float(compiled(*parameters, row[index], _INCOMING, result, len(row)))

            message = _contradiction(function, gradient, index, row)
            if message is not None:
                what = f"'gradient' of op '{functor.name}', of element {index + 1},"
                yield Problem(functor.gradients["x"].location, f"{what} {message}")
                return
