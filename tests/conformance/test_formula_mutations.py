"""A formula in which one thing is another is not what the oracle says: of each functor, and of each gradient.

The formulas are those of the spec, as NumPy computes them; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import own_spec
import pytest
from tallow.cpu_backend import library
from tallow.dtype import DType
from tallow.runtime.numerics.numerics import Numerics

from . import values
from .comparison import assert_close, tolerance
from .handlers.elementwise import PARAMETERS, SLACKS
from .oracle import elementwise, gradients
from .oracle.formats import EXTENDED, Array

if TYPE_CHECKING:
    from opgen.formula.nodes import Node
    from opgen.model.functors import Functor

# With numbers next to each other around those at which formulas choose, ties, and where powers are constant.
NEAR = [-7.25, -3.25, -2.5, -1.3125, -0.625, 0.0, 1e-50, 0.4375, 1.0, 1.1875, 2.75, 3.25, 5.5]
# What is put instead of an operator, and of a function of one operand.
OTHERS = {
    "x + y": "x - y",
    "x - y": "x + y",
    "x * y": "x / y",
    "x / y": "x * y",
    "x == y": "x != y",
    "x != y": "x == y",
    "x < y": "x > y",
    "x <= y": "x > y",
    "x > y": "x < y",
    "x >= y": "x < y",
    "minimum": "maximum",
    "maximum": "minimum",
    "hypot": "maximum",
    "tanh": "sin",
    "isinf": "isnan",
}
# Numbers far out, of a grid, or between two ways to compute the same: others near them would do too.
ANY_WOULD_DO = {*(40, -40, 750, -750, 64), -1}
# Its oracle would be the formula itself.
MOVES = ("to_dtype", "where_cond")


def mutants(node: Node) -> Iterator[Node]:
    """A formula with one thing changed, everywhere where it has it."""
    from opgen.formula.nodes import inlined
    from opgen.formula.simplification import shared

    parts, full = shared(node)
    bodies = {**parts, "": full}
    for name, body in bodies.items():
        for mutant in changed(body):
            known: dict[str, Node] = {}
            for part, text in {**bodies, name: mutant}.items():
                known[part] = inlined(text, known)
            if known[""] != node:
                yield known[""]


def changed(node: Node) -> Iterator[Node]:
    """A formula with one part changed."""
    from opgen.formula.nodes import Call, Number

    match node:
        case Number(value=value) if value not in ANY_WOULD_DO:
            yield Number(value * 1.25 if value else 1)
        case Call(primitive=primitive, arguments=arguments):
            for index, argument in enumerate(arguments):
                for mutant in changed(argument):
                    yield Call(primitive, (*arguments[:index], mutant, *arguments[index + 1 :]))
            if primitive == "-x":
                yield arguments[0]
            elif primitive in ("x * y", "x / y") and is_sign(arguments[1]):
                # Where it is not 0, which is where a function has a kink, either does the same.
                return
            elif primitive in OTHERS or len(arguments) == 1:
                yield Call(OTHERS.get(primitive, "tanh"), arguments)
            elif arguments[-1] != arguments[-2]:
                yield Call(primitive, (*arguments[:-2], arguments[-1], arguments[-2]))


def is_sign(node: Node) -> bool:
    """Whether a node is 1 or -1 but for 0."""
    from opgen.formula.nodes import Call

    return isinstance(node, Call) and node.primitive == "sign"


def computed(functor: Functor, node: Node, operands: Sequence[Array], parameters: Sequence[float]) -> Array:
    """What a formula makes of arrays of f64."""
    from opgen.formula.lowering import lowered

    names = (*functor.operands, *functor.parameters)
    text = lowered(node, "array", dict.fromkeys(names, "float"), own_spec.read().primitives)
    known: dict[str, Any] = {"np": library, "numerics": Numerics(library), "inf": np.inf, "nan": np.nan}  # type: ignore[arg-type]
    known["dtype"] = DType.F64
    numbers = [np.float64(number) for number in parameters]
    with np.errstate(all="ignore"):
        result = eval(text, known | dict(zip(names, (*operands, *numbers), strict=True)))
    return np.asarray(np.broadcast_to(result, operands[0].shape))


def numbers_in(node: Node) -> set[float]:
    """The numbers of a formula that `changed` changes."""
    from opgen.formula.nodes import Call, Number

    match node:
        case Number(value=value) if value not in ANY_WOULD_DO:
            return {float(value)}
        case Call(arguments=arguments):
            return {value for argument in arguments for value in numbers_in(argument)}
    return set()


def operands_of(functor: Functor) -> list[Array]:
    """Special numbers, ordinary ones, and some beside those of the formula, each with each other."""
    near = np.array([*NEAR, *(1.1 * value for value in numbers_in(functor.formula.node))])
    ordinary = values.ordinary(np.random.default_rng(0), "f64", (20,))
    numbers = np.concatenate([near, values.specials("f64"), ordinary])
    if len(functor.operands) == 1:
        return [numbers]
    x, y = (array.ravel() for array in np.meshgrid(numbers, numbers))
    if functor.kind == "unary_gradient":
        return [y, x]
    g = np.random.default_rng(1).permutation(y)
    return [g, x, y] if functor.kind.startswith("binary_gradient") else [x, y]


class Expected(NamedTuple):
    """A result of the oracle."""

    name: str
    operands: list[Array]
    parameters: tuple[float, ...]
    result: Array
    slack: Array | float
    is_open: Array | bool
    """Where any number is right."""


def expectations(functor: Functor, index: int) -> Iterator[Expected]:
    """The oracle's results of a functor that has several, for some parameters."""
    operands = operands_of(functor)
    name, swaps = functor.name, False
    if len(functor.results) > 1:
        name, swaps = gradients.of_each(name)[index]
    incoming = PARAMETERS.get(functor.name.partition("_gradient")[0], [(2.0, 0.5, -3.0), (-1.0, 1.5, 4.0)])
    for parameters in (tuple(each[: len(functor.parameters)]) for each in incoming):
        slack: Array | float = 0.0
        is_open: Array | bool = False
        with np.errstate(all="ignore"):
            if functor.is_gradient:
                g, *others = operands
                given_in_order = [g, *(others[::-1] if swaps else others)]
                expected, slack, is_open = gradients.gradient(name, "f64", *given_in_order, parameters=parameters)
            elif functor.is_method:
                expected = getattr(elementwise, functor.name)("f64", *operands, *parameters)
            elif functor.kind == "cmp":
                expected = elementwise.compare(functor.name, "f64", *operands)
            else:
                oracle = {"unary": elementwise.unary, "binary": elementwise.binary}[functor.kind]
                expected = oracle(functor.name, "f64", *operands)
        if functor.name in SLACKS:
            slack = SLACKS[functor.name]("f64", *(operand.astype(EXTENDED) for operand in operands))
        yield Expected(name, operands, parameters, expected, slack, is_open)


