"""Stage 3, second half: what every backend does for every op and dtype, from its own file and those that it extends."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from opgen.cache.memo import memoize
from opgen.cells import PARTS, FunctionCall, Lowering, Lowerings
from opgen.check import are_known
from opgen.composed import called_methods
from opgen.gradient_ops import GRADIENT_ENDING
from opgen.model.backends import Backend, Owner
from opgen.model.emitted_ops import DEVICE_MODULE
from opgen.model.functors import Functor
from opgen.model.kinds import FUNCTOR_KINDS, ROW, ROW_GRADIENT
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.problem import Location, Problem, Problems, did_you_mean
from opgen.words import refusal

# Where a cell stands: a part of a file, and a key of it.
Key: TypeAlias = tuple[str, str]
# Whose cell lacks something, where that is, and the dtypes of an op that has a cell for others alone.
Lack: TypeAlias = tuple[str, Location, tuple[str, ...]]


class _Subject(NamedTuple):
    """An op of a method, which has a cell on each backend."""

    method: Method
    op: str | None
    module: str | None  # in which the function with the method's name is called where there is no cell
    keys: Sequence[Key]
    decisive: tuple[object, ...]  # what decides with the cells what a backend does


def lower(spec: Spec, problems: Problems) -> Spec:
    """The spec with the lowering of every op on every backend; errors of cells go to `problems`."""
    for family in spec.backend_families:
        path = next((backend.path for backend in spec.backends if backend.name == family.name), None)
        if path is not None:
            message = f"{family} has the name of the backend in {path.as_posix()}; rename one of the two"
            problems.note(Location(family.path), message)
    subjects = list(_subjects(spec))
    of_keys: dict[Key, list[_Subject]] = {}
    for subject in subjects:
        for key in subject.keys:
            of_keys.setdefault(key, []).append(subject)
    for owner in _extended(spec).values():
        _check_cells(spec, owner, of_keys, problems)
    invalid_files = problems.invalid_files
    lowerings = {}
    packages: dict[str, tuple[str, ...]] = {}
    lacking: dict[Lack, list[str]] = {}
    for backend in spec.backends:
        owners = spec.chain(backend)
        _check_extends(spec, owners, backend, problems)
        is_whole = owners[-1].extends is None and all(owner.missing is None for owner in owners)
        is_sure = is_whole and invalid_files.isdisjoint(owner.path for owner in owners)
        noted = (lacking, problems) if is_sure else ({}, Problems())
        lowerings[backend.name] = _lowered(spec, owners, backend, subjects, *noted)
        named = tuple(owner.package for owner in owners if owner.package is not None)
        packages[backend.name] = named if is_whole else ()
    for (whose, location, dtypes), names in lacking.items():
        of = f" of {', '.join(dtypes)}" if dtypes else ""
        shown = ", ".join(f"'{name}'" for name in _shortened(spec, names))
        problems.note(
            location, f"{whose} has no cell{of} for {shown}; write what it calls, or '{{unsupported: reason}}'"
        )
    return replace(spec, lowerings=lowerings, packages=packages)


def _extended(spec: Spec) -> dict[str, Owner]:
    """Return the families and backends that a backend may extend, by name."""
    return {owner.name: owner for owner in spec.owners}


def _check_extends(spec: Spec, owners: Sequence[Owner], backend: Backend, problems: Problems) -> None:
    """Note what is wrong with what a backend extends; not again what is wrong further on in its chain."""
    name, location = backend.extends, backend.location_of("extends")
    if name is None:
        return
    known = _extended(spec)
    names = [owner.name for owner in owners]
    message = f"{backend} extends '{name}'"
    if backend.missing is not None:
        problems.note(location, f"{message} but has no runtime; remove 'extends', or name its package")
    elif name not in known:
        others = [other.name for other in known.values() if other.missing is None]
        problems.unknown(location, f"{message}, which is neither a family nor a backend", name, others)
    elif known[name].missing is not None:
        problems.note(location, f"{message}, which has no runtime and no cells; write its own cells")
    elif owners[-1].extends == backend.name == min(names):
        # A ring is noted once, at the first of its backends.
        ring = " -> ".join([*names, backend.name])
        problems.note(location, f"backends extend each other: {ring}; write the cells of one of them out")


def _lowered(
    spec: Spec,
    owners: Sequence[Owner],
    backend: Backend,
    subjects: Sequence[_Subject],
    lacking: dict[Lack, list[str]],
    problems: Problems,
) -> Lowerings:
    """By method and op, then by dtype, what a backend does; the names of cells that are not there go to `lacking`."""
    lowerings: dict[tuple[str, str | None], Mapping[str | None, Lowering]] = {}
    for subject in subjects:
        done = _of_op(spec, owners, backend, subject)
        lowerings[subject.method.name, subject.op] = done.lowerings
        problems += done.problems
        if done.missing:
            lack = (*_place_of_lack(owners, subject.keys), done.missing if done.is_written else ())
            names, name = lacking.setdefault(lack, []), subject.keys[0][1]
            # Backends of one family lack it together.
            if name not in names:
                names.append(name)
    for method in (subject.method for subject in subjects if subject.method.body is not None):
        lowerings[method.name, None] = _without_parts(spec, method, lowerings[method.name, None], lowerings)
    return lowerings


@dataclass(frozen=True)
class _Done:
    """Return the lowerings of an op on a backend by dtype, and their errors."""

    lowerings: Mapping[str | None, Lowering]
    problems: Sequence[Problem] = ()
    missing: tuple[str, ...] = ()  # the dtypes for which no cell says anything
    is_written: bool = False  # whether some cell says anything of it


def _what_decides(spec: Spec, owners: Sequence[Owner], backend: Backend, subject: _Subject) -> tuple[object, ...]:
    parts: list[object] = [backend, spec.modules, spec.uses, *subject.decisive]
    for owner in owners:
        parts.append(owner.package)
        parts += [owner.cells.get(key) for key in subject.keys]
    return tuple(parts)


@memoize(_what_decides)
def _of_op(spec: Spec, owners: Sequence[Owner], backend: Backend, subject: _Subject) -> _Done:
    """Return the lowerings of an op of a method on a backend."""
    method, op, module, keys, _ = subject
    wanted = spec.op_dtypes(method, op)
    dtypes: tuple[str | None, ...] = (None,) if wanted is None else wanted
    if backend.missing is not None:
        reason = Lowering((), None, None, backend.missing, None, backend.location_of("runtime"))
        return _Done(dict.fromkeys(dtypes, reason))
    if method.body is not None:
        composed = Lowering((), None, None, None, None, method.location, called_methods(method))
        of_library = [*_unsupported(spec, backend, method, op), composed]
        each_dtype = _of_dtypes(spec, backend, of_library, dtypes)
        return _Done(MappingProxyType({dtype: each for dtype, each in each_dtype.items() if each}))
    cells = (owner.cells.get(key) for owner in owners for key in keys)
    own = [lowering for cell in cells if cell is not None for lowering in cell.lowerings]
    every = [*_unsupported(spec, backend, method, op), *own, *_default(spec, owners, method, module)]
    done = _of_dtypes(spec, backend, every, dtypes)
    problems = Problems()
    for lowering in done.values():
        if lowering is not None and lowering.is_open:
            message = f"'{keys[0][1]}' ends with '{lowering.calls[-1]}', which may refuse"
            problems.note(lowering.calls[-1].location, f"{message}; end the list with a call that takes everything")
    if backend.refused:
        functor = spec.functor(method, op)
        done = {dtype: each and _without_words(spec, backend, functor, dtype, each) for dtype, each in done.items()}
    missing = tuple(str(dtype) for dtype, lowering in done.items() if lowering is None)
    return _Done(MappingProxyType({dtype: each for dtype, each in done.items() if each}), problems, missing, bool(own))


def _unsupported(spec: Spec, backend: Backend, method: Method, op: str | None) -> Iterator[Lowering]:
    """Yield the lowerings that are unsupported since the library lacks a dtype of the elements or the results."""
    functor, gives_complex = spec.functor(method, op), any(result.is_complex for result in method.results)
    for name, (reason, location) in backend.lacking.items():
        is_result = functor is not None and functor.result == name
        yield Lowering(
            (), None, None, reason, None if is_result else Names((name,), (location,), listed=True), location
        )
        parts = (dtype.real for dtype in spec.dtypes if dtype.name == name and gives_complex)
        yield from (
            Lowering((), None, None, reason, Names((part,), (location,), listed=True), location)
            for part in parts
            if part
        )


def _without_words(
    spec: Spec, backend: Backend, functor: Functor | None, dtype: str | None, lowering: Lowering
) -> Lowering:
    """The lowering, or the refusal if the library lacks a word that its calls need."""
    for call in lowering.calls:
        lacking = refusal(spec, backend, functor, call, dtype)
        if lacking is not None:
            return Lowering((), None, None, lacking.unsupported, None, lacking.location)
    return lowering


def _without_parts(
    spec: Spec, method: Method, own: Mapping[str | None, Lowering], lowerings: Lowerings
) -> Mapping[str | None, Lowering]:
    """The lowerings of a composed method, refused where one of its parts is an op that the backend lacks."""
    ops = {(op or (each.tensor.name if each.tensor else None)): (each.name, op) for each, op in _ops(spec)}
    parts = [lowerings[ops[name]] for name in called_methods(method) if name in ops and ops[name] in lowerings]
    lowered = {}
    for dtype, lowering in own.items():
        lacking = (part[dtype] for part in parts if dtype in part and part[dtype].unsupported is not None)
        lowered[dtype] = next(lacking, lowering)
    return lowered


def _ops(spec: Spec) -> Iterator[tuple[Method, str | None]]:
    """The storage methods with their ops."""
    yield from ((method, op) for method in spec.storage_methods() if not method.is_broken for op in spec.ops(method))


def _default(spec: Spec, owners: Sequence[Owner], method: Method, module: str | None) -> Iterator[Lowering]:
    """Return the default call of an op without a cell: the op of a launch, or the method's name in `module`."""
    packages = [spec.modules.get(owner.package or "", {}) for owner in owners]
    if any(method.name in modules.get(DEVICE_MODULE, {}) for modules in packages):
        call = FunctionCall(DEVICE_MODULE, method.name, None, False, method.location)
        yield Lowering((call,), None, None, None, None, method.location)
    functions = next((modules[module] for modules in packages if module in modules), {}) if module is not None else {}
    if module is not None and method.name in functions:
        call = FunctionCall(module, method.name, None, False, method.location)
        yield Lowering((call,), None, None, None, None, method.location)


