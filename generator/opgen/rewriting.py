"""Corrections of formulas in the notation of Python, C++ or array libraries: `pow(x, 2)` for `x ** 2` or `x.pow(2)`."""

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from typing import Final

from opgen.aliases import LIBRARIES, constant, primitive_name
from opgen.expression import ExpressionError, parse_expression, substituted

_FUNCTIONS: Final[Mapping[type[ast.AST], str]] = {
    ast.Pow: "pow",
    ast.BitXor: "pow",  # as in mathematics; the message names that of bits too
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
# Functions of libraries and builtins that a formula writes with operators, or as several calls.
_EXPRESSIONS: Final[Mapping[str, str]] = {
    "add": "x + y",
    "subtract": "x - y",
    "sub": "x - y",
    "multiply": "x * y",
    "mul": "x * y",
    "divide": "x / y",
    "true_divide": "x / y",
    "div": "x / y",
    "negative": "-x",
    "neg": "-x",
    "positive": "x",
    "reciprocal": "1 / x",
    "equal": "x == y",
    "eq": "x == y",
    "not_equal": "x != y",
    "ne": "x != y",
    "less": "x < y",
    "lt": "x < y",
    "less_equal": "x <= y",
    "le": "x <= y",
    "greater": "x > y",
    "gt": "x > y",
    "greater_equal": "x >= y",
    "ge": "x >= y",
    "logical_and": "where(x != 0, where(y != 0, 1, 0), 0) != 0",
    "logical_or": "where(x != 0, 1, where(y != 0, 1, 0)) != 0",
    "logical_not": "x == 0",
    "clip": "minimum(maximum(x, y), z)",
    "clamp": "minimum(maximum(x, y), z)",
    "float": "x",
    "int": "trunc(x)",
    "bool": "x != 0",
    "isfinite": "abs(x) < inf",
    "cbrt": "copysign(pow(abs(x), 0.3333333333333333), x)",
}
_IGNORED_KEYWORDS: Final = (None, "out", "dtype", "axis", "dim", "inplace", "name")
_OPERANDS: Final = ("x", "y", "z")
# What is no Python, and what to write instead: each is tried where the text does not parse.
_SPELLINGS: Final[Sequence[tuple[str, str]]] = (
    (r"^\s*return\b|;\s*$", ""),
    (r"\b\w+::", ""),
    (r"[\u201c\u201d\u2018\u2019\"`]", ""),
    (r"[\u00a0\u2000-\u200b\u3000\ufeff]", " "),
    ("[\u2212\u2013\u2014]", "-"),
    ("[\u00d7\u00b7\u22c5]", "*"),
    ("\u00f7", "/"),
    ("\u2264", "<="),
    ("\u2265", ">="),
    ("\u2260|<>", "!="),
    ("\u00b2", " ** 2"),
    ("\u00b3", " ** 3"),
    ("\u221e", "inf"),
    (r"&&", " and "),
    (r"\|\|", " or "),
    (r"!(?!=)", " not "),
    (r"^([^?]*)\?(.*):(.*)$", r"(\2) if (\1) else (\3)"),
    (r"(?<![<>=!:])=(?!=)", "=="),
    (r"(?<![\w.])(\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)[fFlL]\b", r"\1"),
    (r"(?<![\w.])(?!0[xXoObB])(\d+(?:\.\d*)?)(?=[A-DF-Za-df-z_(])", r"\1 * "),
    (r"^\s*(\w+) +(\w+)\s*$", r"\1(\2)"),
)


def rewritten(tree: ast.expr) -> str | None:
    """An expression in the words of formulas; None where nothing in it has another word."""
    after = ast.unparse(_Rewriter().visit(copy.deepcopy(tree)))
    return after if after != ast.unparse(tree) else None


def corrected(text: str) -> str | None:
    """A text that is no expression as a formula; None where it is not known what it means."""
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text).strip()
        if (tree := _parsed(text)) is not None:
            return rewritten(tree) or ast.unparse(tree)
    opened = text.count("(") - text.count(")")
    balanced = text + ")" * opened if opened > 0 else text[: len(text) + opened]
    if opened and (tree := _parsed(balanced)) is not None:
        return rewritten(tree) or ast.unparse(tree)
    return None


