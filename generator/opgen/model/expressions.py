"""Expressions of Python in the spec."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Self

from opgen.decoder import Cursor
from opgen.expression import ExpressionError, parse_expression
from opgen.formula.nodes import INCOMING
from opgen.notes import names_of
from opgen.problem import Location


@dataclass(frozen=True)
class Expression:
    """An expression of Python."""

    text: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, names_of("rule", token=r"(?<=\w\.)\w+")]
    OVER: ClassVar = f"{INCOMING} and the operands"

    @classmethod
    def decode(cls, cursor: Cursor) -> Self:
        """The text of one."""
        text: str = cursor.decode(str)
        try:
            parse_expression(text or "0")
        except ExpressionError as error:
            cursor.no_value(f"'{text}' is no expression of Python ({error}); write one over {cls.OVER}")
            text = "0"
        return cls(text or "0", cursor.value.location)

    @cached_property
    def _nodes(self) -> Sequence[ast.AST]:
        return list(ast.walk(ast.parse(self.text, mode="eval")))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that it uses, each once."""
        return tuple(dict.fromkeys(node.id for node in self._nodes if isinstance(node, ast.Name)))

    @cached_property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The attributes of names that it uses, each with the name: the functions of modules among them."""
        nodes = (node for node in self._nodes if isinstance(node, ast.Attribute))
        return tuple([(node.value.id, node.attr) for node in nodes if isinstance(node.value, ast.Name)])