def _of_dtypes(
    spec: Spec, backend: Backend, lowerings: Sequence[Lowering], dtypes: Iterable[str | None]
) -> dict[str | None, Lowering | None]:
    """Return the lowering of each dtype from its cells; libraries that lack the dtype are left out."""
    if lowerings and _takes_everything(lowerings[0]):
        return dict.fromkeys(dtypes, lowerings[0])
    without = {
        library.name: {*spec.groups["all"]} - {*spec.resolve(library.dtypes)}
        for library in backend.libraries
        if library.dtypes is not None
    }
    meant = [None if lowering.dtypes is None else spec.resolve(lowering.dtypes) for lowering in lowerings]
    lacking = [
        {dtype for call in lowering.calls for dtype in without.get(call.library or "", ())} for lowering in lowerings
    ]
    combined: dict[tuple[int, ...], Lowering | None] = {}  # many dtypes have the same
    done = {}
    for dtype in dtypes:
        own = tuple(
            position
            for position, names in enumerate(meant)
            if (names is None or dtype in names) and dtype not in lacking[position]
        )
        if own not in combined:
            combined[own] = _joined([lowerings[position] for position in own])
        done[dtype] = combined[own]
    return done


def _takes_everything(lowering: Lowering) -> bool:
    """Whether nothing that follows is ever done."""
    is_of_all = lowering.dtypes is None and all(call.library is None for call in lowering.calls)
    return is_of_all and not lowering.is_open


