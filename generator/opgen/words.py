"""Which words of array libraries an op needs, and so which ops a library that lacks a word is refused for."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from opgen.arrays import ArrayLibrary, LackingWord
from opgen.cache.memo import memoize
from opgen.cells import FunctionCall
from opgen.folders import BACKENDS, NUMERICS
from opgen.formula.nodes import calls
from opgen.formula.printing import text_of
from opgen.model.backends import Backend, BackendFamily
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid, Position
from opgen.model.spec import Spec
from opgen.model.word_uses import CLASS, ELSEWHERE, Function, Uses, Words
from opgen.scopes import decisive, joined_results, scopes, state_scopes
from opgen.sources import Sources

# What functions of the runtime call the library whose words they use.
_LIBRARIES = ("library", "_library", "xp")
# A functor where code names it.
_MEMBER = re.compile(r"[A-Z]\w+Op\.[A-Z]\w*")
# What the ops of rows reduce with.
_ROWS = ("row_sum", "row_max", "row_min")


@memoize(lambda packages, sources: (*packages, sources), size=4)
def uses_of_words(packages: tuple[str, ...], sources: Sources) -> Uses:
    """The words that the functions of packages of backends, and of numerics, need."""
    own: dict[Function, set[str]] = {}
    called: dict[Function, set[Function]] = {}
    folders = [*(BACKENDS / package for package in packages), NUMERICS]
    for path in (path for folder in folders for path in sources.below(folder) if path.suffix == ".py"):
        body = sources.tree(path) or []
        imported = dict(_imported(path, body))
        for key, node in _defined(str(path), body):
            own.setdefault(key, set()).update(_words_in(node))
            called.setdefault(key, set()).update(_calls(str(path), node, imported))
    while True:
        grown = False
        for key, words in own.items():
            further = {word for other in called[key] for word in own.get(other, ())} - words
            words |= further
            grown = grown or bool(further)
        if not grown:
            return Uses({key: frozenset(words) for key, words in own.items()})


def _defined(path: str, body: Iterable[ast.stmt]) -> Iterator[tuple[Function, ast.AST]]:
    """The functions of a module, its constants, which may name functions, and the methods of its classes."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield (path, name), node
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield (path, name), value
            case ast.ClassDef(body=members):
                yield from (((CLASS, it.name), it) for it in members if isinstance(it, ast.FunctionDef))


def _imported(path: PurePosixPath, body: Iterable[ast.stmt]) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """The names that a module imports, each with a module and the function of it that it is, if it is one."""
    for node in body:
        match node:
            case ast.Import(names=names):
                yield from (((it.asname or it.name).partition(".")[0], (ELSEWHERE, None)) for it in names)
            case ast.ImportFrom(module=None, names=names, level=level):
                folder = path.parents[level - 1]
                yield from ((it.asname or it.name, (str(folder / f"{it.name}.py"), None)) for it in names)
            case ast.ImportFrom(module=str(module), names=names, level=level) if level:
                home = path.parents[level - 1].joinpath(*module.split(".")).with_suffix(".py")
                yield from ((it.asname or it.name, (str(home), it.name)) for it in names)


def _words_in(function: ast.AST) -> Iterator[str]:
    """The words that a function names, and the functors, as members of their enums, that it does not only compare."""
    compared = {id(part) for node in ast.walk(function) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and _last_name(node.value) in _LIBRARIES:
            yield node.attr
        elif isinstance(node, ast.Attribute) and _MEMBER.fullmatch(ast.unparse(node)) and id(node) not in compared:
            yield ast.unparse(node)


def _calls(path: str, function: ast.AST, imported: Mapping[str, tuple[str, str | None]]) -> Iterator[Function]:
    """Yield the possible callees of a function: functions by name, and methods of that name of any class."""
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name):
                home, original = imported.get(name, (path, name))
                if original is not None:
                    yield home, original
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in imported:
                home, original = imported[owner]
                yield home if original is None else CLASS, name
            case ast.Attribute(value=owner, attr=name) if _last_name(owner) not in _LIBRARIES:
                yield CLASS, name


