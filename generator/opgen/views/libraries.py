"""Views of the vendors' libraries: their functions as ctypes takes them."""

from dataclasses import dataclass

from opgen.libraries import C_TYPES, Library
from opgen.model import Spec


@dataclass(frozen=True)
class FunctionRow:
    """A function: its name and its types."""

    name: str
    arguments: str  # what is between the parentheses of a Python tuple
    result: str


@dataclass(frozen=True)
class FunctionsView:
    """A library's table of functions."""

    library: str
    types: tuple[str, ...]  # of ctypes, those that are used
    functions: tuple[FunctionRow, ...]


def miopen_functions(spec: Spec, _: str | None) -> FunctionsView:
    """The table of MIOpen."""
    return _functions(next(library for library in spec.libraries if library.name == "miopen"))


def _functions(library: Library) -> FunctionsView:
    rows = []
    used: set[str] = set()
    for function in library.functions:
        arguments = [C_TYPES[type] for type in function.arguments]
        used.update(arguments, [C_TYPES[function.result]])
        comma = "," if len(arguments) == 1 else ""
        rows.append(FunctionRow(function.name, ", ".join(arguments) + comma, C_TYPES[function.result]))
    return FunctionsView(library.name, tuple(sorted(used)), tuple(rows))
