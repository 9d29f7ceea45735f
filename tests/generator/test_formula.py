"""Formulas: what is one, how languages have it, and that a gradient is what the formula's differences say."""

import ast
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import own_spec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from opgen.formula.derivatives import gradients
from opgen.formula.kinds import kind_of
from opgen.formula.lowering import lowered
from opgen.formula.nodes import (
    ADD,
    DIVIDE,
    MULTIPLY,
    NEGATE,
    SUBTRACT,
    WHERE,
    Call,
    FormulaError,
    Kind,
    Name,
    Node,
    Number,
    names,
)
from opgen.formula.parsing import parse, pattern
from opgen.formula.primitives import Primitives
from opgen.formula.printing import printed, text_of
from opgen.formula.simplification import shared, simplified
from tallow.cpu_backend import library
from tallow.dtype import DType
from tallow.runtime.numerics.numerics import Numerics

FLOATS: Mapping[str, Kind] = {"x": "float", "y": "float", "g": "float"}
STEP = 1e-6


def primitives() -> Primitives:
    return own_spec.read().primitives


def value(node: Node, **numbers: float) -> float:
    """What a formula comes to, as array libraries compute it in f64."""
    arrays = {name: np.array([number]) for name, number in numbers.items()}
    kinds: dict[str, Kind] = dict.fromkeys(numbers, "float")
    text = lowered(node, "array", kinds, primitives(), lambda text: f"np.array([{text}])")
    scope: dict[str, Any] = {"np": library, "numerics": Numerics(library), "dtype": DType.F64, **arrays}
    scope |= {"inf": math.inf, "nan": math.nan}
    with np.errstate(all="ignore"):
        return float(np.asarray(eval(text.replace("np.array", "array"), {**scope, "array": np.array})).ravel()[0])


numbers = st.sampled_from([0, 1, 2, 3, 0.5]).map(Number)
leaves = st.one_of(st.sampled_from([Name("x"), Name("y")]), numbers)


def combined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    arithmetic = st.builds(
        lambda primitive, x, y: Call(primitive, (x, y)),
        st.sampled_from([ADD, SUBTRACT, MULTIPLY, DIVIDE]),
        inner,
        inner,
    )
    unary = st.builds(
        lambda primitive, x: Call(primitive, (x,)), st.sampled_from([NEGATE, "sin", "exp", "tanh"]), inner
    )
    choice = st.builds(lambda c, x, y: Call(WHERE, (Call("x > y", (c, Number(1))), x, y)), inner, inner, inner)
    return st.one_of(arithmetic, unary, choice)


formulas = st.recursive(leaves, combined, max_leaves=8)


@given(formulas)
def test_a_formula_is_read_as_it_is_written(node: Node) -> None:
    assert parse(text_of(node)) == node


@given(formulas)
def test_signs_and_brackets_in_kernels_mean_what_they_mean_in_python(node: Node) -> None:
    """But for a choice, the text for kernels is one of Python too."""
    assume("where" not in text_of(node))
    kernel = printed(ast.parse(text_of(node), mode="eval").body)
    assert parse(kernel.replace("--", "- -")) == node


@given(formulas, st.floats(0.1, 3), st.floats(0.1, 3))
def test_what_is_simplified_or_named_comes_to_the_same(node: Node, x: float, y: float) -> None:
    expected = value(node, x=x, y=y)
    assume(math.isfinite(expected))
    assert value(simplified(node), x=x, y=y) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    parts, full = shared(node)
    for name, part in reversed(parts.items()):
        full = inlined_name(full, name, part)
    assert full == node


def inlined_name(node: Node, name: str, part: Node) -> Node:
    if node == Name(name):
        return part
    if isinstance(node, Call):
        return Call(node.primitive, tuple(inlined_name(it, name, part) for it in node.arguments))
    return node


@given(formulas, st.floats(0.2, 2), st.floats(0.2, 2))
def test_gradients_of_random_formulas_are_their_differences(node: Node, x: float, y: float) -> None:
    result = gradients(node, ["x", "y"], primitives())
    for name, gradient in result.items():
        at = {"x": x, "y": y}
        above, below = (value(node, **{**at, name: at[name] + step}) for step in (STEP, -STEP))
        middle = value(node, **at)
        assume(all(map(math.isfinite, (above, below, middle))) and abs(middle) < 1e3)
        slope = (above - below) / (2 * STEP)
        # At an edge of a choice there is no slope.
        assume(abs((above - middle) - (middle - below)) / STEP < 1e-3 * max(1.0, abs(slope)))
        assert value(gradient, **at, g=2.0) == pytest.approx(2 * slope, rel=1e-4, abs=1e-5)


POINTS = (-30.0, -3.7, -1.3, -0.25, 0.3, 0.55, 0.9, 1.7, 2.6, 4.2, 30.0)


