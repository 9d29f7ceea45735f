"""The file of a new backend on an array library, with its choices marked."""

import importlib
import json
import re
from operator import attrgetter

from opgen.arrays import LIBRARY, Word
from opgen.dtypes import DType
from opgen.model.backends import BackendFamily
from opgen.model.spec import Spec

# DLPack's own numbers of devices end far below.
_FREE_DLPACK = 100


def import_library(module: str) -> tuple[object | None, str]:
    """A library, or None and why it cannot be imported here."""
    try:
        return importlib.import_module(module), ""
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return None, f"{module} is not installed"
        return None, f"{module} cannot be imported ({error})"
    except Exception as error:  # whatever a library raises that lacks a driver or a file
        return None, f"{module} cannot be imported ({type(error).__name__}: {error})"


def new_backend(spec: Spec, family: BackendFamily, name: str, module: str, library: object | None) -> str:
    """The text of spec/backends/NAME.yaml; without the library, nothing is marked that it lacks."""
    words = family.vocabulary.values()
    unspelled = [word for word in words if word.spelling is None and not word.is_optional]
    missing = {word: _missing(word, library) for word in words if word.spelling is not None and library is not None}
    marked = {word: lacks for word, lacks in missing.items() if lacks}
    spelled = [word for word in words if word.spelling is not None and word not in marked]
    unlooked = f"{module} is not installed here, so its missing functions are unknown."
    preference = min(backend.preference for backend in spec.backends) - 1
    dlpack = max(_FREE_DLPACK, *(backend.dlpack + 1 for backend in spec.backends))
    lines = [
        f"# The backend {name}, on {module}. A comment marks each choice: look at it, then remove the comment.",
        f"doc: Arrays of {module}.  # what the table of backends in README says",
        f"extends: {family.name}",
        f"class_prefix: {''.join(part.capitalize() for part in name.split('_'))}  # the classes are named after it",
        f"runtime: {{package: {name}_backend}}",
        f"extra: {name}  # pip install './generated[{name}]' installs what it requires",
        f"requires: [{module.partition('.')[0]}]  # for pip",
        f'label: "{name}:{{ordinal}}"  # what Device.parse takes; without {{ordinal}} there is one device',
        f'display: ", device={name}:{{ordinal}}"  # how a tensor shows its device',
        f"preference: {preference}  # Device.default() is the available backend with the highest",
        f"dlpack: {dlpack}  # DLPack's number of such devices, or one that it does not use",
        "array:",
        f"  modules: {{{LIBRARY}: {module}}}  # by the names that spellings call them",
        f"  # setup: [{LIBRARY}.begin()]  # calls that the library needs when it is imported",
        "  devices:",
        '    count: "1"  # how many there are: an expression',
        '    handle: "None"  # what words get as `device`, an expression over `ordinal`',
        '    name: "str(handle)"  # for people',
        "  dtypes:  # the library's, or why it has none and what to use",
        *([f"    # {unlooked}"] if library is None else []),
        *(f"    {dtype.name}: {_dtype(dtype, module, library)}" for dtype in spec.dtypes),
        f"  {'' if unspelled else '# '}spellings:  # of words that the library does not have as the family spells them",
        *(f"    {word.name}: {_quoted(f'{LIBRARY}.{word}')}  # {word.doc}" for word in unspelled),
    ]
    if library is None:
        lines.append(f"    # {unlooked}")
    if marked:
        lines.append(f"    # {module} lacks what the family spells these with; a word is spelled with its parameters:")
    lines += [
        f"    # {word.name}: {_text(word)}  # {word}: {word.doc}; no {', '.join(marked[word])}" for word in marked
    ]
    lines.append("    # These may be left out:")
    lines += [f"    # {word.name}:  # {word}: {word.doc}" for word in words if word.is_optional]
    lines.append(
        "    # A word that the library cannot have is `{unsupported: reason}`, which refuses the ops that need it."
    )
    lines.append("    # These are spelled so where nothing else is written:")
    lines += [f"    # {word.name}: {_text(word)}  # {word.doc}" for word in spelled]
    lacking = _methods_without_a_cell(spec, family)
    if lacking:
        lines.append("storage:  # what the family does not say of methods: module.function, in the ops of the backend")
    lines += [f"  {name}: {{unsupported: {name} is not written yet}}" for name in lacking]
    return "\n".join(lines) + "\n"


def _methods_without_a_cell(spec: Spec, family: BackendFamily) -> list[str]:
    """The storage methods that a family has neither a cell nor a function of the same name for."""
    modules = spec.modules.get(family.package, {})
    return [
        method.name
        for file in spec.families
        for method in file.methods
        if ("storage", method.name) not in family.cells
        and (method.kind is None or method.signature.returns == "None")
        and method.name not in modules.get(file.name, {})
    ]


def _dtype(dtype: DType, module: str, library: object | None) -> str:
    name = (dtype.numpy or dtype.name).rpartition(".")[2]
    # What a library lacks is written if it could be imported.
    has = dtype.numpy is not None and (library is None or hasattr(library, name))
    reason = f"{module} has no {name}; use another dtype"
    return f"{LIBRARY}.{name}" if has else f"{{unsupported: {_quoted(reason)}}}"


def _missing(word: Word, library: object) -> list[str]:
    """The names in a word's spelling that a library lacks."""
    text = word.spelling.text if word.spelling is not None else ""
    names = dict.fromkeys(re.findall(rf"\b{LIBRARY}\.([\w.]+)", text))
    return [name for name in names if not _has(library, name)]


def _has(library: object, name: str) -> bool:
    try:
        attrgetter(name)(library)
    except AttributeError:
        return False
    return True


def _text(word: Word) -> str:
    return _quoted(word.spelling.text if word.spelling is not None else "")


def _quoted(text: str) -> str:
    # Of such texts, JSON's form is YAML's too.
    return json.dumps(text, ensure_ascii=False)
