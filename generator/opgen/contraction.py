"""Contraction of products and sums of row formulas: on GPUs one instruction multiplies and adds, and rounds once."""

from collections.abc import Iterator
from typing import Final

from opgen.formula.nodes import ADD, MULTIPLY, NEGATE, SUBTRACT, Call, Node, Number

MULTIPLY_ADD: Final = "multiply_add"
"""A primitive that the spec may have."""
SQUARE: Final = "square"
"""Another one, a product of two equal factors."""


def contracted(node: Node) -> Node:
    """Return a formula in which sums take products by `multiply_add`, after the terms that are no products."""
    if not isinstance(node, Call):
        return node
    if node.primitive not in (ADD, SUBTRACT):
        return Call(node.primitive, tuple(map(contracted, node.arguments)), node.offset)
    terms = [(is_negative, contracted(term)) for is_negative, term in _terms(node, is_negative=False)]
    products = [term for term in terms if factors_of(term[1])]
    if not products:
        return Call(node.primitive, tuple(map(contracted, node.arguments)), node.offset)
    # Sums begin with a term that is not negated, if there is one.
    others = sorted([term for term in terms if not factors_of(term[1])] or [products.pop()], key=lambda term: term[0])
    is_negative, total = others[0]
    total = _negated(total) if is_negative else total
    for is_negative, term in others[1:]:
        total = Call(SUBTRACT if is_negative else ADD, (total, term), node.offset)
    for is_negative, product in reversed(products):
        x, y = factors_of(product)
        total = Call(MULTIPLY_ADD, (_negated(x) if is_negative else x, y, total), node.offset)
    return total


def factors_of(node: Node) -> tuple[Node, ...]:
    """Return the factors of a product, and none of another formula."""
    if not isinstance(node, Call):
        return ()
    return {MULTIPLY: node.arguments, SQUARE: 2 * node.arguments}.get(node.primitive, ())


def _terms(node: Node, *, is_negative: bool) -> Iterator[tuple[bool, Node]]:
    """The terms of a sum, and whether each is subtracted."""
    if isinstance(node, Call) and node.primitive in (ADD, SUBTRACT):
        first, second = node.arguments
        yield from _terms(first, is_negative=is_negative)
        yield from _terms(second, is_negative=is_negative != (node.primitive == SUBTRACT))
    else:
        yield is_negative, node


def _negated(node: Node) -> Node:
    match node:
        case Number(value=value):
            return Number(-value, node.offset)
        case Call(primitive="-x", arguments=(x,)):
            return x
        case _:
            return Call(NEGATE, (node,))
