"""The edges of a functor: calls with numbers at which it is easily wrong, and what they give. Tests make the calls."""

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from opgen.aliases import constant
from opgen.decoder import Cursor
from opgen.expression import ExpressionError, parse_expression
from opgen.loader import is_representable
from opgen.notes import Entry, Form, Mark, names_of
from opgen.problem import Location

_FORM = "write it like 'silu(-inf): -0.0'"
_NUMBERS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan}
_SHOWN = {"nan": "NaN"}


@dataclass(frozen=True)
class Edge:
    """A call of a functor and its result. A name instead of a number stands for every finite one."""

    call: Annotated[str, Entry("edge '{}'"), names_of("op", "local")]
    functor: str
    arguments: tuple[str, ...]  # of a reduction its elements, of others the operands and then the parameters
    value: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, Mark.MAY_BE_EMPTY, Form(type=["number", "string"])]

    @classmethod
    def decode(cls, cursor: Cursor) -> "Edge":
        """The edge that a key and its value say."""
        value, location = str(cursor.value.content), cursor.value.key_location
        function, arguments = _called(cursor.key) or ("", ())
        if not function or isinstance(cursor.value.content, bool | dict | list):
            cursor.problem(f"'{cursor.key}: {value}' is no edge of {cursor.owner}; {_FORM}", location)
            function = ""
        return cls(cursor.key, function, arguments, value, location)

    def flaw(self, name: str, operands: Iterable[str], parameters: Mapping[str, float | None] | None) -> str | None:
        """Return its error as an edge of the functor `name`; its arguments are elements if `parameters` is None."""
        names = [*operands, *(parameters or ())]
        least = len(names) - sum(default is not None for default in (parameters or {}).values())
        if self.functor != name:
            return f"'{self.call}' of op '{name}' calls '{self.functor}'; call '{name}'"
        if parameters is not None and not least <= len(self.arguments) <= len(names):
            return f"'{self.call}' lacks a number for one of {', '.join(names)}, or has too many; {_FORM}"
        # A name stands where the operand or the parameter of this name does, so that it cannot be mistaken.
        known = [""] * len(self.arguments) if parameters is None else names
        for argument, operand in zip(self.arguments, known, strict=False):
            if argument != operand and not _is_number(argument, ()):
                number = constant(argument)
                fix = f"write {number}" if number is not None else "write one"
                fix += f", or '{operand}' for every finite one" if operand else ""
                return f"'{argument}' in '{self.call}' is no number; {fix}"
        free = [operand for operand, argument in zip(known, self.arguments, strict=False) if argument == operand]
        if not _is_number(self.value, free):
            number = constant(self.value) or "a number, or a product or sum with its names"
            return f"'{self.value}' is no result of '{self.call}'; write {number}"
        return None

    def __str__(self) -> str:
        arguments = ", ".join(_SHOWN.get(text, text) for text in self.arguments)
        return f"{self.functor}({arguments}) is {_SHOWN.get(self.value, self.value)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that stand for every finite number."""
        return tuple(text for text in self.arguments if text.isidentifier() and text not in _NUMBERS)

    def numbers(self, values: Mapping[str, float]) -> tuple[list[float], float]:
        """The arguments and the result where the names have these values."""
        known = {**_NUMBERS, **values}
        return [_evaluated(text, known) for text in self.arguments], _evaluated(self.value, known)


def _called(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The name and the arguments of a call; None where `text` is none."""
    try:
        call = parse_expression(text)
    except ExpressionError:
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    return call.func.id, tuple(map(ast.unparse, call.args))


def _is_number(text: str, names: Iterable[str]) -> bool:
    try:
        _evaluated(text, {**_NUMBERS, **dict.fromkeys(names, 1.0)})
    except (ValueError, OverflowError):
        return False
    return True


def _evaluated(text: str, known: Mapping[str, float]) -> float:
    """The number that an expression of numbers and names is; ValueError for any other expression."""
    return _number(parse_expression(text), known)


def _number(node: ast.expr, known: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and is_representable(value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, known)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _number(left, known) * _number(right, known)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _number(left, known) + _number(right, known)
    raise ValueError(f"'{ast.unparse(node)}' is no number")
