"""Values that nothing uses, and values that say what holds without them: neither changes any output."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath

from opgen.cache.memo import memoize
from opgen.folders import RUNTIME, TEMPLATES
from opgen.formula.formula import Formula
from opgen.formula.nodes import OPERATORS, Name, names
from opgen.formula.primitives import Primitive
from opgen.kernel_symbols import reached
from opgen.kernels import KernelFamily
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import REAL_RESULT
from opgen.model.reductions import Monoid, State
from opgen.model.spec import Spec
from opgen.problem import Location, Problem, Problems, SpecError
from opgen.promotion import redundant
from opgen.sources import Sources, package_folders

_PLACEHOLDER = re.compile(r"{\w+}")


def check_unused(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note what nothing uses or needs, in a spec without other errors."""
    if problems:
        return
    for kind in spec.functors.values():
        _check_states(spec, kind, problems)
        for functor in kind.functors:
            if not functor.is_gradient:
                problems += _functor_problems(spec, functor)
    for primitive in spec.primitives.values():
        if not primitive.location.is_of_base:
            problems += _primitive_problems(primitive)
    dtypes = {dtype.name: dtype for dtype in spec.dtypes}
    for dtype in spec.dtypes:
        for other in redundant(dtypes, dtype):
            message = f"dtype '{dtype.name}' is promoted to '{other}' through another one too; remove '{other}'"
            problems.note(dtype.location, message)
    _check_kernel_parts(spec, problems)
    _check_named(spec, sources, problems)


# Formulas.


def _unused_lets(let: Mapping[str, Formula], formulas: Iterable[Formula | None], of: str) -> Iterator[Problem]:
    """Yield the named parts that no formula names, and that no other part which is used does."""
    waiting = [formula for formula in formulas if formula is not None]
    used: set[str] = set()
    while waiting:
        reached = {*names(waiting.pop().node)} & let.keys() - used
        used |= reached
        waiting += [let[name] for name in reached]
    for name, formula in let.items():
        if name not in used:
            yield Problem(formula.location, f"no formula of {of} names '{name}' of 'let'; remove it")


def _functor_problems(spec: Spec, functor: Functor) -> Iterator[Problem]:
    of, location = f"op '{functor.name}'", functor.location
    written = functor.written if not functor.joins else None
    yield from _unused_lets(functor.let, (written, *functor.gradients.values()), of)
    used = {name for node in functor.nodes for name in names(node)}
    for name in functor.parameters:
        if name not in used:
            yield Problem(location, f"no formula of {of} names '{name}' of 'parameters'; remove it, or use it")
    dtypes = {*spec.resolve(functor.dtypes)}
    # A spec without complex dtypes may have ops of one with them.
    complex = {*spec.groups["complex"]}
    if functor.result == REAL_RESULT and complex and complex.isdisjoint(dtypes):
        yield Problem(functor.result_location, f"'result' of {of} is that of its operands without the key; remove it")
    if functor.joins and dtypes == {functor.result}:
        yield Problem(functor.result_location, f"'result' of {of} is that of its elements without the key; remove it")
    if functor.tensor is True:
        yield Problem(location, f"'tensor' of {of} is true without the key; remove it")
    calls = [edge.arguments for edge in functor.edges]
    for index, edge in enumerate(functor.edges):
        if edge.arguments in calls[:index]:
            yield Problem(edge.location, f"edge '{edge.call}' of {of} is there already; remove one")
    monoid = functor.reduction
    if isinstance(monoid, Monoid) and not functor.borrows:
        for key in ("element", "finish"):
            formula: Formula | None = getattr(monoid, key)
            if formula is not None and formula.node == Name("x"):
                yield Problem(formula.location, f"'{key}' of {of} is x without the key; remove it")
        if monoid.accumulate is not None and dtypes.isdisjoint((*spec.groups["float"], *spec.groups["complex"])):
            yield Problem(location, f"{of} has no floats, which 'accumulate' is for; remove it")


def _primitive_problems(primitive: Primitive) -> Iterator[Problem]:
    of = f"primitive '{primitive.name}'"
    formulas = (*primitive.gradient.values(), *primitive.complex_gradient.values())
    yield from _unused_lets(primitive.let, formulas, of)
    default = {
        "array": primitive.call if primitive.name in OPERATORS else f"np.{primitive.call}",
        "kernel": primitive.call,
    }
    for key, text in default.items():
        written = getattr(primitive, key)
        if written is not None and written.texts == (text,) and primitive.integer is None:
            yield Problem(written.location, f"'{key}' of {of} is {text} without the key; remove it")
    if primitive.complex is not None and "float" not in primitive.kinds:
        yield Problem(primitive.location, f"{of} has integers alone, of which 'complex' says nothing; remove it")


def _check_states(spec: Spec, kind: FunctorKind, problems: Problems) -> None:
    used = {functor.reduction.state for functor in spec.every_functor if isinstance(functor.reduction, Monoid)}
    for state in kind.listed:
        if state.name not in used:
            problems.note(state.location, f"no op has state '{state.name}'; remove it")
        else:
            problems += _unused_parts(state)


