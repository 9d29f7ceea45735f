"""Expressions of primitives: whether arrays and kernels compute the same function."""

from collections.abc import Iterator
from itertools import product

from opgen.claims.comparison import are_close, format_number, format_numbers
from opgen.claims.context import Context
from opgen.claims.evaluation import Evaluator, Unknown
from opgen.claims.formats import Integers
from opgen.formula.primitives import Language, Primitive
from opgen.problem import Location, Problem

_FLOATS = (0.5, -0.25, 1.0, 2.0, -3.0, 0.875, 7.5, 0.0)
_INTEGERS = (Integers(-128, 127), Integers(0, 255))


def formula_problems(context: Context, primitive: Primitive) -> Iterator[Problem]:
    """Yield a formula of a primitive that cannot be evaluated: nothing else would read it."""
    if primitive.formula is None:
        return
    for evaluator in (context.floats, Evaluator(context.primitives, _INTEGERS[0])):
        if evaluator.kind in primitive.kinds:
            try:
                evaluator.function(primitive.formula.node, primitive.parameters)
            except Unknown as error:
                what = f"'formula' of primitive '{primitive.name}' calls '{error}'"
                message = (
                    f"{what}, which opgen cannot compute; write it of other primitives, or give that one a formula"
                )
                yield Problem(primitive.formula.location, message)
                return


def implementation_problems(context: Context, primitive: Primitive) -> Iterator[Problem]:
    """Yield the first expression of a primitive with other results than its formula or another expression."""
    for evaluator in (context.floats, *(Evaluator(context.primitives, integers) for integers in _INTEGERS)):
        functions = [*evaluator.implementations(primitive)] if evaluator.kind in primitive.kinds else []
        for (key, function), (other_key, other) in product(functions[:1], functions[1:]):
            for arguments in _samples(primitive, evaluator):
                expected, actual = function(*arguments), other(*arguments)
                if not are_close(actual, expected):
                    message = (
                        f"'{other_key}' of primitive '{primitive.name}' gives {format_number(actual)} for "
                        f"{format_numbers(arguments)}, but {f'{key!r}' if key else 'the operator'} gives "
                        f"{format_number(expected)}; write expressions of one function"
                    )
                    yield Problem(_location(primitive, other_key), message)
                    return


def _samples(primitive: Primitive, evaluator: Evaluator) -> Iterator[tuple[float, ...]]:
    numbers = _FLOATS if evaluator.integers is None else evaluator.integers.samples
    count = len(primitive.parameters)
    for arguments in product(numbers[:: 1 if count < 3 else 3], repeat=count):
        yield (arguments[0] > 0, *arguments[1:]) if primitive.condition is not None else arguments


def _location(primitive: Primitive, key: str) -> Location:
    languages: dict[str, Language] = {"array": "array", "kernel": "kernel"}
    if key in languages:
        return primitive.implementation(languages[key]).location
    return primitive.formula.location if primitive.formula is not None else primitive.location
