"""The keys `example` and `values` of storage methods: example calls, and what the elements of an operand must be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Self, TypeAlias

from opgen.decoder import Cursor
from opgen.expression import ExpressionError, parse_expression
from opgen.loader import Value
from opgen.model.expressions import Expression
from opgen.notes import Name, like
from opgen.problem import Location, did_you_mean

Literal: TypeAlias = "bool | int | float | str | tuple[Literal, ...] | Mapping[str, Literal] | None"

VALUES: Final = {
    "ascending": "numbers in ascending order",
    "definite": "Hermitian positive definite matrices",
    "positive": "positive numbers",
    "small": "numbers up to 1/4, with which dot products stay small",
    "units": "1 and -1, whose products neither overflow nor vanish",
}
"""The properties that an operand's elements may need, besides being integers below a bound."""
_BELOW: Final = "below "


@dataclass(frozen=True)
class Values:
    """The property that an operand's elements need for a call to have a result: a word, or integers below a bound."""

    word: str | None
    bound: Expression | None
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, like(rf"{'|'.join(VALUES)}|{_BELOW}\S.*")]

    def __str__(self) -> str:
        return self.word or f"{_BELOW}{self.bound.text if self.bound is not None else ''}"

    @classmethod
    def decode(cls, cursor: Cursor) -> "Values | None":
        """Decode a text."""
        text: str = cursor.decode(str)
        if text.startswith(_BELOW):
            bound = text.removeprefix(_BELOW)
            try:
                parse_expression(bound)
            except ExpressionError as error:
                cursor.no_value(f"'{bound}' is no expression of Python ({error}); write one over the arguments")
                return None
            return cls(None, Expression(bound, cursor.value.location), cursor.value.location)
        if text not in VALUES:
            known = (*VALUES, f"{_BELOW}BOUND")
            cursor.no_value(f"unknown {cursor.what} '{text}'{did_you_mean(text, known)}")
            return None
        return cls(text, None, cursor.value.location)


@dataclass(frozen=True)
class Example:
    """The arguments of a call: the shapes of operands, and the values of other parameters."""

    arguments: Mapping[str, Literal]
    locations: Mapping[str, Location] = field(compare=False)
    location: Location = field(compare=False)
    is_read: bool = field(compare=False, default=True)
    """Whether it could be read, which is noted where not."""
    FORM: ClassVar = Mapping[Name, object]

    @classmethod
    def decode(cls, cursor: Cursor) -> Self:
        """The arguments that a mapping holds."""
        entries = cursor.entries(Name)
        arguments = {key: _literal(each.value) for key, each in entries.items()}
        locations = {key: each.value.location for key, each in entries.items()}
        return cls(arguments, locations, cursor.value.location, isinstance(cursor.value.content, dict))

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in self.arguments.items())

    @classmethod
    def of(cls, arguments: Mapping[str, Literal], location: Location) -> Self:
        """One that is written nowhere."""
        return cls(arguments, {}, location)


def _literal(value: Value) -> Literal:
    match value.content:
        case dict() as entries:
            return {key: _literal(each) for key, each in entries.items()}
        case list() as elements:
            return tuple(map(_literal, elements))
        case scalar:
            return scalar
