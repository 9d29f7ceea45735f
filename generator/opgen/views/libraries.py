"""Views of the vendors' libraries: their functions as ctypes takes them."""

from types import SimpleNamespace as View

from opgen.libraries import C_TYPES, RESULT_TYPES, CLibrary
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.python import quoted


def functions(_: Spec, library: CLibrary) -> View:
    """The table of a library's functions."""
    rows = []
    used: set[str] = set()
    for name, function in library.functions.items():
        types = [RESULT_TYPES[function.result], *(C_TYPES[argument] for argument in function.arguments)]
        used.update(type for type in types if type in C_TYPES.values())
        rows.append(f"{quoted(name)}: ({', '.join(types)},),")
    what = f"The functions of the library {library.name} that are called"
    doc = f"{what}: the type of the result, then those of the arguments.\n\n{library.doc}"
    return View(made_from=(Location(library.path),), doc=doc, types=", ".join(sorted(used)), rows=rows)
