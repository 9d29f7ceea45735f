"""`opgen check` computes what the spec claims: each claim of the repository's spec, made false, is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import own_spec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from opgen.claims import of_functor, of_primitive
from opgen.claims.context import Context
from opgen.claims.slopes import gradient_problems
from opgen.formula.formula import Formula
from opgen.formula.nodes import INCOMING, Call, Name, Node, Number
from opgen.formula.primitives import Implementation, Primitive, Primitives
from opgen.model.functors import Functor
from opgen.model.reductions import BOUNDS, Monoid, Position
from opgen.model.spec import Spec
from opgen.monoids import UNIT, reads_unit

SPEC = own_spec.read()
# The claims of one kind that are tried, without --full.
SAMPLE = 12
NUMBERS = ("1", "0", "nan", "-inf", "5")
# What only tests know: complex numbers, and slopes at infinity.
BEYOND = {"implementation: array of angle", "gradient: g for the gradient of nan_to_num"}


@dataclass(frozen=True)
class Falsehood:
    """One claim of the spec, made false."""

    kind: str
    what: str
    of: Functor | Primitive

    def __str__(self) -> str:
        return f"{self.kind}: {self.what} of {self.of.name}"

    def problems(self) -> list[str]:
        of = self.of
        if isinstance(of, Primitive):
            primitives = Primitives({**SPEC.primitives, of.name: of})
            return [*map(str, of_primitive(Context(SPEC, primitives), of))]
        kinds = {
            name: replace(kind, functors=tuple(of if each.name == of.name else each for each in kind.functors))
            for name, kind in SPEC.functors.items()
        }
        spec: Spec = replace(SPEC, functors=kinds)
        return [*map(str, of_functor(Context(spec, spec.primitives), of))]


def too_wide(node: Node) -> Node:
    """A formula with a number in it that no dtype holds."""
    if isinstance(node, Number):
        return Number(1e300 if isinstance(node.value, float) else 2**64)
    return Call(node.primitive, tuple(map(too_wide, node.arguments))) if isinstance(node, Call) else node


def wrong_literals(functor: Functor) -> Iterator[Falsehood]:
    """Each number of an op's formulas, and one more of each formula, out of range."""
    monoid = functor.reduction
    for added in (False, True):

        def changed(formula: Formula, added: bool = added) -> Formula:
            wrong = Call("x + y", (formula.node, Number(2**64))) if added else too_wide(formula.node)
            return with_node(formula, wrong)

        changes = [
            *({"let": {**functor.let, name: changed(formula)}} for name, formula in functor.let.items()),
            *({"gradients": {**functor.gradients, name: changed(it)}} for name, it in functor.gradients.items()),
        ]
        if isinstance(monoid, Monoid):
            formulas = {key: getattr(monoid, key) for key in ("element", "combine", "finish")}
            changes += [
                {"reduction": replace(monoid, **{key: changed(it)})} for key, it in formulas.items() if it is not None
            ]
        elif monoid is None:
            changes.append({"written": changed(functor.written)})
        for change in changes:
            of = replace(functor, **change)
            if of != functor and not {*SPEC.resolve(functor.dtypes)} <= {*SPEC.groups["complex"]}:
                yield Falsehood("literal", next(iter(change)), of)


def with_node(formula: Formula, node: Node) -> Formula:
    return replace(formula, node=node)


def wrong_gradients(formula: Formula) -> Iterator[tuple[str, Formula]]:
    if formula.node != Number(0):
        yield "7 times the gradient", with_node(formula, Call("x * y", (Number(7), formula.node)))
        yield "the gradient's negative", with_node(formula, Call("-x", (formula.node,)))
        yield "the gradient times g", with_node(formula, Call("x * y", (Name(INCOMING), formula.node)))
        yield "0 for the gradient", with_node(formula, Number(0))
    yield "g for the gradient", with_node(formula, Name(INCOMING))


def falsehoods() -> Iterator[Falsehood]:
    for functor in SPEC.every_functor:
        if functor.is_gradient:
            continue
        for position, edge in enumerate(functor.edges):
            for value in (*NUMBERS, f"-({edge.value})"):
                if not same(value, edge.value):
                    edges = [*functor.edges]
                    edges[position] = replace(edge, value=value)
                    yield Falsehood("edge", f"{edge.call} is {value}", replace(functor, edges=tuple(edges)))
        for operand, formula in functor.gradients.items():
            for what, wrong in wrong_gradients(formula):
                if wrong.node != formula.node:
                    yield Falsehood("gradient", what, replace(functor, gradients={**functor.gradients, operand: wrong}))
        yield from wrong_literals(functor)
        monoid = functor.reduction
        # One of another op's is wrong there.
        if isinstance(monoid, Monoid) and not functor.borrows:
            yield from wrong_monoids(functor, monoid)
        if isinstance(monoid, Position):
            yield Falsehood("result", "a byte", replace(functor, result="u8"))
            yield Falsehood("result", "a float", replace(functor, result="f32"))
    for primitive in SPEC.primitives.values():
        # The slope of `shrink` is below every tolerance.
        for operand, formula in primitive.gradient.items() if primitive.name != "shrink" else ():
            for what, wrong in wrong_gradients(formula):
                if wrong.node != formula.node:
                    gradient = {**primitive.gradient, operand: wrong}
                    yield Falsehood(
                        "primitive's gradient", f"{what} of {operand}", replace(primitive, gradient=gradient)
                    )
        yield from wrong_implementations(primitive)


