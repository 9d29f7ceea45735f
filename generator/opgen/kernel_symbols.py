"""The names that kernels and their headers have."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from opgen.cache.memo import memoize
from opgen.cpp import camel, names_in
from opgen.expression import outer_names
from opgen.folders import HEADERS
from opgen.formula.primitives import Primitive
from opgen.kernels import KernelFamily
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid
from opgen.model.spec import Spec
from opgen.problem import Problem, Problems
from opgen.scopes import decisive, scopes, state_scopes
from opgen.sources import Sources, location_of, package_folders

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_PLACEHOLDER = re.compile(r"{\w+}")


def with_headers(spec: Spec) -> tuple[KernelFamily, ...]:
    """The families of kernels, with the headers of the primitives that they compute."""
    if not any(primitive.header for primitive in spec.primitives.values()):
        return spec.kernels
    return tuple(_with_headers(spec, family) for family in spec.kernels)


@memoize(lambda spec, family: (family, spec.primitives, spec.known_dtypes, *spec.functors.values()), size=256)
def _with_headers(spec: Spec, family: KernelFamily) -> KernelFamily:
    own = {it.header: it.location for it in _primitives_of(spec, family) if it.header is not None}
    return replace(family, headers={**family.headers, **own}) if own else family


def check_kernels(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note names in kernels that no header defines, and definitions that no kernel needs."""
    folders = package_folders(spec.package)
    headers = _headers(folders, sources)
    is_whole = bool(headers) and bool(spec.kernels)
    unknown: dict[tuple[str, str, str], list[str]] = {}
    defined_anywhere: set[str] = set()
    for family in spec.kernels:
        before = len(problems)
        for header, location in family.headers.items():
            if header not in headers:
                fix = f"write a header to {HEADERS}"
                problems.unknown(location, f"unknown header '{header}'", header, headers, fix)
        defined_there, flaws = reached(tuple(family.headers), folders, sources)
        problems += flaws
        # A header that is missing would have defined something.
        if len(problems) > before:
            is_whole = False
            continue
        known = (
            defined_there | {struct.name for struct in family.structs} | {constant.name for constant in spec.constants}
        )
        for kernel in family.kernels:
            for name in names_in(_PLACEHOLDER.sub("", kernel.call)):
                if name not in known:
                    message = f"unknown name '{name}' in 'call' of kernel '{kernel.name}'"
                    fix = f"define it in a header of {family.path.as_posix()}"
                    problems.unknown(kernel.call_location, message, name, known, fix)
        _check_functor_names(spec, family, defined_there, problems)
        for primitive in _primitives_of(spec, family):
            texts = primitive.implementation("kernel").texts
            keys = {first: primitive.written_in("kernel", text) for text in texts for first, *_ in outer_names(text)}
            for name, key in keys.items():
                if name not in defined_there and name not in primitive.parameters:
                    unknown.setdefault((primitive.name, name, key), []).append(family.path.as_posix())
        defined_anywhere |= defined_there
    # One primitive serves several families.
    for (primitive_name, name, key), families in unknown.items():
        parameters = spec.primitives[primitive_name].parameters
        message = f"unknown name '{name}' in '{key}' of primitive '{primitive_name}'"
        fix = f"write one of {', '.join(parameters)}, or define it in a header of {' and '.join(families)}"
        location = spec.primitives[primitive_name].implementation("kernel").location
        problems.unknown(location, message, name, {*defined_anywhere, *parameters}, fix)
    # Kernels name the types of all widths, so that what one header defines is enough.
    defined = {name for path in headers.values() for name in sources.defined(path)}
    for width, (text, location) in spec.widths.items() if is_whole else ():
        for name in names_in(text):
            if name not in defined:
                fix = f"define it in a header of {HEADERS}"
                problems.unknown(location, f"unknown name '{name}' in width '{width}'", name, defined, fix)


def _check_functor_names(spec: Spec, family: KernelFamily, defined: Collection[str], problems: Problems) -> None:
    """Note ops whose structs, and parameters whose names, kernels of a family have for something else."""
    structs: dict[str, str] = {}
    for functor in spec.functors_of(family):
        struct = camel(functor.name)
        first = structs.setdefault(struct, functor.name)
        if struct in defined or first != functor.name:
            other = "a header of its kernels defines" if struct in defined else f"op '{first}' has"
            message = f"op '{functor.name}' becomes the struct {struct}, which {other} too; choose another name"
            problems.note(functor.location, message)
        own = {*functor.named, *functor.parameters} - {"x", "y"}
        # Most ops have no other names.
        names = _primitives_of_functor(spec, functor) if own else ()
        used = (spec.primitives[name] for name in names if name in spec.primitives)
        called = {
            first
            for primitive in used
            for text in primitive.implementation("kernel").texts
            for first, *_ in outer_names(text)
            if first not in primitive.parameters
        }
        for name in (*functor.named, *functor.parameters):
            if name in own and name in called:
                message = f"'{name}' cannot be a parameter of op '{functor.name}', its kernels call a function '{name}'"
                problems.note(functor.location, f"{message}; choose another one")


@memoize(lambda spec, family: (family, spec.primitives, spec.known_dtypes, *spec.functors.values()), size=256)
def _primitives_of(spec: Spec, family: KernelFamily) -> list[Primitive]:
    """The primitives that a family's kernels compute."""
    used = dict.fromkeys(name for functor in spec.functors_of(family) for name in _primitives_of_functor(spec, functor))
    return [spec.primitives[name] for name in used if name in spec.primitives]


@memoize(decisive)
def _primitives_of_functor(spec: Spec, functor: Functor) -> Sequence[str]:
    """The primitives that a functor and its state have."""
    used = [*scopes(spec, functor).values()]
    if isinstance(functor.reduction, Monoid):
        own = (state_scopes(spec, it) for name, it in spec.states.items() if name == functor.reduction.state)
        used += [scope for formulas in own for scope in formulas.values()]
    return list(dict.fromkeys(name for scope in used for name in scope.used()))


@memoize(lambda headers, folders, sources: (*headers, *folders, sources), size=1024)
def reached(
    headers: tuple[str, ...], folders: tuple[PurePosixPath, ...], sources: Sources
) -> tuple[frozenset[str], Sequence[Problem]]:
    """Return the names that headers and their includes define, and the errors there."""
    problems = Problems()
    known = _headers(folders, sources)
    waiting = [header for header in headers if header in known]
    seen: set[str] = set()
    while waiting:
        header = waiting.pop()
        if header in seen:
            continue
        seen.add(header)
        text = sources.text(known[header]) or ""
        for match in _INCLUDE.finditer(text):
            if match[1] in known:
                waiting.append(match[1])
            else:
                where = location_of(known[header], text.count("\n", 0, match.start()) + 1)
                message = f"it includes an unknown header, '{match[1]}'"
                problems.unknown(where, message, match[1], known, "write it, or remove the include")
    return frozenset(name for header in seen for name in sources.defined(known[header])), problems


def _headers(folders: Iterable[PurePosixPath], sources: Sources) -> dict[str, PurePosixPath]:
    """The headers of kernels, by the names by which others include them."""
    paths = [*sources.below(HEADERS), *(path for folder in folders for path in sources.below(folder / "kernels"))]
    return {path.name.removesuffix(".j2"): path for path in paths if ".hpp" in path.suffixes}
