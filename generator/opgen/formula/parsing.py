"""Formulas from text, in the grammar of Python."""

import ast
from collections.abc import Mapping
from functools import cache
from typing import Final

from opgen.expression import ExpressionError, parse_expression
from opgen.formula.nodes import (
    IMAGINARY,
    INCOMING,
    NEGATE,
    OPERATOR_OF,
    OPERATORS,
    Call,
    FormulaError,
    Name,
    Node,
    Number,
)
from opgen.loader import is_representable
from opgen.rewriting import corrected, rewritten

SIGN_OF: Final[Mapping[type[ast.AST], str]] = {
    kind: text.replace("x", "").replace("y", "").strip() for kind, text in OPERATOR_OF.items()
}


# As much of a text that is no formula its message quotes.
_MAX_SHOWN = 80


def parse(text: str) -> Node:
    """The formula that `text` is.

    Raises FormulaError where it is none.
    """
    if not text.strip():
        raise FormulaError("nothing is written; write it like 'x * sigmoid(x)'", 0)
    try:
        tree = parse_expression(text.strip())
    except ExpressionError as error:
        fix = suggestion(corrected(text), "write it like 'x * sigmoid(x)'")
        raise FormulaError(f"'{_shortened(text)}' is no formula ({error}); {fix}", error.offset) from None
    return _node(tree)


def _node(tree: ast.expr) -> Node:
    offset = tree.col_offset
    match tree:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and is_representable(value):
            return Number(value, offset)
        case ast.Constant(value=1j):
            return Name(IMAGINARY, offset)
        case ast.Name(id=name):
            return Name(name, offset)
        case ast.Attribute(value=ast.Name(id=name), attr=part):
            return Name(f"{name}.{part}", offset)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return Call(name, tuple(map(_node, arguments)), offset)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Call(NEGATE, (_node(operand),), offset)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATOR_OF:
            return Call(OPERATOR_OF[type(operator)], (_node(left), _node(right)), offset)
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in OPERATOR_OF:
            return Call(OPERATOR_OF[type(operator)], (_node(left), _node(right)), offset)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            raise FormulaError("a number is beyond the largest double; write a smaller one, or inf", offset)
    signs = ", ".join(dict.fromkeys(SIGN_OF.values()))
    fix = suggestion(rewritten(tree), f"write names, numbers, primitives and {signs}")
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitXor):
        fix += ", or bitwise_xor(x, y) for bits"
    raise FormulaError(f"'{_shortened(ast.unparse(tree))}' cannot stand; {fix}", offset)


def suggestion(formula: str | None, otherwise: str) -> str:
    """How to write a formula, where `formula` is one."""
    if formula is None or len(formula) > _MAX_SHOWN:
        return otherwise
    try:
        _node(parse_expression(formula))
    except (ExpressionError, FormulaError):
        return otherwise
    return f"write {formula}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


@cache
def pattern(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The name and the parameters of a primitive that is written as `exp(x)` or `x + y`; None where `text` is none."""
    try:
        node = parse(text)
    except FormulaError:
        return None
    if not isinstance(node, Call):
        return None
    names = [argument.text for argument in node.arguments if isinstance(argument, Name)]
    if len(names) < len(node.arguments) or len({*names}) < len(names) or INCOMING in names:
        return None
    return (node.primitive, tuple(names)) if node.primitive in OPERATORS or "(" in text else None