@pytest.mark.parametrize("name", [name for name, it in primitives().items() if it.gradient])
def test_gradients_of_primitives_are_their_differences(name: str) -> None:
    primitive = primitives()[name]
    tried = 0
    for i in range(len(POINTS)):
        # No two are the same, and no quotient of two is an integer.
        at = {it: POINTS[(i + 3 * k) % len(POINTS)] * 1.013**k for k, it in enumerate(primitive.parameters)}
        condition: list[Node] = [Call("x > y", (Name(primitive.parameters[-1]), Number(0)))]
        arguments = [Name(it) if it != primitive.condition else condition[0] for it in primitive.parameters]
        node = Call(name, tuple(arguments))
        for operand in primitive.gradient:
            gradient = gradients(node, [operand], primitives())[operand]
            step = STEP * max(1.0, abs(at[operand]))
            above, below = (value(node, **{**at, operand: at[operand] + it}) for it in (step, -step))
            middle = value(node, **at)
            # `grow` has an exponent that leaves no room for exact differences of other functions.
            if not all(map(math.isfinite, (above, below, middle))) or (abs(above) > 1e6 and name != "grow"):
                continue
            # At a step there is no slope.
            if abs(above - 2 * middle + below) > 1e-3 * max(step, abs(above - below)):
                continue
            tried += 1
            slope = (above - below) / (2 * step)
            assert value(gradient, **at, g=3.0) == pytest.approx(3 * slope, rel=1e-4, abs=1e-5), (operand, at)
    assert tried >= 4


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        *[
            (name, x, 0.0)
            for name in ("gelu", "gelu_erf", "silu", "mish", "softplus", "sigmoid")
            for x in (-1e30, -math.inf)
        ],
        *[(name, x, 1.0) for name in ("gelu", "gelu_erf", "silu", "mish", "softplus") for x in (1e30, math.inf)],
        ("sigmoid", math.inf, 0.0),
        ("tanh", 40.0, 4 * math.exp(-80.0)),
        ("tanh", -math.inf, 0.0),
        ("gelu_erf", 0.0, 0.5),
        ("gelu", 0.0, 0.5),
        ("relu", 0.0, 0.0),
        ("abs", 0.0, 0.0),
        ("hardswish", 3.0, 1.0),
        ("hardswish", -3.0, 0.0),
    ],
)
def test_gradients_at_the_edges(name: str, at: float, expected: float) -> None:
    gradient = gradients(Call(name, (Name("x"),)), ["x"], primitives())["x"]
    assert value(gradient, x=at, g=1.0) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("text", "derived"),
    [
        ("x * y", {"x": "g * y", "y": "g * x"}),
        ("x * x", {"x": "2 * (g * x)"}),
        ("x - -x", {"x": "2 * g"}),
        ("where(x > 0, x, y * x)", {"x": "where(x > 0, g, g * y)"}),
        ("exp(-x)", {"x": "-(g * exp(-x))"}),
        ("floor(x) + 1", {"x": "0"}),
        ("sqrt(x) / 1", {"x": "g / (2 * sqrt(x))"}),
    ],
)
def test_derived_gradients_are_short(text: str, derived: Mapping[str, str]) -> None:
    result = gradients(parse(text), derived, primitives())
    assert {name: text_of(node) for name, node in result.items()} == derived


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("x + z", 4, "unknown name 'z'"),
        ("x * sigmiod(x)", 4, "unknown primitive 'sigmiod'; did you mean 'sigmoid'?"),
        ("exp(x, y)", 0, "write exp(x)"),
        ("x + (y > 0)", 5, "has no truth values"),
        ("where(x, 1, 0)", 6, "must be a comparison"),
    ],
)
def test_an_error_has_its_place(text: str, offset: int, message: str) -> None:
    with pytest.raises(
        FormulaError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
    ) as caught:
        kind_of(parse(text), {"x": "float", "y": "float"}, primitives())
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "text", ["x +", "x if y else z", "x < y < z", "[x]", "x ** 2", "f(x, k=1)", "x.y.z", "", "not x"]
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(FormulaError, match="; "):
        parse(text)


def test_integers_and_floats_have_implementations_of_their_own() -> None:
    node = parse("where(c != 0, x / y, floor(x))")
    both: list[Mapping[str, Kind]] = [{"c": "integer", "x": kind, "y": kind} for kind in ("integer", "float")]
    assert [lowered(node, "kernel", kinds, primitives()) for kinds in both] == [
        "c != 0 ? divide_integers(x, y) : x",
        "c != 0 ? x / y : floor(x)",
    ]
    literal = "maximum(x, 0.5) + inf"
    text = lowered(parse(literal), "kernel", FLOATS, primitives(), lambda text: f"T({text})")
    assert text == "maximum(x, T(0.5)) + T(inf)"
    assert names(parse(literal)) == ("x",)
    assert pattern("exp(x)") == ("exp", ("x",))
    assert pattern("x + y") == (ADD, ("x", "y"))
    assert pattern("exp(x, x)") is pattern("x") is pattern("f(g)") is None


def test_a_number_that_only_u64_has_is_unsigned_in_cpp() -> None:
    kinds: Mapping[str, Any] = {"x": "integer"}
    node = parse("minimum(x, 18446744073709551615) + 9223372036854775807")
    assert lowered(node, "kernel", kinds, primitives(), "static_cast<T>({})".format) == (
        "wrapping_add(minimum(x, static_cast<T>(18446744073709551615u)), static_cast<T>(9223372036854775807))"
    )
    assert "18446744073709551615)" in lowered(node, "array", kinds, primitives())
