"""The names in expressions over arrays, and the words that array libraries spell."""

import builtins
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from opgen.arrays import LIBRARY, ArrayLibrary, LackingWord, Spelling
from opgen.expression import outer_names
from opgen.folders import BACKENDS, NUMERICS, RUNTIME
from opgen.formula.primitives import Primitive
from opgen.formula.printing import text_of
from opgen.model.backends import Backend, BackendFamily
from opgen.model.reductions import Monoid, Position
from opgen.model.spec import Spec
from opgen.problem import Problems, nearest, unknown_dtype
from opgen.sources import Sources

# The modules that the expressions over arrays see.
_NP, _NUMERICS = "np", "numerics"
# What is at hand in spellings besides modules, words and parameters: the emitted module itself is one of these.
_AT_HAND = (_NP, "os", "library")
# What the ops of a family call its library.
_USE = re.compile(rf"\b(?:np|library|{LIBRARY})\.([a-z]\w*)")


class NumPyNames:
    """The names that expressions over arrays may use: NumPy, and the functions of `numerics`."""

    def __init__(self, sources: Sources) -> None:
        modules = (path for path in sources.below(RUNTIME) if path.name == f"{_NUMERICS}.py")
        # Functions of a module, or methods of an object that replaces it. An unreadable one is reported elsewhere.
        read = (sources.methods(path) or {*(sources.functions(path) or ())} for path in modules)
        self._numerics: list[Collection[str]] = [names for names in read if names]
        self._modules = {
            path.stem: sources.functions(path) or {}
            for path in sources.below(NUMERICS)
            if path.stem not in (_NUMERICS, "__init__")
        }

    @property
    def names(self) -> list[str]:
        """The names that NumPy has."""
        return dir(importlib.import_module("numpy"))

    def has(self, name: str) -> bool:
        """Whether NumPy has a name. It is imported only for one that its stub does not list."""
        return name in _listed_by_numpy() or name in self.names

    def in_place_of(self, dotted: tuple[str, ...], operands: Iterable[str]) -> Iterable[str] | None:
        """Return None for a known name; else the known names."""
        first, *attributes = dotted
        if first in operands or (
            first == _NP and (not attributes or (len(attributes) == 1 and self.has(attributes[0])))
        ):
            return None
        if first == _NUMERICS:
            # Each of the modules of this name has all of them.
            lacking = next((known for known in self._numerics if attributes and attributes[0] not in known), None)
            return None if lacking is None else [f"{first}.{other}" for other in lacking]
        if first in self._modules:
            is_known = bool(attributes) and attributes[0] in self._modules[first]
            return None if is_known else [f"{first}.{name}" for name in self._modules[first]]
        if first != _NP:
            return [*operands, *([f"{_NP}.{first}"] if self.has(first) else [])]
        value: object = importlib.import_module("numpy")
        prefix = first
        for attribute in attributes:
            if not hasattr(value, attribute):
                return [f"{prefix}.{other}" for other in dir(value)]
            value, prefix = getattr(value, attribute), f"{prefix}.{attribute}"
        return None


@cache
def _listed_by_numpy() -> Collection[str]:
    """Return the names in NumPy's stub: nearly all that a spec uses, at a hundredth of the cost of importing NumPy."""
    module_spec = importlib.util.find_spec("numpy")
    stub = (
        Path(module_spec.origin).with_suffix(".pyi")
        if module_spec is not None and module_spec.origin is not None
        else None
    )
    text = stub.read_text(encoding="utf-8") if stub is not None and stub.is_file() else ""
    listed = re.search(r"^__all__ = \[([^\]]*)\]", text, re.MULTILINE)
    return frozenset(re.findall(r'"(\w+)"', listed[1])) if listed is not None else frozenset()


