"""Views of the backends on array libraries: the words as a library spells them, and what all of them have."""

import ast
from types import SimpleNamespace as View

from opgen.arrays import LackingWord, Spelling, Word
from opgen.docstrings import sentence
from opgen.model.backends import Backend
from opgen.model.spec import Spec


def _word(word: Word, spelling: Spelling | LackingWord | None) -> View:
    """A word: a function, or a name of what it is."""
    reason = spelling.unsupported if isinstance(spelling, LackingWord) else None
    spelled = spelling if isinstance(spelling, Spelling) else None
    return View(
        made_from=(word.location, *([spelling.location] if spelling is not None else [])),
        name=word.name,
        parameters=", ".join(f"{name}: Any" for name in word.parameters),
        doc=sentence(word.doc),
        types=", ".join("Any" for _ in word.parameters),
        is_optional=word.is_optional,
        alias="None" if spelling is None else spelled and _alias(word, spelled),
        lines=() if spelled is None else spelled.lines,
        refused=reason,
    )


def _alias(word: Word, spelling: Spelling) -> str | None:
    """The function that a spelling calls with the word's own arguments, which is quicker to call without it."""
    match spelling.tree.body:
        case [ast.FunctionDef(body=[ast.Return(value=ast.Call(func=ast.Attribute() as function) as call)])]:
            arguments = [ast.unparse(argument) for argument in call.args]
            return ast.unparse(function) if arguments == list(word.parameters) and not call.keywords else None
    return None


def spelled_library(spec: Spec, backend: Backend) -> View:
    """The library of a backend, in the words of its family."""
    family, array = spec.family_of(backend), backend.array
    assert family is not None
    assert array is not None
    words = family.vocabulary
    spellings = {name: array.written.get(name) or word.spelling for name, word in words.items()}
    spelled = [each for each in spellings.values() if isinstance(each, Spelling)]
    used = {name for each in spelled for name in each.free_names} - {*words}
    if array.dtypes is None:
        dtypes = {dtype.name: f"DType.{dtype.name.upper()}.numpy" for dtype in spec.dtypes}
    else:
        dtypes = {name: spelling.text for name, spelling in array.dtypes.items()}
        for each in spec.dtypes:
            if each.name not in {*dtypes, *backend.lacking}:
                dtypes[each.name] = dtypes[each.bits_dtype(spec.dtypes) or ""]
    every = [dtype.name for dtype in spec.dtypes]
    return View(
        backend=backend,
        family=family,
        imports=[f"import {module}" + f" as {name}" * (name != module) for name, module in array.modules.items()],
        setup=[call.text for call in array.setup],
        # The modules of the family's package that spellings call.
        helpers=sorted(used & {*spec.own_modules[family.package]} - {"library", *array.modules}),
        names_itself="library" in used,
        dtypes={name.upper(): dtypes[name] for name in every if name in dtypes},
        lacking={name.upper(): backend.lacking[name][0] for name in every if name in backend.lacking},
        flushed=[f"DType.{name.upper()}" for name in array.flushed],
        integers=[dtypes[name] for name in spec.groups["integer"] if name in dtypes],
        complex=[dtypes[name] for name in spec.groups["complex"] if name in dtypes],
        words=[_word(word, spellings[name]) for name, word in words.items()],
    )


def imported_backend(spec: Spec, backend: Backend) -> View:
    """The classes of a backend."""
    return View(backend=backend, family=spec.family_of(backend))


def array_library(spec: Spec) -> View:
    """The words that the ops of all families may use."""
    views = []
    for word in (word for family in spec.backend_families for word in family.vocabulary.values()):
        view = _word(word, word.spelling)
        if word.spelling is not None:
            view.doc += f" By the array API standard: `{' '.join(word.spelling.text.split())}`."
        views.append(view)
    return View(words=views)
