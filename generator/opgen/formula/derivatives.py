"""Derivatives of formulas by the chain rule."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from opgen.formula.nodes import (
    ADD,
    INCOMING,
    RESULT,
    SUBTRACT,
    WHERE,
    Call,
    FormulaError,
    Name,
    Node,
    Number,
    inlined,
    is_zero,
    names,
    size,
)
from opgen.formula.simplification import shared, simplified


class Differentiable(Protocol):
    """A primitive with gradients."""

    @property
    def name(self) -> str:
        """Its name in formulas."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its operands."""

    @property
    def condition(self) -> str | None:
        """The parameter that is a truth value."""

    @property
    def result(self) -> str | None:
        """`bool` if it gives truth values."""

    def gradient_of(self, operand: str) -> Node | None:
        """Return the gradient of an operand; None where it has none."""


def gradients(node: Node, wanted: Collection[str], primitives: Mapping[str, Differentiable]) -> dict[str, Node]:
    """The gradients of what a formula names, of the gradient `g` of its result: by the chain rule, simplified.

    What the formula has more than once is differentiated once, of the sum of the gradients that it has there. Raises
    FormulaError for a primitive that has no gradient of an operand that depends on one of them.
    """
    parts, body = shared(node)
    totals: dict[str, Node] = dict.fromkeys(wanted, Number(0))
    for name, part in parts.items():
        if {*names(part)} & totals.keys():
            totals[name] = Number(0)

    def visit(node: Node, incoming: Node) -> None:
        if isinstance(node, Name) and node.text in totals:
            totals[node.text] = simplified(Call(ADD, (totals[node.text], incoming)))
        if not isinstance(node, Call) or not {*names(node)} & totals.keys():
            return
        primitive = primitives[node.primitive]
        arguments: dict[str, Node] = dict(zip(primitive.parameters, node.arguments, strict=True))
        for parameter, argument in arguments.items():
            # Of a truth value nothing is differentiable.
            if parameter == primitive.condition or primitive.result == "bool" or not {*names(argument)} & totals.keys():
                continue
            partial = primitive.gradient_of(parameter)
            if partial is None:
                message = f"'{primitive.name}' has no gradient of '{parameter}'; write 'gradient' to the op"
                raise FormulaError(message, node.offset)
            visit(argument, simplified(_by_cases(incoming, partial, arguments)))

    visit(body, Name(INCOMING))
    for name, part in reversed(parts.items()):
        if not is_zero(totals.get(name, Number(0))):
            visit(part, totals[name])
    bodies: dict[str, Node] = {}
    for name, part in parts.items():
        bodies[name] = inlined(part, bodies)
    return {name: inlined(totals[name], bodies) for name in wanted}


def _by_cases(incoming: Node, partial: Node, arguments: Mapping[str, Node]) -> Node:
    """The gradient of an operand, of that of the result: `partial` of each case in which `incoming` is not 0.

    A gradient is linear in that of the result, but 0 times an infinite slope would be NaN: a case that was not chosen
    must not reach a product.
    """
    terms = list(_terms(incoming))
    # In the cases of several terms their sum is what is passed on.
    gradient = inlined(partial, {**arguments, INCOMING: incoming})
    if not all(map(_has_zero, terms)):
        return gradient
    if len(terms) == 1:
        return _mapped(incoming, lambda case: inlined(partial, {**arguments, INCOMING: case}), Number(0))
    total: Node = Number(0)
    for term in reversed(terms):
        total = _mapped(term, lambda _: gradient, total)
    return total


def _terms(node: Node) -> Iterator[Node]:
    """The terms of a sum, whatever their signs."""
    if isinstance(node, Call) and node.primitive in (ADD, SUBTRACT):
        for argument in node.arguments:
            yield from _terms(argument)
    else:
        yield node


def _has_zero(node: Node) -> bool:
    """Whether a formula is chosen by cases, in one of which it is 0."""
    if not isinstance(node, Call) or node.primitive != WHERE:
        return node == Number(0)
    return any(map(_has_zero, node.arguments[1:]))


def _mapped(node: Node, of_case: Callable[[Node], Node], zero: Node) -> Node:
    """Something of each case of a formula, and `zero` in those in which it is 0."""
    if node == Number(0):
        return zero
    if isinstance(node, Call) and node.primitive == WHERE:
        condition, *cases = node.arguments
        return Call(WHERE, (condition, *(_mapped(case, of_case, zero) for case in cases)))
    return of_case(node)


def with_result(gradient: Node, formula: Node) -> Node:
    """A gradient over the result of a formula, where that spares it the operands; otherwise the gradient itself."""
    shorter = _replaced(gradient, formula, Name(RESULT))
    return shorter if len(names(shorter)) < len({*names(gradient), RESULT}) else gradient


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old and not isinstance(old, Name):
        return new
    if isinstance(node, Call) and node.size > size(old):
        arguments = tuple(_replaced(argument, old, new) for argument in node.arguments)
        return Call(node.primitive, arguments, node.offset)
    return node
