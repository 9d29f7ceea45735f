"""The types that a parameter of a method may have, and how the dispatch makes its argument one of them.

What is no integer, number or flag of Python's own becomes one here, before anything is checked, computed
or cached with it, and what names a dtype becomes that dtype; what is an object of another class is refused.
"""

import re
from dataclasses import dataclass
from typing import Final

from opgen.model.kinds import CHOSEN_KINDS, GRADIENT_KINDS, op_class
from opgen.signature import OPTIONAL

# The function of the emitted package's `argument` module that converts to a type.
_CONVERTERS: Final = {
    "Array": "array",
    "bool": "boolean",
    "complex": "complex_number",
    "DType": "dtype",
    "GgmlDType": "ggml_dtype",
    "float": "real",
    "int": "integer",
    "int | float": "number",
    "str": "text",
    "tuple[str, ...]": "texts",
}
# What the dispatch takes for a type, where a type checker would not let it pass for that type.
_ACCEPTED: Final = {"DType": "DTypeLike", "GgmlDType": "GgmlDType | str"}
_TUPLE: Final = re.compile(r"tuple\[(int(?:, int)*), (?:int|\.\.\.)\]")
# Any number of storages, or of their layouts.
_SEVERAL: Final = re.compile(r"tuple\[(Layout|Storage), \.\.\.\]")
_OPERAND: Final = ("Layout", "Storage")
_CLASSES: Final = ("Group", "Layout", "Storage", *map(op_class, (*CHOSEN_KINDS, *GRADIENT_KINDS)))
_NUMBERED_CLASS: Final = re.compile(r"(?:Custom|Inplace)Op\d|Params\w+")
# Numbers in a list have no type of their own before there is an array of them, which the method makes.
_UNCHANGED: Final = ("Sequence[complex]",)

_TUPLES: Final = ("tuple[int, int]", "tuple[int, ...]", "tuple[Layout, ...]", "tuple[Storage, ...]")
KNOWN_TYPES: Final = (*sorted([*_CONVERTERS, *_CLASSES, "Shape"]), *_TUPLES, *_UNCHANGED)
"""The types that can be listed; the others are tuples of more integers, and classes of users' ops and parameters."""


@dataclass(frozen=True)
class Coercion:
    """The conversion of arguments of one type."""

    converter: str | None  # the function that makes the argument what it should be
    kind: str | None  # the class of which it must be an object, or each of its items where there is a converter
    count: int | None = None  # of the integers that are converted
    is_optional: bool = False  # None stays None


def accepted(type_text: str) -> str:
    """The type that the dispatch takes for an argument of a type."""
    name = type_text.removesuffix(OPTIONAL)
    return _ACCEPTED.get(name, name) + type_text.removeprefix(name)


def coercion(type_text: str) -> Coercion | None:
    """Return the conversion of arguments of a type; None for a type that no parameter has."""
    name = type_text.removesuffix(OPTIONAL)
    is_optional = name != type_text
    if name in _CONVERTERS:
        return Coercion(_CONVERTERS[name], None, is_optional=is_optional)
    if is_optional:
        return Coercion(None, name, is_optional=True) if name in _OPERAND else None
    if name in _UNCHANGED:
        return Coercion(None, None)
    if _TUPLE.fullmatch(name):
        return Coercion("integers", None, None if "..." in name else name.count("int"))
    if (several := _SEVERAL.fullmatch(name)) is not None:
        return Coercion("objects", several[1])
    is_class = name == "Shape" or name in _CLASSES or _NUMBERED_CLASS.fullmatch(name)
    return Coercion(None, name) if is_class else None