def wrong_monoids(functor: Functor, monoid: Monoid) -> Iterator[Falsehood]:
    # Of truth values the lowest is 0.
    is_of_truth = functor.result == "bool"
    for identity in ("0", "1") if is_of_truth else ("0", "1", "2", "-1", "highest", "lowest"):
        if identity != monoid.identity and not (monoid.state is not None and identity in BOUNDS):
            wrong = replace(monoid, identity=identity)
            yield Falsehood("identity", f"{identity} for {monoid.identity}", replace(functor, reduction=wrong))
    x, y = Name("x"), Name("y")
    for node in (Call("x - y", (x, y)), x, Call("x * y", (Number(2), Call("x + y", (x, y))))):
        wrong = replace(monoid, combine=with_node(monoid.combine, node))
        yield Falsehood("combine", "another one", replace(functor, reduction=wrong))
    if monoid.finish is not None and reads_unit(monoid):
        for word in ("x * y", "x / y"):
            finish = with_node(monoid.finish, Call(word, (monoid.finish.node, Name(UNIT))))
            yield Falsehood("finish", word, replace(functor, reduction=replace(monoid, finish=finish)))
    states = [state for kind in SPEC.functors.values() for state in kind.states]
    for state in states if monoid.state is not None else ():
        if state != monoid.state:
            yield Falsehood("state", state, replace(functor, reduction=replace(monoid, state=state)))
    if functor.result not in (None, "bool"):
        yield Falsehood("result", "a byte", replace(functor, result="u8"))
        yield Falsehood("result", "without a sign", replace(functor, result="u64"))


def wrong_implementations(primitive: Primitive) -> Iterator[Falsehood]:
    for key in ("array", "kernel"):
        written = getattr(primitive, key)
        if written is not None:
            x = primitive.parameters[-1]
            wrong = Implementation(written.integer, f"{x} * 3 + 1", written.location)
            if "float" in primitive.kinds:
                yield Falsehood("implementation", key, replace(primitive, **{key: wrong}))
    if primitive.formula is not None:
        wrong_formula = with_node(primitive.formula, Call("x * y", (Number(3), primitive.formula.node)))
        yield Falsehood("implementation", "formula", replace(primitive, formula=wrong_formula))


def same(one: str, other: str) -> bool:
    """Whether two values of edges are one number: NaN has no sign, and an integer 0 has none."""
    first, second = (text.replace("(", "").replace(")", "").removesuffix(".0") or text for text in (one, other))
    return (first == second and one != f"-({other})") or (other in ("nan", "0") and one == f"-({other})")


FALSEHOODS = [falsehood for falsehood in falsehoods() if str(falsehood) not in BEYOND]
KINDS = list(dict.fromkeys(falsehood.kind for falsehood in FALSEHOODS))


def test_what_the_spec_claims_is_true() -> None:
    context = Context(SPEC, SPEC.primitives)
    assert not [*(problem for functor in SPEC.every_functor for problem in of_functor(context, functor))]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_false_is_refused(kind: str, full: bool) -> None:
    tried = [falsehood for falsehood in FALSEHOODS if falsehood.kind == kind]
    if not full:
        tried = random.Random(0).sample(tried, min(SAMPLE, len(tried)))
    assert [str(each) for each in tried if not each.problems()] == []


PIECES = [
    primitive
    for primitive in SPEC.primitives.values()
    if primitive.condition is None
    and {*primitive.gradient} == {*primitive.parameters}
    and "float" in primitive.kinds
    # Its steps are those of rounding.
    and not primitive.of_dtype
]
LEAVES = st.one_of(
    st.sampled_from([Name("x"), Name("y")]), st.sampled_from([0.5, 2.0, 1.25, 3]).map(lambda value: Number(value))
)


def called(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.sampled_from(PIECES).flatmap(
        lambda primitive: st.tuples(*(inner for _ in primitive.parameters)).map(
            lambda arguments: Call(primitive.name, arguments)
        )
    )


@settings(deadline=None, max_examples=60, derandomize=True)
@given(node=st.recursive(LEAVES, called, max_leaves=4))
def test_a_gradient_that_is_derived_is_accepted(node: Node) -> None:
    """So that no right one is refused: where functions are steep, jump or end, differences say nothing."""
    functor = next(functor for functor in SPEC.every_functor if functor.name == "add")
    index = functor.location
    gradients = {name: Formula(actual, index) for name, actual in SPEC.primitives.gradients(node, ["x", "y"]).items()}
    # Longer formulas are refused.
    assume(all(gradient.with_parts({}) == gradient for gradient in gradients.values()))
    of = replace(functor, written=Formula(node, index), gradients=gradients)
    messages = [problem.message for problem in gradient_problems(Context(SPEC, SPEC.primitives), of)]
    # Infinity times 0: the chain rule has no better answer at the root of a square, and who writes a gradient does.
    assert not [message for message in messages if not re.search(r"is -?(nan|inf) ", message)]
