"""Stage 3, last part: the words that array libraries spell, and what is written in them."""

import builtins
import re
from collections.abc import Iterable, Iterator

from opgen.arrays import LIBRARY, ArrayLibrary, Spelling
from opgen.model import Backend, BackendFamily, Functor, Monoid, Spec
from opgen.problem import Location, Problem, did_you_mean, nearest
from opgen.references import outer_names
from opgen.scopes import LITERALS, NUMPY, scoped
from opgen.sources import BACKENDS, NUMERICS, Sources

# What the ops of a family call its library.
_USE = re.compile(rf"\b(?:np|library|{LIBRARY})\.([a-z]\w*)")
# What is at hand in spellings besides modules, words and parameters: the emitted module itself is one of these.
_AT_HAND = ("np", "os", "library")


def check_words(spec: Spec, sources: Sources, problems: list[Problem]) -> None:
    """Note what is wrong between vocabularies, the backends that spell them, and what is written in them."""
    for backend in spec.backends:
        family = spec.family_of(backend)
        has_words = family is not None and bool(family.vocabulary)
        if backend.array is not None and not has_words:
            message = f"backend '{backend.name}' has an 'array', but extends no family with a vocabulary; remove it"
            problems.append(Problem(backend.array.location, message))
        elif backend.array is not None and family is not None:
            _check_library(spec, family, backend, backend.array, problems)
        elif has_words and backend.missing is None:
            message = f"backend '{backend.name}' lacks the key 'array', which says what it computes with; add it"
            problems.append(Problem(backend.place("extends"), message))
    for family in spec.backend_families:
        if family.vocabulary:
            _check_uses(spec, family, sources, problems)
            _check_functors(spec, family, problems)


def _check_library(
    spec: Spec, family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: list[Problem]
) -> None:
    words = family.vocabulary
    what = f"backend '{backend.name}'"
    for name, spelling in array.spellings.items():
        own = words[name].spelling if name in words else None
        if name not in words:
            problems.append(Problem(spelling.location, f"unknown word '{name}' of {what}{did_you_mean(name, words)}"))
        elif own is not None and own.text == spelling.text:
            message = f"{what} spells '{name}' as family '{family.name}' does; remove the spelling"
            problems.append(Problem(spelling.location, message))
    lacking = [str(word) for word in words.values() if not (word.spelling or word.is_optional)]
    lacking = [text for text in lacking if text.partition("(")[0] not in array.spellings]
    if lacking:
        message = f"{what} lacks a spelling of {', '.join(lacking)}; write it below 'spellings'"
        problems.append(Problem(array.location, message))
    dtypes = [dtype.name for dtype in spec.dtypes]
    places = {name: spelling.location for name, spelling in (array.dtypes or {}).items()}
    places.update({name: place for name, (_, place) in array.lacking.items()})
    for name, place in places.items():
        if name not in dtypes:
            problems.append(Problem(place, f"unknown dtype '{name}' of {what}{did_you_mean(name, dtypes)}"))
    missing = [name for name in dtypes if name not in places and array.dtypes is not None]
    if missing:
        message = f"'dtypes' of {what} lacks {', '.join(missing)}; write the library's, or '{{unsupported: reason}}'"
        problems.append(Problem(array.location, message))
    _check_names(spec, family, backend, array, problems)


def _check_names(
    spec: Spec, family: BackendFamily, backend: Backend, array: ArrayLibrary, problems: list[Problem]
) -> None:
    """Note the names in a library's spellings that nothing answers to."""
    modules = [*dict.fromkeys((*array.modules, LIBRARY, *_AT_HAND))]  # that the library is missing is noted
    helpers = spec.own_modules.get(family.package, ())
    spelled: list[tuple[str, Spelling, Iterable[str]]] = [
        ("'count' of the devices", array.devices.count, ()),
        ("'handle' of the devices", array.devices.handle, ("ordinal",)),
        ("'name' of the devices", array.devices.name, ("handle",)),
        *((f"dtype '{name}'", spelling, ()) for name, spelling in (array.dtypes or {}).items()),
    ]
    for name, word in family.vocabulary.items():
        spelling = array.spellings.get(name) or word.spelling
        if spelling is not None:
            spelled.append((f"word '{name}'", spelling, (*word.parameters, *family.vocabulary, *helpers)))
    for what, spelling, own in spelled:
        known = [*modules, *own]
        for name in spelling.free_names():
            if name not in known and not hasattr(builtins, name):
                message = f"unknown name '{name}' in {what} of backend '{backend.name}'{did_you_mean(name, known)}"
                problems.append(Problem(spelling.location, message))