def _joined(lowerings: Iterable[Lowering]) -> Lowering | None:
    """Return one lowering with the calls of several in order of preference, up to the first that takes everything."""
    calls: list[FunctionCall] = []
    location = None
    for lowering in lowerings:
        location = location or lowering.location
        calls += lowering.calls
        if not lowering.is_open:
            return replace(lowering, calls=tuple(calls), dtypes=None, location=location)
    return None if location is None else Lowering(tuple(calls), None, None, None, None, location)


def _place_of_lack(owners: Sequence[Owner], keys: Sequence[Key]) -> tuple[str, Location]:
    """Whose cell lacks something, and where: the first that has one at all, or else what all others extend."""
    written = ((owner, owner.cells[key].location) for owner in owners for key in keys if key in owner.cells)
    owner, location = next(written, (owners[-1], owners[-1].location_of(keys[0][0])))
    return str(owner), location


def _shortened(spec: Spec, names: Sequence[str]) -> list[str]:
    """Return the names of cells, that of a kind instead of those of all its functors."""
    shortened: dict[str, None] = {}
    for name in names:
        kind = spec.functors.get(name.partition(".")[0])
        every = [f"{kind.name}.{functor.name}" for functor in kind.functors] if kind and "." in name else []
        shortened[kind.name if kind and every and set(every) <= set(names) else name] = None
    return list(shortened)