def check(functor: Functor, node: Node, every: Sequence[Expected]) -> None:
    """Compare a formula, which is that of a result, with the oracle."""
    for it in every:
        actual = computed(functor, node, it.operands, it.parameters)
        expected = np.where(it.is_open, actual, it.result).astype(EXTENDED)
        ulps = tolerance(it.name, "f64")
        assert_close("f64", actual.astype(np.float64), expected, ulps, functor.name, slack=it.slack, zero_sign=False)


def caught(change: Callable[[], None]) -> bool:
    """Whether a check finds a formula wrong."""
    try:
        change()
    except (AssertionError, TypeError, ValueError):
        return True
    return False


def functors() -> list[Functor]:
    """Those of floats; what only integers have is one primitive."""
    full = own_spec.read()
    return [
        functor
        for kind in full.functors.values()
        for functor in kind.functors
        if functor.formula is not None and not functor.name.startswith(MOVES) and "f64" in full.resolve(functor.dtypes)
    ]


@pytest.mark.parametrize("functor", functors(), ids=lambda functor: functor.name)
def test_the_oracle_catches_each_mutation_of_a_formula(functor: Functor) -> None:
    from opgen.formula.printing import text_of

    for index, node in enumerate(functor.results):
        expected = [*expectations(functor, index)]
        check(functor, node, expected)
        every = list(mutants(node))
        kept = [text_of(it) for it in every if not caught(lambda it=it, known=expected: check(functor, it, known))]  # type: ignore[misc]
        assert every
        assert not kept


# Where a function may have any slope.
SMOOTH = np.array([0.3125, 0.6875, 1.1875, 2.75])
SLOPE_PARAMETERS = {"mul": 1.5, "add": -0.5}