def _parsed(text: str) -> ast.expr | None:
    try:
        return parse_expression(text)
    except ExpressionError:
        return None


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])


def _choice(test: ast.expr, body: ast.expr, other: ast.expr) -> ast.expr:
    """`body` where `test` holds and `other` elsewhere: conditions are single comparisons."""
    match test:
        case ast.BoolOp(op=ast.And(), values=[first, *others]) if others:
            return _choice(first, _choice(ast.BoolOp(ast.And(), others), body, other), other)
        case ast.BoolOp(op=ast.Or(), values=[first, *others]) if others:
            return _choice(first, body, _choice(ast.BoolOp(ast.Or(), others), body, other))
        case ast.BoolOp(values=[only]):
            return _choice(only, body, other)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _choice(operand, other, body)
        case ast.Compare(left=left, ops=[first_sign, second_sign, *signs], comparators=[middle, *others]):
            comparison = ast.Compare(middle, [second_sign, *signs], others)
            return _choice(ast.Compare(left, [first_sign], [middle]), _choice(comparison, body, other), other)
        case ast.Compare() | ast.Call():
            return _call("where", test, body, other)
    return _call("where", ast.Compare(test, [ast.NotEq()], [ast.Constant(0)]), body, other)


def _truth(test: ast.expr) -> ast.expr:
    """A condition of several comparisons as one."""
    chosen = _choice(test, ast.Constant(1), ast.Constant(0))
    return ast.Compare(chosen, [ast.NotEq()], [ast.Constant(0)])


class _Rewriter(ast.NodeTransformer):
    """Writes what formulas have no syntax for as what they have, from the inside out."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        # Its condition may become several choices.
        test = self._inner(node.test)
        return _choice(test, self.visit(node.body), self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return _truth(self._inner(node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return _truth(self._inner(node))
        operand = self.visit(node.operand)
        match node.op:
            case ast.UAdd():
                return operand  # type: ignore[no-any-return]
            case ast.Invert():
                return _call("bitwise_invert", operand)
        return ast.UnaryOp(node.op, operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        inner = self._inner(node)
        return _truth(inner) if len(node.ops) > 1 else inner

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        name = _FUNCTIONS.get(type(node.op))
        return _call(name, left, right) if name is not None else ast.BinOp(left, node.op, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        keywords = [keyword.value for keyword in node.keywords if keyword.arg not in _IGNORED_KEYWORDS]
        arguments = [self.visit(argument) for argument in (*node.args, *keywords)]
        match node.func:
            case ast.Attribute(value=owner, attr=name):
                arguments = arguments if _is_library(owner) else [self.visit(owner), *arguments]
                name = primitive_name(name)
            case ast.Name(id=name):
                pass
            case _:
                return node
        if name == "where" and len(arguments) == len(node.args) == len(_OPERANDS):
            return self.visit_IfExp(ast.IfExp(*node.args))
        text = _EXPRESSIONS.get(name)
        if text is not None and arguments:
            tree = parse_expression(text)
            wanted = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} & {*_OPERANDS}
            if len(wanted) == len(arguments):
                return substituted(tree, dict(zip(_OPERANDS, arguments, strict=False)))
        return _call(name, *arguments)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        number = constant(ast.unparse(node)) if _is_library(node.value) else None
        return parse_expression(number) if number is not None else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return self.visit(node.body)  # type: ignore[no-any-return]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(int(node.value)) if isinstance(node.value, bool) else node

    def _inner(self, node: ast.expr) -> ast.expr:
        """A condition whose comparisons are rewritten, and which is still one expression of and, or and not."""
        match node:
            case ast.BoolOp(op=op, values=values):
                return ast.BoolOp(op, [self._inner(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ast.UnaryOp(ast.Not(), self._inner(operand))
            case ast.Compare(left=left, ops=signs, comparators=others):
                plain = [_COMPARISONS[type(sign)]() if type(sign) in _COMPARISONS else sign for sign in signs]
                return ast.Compare(self.visit(left), plain, [self.visit(other) for other in others])
        return self.visit(node)  # type: ignore[no-any-return]


def _is_library(owner: ast.expr) -> bool:
    """Whether what stands before a dot is a module, such as `np` or `torch.nn.functional`."""
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id in LIBRARIES
