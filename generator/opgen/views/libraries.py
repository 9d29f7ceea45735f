"""Views of the vendors' libraries: their functions as ctypes takes them."""

from typing import NamedTuple

from opgen.libraries import C_TYPES, RESULT_TYPES
from opgen.model import Spec
from opgen.views.python import quoted


class FunctionsView(NamedTuple):
    """A library's table of functions."""

    doc: str
    types: str  # of ctypes, those that are used
    rows: tuple[str, ...]


def library_functions(spec: Spec, member: str | None) -> FunctionsView:
    """The table of the library named `member`."""
    library = next(library for library in spec.c_libraries if library.name == member)
    rows = []
    used: set[str] = set()
    for name, function in library.functions.items():
        types = [RESULT_TYPES[function.result], *(C_TYPES[argument] for argument in function.arguments)]
        used.update(type for type in types if type in C_TYPES.values())
        rows.append(f"{quoted(name)}: ({', '.join(types)},),")
    what = f"The functions of the library {library.name} that are called"
    doc = f"{what}: the type of the result, then those of the arguments.\n\n{library.doc}"
    return FunctionsView(doc, ", ".join(sorted(used)), tuple(rows))