def step_gradients() -> list[tuple[Functor, str]]:
    """The gradients of operands that are no ops of their own, and no zeros."""
    from opgen.formula.nodes import Call
    from opgen.op_search import by_size, computing, is_step
    from opgen.scopes import derivatives, is_differentiable

    full = own_spec.read()
    results = []
    for functor in functors():
        if functor.kind in ("unary", "binary") and is_differentiable(full, functor):
            for operand, node in derivatives(full, functor).items():
                op = None if is_step(node) else computing(node, by_size(full.every_functor), functor.parameters)
                if isinstance(node, Call) and (op is None or not op[0].is_gradient):
                    results.append((functor, operand))
    return results


@pytest.mark.parametrize(("functor", "operand"), step_gradients(), ids=lambda it: getattr(it, "name", it))
def test_differences_catch_each_mutation_of_a_gradient(functor: Functor, operand: str) -> None:
    from opgen.formula.lowering import lowered
    from opgen.formula.printing import text_of
    from opgen.scopes import derivatives

    x, y = np.meshgrid(SMOOTH, SMOOTH + 0.1)
    operands = [x, y][: len(functor.operands)]
    parameters = tuple(SLOPE_PARAMETERS.get(name, default) for name, default in functor.parameters.items())
    known = dict(zip((*functor.operands, *functor.parameters), (*operands, *parameters), strict=True))
    assert functor.formula is not None
    result = computed(functor, functor.formula.node, operands, parameters)
    known |= {"g": np.full(x.shape, 3.0), "result": result, "np": library, "numerics": Numerics(library)}  # type: ignore[arg-type]
    op = f"{functor.name}_gradient" + (f"_{operand}" if len(operands) > 1 else "")
    extended = [part.astype(EXTENDED) for part in operands]
    expected = 3 * gradients.slope(op, extended, parameters, EXTENDED(2) ** -10)

    def check_gradient(node: Node) -> None:
        kinds = dict.fromkeys(known, "float")
        actual = eval(lowered(node, "array", kinds, own_spec.read().primitives), known)
        np.testing.assert_allclose(actual, expected.astype(np.float64), rtol=1e-8)

    node = derivatives(own_spec.read(), functor)[operand]
    check_gradient(node)
    every = list(mutants(node))
    kept = [text_of(mutant) for mutant in every if not caught(lambda mutant=mutant: check_gradient(mutant))]  # type: ignore[misc]
    assert every
    assert not kept


# With ties, zeros, and vectors of which there is no slope; with what is taken off the number of elements.
VECTORS = [([0.5, -1.25, 2.0, 3.5], 1.0), ([1.5, 2.0], 1.5), ([3.0, -2.0, 3.0, -2.0, 0.5], 0.0)]
VECTORS += [([0.0, 2.0, -3.0], 1.0), ([0.0, 1.5, 0.0], 1.0), ([0.0, 0.0, 0.0], 1.0), ([2.0, 2.0], 1.0)]
# The mean of these is rounded.
VECTORS += [([0.1] * 6, 1.0)]
# Infinities, where differences would be NaN.
INFINITE = [([np.inf, 1.0, np.inf], 1.0), ([-np.inf, -np.inf], 1.0), ([-np.inf, 2.5], 1.0)]
LOST = [([1.0, np.nan, 3.0, np.nan], 1.0), ([np.nan, np.inf], 1.0)]
# Variances and deviations that are 0 beside distances that are not.
VANISHED = {"var": [([1e-200, 2e-200, 4e-200], 1.0)], "std": [([5e-324] + [0.0] * 9, 1.0)]}
ALSO = {**VANISHED, "logsumexp": INFINITE, "sum_powers": INFINITE, "min": INFINITE + LOST, "max": INFINITE + LOST}


def _powers(x: Array) -> Array:
    return np.where(x == np.max(x), 1.0, np.exp(x - np.max(x)))


def _distances(x: Array) -> Array:
    return np.zeros_like(x) if (x == x[0]).all() else x - x.mean()


