"""Views of the backends on array libraries: the words as a library spells them, and what all of them have."""

import ast
from typing import NamedTuple

from opgen.arrays import Devices, Spelling, Word
from opgen.model import Backend, BackendFamily, Spec, sentence
from opgen.views.backend import backend_of


class WordView(NamedTuple):
    """A word: a function, or a name of what it is."""

    name: str
    parameters: str
    doc: str
    types: str  # of the parameters
    is_optional: bool
    alias: str | None  # what the name stands for
    lines: tuple[str, ...]  # of the function


class DTypeView(NamedTuple):
    """A dtype, and the library's or why there is none."""

    name: str
    text: str


class LibraryView(NamedTuple):
    """library.py of a backend."""

    backend: str
    family: str
    package: str  # of the family
    imports: tuple[str, ...]
    helpers: tuple[str, ...]  # the modules of the family's package that spellings call
    names_itself: bool
    dtypes: tuple[DTypeView, ...]
    lacking: tuple[DTypeView, ...]
    integers: tuple[str, ...]  # the library's
    words: tuple[WordView, ...]
    array: Devices


def spelled(family: BackendFamily, backend: Backend) -> dict[str, Spelling]:
    """How a backend's library spells the words that it has, in the order of the vocabulary."""
    own = backend.array.spellings if backend.array is not None else {}
    every = {name: own.get(name) or word.spelling for name, word in family.vocabulary.items()}
    return {name: spelling for name, spelling in every.items() if spelling is not None}


def _word(word: Word, spelling: Spelling | None) -> WordView:
    return WordView(
        name=word.name,
        parameters=", ".join(f"{name}: Any" for name in word.parameters),
        doc=sentence(word.doc),
        types=", ".join("Any" for _ in word.parameters),
        is_optional=word.is_optional,
        alias="None" if spelling is None else _alias(word, spelling),
        lines=() if spelling is None else spelling.lines,
    )


def _alias(word: Word, spelling: Spelling) -> str | None:
    """The function that a spelling calls with the word's own arguments, which is quicker to call without it."""
    match spelling.tree.body:
        case [ast.FunctionDef(body=[ast.Return(value=ast.Call(func=ast.Attribute() as function) as call)])]:
            given = [ast.unparse(argument) for argument in call.args]
            return ast.unparse(function) if given == list(word.parameters) and not call.keywords else None
    return None


def library(spec: Spec, member: str | None) -> LibraryView:
    """The library of the backend whose runtime is the subpackage `member`."""
    backend = backend_of(spec, member)
    family, array = spec.family_of(backend), backend.array
    assert family is not None
    assert array is not None
    spellings = spelled(family, backend)
    used = {name for spelling in spellings.values() for name in spelling.free_names()} - {*family.vocabulary}
    if array.dtypes is None:
        own = {dtype.name: f"DType.{dtype.name.upper()}.numpy" for dtype in spec.dtypes}
    else:
        own = {name: spelling.text for name, spelling in array.dtypes.items()}
    return LibraryView(
        backend=backend.name,
        family=family.name,
        package=family.package,
        imports=tuple(
            f"import {module}" + (f" as {name}" if name != module else "") for name, module in array.modules.items()
        ),
        helpers=tuple(sorted(used & {*spec.own_modules[family.package]} - {"library", *array.modules})),
        names_itself="library" in used,
        dtypes=tuple(DTypeView(dtype.name.upper(), own[dtype.name]) for dtype in spec.dtypes if dtype.name in own),
        lacking=tuple(
            DTypeView(dtype.name.upper(), backend.lacking[dtype.name][0])
            for dtype in spec.dtypes
            if dtype.name in backend.lacking
        ),
        integers=tuple(own[name] for name in spec.groups["integer"] if name in own),
        words=tuple(_word(word, spellings.get(name)) for name, word in family.vocabulary.items()),
        array=array.devices,
    )


class ArrayBackendView(NamedTuple):
    """The classes of one backend."""

    backend: Backend
    package: str  # of the family


def array_backend(spec: Spec, member: str | None) -> ArrayBackendView:
    """The backend whose runtime is the subpackage `member`."""
    backend = backend_of(spec, member)
    family = spec.family_of(backend)
    assert family is not None
    return ArrayBackendView(backend, family.package)


class VocabularyView(NamedTuple):
    """library.py of a family: what its ops may ask of a library."""

    words: tuple[WordView, ...]


def vocabulary(spec: Spec, _: str | None) -> VocabularyView:
    """The words of all families."""
    words = [word for family in spec.backend_families for word in family.vocabulary.values()]
    return VocabularyView(tuple(_word(word, word.spelling)._replace(doc=_doc(word)) for word in words))


def _doc(word: Word) -> str:
    """What a word gives, and how a library has it that follows the standard."""
    if word.spelling is None:
        return sentence(word.doc)
    return f"{sentence(word.doc)} By the array API standard: `{' '.join(word.spelling.text.split())}`."