def keys_of(part: str, method: Method, op: str | None) -> list[Key]:
    """Return the keys under which the cell of an op may stand, the most specific first."""
    # A method that changes its storage is called otherwise than the functors of its kind, which make new ones.
    if method.kind is None or method.signature.returns == "None":
        return [(part, method.name)]
    if method.kind == ROW_GRADIENT:
        # What computes an op of rows computes its gradients.
        return [("functors", f"{ROW}.{str(method.functor).removesuffix(GRADIENT_ENDING)}"), ("functors", ROW)]
    return [("functors", f"{method.kind}.{method.functor or op}"), ("functors", method.kind)]


def _methods(spec: Spec) -> Iterator[tuple[str, Method, str | None]]:
    """The methods, the part of a file that has the cells of each, and the module that is called where none is there."""
    for family in spec.families:
        for method in family.methods:
            yield "storage", method, family.name if method.kind is None or method.signature.returns == "None" else None
    for method in spec.device_methods:
        yield "device", method, None


def _subjects(spec: Spec) -> Iterator[_Subject]:
    """Every op of every method."""
    for part, method, module in _methods(spec):
        for op in () if method.is_broken else spec.ops(method):
            functor = spec.functor(method, op)
            result = functor.result if functor is not None else None
            facts = (str(spec.op_dtypes(method, op)), result, spec.known_dtypes, spec.formats)
            yield _Subject(method, op, module, keys_of(part, method, op), (method, op, module, *facts))


def _check_cells(spec: Spec, owner: Owner, subjects: Mapping[Key, Sequence[_Subject]], problems: Problems) -> None:
    """Note the cells of a file that belong to no op, that name what is not there, or that say something twice."""
    nouns = dict(zip(PARTS, ("functor", "storage method", "device method"), strict=True))
    for (part, name), cell in owner.cells.items():
        if owner.missing is not None:
            message = f"{owner} has a cell for '{name}' but no runtime; remove the cell, or name its package"
            problems.note(cell.location, message)
        elif (part, name) in subjects:
            _check_lowerings(spec, f"'{name}' of {owner}", subjects[part, name], cell.lowerings, problems)
        elif not cell.location.is_of_base and not _is_noted(spec, part, name):
            message = f"unknown {nouns[part]} '{name}' in {owner}"
            problems.note(cell.location, message + _fix(spec, part, name, list(subjects)))


def _is_noted(spec: Spec, part: str, name: str) -> bool:
    """Whether an error elsewhere, which is noted there, is why a cell belongs to no op."""
    broken = [(location, method) for location, method, _ in _methods(spec) if method.is_broken]
    if part != "functors":
        return (part, name) in [(location, method.name) for location, method in broken]
    kind = name.partition(".")[0]
    misnamed = any(method.kind not in (None, *spec.functors) for method in spec.methods)
    return misnamed or kind in [method.kind for _, method in broken] or kind in {*FUNCTOR_KINDS} - {*spec.functors}


