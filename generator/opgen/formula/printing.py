"""Formulas as text: as people write them, and as C++ and Python have them."""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from opgen.expression import substituted
from opgen.formula.nodes import OPERATORS, CachedOnCall, Call, FormulaError, Name, Node, Number
from opgen.formula.parsing import SIGN_OF

# As C++ and Python have them: what binds more closely is higher.
_PRECEDENCES: Final[Mapping[type[ast.AST], int]] = {
    **dict.fromkeys((ast.Lt, ast.LtE, ast.Gt, ast.GtE), 3),
    **dict.fromkeys((ast.Eq, ast.NotEq), 2),
    **dict.fromkeys((ast.Add, ast.Sub), 4),
    **dict.fromkeys((ast.Mult, ast.Div), 5),
    ast.USub: 6,
}
_CONDITIONAL, _ATOM = 1, 7


def tree_of(
    node: Node,
    called: Callable[[Call, list[ast.expr]], ast.expr],
    named: Callable[[str], ast.expr] = ast.Name,
    number: Callable[[int | float], ast.expr] = ast.Constant,
) -> ast.expr:
    """A formula as an expression of Python; `called` makes that of a primitive, of those of its operands."""
    match node:
        case Number(value=value):
            return number(value) if value >= 0 else ast.UnaryOp(ast.USub(), number(-value))
        case Name(text=text):
            return named(text)
    return called(node, [tree_of(argument, called, named, number) for argument in node.arguments])


def operated(operator: str, operands: list[ast.expr]) -> ast.expr:
    """An operator of operands."""
    return substituted(syntax(operator), dict(zip("xy", operands, strict=False)))


class Written(ast.Constant):
    """A number of a formula, and none of an implementation."""


@cache
def syntax(expression: str) -> ast.expr:
    """Return the syntax tree of an expression; it is shared, so do not change it."""
    return ast.parse(expression, mode="eval").body


def printed(tree: ast.expr, literal: Callable[[str], str] = str) -> str:
    """An expression as C++ has it, and Python where it has no choice; `literal` writes operands of functions."""
    return _printed(tree, literal, is_operand=False)[0]


def _printed(tree: ast.expr, literal: Callable[[str], str], *, is_operand: bool) -> tuple[str, int]:
    """An expression, and how closely its outermost operator binds."""

    def part(inner: ast.expr, least: int) -> str:
        text, precedence = _printed(inner, literal, is_operand=True)
        return text if precedence >= least else f"({text})"

    match tree:
        case ast.Name(id=name):
            return name, _ATOM
        case ast.Constant(value=value):
            # Operators give an integer the type of what it meets.
            is_plain = not isinstance(tree, Written) or (is_operand and isinstance(value, int))
            return repr(value) if is_plain else literal(repr(value)), _ATOM
        case ast.Call(func=function, args=arguments):
            inner = ", ".join(_printed(argument, literal, is_operand=False)[0] for argument in arguments)
            return f"{ast.unparse(function)}({inner})", _ATOM
        case ast.Tuple(elts=items):
            inner = ", ".join(_printed(item, literal, is_operand=False)[0] for item in items)
            return f"({inner})", _ATOM
        case ast.UnaryOp(op=operator, operand=operand):
            precedence = _PRECEDENCES[type(operator)]
            if isinstance(operand, Written) and not is_operand:
                # A negative argument is written as other numbers are.
                return f"{SIGN_OF[type(operator)]}{literal(repr(operand.value))}", precedence
            # Two signs in a row would be another operator.
            return f"{SIGN_OF[type(operator)]}{part(operand, precedence + 1)}", precedence
        case (
            ast.BinOp(left=left, op=operator, right=right) | ast.Compare(left=left, ops=[operator], comparators=[right])
        ):
            precedence = _PRECEDENCES[type(operator)]
            return f"{part(left, precedence)} {SIGN_OF[type(operator)]} {part(right, precedence + 1)}", precedence
        case ast.IfExp(test=test, body=body, orelse=other):
            branches = [_printed(branch, literal, is_operand=False) for branch in (body, other)]
            body_text, other_text = (
                text if precedence > _CONDITIONAL else f"({text})" for text, precedence in branches
            )
            return f"{part(test, _CONDITIONAL + 1)} ? {body_text} : {other_text}", _CONDITIONAL
    raise FormulaError(
        f"'{ast.unparse(tree)}' has no form in C++; write calls, arithmetic and comparisons",
        getattr(tree, "col_offset", 0),
    )


def text_of(node: Node) -> str:
    """Return a formula as a person writes it."""
    return _text_of_call(node) if isinstance(node, Call) else _text(node)


@CachedOnCall
def _text_of_call(call: Call) -> str:
    return _text(call)


def _text(node: Node) -> str:

    def called(call: Call, operands: list[ast.expr]) -> ast.expr:
        if call.primitive in OPERATORS:
            return operated(call.primitive, operands)
        return ast.Call(ast.Name(call.primitive), operands, [])

    return ast.unparse(tree_of(node, called))
