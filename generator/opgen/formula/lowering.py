"""Formulas in the languages in which primitives have implementations."""

import ast
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from opgen.expression import substituted
from opgen.formula.kinds import kind_of
from opgen.formula.nodes import BOTH, DIVIDE, LITERALS, Call, Kind, Node
from opgen.formula.primitives import Implementation, Language, Primitives, built_in
from opgen.formula.printing import Written, printed, syntax, tree_of
from opgen.problem import Location

DTYPE: Final = "dtype"
"""The name of the elements' dtype in functions of arrays."""
ELEMENT: Final = "Element"
"""The name of the elements' type in functions of kernels."""
_MAX_SIGNED: Final = 2**63 - 1


_LANGUAGE: Final = Location(Path())
_BOTH: Final = built_in(
    f"{BOTH}(x, y)",
    "two results",
    _LANGUAGE,
    kind="float",
    array=Implementation("(x, y)", "(x, y)", _LANGUAGE),
    complex="none",
    has_gradient=False,
)


def lowered(
    node: Node,
    language: Language,
    kinds: Mapping[str, Kind],
    primitives: Primitives,
    literal: Callable[[str], str] = str,
    fast_math: Collection[str] | None = None,
) -> str:
    """Return a formula in a language. `literal` writes a number that is an argument of a function.

    `fast_math` are the names that quick implementations of kernels take as they are, if there are any: what is computed
    of them is marked for these.
    """

    def implemented(call: Call, arguments: list[ast.expr]) -> ast.expr:
        primitive = primitives[call.primitive]
        of_operands = (kind_of(argument, kinds, primitives) for argument in call.arguments)
        operand = next((kind for kind in of_operands if kind not in (None, "bool")), "float")
        if primitive.fast_math and fast_math is not None and operand == "float":
            marked = ast.Name("fast_math<T>")
            arguments = [
                argument
                if isinstance(argument, ast.Name) and argument.id in fast_math
                else ast.Call(marked, [argument], [])
                for argument in arguments
            ]
        if language == "array" and operand == "float" and call.primitive == DIVIDE:
            # A word in place of an operator takes plain integers as that does.
            arguments = [
                ast.Constant(each.value) if isinstance(each, Written) and isinstance(each.value, int) else each
                for each in arguments
            ]
        implementation = primitive.implementation(language)
        expression = syntax(implementation.integer if operand == "integer" else implementation.float)
        if primitive.of_dtype and isinstance(expression, ast.Call):
            if language == "array":
                expression = ast.Call(expression.func, [*expression.args, ast.Name(DTYPE)], [])
            else:
                expression = ast.Call(ast.Name(f"{ast.unparse(expression.func)}<{ELEMENT}>"), expression.args, [])
        return substituted(expression, dict(zip(primitive.parameters, arguments, strict=True)))

    def named(text: str) -> ast.expr:
        return ast.Name(literal(text) if text in LITERALS and text not in kinds else text)

    def number(value: float) -> ast.expr:
        # C++ takes plain literals for signed.
        is_unsigned = language == "kernel" and value > _MAX_SIGNED and isinstance(value, int)
        return ast.Name(literal(f"{value}u")) if is_unsigned else Written(value)

    return printed(tree_of(node, implemented, named, number), literal)


def with_both(primitives: Primitives) -> Primitives:
    """The primitives, and what gives two results: Python has a tuple, C++ a struct."""
    return primitives if BOTH in primitives else Primitives({**primitives, BOTH: _BOTH})