def _fix(spec: Spec, part: str, name: str, keys: Sequence[Key]) -> str:
    """The end of the message about a cell that belongs to no op."""
    functors = [other for table, other in keys if table == "functors"]
    known = [other for table, other in keys if table == part]
    if part == "storage":
        # A functor stands below `functors`, and so do the ops of a method that chooses between them.
        kinds = {method.name: method.kind for method in spec.storage_methods() if method.functor is None}
        own = kinds.get(name) or next((other for other in functors if other.partition(".")[2] == name), None)
        if own is not None:
            return f"; write it as '{own}' below 'functors'"
    if part == "functors":
        kind, dot, op = name.partition(".")
        chosen = [functor.name for functor in spec.functors[kind].chosen] if kind in spec.functors else []
        if chosen and (op in chosen or kind not in functors):
            return f"; no storage method has 'ops: {kind}', write one or remove the cell"
        of_kind = [other for other in functors if dot and other.startswith(f"{kind}.")]
        known = of_kind or [other for other in functors if "." not in other]
    return did_you_mean(name, known)


def _check_lowerings(
    spec: Spec, what: str, subjects: Sequence[_Subject], lowerings: Sequence[Lowering], problems: Problems
) -> None:
    named = [spec.op_dtypes(subject.method, subject.op) for subject in subjects]
    wanted = [None] if named[0] is None else [dtype for dtypes in named for dtype in dtypes or ()]
    # Of ops whose dtypes are wrong, which is noted, it is not known what they lack, nor of a dtype without a kind.
    names_of_ops = [spec.op_names(subject.method, subject.op) for subject in subjects]
    is_sure = all(dtype.kind for dtype in spec.dtypes) and all(
        names is None or (names.texts and are_known(spec, names, (), Problems())) for names in names_of_ops
    )
    taken: dict[str | None, Lowering] = {}  # by what takes everything of it
    for lowering in lowerings:
        location, names = lowering.location, lowering.dtypes
        _check_form(what, subjects, lowering, problems)
        if names is not None and named[0] is None:
            problems.note(location, f"{what} has no dtype; remove 'dtypes'")
            continue
        if names is not None and not are_known(spec, names, (), problems):
            continue
        dtypes = [*dict.fromkeys(wanted)] if names is None else spec.resolve(names)
        is_listed = names is not None and names.listed
        own = [dtype for dtype in dtypes if dtype in wanted]
        if names is not None and is_sure and dtypes and not own and not is_listed:
            problems.note(location, f"{what} is for {' '.join(names.texts)}, which the op does not have; remove it")
        elif is_sure and own and not is_listed and all(dtype in taken for dtype in own):
            earlier = taken[own[0]]
            message = f"{what} goes on after '{earlier.via or earlier.unsupported}', which takes everything"
            problems.note(location, f"{message}; move that to the end of the list, or give it 'dtypes'")
        for dtype in dtypes if is_listed else ():
            if dtype not in wanted and is_sure:
                problems.note(location, f"{what} lists {dtype}, which the op does not have; remove it")
            elif dtype in taken:
                problems.note(location, f"{what} has two cells for {dtype}; keep one")
        if not lowering.is_open:
            taken = {**dict.fromkeys(dtypes, lowering), **taken}


def _check_form(what: str, subjects: Sequence[_Subject], lowering: Lowering, problems: Problems) -> None:
    """Note a cell of a form that its methods cannot be lowered to."""
    for method in (subject.method for subject in subjects):
        if method.body is not None:
            message = f"{what} is composed of other methods; remove the cell"
        elif (lowering.calls or lowering.attribute is not None) and method.custom_class is not None:
            message = f"{what} runs a user's op; write '{{forward: name}}'"
        elif lowering.forward is not None and method.custom_class is None:
            message = f"{what} takes no user's op to forward to; write a call such as 'module.function'"
        elif lowering.attribute is not None and method.signature.parameters:
            message = f"{what} has arguments, which an attribute takes none of; write a call such as 'module.function'"
        else:
            continue
        problems.note(lowering.location, message)