def _last_name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


# What a backend is refused.


@memoize(lambda uses, family, array: (uses, family, array))
def _refused_words(uses: Uses, family: BackendFamily, array: ArrayLibrary) -> Mapping[str, LackingWord]:
    """The words that a library does without, and why: also those whose spelling needs one of these."""
    refused = dict(array.refused)
    needed = {
        name: uses.in_tree(spelling.tree, [family.package], family.vocabulary)
        for name, word in family.vocabulary.items()
        if (spelling := array.spellings.get(name) or word.spelling) is not None
    }
    while refused:
        further = {
            name: refused[next(word for word in words if word in refused)]
            for name, words in needed.items()
            if name not in refused and not words.isdisjoint(refused)
        }
        if not further:
            break
        refused |= further
    return refused


def refusal(
    spec: Spec, backend: Backend, functor: Functor | None, call: FunctionCall, dtype: str | None
) -> LackingWord | None:
    """Why a backend cannot make a call for an op and a dtype: the first word that it needs and the library lacks."""
    family, array = spec.family_of(backend), backend.array
    if spec.uses is None or family is None or array is None or not array.refused:
        return None
    refused = _refused_words(spec.uses, family, array)
    needed = needed_words(spec, spec.uses, backend, functor, call, dtype)
    return next((reason for word, reason in refused.items() if word in needed), None)


def needed_words(
    spec: Spec, uses: Uses, backend: Backend, functor: Functor | None, call: FunctionCall, dtype: str | None
) -> Words:
    """Return the words that a backend's call needs for an op and a dtype, without those that their spellings need."""
    family = spec.family_of(backend)
    assert family is not None
    packages = [package for package in (backend.package, family.package) if package is not None]
    needed = uses.of_op(packages, call.module, call.function)
    named = [each for each in spec.every_functor if each.member in needed]
    for each in [*named, *([] if functor is None else [functor])]:
        needed |= _words_of_functor(spec, uses, family, each, dtype in spec.groups["integer"])
    return needed


@memoize(lambda spec, uses, family, functor, is_integer: (*decisive(spec, functor), uses, family, is_integer))
def _words_of_functor(spec: Spec, uses: Uses, family: BackendFamily, functor: Functor, is_integer: bool) -> Words:
    """The words that a functor's formulas need, of integers or of other numbers."""
    words = set(_joining(family, functor))
    for name in _primitives(spec, functor):
        if name in spec.primitives:
            array = spec.primitives[name].implementation("array")
            words |= uses.in_text(array.integer if is_integer else array.float)
    if functor.is_of_rows:
        words |= {word for name in _ROWS for word in uses.functions.get((CLASS, name), ())}
    return frozenset(words)


def _primitives(spec: Spec, functor: Functor) -> Iterator[str]:
    """The primitives of a functor and its state, but those of its gradient."""
    if functor.is_of_rows:
        for node in joined_results(spec, functor):
            yield from (call.primitive for call in calls(node))
        return
    own = [scope for key, scope in scopes(spec, functor).items() if not key.startswith("gradient")]
    if isinstance(functor.reduction, Monoid):
        states = (state_scopes(spec, it) for name, it in spec.states.items() if name == functor.reduction.state)
        own += [scope for formulas in states for scope in formulas.values()]
    for scope in own:
        yield from scope.used()


def _joining(family: BackendFamily, functor: Functor) -> Iterator[str]:
    """The words that join or find elements for a functor."""
    reduction = functor.reduction
    if isinstance(reduction, Position):
        yield functor.name
    elif isinstance(reduction, Monoid):
        combine = text_of(reduction.combine.node)
        for word in family.vocabulary.values():
            formula = word.scan if functor.is_scan else word.combine
            if formula is not None and text_of(formula.node) == combine:
                yield word.name
