"""The operands of functors, and the rules for their names."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from opgen.decoder import Cursor
from opgen.notes import Form, defines, like, module_name
from opgen.problem import Location
from opgen.reserved import is_reserved, not_reserved

# What functors of a kind call their operands, besides the names that are reserved.
TAKEN_NAMES = ("x", "y", "other", "other_layout")
# What formulas of rows, and methods of these, call something else.
ROW_NAMES = ("count", "position", "dim", "gradient", "output", "residual", "layout", "y", "other", "other_layout")
# As many have the functors that name them: the cells that compute them take no more.
NAMED_OPERANDS = 3
# Kernels of rows keep all operands of a row in registers.
MAX_ROW_OPERANDS = 4
_ROW_OPERAND = r"(?P<name>[A-Za-z_]\w*)(?P<optional>\?)?(?: (?P<form>along row|index))?"


@dataclass(frozen=True)
class UnusedName:
    """A rule for the name of an operand or a parameter."""

    noun: str
    taken: tuple[str, ...] = TAKEN_NAMES

    def __call__(self, cursor: Cursor, text: str) -> Iterator[str]:
        """Report a name that is taken."""
        if text in self.taken or is_reserved(text):
            yield f"'{text}' cannot be {self.noun} of {cursor.owner}, the name is taken; choose another one"

    def schema(self) -> Mapping[str, object]:
        """No name that is taken."""
        return {"allOf": [{"not": like("|".join(self.taken)).schema()}, not_reserved().schema()]}


def are_three(cursor: Cursor, names: tuple[str, ...]) -> Iterator[str]:
    """Report operands of another number, or with one name."""
    count = len(names) if len(names) > NAMED_OPERANDS else len({*names})
    fix = "; compute it in two ops, or write a storage method with kernels of its own"
    if count != NAMED_OPERANDS:
        yield f"{cursor.what} must be {NAMED_OPERANDS} names, not {count}{fix if count > NAMED_OPERANDS else ''}"


@dataclass(frozen=True)
class RowOperand:
    """An operand of an op of rows: `x`, `residual?`, `weight along row`, `target index`."""

    name: str
    is_optional: bool
    is_vector: bool
    """Whether it has an element for each position, which all rows share; others have the shape of the first one."""
    location: Location = field(compare=False)
    absent: float | None = None
    """The number that stands for it where it is left out, if that does not follow from the formula."""
    is_index: bool = False
    """Whether it has an integer for each row, the position of an element."""
    is_number: bool = False
    """Whether it has a number for each row, in the compute dtype; gradients of ops with `per_row` alone have such."""
    FORM: ClassVar = Annotated[
        str, Form(pattern=_ROW_OPERAND), defines("local", r"[A-Za-z_]\w*(?=\??(?: along row| index)?$)")
    ]

    @classmethod
    def decode(cls, cursor: Cursor) -> "RowOperand":
        """The operand that a text is."""
        text, location = cursor.scalar(str) or "", cursor.value.location
        match = re.fullmatch(_ROW_OPERAND, text)
        if match is None:
            cursor.no_value(f"'{text}' cannot be an operand of {cursor.owner}; write it like 'weight? along row'")
            return cls("x", False, False, location)
        cursor.keep_rules(match["name"], str, (module_name, UnusedName("an operand", ROW_NAMES)))
        is_optional, form = match["optional"] is not None, match["form"]
        return cls(match["name"], is_optional, form == "along row", location, is_index=form == "index")


def are_row_operands(cursor: Cursor, operands: tuple[RowOperand, ...]) -> Iterator[str]:
    """Report operands that the kernels of rows do not take together."""
    count = len({operand.name for operand in operands})
    if not 2 <= count == len(operands) <= MAX_ROW_OPERANDS:
        yield f"{cursor.what} must be 2 to {MAX_ROW_OPERANDS} different names; without the key the operand is x"
    if operands and (operands[0].is_optional or operands[0].is_vector or operands[0].is_index):
        yield f"{cursor.what} begins with an operand that other calls or rows share; write one such as x first"
    if any(operand.is_index and operand.is_optional for operand in operands):
        yield f"{cursor.what} has an index that calls may leave out; remove the question mark"
    if sum(operand.is_index for operand in operands) > 1:
        yield f"{cursor.what} has several indexes; rows have one at most"
