"""Expressions of Python's grammar, as formulas, checks, edges, spellings and decoders write them."""

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opgen.cache.memo import memoize

MAX_NESTED: Final = 50
"""How deep an expression may be nested: its second gradient is several times as deep, and Python's stack is finite."""
_TOO_DEEP = f"it nests or chains more than {MAX_NESTED} operations"


class ExpressionError(ValueError):
    """Why a text is no expression, and where in it."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.offset = offset


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of an expression.

    Raises ExpressionError where `text` is none, or is nested deeper than `MAX_NESTED`.
    """
    tree = _parsed(text, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def parse_statements(text: str) -> ast.Module:
    """The syntax tree of statements.

    Raises ExpressionError as `parse_expression` does.
    """
    tree = _parsed(text, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def _parsed(text: str, mode: str) -> ast.AST:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            tree = ast.parse(text, mode=mode)
    except SyntaxError as error:
        raise ExpressionError(error.msg, max((error.offset or 1) - 1, 0)) from None
    except (RecursionError, MemoryError):
        raise ExpressionError(_TOO_DEEP) from None
    except ValueError as error:
        raise ExpressionError(str(error)) from None
    # Level by level: recursion is what a deep tree must not meet.
    level: list[ast.AST] = [tree]
    for _ in range(MAX_NESTED + 2):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise ExpressionError(_TOO_DEEP)


@memoize(lambda expression: (expression,))
def outer_names(expression: str) -> Sequence[tuple[str, ...]]:
    """The names, with their attributes, that an expression of Python takes from its surroundings."""
    try:
        nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    except SyntaxError:
        return ()
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parts = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    names = (_dotted(node) for node in nodes if node not in parts)
    return [name for name in names if name and name[0] not in own]


def _dotted(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            base = _dotted(value)
            return (*base, name) if base else ()
    return ()


def substituted(tree: ast.expr, parts: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with others substituted for names."""
    if isinstance(tree, ast.Name):
        return parts.get(tree.id, tree)
    fields: dict[str, Any] = {}
    for name, value in ast.iter_fields(tree):
        items = value if isinstance(value, list) else [value]
        replaced = [substituted(item, parts) if isinstance(item, ast.expr) else item for item in items]
        fields[name] = replaced if isinstance(value, list) else replaced[0]
    return type(tree)(**fields)
