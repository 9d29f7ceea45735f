"""Reads the cells of a file: for each op what the branch of a backend calls, or why the backend lacks it."""

import re
from collections.abc import Mapping

from opgen.decoder import Spot
from opgen.fields import Fields, build_names
from opgen.loader import Value
from opgen.model import ANY_ORDER, CELL_KEYS, LOWERING_KINDS, Cell, Cells, FunctionCall, Lowering
from opgen.problem import Problem, nearest

_CALL = re.compile(r"([a-z]\w*)\.([a-z]\w*)")
_FORM = f"write a call such as 'module.function', or one of {', '.join(LOWERING_KINDS)}"


def build_cells(parts: Mapping[str, Spot]) -> Cells:
    """The cells below the keys functors, storage and device of a file."""
    return {
        (part, name): Cell(_lowerings(cell.value, cell.what, cell.problems), cell.value.key_location)
        for part, spot in parts.items()
        for name, cell in spot.entries().items()
    }


def _lowerings(value: Value, what: str, problems: list[Problem]) -> tuple[Lowering, ...]:
    """What a cell says in order of preference; nothing where a part is wrong, so that nothing else is looked for."""
    before = len(problems)
    elements = value.content if isinstance(value.content, list) else [value]
    lowerings = tuple(_lowering(element, what, problems) for element in elements)
    if not elements:
        problems.append(Problem(value.location, f"{what} is an empty list; {_FORM}"))
    return lowerings if len(problems) == before else ()


def _lowering(value: Value, what: str, problems: list[Problem]) -> Lowering:
    # The key's place: an alias has the place of its anchor.
    nothing = Lowering((), None, None, None, None, value.key_location)
    if isinstance(value.content, str):
        return nothing.with_calls(_function(value, what, problems, None))
    if not isinstance(value.content, dict):
        problems.append(Problem(value.location, f"{what} is {value.type_name}; {_FORM}"))
        return nothing
    fields = Fields(value, what, problems)
    before = len(problems)
    # What is no key of the language, and no misspelling of one, is a library.
    libraries = [key for key in value.content if key not in CELL_KEYS and nearest(key, CELL_KEYS) is None]
    any_order = fields.flag(ANY_ORDER)
    called = {key: inner for key in ("call", *libraries[:1]) if (inner := fields.optional(key)) is not None}
    dtypes = fields.optional("dtypes")
    lowering = Lowering(
        calls=tuple(
            _function(inner, what, problems, None if key == "call" else key, any_order=any_order)
            for key, inner in called.items()
        ),
        attribute=fields.name_or_none("attribute"),
        forward=fields.name_or_none("forward"),
        unsupported=fields.text_or_none("unsupported"),
        dtypes=None if dtypes is None else build_names(fields, dtypes, "dtypes"),
        location=value.key_location,
    )
    fields.finish()
    kinds = [*called, lowering.attribute, lowering.forward, lowering.unsupported]
    if len(problems) == before and sum(kind is not None for kind in kinds) != 1:
        problems.append(Problem(value.key_location, f"{what} must say one thing; {_FORM}"))
    elif len(problems) == before and any_order and "call" not in called:
        problems.append(Problem(value.key_location, f"{what} has '{ANY_ORDER}' without a 'call'; remove it"))
    return lowering


def _function(
    value: Value, what: str, problems: list[Problem], library: str | None, *, any_order: bool = False
) -> FunctionCall:
    match = _CALL.fullmatch(value.content) if isinstance(value.content, str) else None
    if match is None:
        given = f"'{value.content}'" if isinstance(value.content, str) else value.type_name
        problems.append(Problem(value.location, f"{what} cannot call {given}; write 'module.function'"))
        return FunctionCall("", "", None, False, value.location)
    return FunctionCall(match[1], match[2], library, any_order, value.location)