def check_words(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note what is wrong between vocabularies, the backends that spell them, and what is written in them."""
    for backend in spec.backends:
        family = spec.family_of(backend)
        has_words = family is not None and bool(family.vocabulary)
        if backend.array is not None and family is not None and has_words:
            _check_spellings(family, backend, backend.array, problems)
            _check_dtypes(spec, backend, backend.array, problems)
            _check_spelled(spec, family, backend, backend.array, problems)
        elif backend.array is not None:
            message = f"{backend} has an 'array', but extends no family with a vocabulary; remove it"
            problems.note(backend.array.location, message)
        elif has_words and backend.missing is None:
            message = f"{backend} lacks the key 'array', which says what it computes with; add it"
            problems.note(backend.location_of("extends"), message)
    for family in spec.backend_families:
        if family.vocabulary:
            _check_uses(spec, family, sources, problems)
            _check_functors(spec, family, problems)


def _check_spellings(family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: Problems) -> None:
    """Note the words that a library need not spell, and those that it has to."""
    words = family.vocabulary
    for name, spelling in array.written.items():
        own = words[name].spelling if name in words else None
        if name not in words:
            problems.unknown(spelling.location, f"unknown word '{name}' of {backend}", name, words)
        elif isinstance(spelling, LackingWord):
            if words[name].is_optional:
                problems.note(spelling.location, f"every library may do without '{name}'; remove it from {backend}")
        elif own is not None and own.text == spelling.text:
            message = f"{backend} spells '{name}' as {family} does; remove the spelling"
            problems.note(spelling.location, message)
    wanted = [word for word in words.values() if not (word.spelling or word.is_optional)]
    lacking = ", ".join(str(word) for word in wanted if word.name not in array.written)
    if lacking:
        problems.note(array.location, f"{backend} lacks a spelling of {lacking}; write it below 'spellings'")


def _check_dtypes(spec: Spec, backend: Backend, array: ArrayLibrary, problems: Problems) -> None:
    """Note the dtypes of a library that there are not, and those of which it says nothing."""
    dtypes = [dtype.name for dtype in spec.dtypes]
    locations = {name: spelling.location for name, spelling in (array.dtypes or {}).items()}
    locations.update({name: spelled_at for name, (_, spelled_at) in array.lacking.items()})
    for name, location in locations.items():
        if name not in dtypes:
            problems.note(location, f"unknown dtype '{name}' of {backend}{unknown_dtype(name, dtypes)}")
    unnamed = [dtype for dtype in spec.dtypes if dtype.name not in locations]
    missing = ", ".join(dtype.name for dtype in unnamed if dtype.bits_dtype(spec.dtypes) not in (array.dtypes or ()))
    if missing and array.dtypes is not None:
        fix = "write the library's, or '{unsupported: reason}'"
        problems.note(array.location, f"'dtypes' of {backend} lacks {missing}; {fix}")


def _check_spelled(
    spec: Spec, family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: Problems
) -> None:
    """Note the names in a library's spellings that nothing answers to."""
    modules = [*dict.fromkeys((*array.modules, LIBRARY, *_AT_HAND))]  # that the library is missing is noted
    helpers = [name for name in spec.own_modules.get(family.package, ()) if "." not in name]
    spelled: list[tuple[str, Spelling, Iterable[str]]] = [
        *(("'setup'", call, ()) for call in array.setup),
        ("'count' of the devices", array.devices.count, ()),
        ("'handle' of the devices", array.devices.handle, ("ordinal",)),
        ("'name' of the devices", array.devices.name, ("handle",)),
        *((f"dtype '{name}'", spelling, ()) for name, spelling in (array.dtypes or {}).items()),
    ]
    for name, word in family.vocabulary.items():
        spelling = array.spellings.get(name) or word.spelling
        if spelling is not None and name not in array.refused:
            spelled.append((f"word '{name}'", spelling, (*word.parameters, *family.vocabulary, *helpers)))
    for what, spelling, own in spelled:
        known = [*modules, *own]
        for name in spelling.free_names:
            if name not in known and not hasattr(builtins, name):
                problems.unknown(spelling.location, f"unknown name '{name}' in {what} of {backend}", name, known)


def _check_uses(spec: Spec, family: BackendFamily, sources: Sources, problems: Problems) -> None:
    """Note the words that nothing is written in."""
    texts = [sources.text(path) or "" for top in (BACKENDS / family.package, NUMERICS) for path in sources.below(top)]
    used = {name for text in texts for name in _USE.findall(text)}
    used |= {name for primitive in spec.primitives.values() for name in _library_names(primitive)}
    used |= {functor.name for functor in spec.every_functor if isinstance(functor.reduction, Position)}
    combined, scanned = (
        {text_of(functor.reduction.combine.node) for functor in functors if isinstance(functor.reduction, Monoid)}
        for functors in (spec.reductions, spec.scans)
    )
    libraries = [backend.array for backend in spec.backends if spec.family_of(backend) is family and backend.array]
    spellings = [word.spelling for word in family.vocabulary.values() if word.spelling is not None]
    for spelling in [*spellings, *(spelling for library in libraries for spelling in library.spellings.values())]:
        used.update(spelling.free_names)
    for name, word in family.vocabulary.items() if texts else ():
        if word.location.is_of_base:
            continue
        for key, formula, known in (("combine", word.combine, combined), ("scan", word.scan, scanned)):
            if formula is not None and (text := text_of(formula.node)) not in known:
                kind = "scan" if key == "scan" else "reduction"
                message = f"no {kind} has the 'combine' '{text}' of word '{name}'"
                problems.unknown(word.location, message, text, sorted(known))
        if word.combine is None and word.scan is None and name not in used:
            problems.note(word.location, f"word '{name}' of {family} is used by no op and no functor; remove it")


def _check_functors(spec: Spec, family: BackendFamily, problems: Problems) -> None:
    """Note the names of NumPy in primitives that are no words, and reductions that no word joins or finds."""
    words = family.vocabulary
    joining: dict[str, str] = {}
    scanning: dict[str, str] = {}
    for name, word in words.items():
        for key, formula, known in (("combine", word.combine, joining), ("scan", word.scan, scanning)):
            combine = None if formula is None else text_of(formula.node)
            if combine is not None and known.setdefault(combine, name) != name:
                message = f"word '{name}' joins by '{combine}' as '{known[combine]}' does; remove one '{key}'"
                problems.note(word.location, message)
    fix = f"write words of {family.path.as_posix()}, or add it there"
    for primitive in spec.primitives.values():
        for name in dict.fromkeys(_library_names(primitive)):
            if name not in words:
                near = nearest(name, words)
                message = f"'np.{name}' of primitive '{primitive.name}' is no word of {family}; {fix}"
                problems.note(
                    primitive.implementation("array").location, message + (f" (is it '{near}'?)" if near else "")
                )
    for functor in spec.every_functor:
        reduction = functor.reduction
        if isinstance(reduction, Position) and functor.name not in words:
            message = f"op '{functor.name}' is no word of {family}"
            problems.unknown(functor.location, message, functor.name, words, f"add it to {family.path.as_posix()}")
        elif functor.is_scan or not isinstance(reduction, Monoid):
            continue
        elif (combine := text_of(reduction.combine.node)) not in joining:
            message = (
                f"op '{functor.name}' joins two contributions by '{combine}', as no word of {family} does; "
                f"known are {', '.join(joining)}; write 'combine: {combine}' to a word, or a storage method instead"
            )
            problems.note(reduction.combine.location, message)


def _library_names(primitive: Primitive) -> Iterator[str]:
    """Return the functions of NumPy that a primitive uses, and those of an array library instead."""
    for text in primitive.implementation("array").texts:
        for first, *attributes in outer_names(text):
            if first == _NP and attributes:
                yield attributes[0]