def _unused_parts(state: State) -> Iterator[Problem]:
    """Yield the parts of a state, and of its `let`, that its result does not depend on."""
    parts = {part.name: part for part in state.parts}
    waiting, used, lets = [*state.results], set[str](), set[str]()
    while waiting:
        for name in names(waiting.pop().node):
            own = name.removeprefix("x.").removeprefix("y.")
            if own in parts and own not in used:
                used.add(own)
                waiting.append(parts[own].combine)
            elif name in state.let and name not in lets:
                lets.add(name)
                waiting.append(state.let[name])
    of = f"state '{state.name}'"
    for part in state.parts:
        if part.name not in used:
            yield Problem(part.combine.location, f"the result of {of} does not depend on part '{part.name}'; remove it")
    for name, formula in state.let.items():
        if name not in lets:
            yield Problem(formula.location, f"no formula of {of} names '{name}' of 'let'; remove it")


# Kernels.


def _check_kernel_parts(spec: Spec, problems: Problems) -> None:
    """Note groups of fields and widths that no kernel has."""
    grouped = {member.group for family in spec.kernels for struct in family.structs for member in struct.members}
    for group in spec.field_groups:
        if group.name not in grouped and not group.location.is_of_base:
            problems.note(group.location, f"no struct has fields of group '{group.name}'; remove it")
    ranged = {
        text for family in spec.kernels for kernel in family.kernels for it in kernel.over.values() for text in it
    }
    if any(functor.condition is not None for functor in spec.every_functor):
        # Ops with a condition have kernels for each width.
        ranged |= spec.widths.keys()
    for width, (_, location) in spec.widths.items():
        if width not in ranged and not location.is_of_base:
            problems.note(location, f"no kernel ranges over width '{width}'; remove it")


def _check_named(spec: Spec, sources: Sources, problems: Problems) -> None:
    """Note the constants, structs and kernels that no text of the project names."""
    for location, what, words in _named_by_texts(spec):
        if not location.is_of_base and not all(_is_named(word, sources) for word in words):
            problems.note(location, f"nothing in {RUNTIME} or {TEMPLATES} names {what}; use it, or remove it")


def _named_by_texts(spec: Spec) -> Iterator[tuple[Location, str, Sequence[str]]]:
    """Yield what texts must name, each with all the words that they must have."""
    for constant in spec.constants:
        yield constant.location, f"constant '{constant.name}'", [constant.name]
    for target in chain.from_iterable(spec.targets.values()):
        for name in (*target.flags, *target.products):
            yield target.location, f"'{name}', which target '{target.name}' has", [name]
    for family in spec.kernels:
        taken = {kernel.arguments for kernel in family.kernels}
        for struct in family.structs:
            if struct.name not in taken:
                yield struct.location, f"struct '{struct.name}', which no kernel takes", [struct.name]
        launched = _words_of_launches(family)
        for kernel in family.kernels:
            # Launchers put names together.
            words = re.findall(r"[A-Za-z]+", " ".join(_PLACEHOLDER.split(kernel.name)))
            yield kernel.location, f"kernel '{kernel.name}'", [word for word in words if word not in launched]


def _words_of_launches(family: KernelFamily) -> set[str]:
    """The words of which launches compose names of kernels."""
    texts = [kernel for launch in family.launches for kernel, _ in launch.ops.values()]
    texts += [term.text for launch in family.launches for term in launch.let.values()]
    texts += [step for launch in family.launches for step in launch.steps]
    return {word for text in texts for word in re.findall(r"[A-Za-z]+", text)}


@memoize(lambda word, sources: (word, sources))
def _is_named(word: str, sources: Sources) -> bool:
    """Whether a text has a word, in capitals or not, perhaps as a part of another word."""
    capitals = word.upper()
    texts = (sources.text(path) or "" for top in (RUNTIME, TEMPLATES) for path in sources.below(top))
    return any(word in text or capitals in text for text in texts)


def check_headers(spec: Spec, sources: Sources, texts: Mapping[PurePosixPath, str]) -> None:
    """Raise SpecError for headers that define no name in the source of their family which others do not."""
    folders = package_folders(spec.package)
    problems = []
    for family in spec.kernels:
        path = PurePosixPath(spec.package.name, "kernels", f"{family.name}.{'cpp' if family.host else 'hip'}")
        for header, location in family.headers.items() if path in texts else ():
            others = tuple(other for other in family.headers if other != header)
            own = reached((header,), folders, sources)[0] - reached(others, folders, sources)[0]
            text = texts[path]
            if not location.is_of_base and not any(name in text and _is_word(name, text) for name in own):
                message = f"header '{header}' defines nothing that the source needs and other headers lack; remove it"
                problems.append(Problem(location, message))
    if problems:
        raise SpecError(problems)


def _is_word(name: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
