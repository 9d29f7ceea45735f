"""Formulas where the spec has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Final

from opgen.decoder import Cursor, Diagnostics
from opgen.expression import MAX_NESTED
from opgen.formula.nodes import Call, FormulaError, Node, Number, inlined
from opgen.formula.parsing import parse
from opgen.notes import Form, names_of
from opgen.problem import Location, Problem

MAX_PARTS: Final = 500
"""How many operands and calls a formula may have: its gradients have their square, and ops have them as code."""


@dataclass(frozen=True)
class Formula:
    """A formula of the spec."""

    node: Node
    location: Location = field(compare=False)
    """Of its first character."""
    FORM: ClassVar = Annotated[str, Form(type=["number", "string"]), names_of("local", "primitive", "op")]

    @classmethod
    def decode(cls, cursor: Cursor) -> "Formula":
        """The formula that a text or a number is."""
        value = cursor.value
        is_number = isinstance(value.content, int | float) and not isinstance(value.content, bool)
        text = str(value.content) if is_number else cursor.scalar(str)
        column = value.location.column + value.is_quoted
        formula = cls(Number(0), replace(value.location, column=column))
        try:
            return replace(formula, node=parse(text)) if text is not None else formula
        except FormulaError as error:
            cursor.unreadable.append(value.location)
            cursor.problems.append(formula.problem(error, cursor.what))
            return formula

    def problem(self, error: FormulaError, what: str) -> Problem:
        """The error `error` of the formula, which `what` names, where it stands in the file."""
        location = replace(self.location, column=self.location.column + error.offset)
        # What is wrong may quote a text with that sign.
        wrong, _, fix = str(error).rpartition("; ")
        return Problem(location, f"{wrong} in {what}; {fix}")

    def with_parts(self, parts: Mapping[str, "Formula"]) -> "Formula":
        """Return the formula with its named parts substituted; each part may name those before it.

        It is 0 if it would be too long, which `too_long` reports.
        """
        known: dict[str, Node] = {}
        for name, part in parts.items():
            known[name] = inlined(part.node, known)
            if _is_too_long(known[name]):
                return replace(self, node=Number(0))
        node = inlined(self.node, known)
        return replace(self, node=Number(0) if _is_too_long(node) else node)


def too_long(formulas: Mapping[str, Formula], parts: Mapping[str, Formula], what: str) -> Diagnostics:
    """Note each of `formulas`, by its key, that is too long with its named parts written out."""
    for key, formula in formulas.items():
        if formula.node != Number(0) and formula.with_parts(parts).node == Number(0):
            message = f"'{key}' of {what} has more than {MAX_PARTS} parts, or {MAX_NESTED} inside each other"
            yield formula.location, f"{message}, with those of 'let' written out; write a shorter formula"


def _is_too_long(node: Node) -> bool:
    return isinstance(node, Call) and (node.size > MAX_PARTS or node.depth > MAX_NESTED)