JOINED: dict[str, Callable[[Array], Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "centre": lambda x: x[0] + (x - x[0]).mean(),
    "prod": np.prod,
    "min": np.min,
    "max": np.max,
    "norm": np.linalg.norm,
    "logsumexp": lambda x: np.log(np.exp(x).sum()),
    "count_min": lambda x: np.count_nonzero(x == np.min(x)) or np.count_nonzero(np.isnan(x)),
    "count_max": lambda x: np.count_nonzero(x == np.max(x)) or np.count_nonzero(np.isnan(x)),
    "count_zero": lambda x: np.count_nonzero(x == 0),
    "sum_powers": lambda x: _powers(x).sum(),
    "prod_slope": lambda x: {0: 1.0, 1: np.prod(x[x != 0])}.get(np.count_nonzero(x == 0), 0.0),
}


DIFFERENTIABLE = ["sum", "prod", "prod_slope", "mean", "centre", "norm", "var", "std", "logsumexp"]
DIFFERENTIABLE += ["sum_powers", "min", "max"]


def slopes(name: str, x: Array, correction: float) -> tuple[Array, Array]:
    """What a reduction makes of a vector, and its derivative for each element."""
    distances, divisor = _distances(x), max(x.size - correction, 0)
    variance = np.square(distances).sum() / divisor
    match name:
        case "sum" | "mean" | "centre":
            return JOINED[name](x), np.full(x.shape, 1.0 if name == "sum" else 1 / x.size)
        case "prod":
            return np.prod(x), np.array([np.prod(np.delete(x, index)) for index in range(x.size)])
        case "prod_slope":
            slope = JOINED[name](x)
            return slope, np.where(x != 0, slope / x, 0) * (np.count_nonzero(x == 0) == 1)
        case "norm":
            norm = np.sqrt(np.square(x).sum())
            return norm, x / norm if norm else 0 * x
        case "var":
            return variance, distances * (2 / divisor)
        case "logsumexp":
            return np.log(np.exp(x).sum()), _powers(x) / _powers(x).sum()
        case "sum_powers":
            powers, is_largest = _powers(x), x == x.max()
            return powers.sum(), np.where(is_largest, 1 - powers.sum() / np.count_nonzero(is_largest), powers)
        case "std":
            return np.sqrt(variance), distances / (np.sqrt(variance) * divisor) if variance else 0 * x
        case _:
            extreme = getattr(np, name)(x)
            chosen = np.isnan(x) if np.isnan(extreme) else x == extreme
            return extreme, chosen / np.count_nonzero(chosen)


@cache
def step(primitive: str, *kinds: str) -> CodeType:
    """The expression of a primitive over arrays `a0`, `a1` and so on of some kinds."""
    from opgen.formula.lowering import lowered
    from opgen.formula.nodes import Call, Name

    of = {f"a{index}": kind for index, kind in enumerate(kinds)}
    text = lowered(Call(primitive, tuple(map(Name, of))), "array", of, own_spec.read().primitives)
    return compile(text, primitive, "eval")


def evaluated(node: Node, known: dict[str, Any]) -> Any:
    """What a formula with reductions in it comes to."""
    from opgen.formula.nodes import Call, Name, Number

    match node:
        case Number(value=value):
            return float(value)
        case Name(text=text):
            return known[text]
        case Call(primitive=primitive, arguments=arguments):
            inputs = [evaluated(argument, known) for argument in arguments]
            if primitive in JOINED:
                return JOINED[primitive](inputs[0])
            of = {f"a{index}": np.asarray(value) for index, value in enumerate(inputs)}
            kinds = ["bool" if value.dtype == bool else "float" for value in of.values()]
            return eval(step(primitive, *kinds), {"np": library, "numerics": Numerics(library)} | of)  # type: ignore[arg-type]


def assert_each_mutation_is_caught(node: Node, check_gradient: Callable[[Node], None]) -> None:
    from opgen.formula.nodes import Call
    from opgen.formula.printing import text_of

    check_gradient(node)
    every = [Call("-x", (node,)), *mutants(node)]
    assert not [text_of(mutant) for mutant in every if not caught(lambda mutant=mutant: check_gradient(mutant))]  # type: ignore[misc]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_closed_forms_catch_each_mutation_of_a_gradient_of_a_reduction(name: str) -> None:
    from opgen.scopes import derivatives

    (functor,) = (functor for functor in own_spec.read().functors["reduce"].functors if functor.name == name)

    def check_gradient(node: Node) -> None:
        for numbers, correction in (*VECTORS, *ALSO.get(name, [])):
            x = np.array(numbers)
            with np.errstate(all="ignore"):
                result, slope = slopes(name, x, correction)
                known = {"g": 3.0, "x": x, "result": result, "count": x.size, "correction": correction}
                actual = np.broadcast_to(evaluated(node, known), x.shape)
            np.testing.assert_allclose(actual, 3 * slope, rtol=1e-12)

    assert_each_mutation_is_caught(derivatives(own_spec.read(), functor)["x"], check_gradient)


def test_every_reduction_with_a_gradient_is_mutated() -> None:
    from opgen.formula.nodes import Number
    from opgen.scopes import derivatives, is_differentiable

    full = own_spec.read()
    reductions = [functor for functor in full.functors["reduce"].functors if is_differentiable(full, functor)]
    changing = [it.name for it in reductions if derivatives(full, it)["x"] != Number(0)]
    assert changing == DIFFERENTIABLE


# Of each state what kernels make of elements, in whichever order they join them.
OF_STATES: dict[str, Callable[[Array], Any]] = {
    # The roots of sums of squares, which f64 has.
    "lengths": np.hypot.reduce,
    "spreads": lambda x: np.float64(np.sqrt(np.square(_distances(x.astype(np.longdouble))).sum())),
    # That of a unit is taken of counts too.
    "centres": lambda x: np.sqrt(x.size) * np.mean(x),
    "powers": lambda x: np.log(np.exp(x).sum()),
    "shares": JOINED["sum_powers"],
    "maxima": JOINED["count_max"],
    "minima": JOINED["count_min"],
    "factors": JOINED["prod_slope"],
}

# Vectors besides those that all states join: of lengths and distances whose squares leave f64, at either end, and whose
# sum of squares is 1.1 times the least that does not.
EXTREMES: dict[str, list[list[float]]] = {
    "spreads": [[3e200, -4e200], [3e-200, -4e-200, 7e-200], [3e200, 1e-200, 1.0], [1e-160, 1e-150], [np.inf, 1e200]],
    "lengths": [[3e200, 4e200], [3e-200, 4e-200], [3e-200, 1.0], [3e200, 1e-200], [1e-160, 1e-150], [np.inf, 1e200]],
}
for each in EXTREMES.values():
    each.append([0.55**0.5 * 2**-350, -(0.55**0.5) * 2**-350])

# A total of elements is a whole number, a share of none is 0 of any, and what is subtracted is 0 or NaN.
NO_DIFFERENCE = {
    "let share: y.count / where(total > 1, total, 1)",
    "let share: y.count / where(total > 0, total, 1.25)",
    # Of no weight.
    "let distance: where(weight > 0, y.mean - x.mean, 1)",
    "let near: where(weight > 0, 2 * shrink(half), 1)",
}


@pytest.mark.parametrize("name", OF_STATES)
def test_each_mutation_of_a_formula_of_a_state_is_caught(name: str) -> None:
    from opgen.formula.printing import text_of
    from opgen.scopes import state_scopes

    states = own_spec.read().functors["reduce"].states
    assert list(states) == list(OF_STATES)
    parts = [part.name for part in states[name].parts]
    formulas = {key: scope.formula.node for key, scope in state_scopes(own_spec.read(), states[name]).items()}

    def joined(formulas: dict[str, Node], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
        known = {f"{side}.{part}": value[part] for side, value in (("x", x), ("y", y)) for part in parts}
        for let in states[name].let:
            known[let] = evaluated(formulas[f"let {let}"], known)
        return {part: evaluated(formulas[f"combine {part}"], known) for part in parts}

    def combined(formulas: dict[str, Node], known: dict[str, Any]) -> Any:
        total = evaluated(formulas["result"], known)
        return np.sqrt(total) * evaluated(formulas["unit"], known) if "unit" in formulas else total

    @np.errstate(all="ignore")
    def check_state(formulas: dict[str, Node]) -> None:
        nothing = {part: np.float64(0) for part in parts}
        vectors = [*(numbers for numbers, _ in VECTORS), [2.0, 1.5, 1.75], [2.0, np.nan, 3.0], [2.0, 3.0, np.nan]]
        for numbers in (*vectors, *EXTREMES.get(name, [])):
            each = [
                {part: evaluated(formulas[f"element {part}"], {"x": np.float64(it)}) for part in parts}
                for it in numbers
            ]
            forward, backward = nothing, nothing
            for element in each:
                forward, backward = joined(formulas, forward, element), joined(formulas, element, backward)
            halves = joined(formulas, joined(formulas, forward, nothing), joined(formulas, nothing, backward))
            actual = np.ravel([combined(formulas, it) for it in (forward, backward, halves)])
            expected = [OF_STATES[name](np.array(numbers * times)) for times in (1, 1, 2)]
            np.testing.assert_allclose(actual, expected, rtol=1e-12)

    check_state(formulas)
    escaped = [
        f"{key}: {text_of(mutant)}"
        for key, node in formulas.items()
        for mutant in mutants(node)
        if not caught(lambda key=key, mutant=mutant: check_state({**formulas, key: mutant}))  # type: ignore[misc]
    ]
    assert {*escaped} <= NO_DIFFERENCE


@pytest.mark.parametrize("name", MOVES)
def test_each_mutation_of_a_move_is_caught(name: str) -> None:
    from opgen.scopes import derivatives

    (functor,) = (
        functor for kind in own_spec.read().functors.values() for functor in kind.functors if functor.name == name
    )
    g, x, y = np.array([3.0, -2.0, 0.5, 7.0]), np.array([1.5, -4.0, 2.0, 0.25]), np.array([-1.0, 5.0, 6.0, -0.5])
    condition = np.array([1, 0, 2, 0])
    known = {"g": g, "x": x, "condition": condition, "on_true": x, "on_false": y}
    expected = {"x": g, "on_true": [3.0, 0, 0.5, 0], "on_false": [0, -2.0, 0, 7.0]}

    def check_against(expected: Sequence[float]) -> Callable[[Node], None]:
        return lambda node: np.testing.assert_array_equal(evaluated(node, known), expected)

    assert functor.formula is not None
    moved = [1.5, 5.0, 2.0, -0.5] if functor.condition is not None else x.tolist()
    assert_each_mutation_is_caught(functor.formula.node, check_against(moved))
    for operand, node in derivatives(own_spec.read(), functor).items():
        assert_each_mutation_is_caught(node, check_against(expected[operand]))


# Of an element `x` and a reduction of all of them.
ELEMENTS = ["(x - R) * x", "R", "square(x) * R - x", "where(x > R, x * R, x)", "exp(-(R * R)) * x", "x / (1 + R * R)"]


@pytest.mark.parametrize("finish", [None, "x / count", "sqrt(x * x + count)"])
@pytest.mark.parametrize("name", JOINED)
def test_a_sum_is_differentiated_through_a_reduction_that_its_elements_have(name: str, finish: str | None) -> None:
    from dataclasses import replace

    from opgen.formula.formula import Formula
    from opgen.formula.nodes import FormulaError
    from opgen.formula.parsing import parse
    from opgen.scopes import derivatives

    full = own_spec.read()
    functor = next(it for it in full.functors["reduce"].functors if it.name == ("mean" if name == "sum" else "sum"))
    x, step = np.array([0.5, -1.25, 2.0, 3.5]), 1e-6
    for text in ELEMENTS:
        formula = Formula(parse(text.replace("R", f"{name}(x)")), functor.location)
        end = None if finish is None else Formula(parse(finish), functor.location)
        changed = replace(functor, reduction=replace(functor.reduction, element=formula, finish=end, state="spreads"))

        def value(x: Array, formula: Formula = formula, end: Formula | None = end) -> Any:
            total = np.broadcast_to(evaluated(formula.node, {"x": x}), x.shape).sum()
            return total if end is None else evaluated(end.node, {"x": total, "count": x.size})

        try:
            node = derivatives(full, changed)["x"]
        except FormulaError as error:
            # The slope of such an end needs the sum itself, which no gradient has.
            assert finish == "sqrt(x * x + count)", error
            continue
        known = {"g": 3.0, "x": x, "count": x.size, "result": value(x)}
        actual = np.broadcast_to(evaluated(node, known), x.shape)
        moves = step * np.eye(x.size)
        slopes = [(value(x + move) - value(x - move)) / (2 * step) for move in moves]
        np.testing.assert_allclose(actual, 3 * np.array(slopes), rtol=1e-6, atol=1e-8, err_msg=text)
