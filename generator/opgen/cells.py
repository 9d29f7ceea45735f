"""Builds the cells of a file: for each op what the branch of a backend calls, or why the backend lacks it."""

import re
from collections.abc import Mapping

from opgen.decoder import Spot
from opgen.fields import Fields, build_names
from opgen.loader import Value
from opgen.model import ANY_ORDER, LOWERING_KINDS, PARTS, Cells, FunctionCall, Lowering
from opgen.problem import Problem

_CALL = re.compile(r"([a-z]\w*)\.([a-z]\w*)")
_FORM = f"write a call such as 'module.function', or one of {', '.join(LOWERING_KINDS)}"


def build_cells(parts: Mapping[str, Spot]) -> Cells:
    """The cells below the keys functors, storage and device of a file."""
    tables: dict[str, dict[str, tuple[Lowering, ...]]] = {part: {} for part in PARTS}
    locations = {}
    for part, spot in parts.items():
        for name, cell in spot.entries().items():
            tables[part][name] = _lowerings(cell.value, cell.what, cell.problems)
            locations[f"{part}.{name}"] = cell.value.key_location
    return Cells(tables["functors"], tables["storage"], tables["device"], locations)


def _lowerings(value: Value, what: str, problems: list[Problem]) -> tuple[Lowering, ...]:
    """The lowerings of a cell; none where one of them is wrong, so that nothing else is looked for in it."""
    before = len(problems)
    elements = value.content if isinstance(value.content, list) else [value]
    lowerings = tuple(_lowering(element, what, problems) for element in elements)
    if not elements:
        problems.append(Problem(value.location, f"{what} is an empty list; {_FORM}"))
    return lowerings if len(problems) == before else ()


def _lowering(value: Value, what: str, problems: list[Problem]) -> Lowering:
    if not isinstance(value.content, dict):
        if not isinstance(value.content, str):
            problems.append(Problem(value.location, f"{what} is {value.type_name}; {_FORM}"))
            return Lowering((), None, None, None, None, value.key_location)
        return Lowering((_function(value, what, problems, None),), None, None, None, None, value.key_location)
    fields = Fields(value, what, problems)
    before = len(problems)
    given = fields.optional("call")
    dtypes = fields.optional("dtypes")
    lowering = Lowering(
        calls=() if given is None else _calls(given, what, problems),
        attribute=fields.name_or_none("attribute"),
        forward=fields.name_or_none("forward"),
        unsupported=fields.text_or_none("unsupported"),
        dtypes=None if dtypes is None else build_names(fields, dtypes, "dtypes"),
        # The key's place: an alias has the place of its anchor.
        location=value.key_location,
    )
    fields.finish()
    kinds = [given, lowering.attribute, lowering.forward, lowering.unsupported]
    if len(problems) == before and sum(kind is not None for kind in kinds) != 1:
        problems.append(Problem(value.key_location, f"{what} must say one thing; {_FORM}"))
    return lowering


def _calls(value: Value, what: str, problems: list[Problem]) -> tuple[FunctionCall, ...]:
    """The calls of a lowering in order of preference: the last one takes whatever those before it hand on."""
    elements = value.content if isinstance(value.content, list) else [value]
    calls = []
    for element in elements:
        if isinstance(element.content, dict):
            for library, inner in element.content.items():
                calls.append(_function(inner, what, problems, library))
        else:
            calls.append(_function(element, what, problems, None))
    for position, call in enumerate(calls if all(call.function for call in calls) else ()):
        is_last = position == len(calls) - 1
        if is_last and call.is_conditional:
            message = f"{what} ends with '{call}', which may refuse; end the list with a call that takes everything"
            problems.append(Problem(call.location, message))
        elif not is_last and not call.is_conditional:
            message = f"{what} goes on after '{call}', which takes everything; move it to the end of the list"
            problems.append(Problem(call.location, message))
    if not calls:
        problems.append(Problem(value.location, f"{what} calls nothing; {_FORM}"))
    return tuple(calls)


def _function(value: Value, what: str, problems: list[Problem], library: str | None) -> FunctionCall:
    match = _CALL.fullmatch(value.content) if isinstance(value.content, str) else None
    if match is None:
        given = f"'{value.content}'" if isinstance(value.content, str) else value.type_name
        problems.append(Problem(value.location, f"{what} cannot call {given}; write 'module.function'"))
        return FunctionCall("", "", None, False, value.location)
    any_order = library == ANY_ORDER
    return FunctionCall(match[1], match[2], None if any_order else library, any_order, value.location)
