"""The edges of a functor: calls with numbers at which it is easily wrong, and what they give. Tests make the calls."""

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opgen.fields import Fields
from opgen.problem import Location

_FORM = "write it like 'silu(-inf): -0.0'"
_NUMBERS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan}
_SHOWN = {"nan": "NaN"}


@dataclass(frozen=True)
class Edge:
    """A call of a functor and its result. A name in the place of a number stands for every finite one."""

    functor: str
    arguments: tuple[str, ...]  # of a reduction its elements, of others the operands and then the parameters
    value: str
    location: Location

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


def build_edges(
    fields: Fields, name: str, operands: Iterable[str], parameters: Mapping[str, float | None], *, is_reduction: bool
) -> tuple[Edge, ...]:
    """The edges below the key `edges` of the functor `name`."""
    value = fields.optional("edges")
    if value is None:
        return ()
    if not isinstance(value.content, dict) or not value.content:
        fields.problem(value.location, f"'edges' of {fields.what} must map calls to what they give; {_FORM}")
        return ()
    names = [*operands, *parameters]
    least = len(names) - sum(default is not None for default in parameters.values())
    found = []
    for text, inner in value.content.items():
        given = str(inner.content)
        function, arguments = _called(text) or ("", ())
        if not function or isinstance(inner.content, bool | dict | list):
            fields.problem(inner.key_location, f"'{text}: {given}' is no edge of {fields.what}; {_FORM}")
            continue
        problem = None
        if function != name:
            problem = f"'{text}' of {fields.what} calls '{function}'; call '{name}'"
        elif not is_reduction and not least <= len(arguments) <= len(names):
            problem = f"'{text}' lacks a number for one of {', '.join(names)}, or has too many; {_FORM}"
        # A name stands where the operand or the parameter of this name does, so that it cannot be mistaken.
        places = [""] * len(arguments) if is_reduction else names
        free = [place for place, argument in zip(places, arguments, strict=False) if argument == place]
        for argument, place in zip(arguments, places, strict=False):
            if problem is None and argument != place and not _is_number(argument, ()):
                mend = f"write one, or '{place}' for every finite one" if place else "write one"
                problem = f"'{argument}' in '{text}' is no number; {mend}"
        if problem is None and not _is_number(given, free):
            problem = f"'{given}' is no result of '{text}'; write a number, or a product or sum with its names"
        if problem is not None:
            fields.problem(inner.key_location, problem)
        else:
            found.append(Edge(name, arguments, given, inner.key_location))
    return tuple(found)


def _called(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The name and the arguments of a call; None where `text` is none."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    return call.func.id, tuple(map(ast.unparse, call.args))


def _is_number(text: str, names: Iterable[str]) -> bool:
    try:
        _evaluated(text, {**_NUMBERS, **dict.fromkeys(names, 1.0)})
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False
    return True


def _evaluated(text: str, known: Mapping[str, float]) -> float:
    """The number that an expression of numbers and names is; ValueError for any other expression."""
    return _number(ast.parse(text, mode="eval").body, known)


def _number(node: ast.expr, known: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
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