def _check_uses(spec: Spec, family: BackendFamily, sources: Sources, problems: list[Problem]) -> None:
    """Note the words that nothing is written in."""
    folders = (BACKENDS / family.package, NUMERICS)
    texts = [sources.text(path) or "" for folder in folders for path in sources.below(folder)]
    used = {name for text in texts for name in _USE.findall(text)}
    used |= {name for functor in _functors(spec) for _, name in _library_names(spec, functor)}
    reductions = [functor.reduction for functor in _functors(spec) if isinstance(functor.reduction, Monoid)]
    combined = {reduction.combine.numpy for reduction in reductions}
    libraries = [backend.array for backend in spec.backends if spec.family_of(backend) is family and backend.array]
    spellings = [word.spelling for word in family.vocabulary.values() if word.spelling is not None]
    spellings += [spelling for library in libraries for spelling in library.spellings.values()]
    for spelling in spellings:
        used.update(spelling.free_names())
    for name, word in family.vocabulary.items() if texts else ():
        if word.combine is not None and word.combine not in combined:
            message = f"no reduction has the 'combine' '{word.combine}' of word '{name}'"
            problems.append(Problem(word.location, message + did_you_mean(word.combine, sorted(combined))))
        elif word.combine is None and name not in used:
            message = f"word '{name}' of family '{family.name}' is used by no op and no functor; remove it"
            problems.append(Problem(word.location, message))


def _check_functors(spec: Spec, family: BackendFamily, problems: list[Problem]) -> None:
    """Note the names of NumPy in functors that are no words, and reductions that no word joins."""
    words = family.vocabulary
    joining: dict[str, str] = {}
    for name, word in words.items():
        if word.combine is not None and joining.setdefault(word.combine, name) != name:
            message = f"word '{name}' joins by '{word.combine}' as '{joining[word.combine]}' does; remove one 'combine'"
            problems.append(Problem(word.location, message))
    for functor in _functors(spec):
        for place, name in dict.fromkeys(_library_names(spec, functor)):
            if name not in words:
                message = f"'np.{name}' of op '{functor.name}' is no word of family '{family.name}'"
                mend = f"; write {name}, a literal" if name in LITERALS else ""
                mend = mend or f"; write words of {family.path.as_posix()}, or add it there{_perhaps(name, words)}"
                problems.append(Problem(place, message + mend))
        reduction = functor.reduction
        if isinstance(reduction, Monoid) and reduction.combine.numpy not in joining:
            ufunc = reduction.combine.numpy
            message = (
                f"op '{functor.name}' joins two contributions by '{ufunc}', as no word of family '{family.name}' does; "
                f"known are {', '.join(joining)}; write 'combine: {ufunc}' to a word, or a storage method instead"
            )
            problems.append(Problem(reduction.combine.numpy_location, message))


def _perhaps(word: str, choices: Iterable[str]) -> str:
    """The nearest known word, in brackets."""
    near = nearest(word, choices)
    return "" if near is None else f" (is it '{near}'?)"


def _functors(spec: Spec) -> Iterator[Functor]:
    for kind in spec.functors.values():
        yield from kind.functors


def _library_names(spec: Spec, functor: Functor) -> Iterator[tuple[Location, str]]:
    """What an op's expressions take of NumPy, and of an array library in its place."""
    for scope in scoped(spec, functor):
        # A monoid's 'combine' is found among the words' own.
        for first, *rest in outer_names(scope.text) if scope.language == NUMPY and scope.key != "combine" else ():
            if first == "np" and rest:
                yield scope.location, rest[0]
