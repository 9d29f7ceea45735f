"""Row formulas: what they are rewritten to, their passes, their gradients, and what is refused of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import own_spec
import pytest
from opgen.claims import of_functor
from opgen.claims.context import Context
from opgen.formula.formula import Formula
from opgen.formula.nodes import FormulaError, Node, inlined
from opgen.formula.parsing import parse
from opgen.formula.printing import text_of
from opgen.model.functors import Functor
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.row_derivatives import row_gradients
from opgen.row_passes import passes_of
from opgen.row_values import share_values, stages_of
from opgen.rows import readable, reduced, row_constants, with_elements_at
from opgen.scopes import primitives_of_rows

SPEC = own_spec.read()
REDUCTIONS = {functor.name: functor for functor in SPEC.reductions}
SOFTMAX = {"e": "exp(x - detach(max(x)))"}
CENTRED = {"m": "mean(x)"}


def row(text: str, **let: str) -> Node:
    """A row formula over sums, maxima and minima."""
    known: dict[str, Node] = {}
    for name, part in let.items():
        known[name] = inlined(parse(part), known)
    return reduced(inlined(parse(text), known), REDUCTIONS)


def gradient(text: str, *operands: str, **let: str) -> dict[str, str]:
    names = operands or ("x",)
    result = row_gradients(row(text, **let), names, primitives_of_rows(SPEC), (*names, "position", "g"))
    return {name: text_of(readable(node)) for name, node in result.items()}


@pytest.mark.parametrize(
    ("text", "let", "expected"),
    [
        ("e / sum(e)", SOFTMAX, "(g - sum(g * result)) * result"),
        ("x - mean(x)", {}, "g - sum(g) / count"),
        ("x * position", {}, "g * position"),
        ("x / sum(x)", {}, "(g - sum(g * (x / sum(x)))) / sum(x)"),
        # Elements that are the maximum share its gradient.
        (
            "max(x)",
            {},
            "where(x == max(x), sum(g) / sum(where(x == max(x), 1, where(x != x, 1, 0))), "
            "where(x != x, sum(g) / sum(where(x == max(x), 1, where(x != x, 1, 0))), 0))",
        ),
        ("x - detach(max(x))", {}, "g"),
    ],
)
def test_a_gradient_follows_from_a_row_formula(text: str, let: dict[str, str], expected: str) -> None:
    assert gradient(text, **let) == {"x": expected}


def test_each_operand_has_its_gradient() -> None:
    result = gradient("x / sqrt(mean(x * x) + 1) * weight + bias", "x", "weight", "bias")
    assert result["bias"] == "g"
    assert result["weight"] == "g * (x / sqrt(sum(x * x) / count + 1))"
    assert "sum(g * weight" in result["x"]


@pytest.mark.parametrize(
    ("text", "let", "expected"),
    [
        ("e / sum(e)", SOFTMAX, [False, True]),
        ("x - log(sum(e * position / count))", SOFTMAX, [False, True]),
        # The sum is no multiple of e**-max(x).
        ("sum(e + 1)", SOFTMAX, [False, False]),
        ("sum(e * max(x))", SOFTMAX, [False, False]),
        ("sum(exp(x * max(x)))", {}, [False, False]),
        ("sum(exp(max(x) - x))", {}, [False, False]),
        ("sum(exp(x - min(x)))", {}, [False, False]),
        # The maximum shares its pass with a sum, or another number follows from it.
        ("sum(e) + sum(x)", SOFTMAX, [False, False]),
        ("sum(e) + sum(exp(x - 2 * max(x)))", SOFTMAX, [False, False]),
    ],
)
def test_sums_of_exponentials_are_rescaled_as_their_maximum_grows(
    text: str, let: dict[str, str], expected: list[bool]
) -> None:
    assert [*passes_of([row(text, **let)], ("x", "position")).rescaled] == expected


@pytest.mark.parametrize(
    ("text", "let", "expected"),
    [
        ("e / sum(e)", SOFTMAX, {"x": -math.inf}),
        ("x * rsqrt(mean(x * x))", {}, {"x": 0.0}),
        ("(y - sum(y * x)) * x", {}, {"x": 0.0, "y": 0.0}),
        ("x * position", {}, {"x": 0.0}),
        # Neither contributes 0 to the sum, whatever the others are.
        ("sum(square(x - m))", CENTRED, None),
        ("sum(position)", {}, None),
        ("sum(exp(x - y))", {}, None),
        ("min(x) + sum(x)", {}, None),
    ],
)
def test_rows_are_padded_with_what_contributes_nothing(
    text: str, let: dict[str, str], expected: dict[str, float] | None
) -> None:
    operands = ("x", "y") if "y" in text else ("x",)
    assert passes_of([row(text, **let)], (*operands, "position")).padding(operands) == expected


def test_reductions_that_do_not_depend_on_each_other_share_a_pass() -> None:
    node = row("(x - m) / sqrt(mean(square(x - m)) + sum(x) + max(x))", **CENTRED)
    actual = passes_of([node], ("x", "position"))
    assert [[join.kind for join in each.joins] for each in actual.passes] == [["row_sum", "row_max"], ["row_sum"]]
    # What all elements share is computed once a row.
    assert [len(each.constants) for each in actual.passes] == [1, 1]
    assert actual.known == ("join_1", "join_3", "constant_1", "join_2", "constant_2")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("e / sum(e)", {1: ["exp(x - join_1)"]}),
        # What is quick is computed again, and so is what one stage alone needs.
        ("(x - mean(x)) / sum(x)", {}),
        ("exp(x) + sum(x)", {}),
        # Without elements it is a number of the row.
        ("sum(x) * exp(sum(x)) + exp(sum(x))", {}),
        # The largest formula that stages share, and a part of it that another one has too.
        ("exp(log(x) * x) / sum(exp(log(x) * x)) + max(log(x))", {0: ["exp(log(x) * x)"]}),
        ("exp(log(x) - detach(max(x))) / sum(e) + max(log(x))", {0: ["log(x)"]}),
        ("log(x) * e / sum(log(x) * e) + max(log(x))", {0: ["log(x)"], 1: ["value_2 * exp(x - join_1)"]}),
    ],
)
def test_slow_values_of_elements_that_several_stages_need_are_named(text: str, values: dict[int, list[str]]) -> None:
    elements = ("x", "position")
    passes = passes_of([row(text, **SOFTMAX)], elements)
    stages = share_values(passes, elements, primitives_of_rows(SPEC))
    actual: dict[int, list[str]] = {}
    for value in stages.values:
        actual.setdefault(value.stage, []).append(text_of(value.node))
    assert actual == values
    # With the values instead of their names the formulas are what they were.
    back = {value.name: value.node for value in stages.values}
    full = [[_with(node, back) for node in nodes] for nodes in stages.nodes]
    assert full == [[*nodes] for nodes in stages_of(passes).nodes]


def _with(node: Node, values: dict[str, Node]) -> Node:
    for _ in values:
        node = inlined(node, values)
    return node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(x * x)", "2 * (g * x)"),
        ("log(sum(exp(x - detach(max(x)))))", "g / sum(exp(x - detach(max(x)))) * exp(x - detach(max(x)))"),
        ("sum(where(at, x, 0))", "where(at, g, 0)"),
        ("max(x) - mean(x)", "where(x == max(x), part, where(x != x, part, 0)) - g / count"),
    ],
)
def test_the_gradient_of_a_number_is_shared_by_its_row(text: str, expected: str) -> None:
    actual = row_gradients(row(text), ("x",), primitives_of_rows(SPEC), ("x", "at", "position"))
    ties = "g / sum(where(x == max(x), 1, where(x != x, 1, 0)))"
    assert text_of(readable(actual["x"])) == expected.replace("part", ties)


def test_a_gradient_reads_the_largest_numbers_of_the_row() -> None:
    node = row("g / sum(e) * e + log(sum(x)) * sum(g * x)", **SOFTMAX)
    actual = [text_of(readable(each)) for each in row_constants(node, ("x", "position"), ("g",))]
    assert actual == ["sum(exp(x - detach(max(x))))", "detach(max(x))", "log(sum(x))"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(where(at, x, 0))", "x_at_index"),
        ("sum(where(at, x - max(x), 0))", "x_at_index - max(x)"),
        # Sums that choose more than that element.
        ("sum(where(at, x, 1))", "sum(where(at, x, 1))"),
        ("sum(where(at, x * position, 0))", "sum(where(at, x * position, 0))"),
        ("where(at, x, 0)", "where(at, x, 0)"),
    ],
)
def test_sums_that_choose_the_element_at_the_index_are_that(text: str, expected: str) -> None:
    assert text_of(readable(with_elements_at(row(text), "at", ("x",)))) == expected


@pytest.mark.parametrize("name", ["prod", "argmax", "sum_i64"])
def test_other_reductions_are_refused(name: str) -> None:
    if name != "prod":  # these are no reductions of floats, and so no primitives of row formulas
        assert name not in primitives_of_rows(SPEC)
        return
    with pytest.raises(FormulaError, match="'prod' cannot stand in a row formula; write one of sum, "):
        row("x / prod(x)")


def changed(formula: str) -> tuple[Spec, Functor]:
    """The spec in which softmin has another formula."""
    kind = SPEC.functors["row"]
    functor = replace(
        kind.by_name["softmin"], parameters={}, let={}, written=Formula(parse(formula), Location(Path("row.yaml")))
    )
    others = tuple(functor if each.name == functor.name else each for each in kind.functors)
    return replace(SPEC, functors={**SPEC.functors, "row": replace(kind, functors=others)}), functor


@pytest.mark.parametrize("formula", ["x - detach(max(x))", "exp(x - detach(mean(x)))", "x / detach(sum(x))"])
def test_a_detached_value_whose_gradient_matters_is_found(formula: str) -> None:
    spec, functor = changed(formula)
    (problem,) = of_functor(Context(spec, spec.primitives), functor)
    assert "where differences give" in str(problem)
    assert "remove 'detach' from the formula" in str(problem)


def test_a_detached_value_at_the_index_is_found() -> None:
    kind = SPEC.functors["row"]
    text = "log(sum(exp_below_zero(x - detach(max(x))))) - sum(where(targets, detach(x) - detach(max(x)), 0))"
    functor = replace(kind.by_name["cross_entropy"], let={}, written=Formula(parse(text), Location(Path("row.yaml"))))
    assert not of_functor(Context(SPEC, SPEC.primitives), kind.by_name["cross_entropy"])
    (problem,) = of_functor(Context(SPEC, SPEC.primitives), functor)
    assert "the gradient of 'x' of op 'cross_entropy' is" in str(problem)


@pytest.mark.parametrize(
    "formula",
    [
        "exp(x - detach(max(x))) / sum(exp(x - detach(max(x))))",
        "x - max(x)",
        "square(relu(x)) / sum(square(relu(x)))",
        "(x - mean(x)) / sqrt(mean(square(x - mean(x))) + 0.001)",
        "x - logsumexp(x)",
        "x * position / count + min(x)",
    ],
)
def test_derived_gradients_are_the_slopes(formula: str) -> None:
    spec, functor = changed(formula)
    assert not of_functor(Context(spec, spec.primitives), functor)
