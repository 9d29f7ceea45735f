"""Numbers in formulas that a dtype of the op cannot hold: kernels would wrap them, and NumPy would raise."""

import ast
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from opgen.claims.context import Context
from opgen.claims.evaluation import LANGUAGES, Unknown, node_of
from opgen.claims.formats import Floats, Format, Integers
from opgen.formula.formula import Formula
from opgen.formula.nodes import NEGATE, Call, FormulaError, Node, Number, calls
from opgen.formula.primitives import Primitive
from opgen.formula.printing import text_of
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid, State
from opgen.problem import Problem

_Named: TypeAlias = tuple[str, Format]  # a dtype, and the numbers of its compute dtype
# C++ has no wider integers.
_MAX_INTEGER = 2**64 - 1


def literal_problems(context: Context, functor: Functor) -> Iterator[Problem]:
    """Yield the literals of an op's formulas that one of its dtypes cannot hold."""
    operands = _compute_formats(context, context.spec.resolve(functor.dtypes))
    results = operands if functor.keeps_kind else _compute_formats(context, [functor.result or ""])
    floats = [(name, numbers) for name, numbers in operands if isinstance(numbers, Floats)]
    monoid = functor.reduction if isinstance(functor.reduction, Monoid) else None
    formulas: list[tuple[str, Formula | None, Sequence[_Named]]] = [
        *((f"'{name}' in 'let'", formula, floats if monoid else operands) for name, formula in functor.let.items()),
        ("'formula'", functor.written if functor.reduction is None else None, operands),
        *(("'gradient'", formula, floats) for formula in functor.gradients.values()),
    ]
    if monoid is not None:
        formulas.append(("'element'", monoid.element, operands))
        formulas += [("'combine'", monoid.combine, results), ("'finish'", monoid.finish, results)]
    for key, formula, formats in formulas:
        if formula is not None:
            yield from _problems(f"{key} of op '{functor.name}'", formula, formats)
    integers = [(name, numbers) for name, numbers in operands if isinstance(numbers, Integers)]
    called = {call.primitive for node in functor.nodes for call in calls(node)}
    for primitive in (context.primitives[name] for name in sorted(called & context.primitives.keys())):
        yield from _integer_problems(functor, primitive, integers)


def float_literal_problems(context: Context, of: Primitive | State) -> Iterator[Problem]:
    """Yield the literals of a primitive's gradients, or of a state, that a compute dtype of floats cannot hold."""
    floats = _compute_formats(context, context.spec.groups["float"])
    if isinstance(of, Primitive):
        what = f"primitive '{of.name}'"
        formulas = [*of.gradient.values(), *of.let.values()]
        formulas += [of.formula] if of.formula is not None and of.kinds == ("float",) else []
    else:
        what = f"state '{of.name}'"
        formulas = [*of.formulas]
    for formula in formulas:
        yield from _problems(what, formula, floats)


def _integer_problems(functor: Functor, primitive: Primitive, integers: Sequence[_Named]) -> Iterator[Problem]:
    """Yield the literals of a primitive's expressions of integers that an integer dtype of an op cannot hold."""
    if not integers or "integer" not in primitive.kinds:
        return
    of = f"primitive '{primitive.name}', which op '{functor.name}' calls"
    if primitive.formula is not None:
        yield from _problems(f"'formula' of {of}", primitive.formula, integers)
    for language in LANGUAGES:
        implementation = primitive.implementation(language)
        try:
            node = node_of(ast.parse(implementation.integer, mode="eval").body)
        except Unknown:
            continue
        # Expressions are YAML's texts, on one line or several: only their begin is located.
        at_start = Formula(node, implementation.location)
        for problem in _problems(
            f"'{primitive.written_in(language, implementation.integer)}' of {of}", at_start, integers
        ):
            yield Problem(implementation.location, problem.message)


def _compute_formats(context: Context, names: Iterable[str]) -> list[_Named]:
    formats = {}
    for name in names:
        dtype = context.dtypes.get(name)
        numbers = context.format(dtype.compute) if dtype is not None else None
        if numbers is not None:
            formats[name] = numbers
    return [*formats.items()]


def _problems(what: str, formula: Formula, formats: Sequence[_Named]) -> Iterator[Problem]:
    for text, value, offset in _literals(formula.node):
        lacking = [name for name, numbers in formats if not _can_hold(numbers, value)]
        if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER and not lacking:
            error = FormulaError(f"'{text}' is wider than any integer of C++; write it with a point", offset)
            yield formula.problem(error, what)
        elif lacking:
            dtypes = ", ".join(lacking)
            fix = f"write a number of {dtypes}, or give the op other dtypes"
            yield formula.problem(FormulaError(f"{dtypes} cannot hold '{text}'; {fix}", offset), what)


def _can_hold(numbers: Format, value: float) -> bool:
    if isinstance(numbers, Integers):
        return numbers.holds(value)
    try:
        number = float(value)
    except OverflowError:
        return False
    rounded = numbers.round(number)
    return math.isfinite(rounded) and (rounded != 0 or number == 0)


def _literals(node: Node) -> Iterator[tuple[str, int | float, int]]:
    """Yield the numbers of a formula, and integers that are computed of numbers alone, with their text and offset."""
    if isinstance(node, Number):
        yield str(node.value), node.value, node.offset
    if not isinstance(node, Call):
        return
    value = _constant(node)
    if value is not None:
        yield text_of(node), value, node.offset
    # The number of a negative one need not be one of the dtype.
    is_negated = node.primitive == NEGATE and isinstance(node.arguments[0], Number)
    for argument in () if is_negated else node.arguments:
        yield from _literals(argument)


def _constant(node: Node) -> int | float | None:
    if isinstance(node, Number):
        return node.value
    if not isinstance(node, Call):
        return None
    values = [_constant(argument) for argument in node.arguments]
    match node.primitive, values:
        case "-x", [int() | float() as x]:
            return -x
        case "x + y", [int() as x, int() as y]:
            return x + y
        case "x - y", [int() as x, int() as y]:
            return x - y
        case "x * y", [int() as x, int() as y]:
            return x * y
    return None
