"""Stage 3, second half: what every backend does for every op and dtype, from its own file and those that it extends."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from opgen.check import are_known
from opgen.fields import Names
from opgen.model import FUNCTOR_KINDS, Backend, BackendFamily, Cells, Lowering, Lowerings, Method, Spec, Table
from opgen.problem import Location, Problem, did_you_mean
from opgen.views.dispatch import custom_class

Owner: TypeAlias = Backend | BackendFamily
Subject: TypeAlias = tuple[Method, str | None]
# Where a cell stands: a table of a file's cells, and a key of it.
Key: TypeAlias = tuple[str, str]
# Whose cell lacks something, where that is, and the dtypes of an op that has a cell for others alone.
Lack: TypeAlias = tuple[str, Location, tuple[str, ...]]


def lower(spec: Spec, problems: list[Problem]) -> Spec:
    """The spec with the lowering of every op on every backend; mistakes of cells go to `problems`."""
    for family in spec.backend_families:
        _check_name(spec, family, problems)
    for owner in _extended(spec).values():
        _check_cells(spec, owner, problems)
    chains = {backend.name: _chain(spec, backend) for backend in spec.backends}
    # A file with a mistake may not say what it means to: what it lacks is noted when it has none.
    torn = {problem.location.path for problem in problems}
    lowerings = {}
    lacking: dict[Lack, list[str]] = {}
    for backend in spec.backends:
        owners = chains[backend.name]
        _check_extends(spec, owners, backend, problems)
        is_sure = _is_whole(owners) and torn.isdisjoint(owner.path for owner in owners)
        lowerings[backend.name] = _lowered(spec, owners, backend, lacking if is_sure else {})
    _note_lacking(spec, lacking, problems)
    packages = {
        name: tuple(owner.package for owner in owners if owner.package is not None) if _is_whole(owners) else ()
        for name, owners in chains.items()
    }
    return replace(spec, lowerings=lowerings, packages=packages)


def _extended(spec: Spec) -> dict[str, Owner]:
    """What a backend may extend, by name."""
    known: dict[str, Owner] = {family.name: family for family in spec.backend_families}
    return known | {backend.name: backend for backend in spec.backends}


def _chain(spec: Spec, backend: Backend) -> list[Owner]:
    """The backend and what it extends, one after the other, up to where there is nothing to extend."""
    known = _extended(spec)
    owners: list[Owner] = [backend]
    while (owner := known.get(_extends(owners[-1]) or "")) is not None and owner not in owners:
        owners.append(owner)
    return owners


def _extends(owner: Owner) -> str | None:
    return owner.extends if isinstance(owner, Backend) else None


def _is_whole(owners: Sequence[Owner]) -> bool:
    """Whether all that the first of `owners` extends is there."""
    return _extends(owners[-1]) is None and all(getattr(owner, "missing", None) is None for owner in owners)


def _check_name(spec: Spec, family: BackendFamily, problems: list[Problem]) -> None:
    path = next((backend.path for backend in spec.backends if backend.name == family.name), None)
    if path is not None:
        message = f"family '{family.name}' has the name of the backend in {path.as_posix()}; rename one of the two"
        problems.append(Problem(Location(family.path), message))


def _check_extends(spec: Spec, owners: Sequence[Owner], backend: Backend, problems: list[Problem]) -> None:
    """Note what is wrong with what a backend extends; not again what is wrong further on in its chain."""
    name, place = backend.extends, backend.place("extends")
    if name is None:
        return
    known = _extended(spec)
    names = [owner.name for owner in owners]
    if backend.missing is not None:
        message = f"backend '{backend.name}' extends '{name}' but has no runtime; remove 'extends', or name its package"
        problems.append(Problem(place, message))
    elif name not in known:
        message = f"backend '{backend.name}' extends '{name}', which is neither a family nor a backend"
        others = [other.name for other in known.values() if getattr(other, "missing", None) is None]
        problems.append(Problem(place, message + did_you_mean(name, others)))
    elif getattr(known[name], "missing", None) is not None:
        message = f"backend '{backend.name}' extends '{name}', which has no runtime and no cells; write its own cells"
        problems.append(Problem(place, message))
    elif _extends(owners[-1]) == backend.name == min(names):
        # A ring is noted once, at the first of its backends.
        message = (
            f"backends extend each other: {' -> '.join([*names, backend.name])}; write the cells of one of them out"
        )
        problems.append(Problem(place, message))


def _lowered(spec: Spec, owners: Sequence[Owner], backend: Backend, lacking: dict[Lack, list[str]]) -> Lowerings:
    """By method and op, then by dtype, what a backend does; the names of cells that are not there go to `lacking`."""
    found: dict[tuple[str, str | None], Mapping[str | None, Lowering]] = {}
    lacked = _lacked_by_libraries(spec, backend)
    for part, method in _methods(spec):
        for op in () if method.is_broken else spec.ops(method):
            wanted = spec.op_dtypes(method, op)
            dtypes: tuple[str | None, ...] = (None,) if wanted is None else wanted
            if backend.missing is not None:
                reason = Lowering((), None, None, backend.missing, None, backend.place("runtime"))
                found[method.name, op] = dict.fromkeys(dtypes, reason)
                continue
            keys = keys_of(part, method, op)
            cells = (_table(owner.cells, key[0]).get(key[1], ()) for owner in owners for key in keys)
            own = [lowering for cell in cells for lowering in cell]
            done = _by_dtype(spec, [*_unsupported(spec, backend, method, op), *own], dtypes)
            found[method.name, op] = MappingProxyType(_served(done, lacked))
            if len(done) < len(dtypes):
                missing = tuple(str(dtype) for dtype in dtypes if dtype not in done) if own else ()
                names = lacking.setdefault((*_place_of_lack(owners, keys), missing), [])
                # Backends of one family lack it together.
                if keys[0][1] not in names:
                    names.append(keys[0][1])
    return found


def _lacked_by_libraries(spec: Spec, backend: Backend) -> Mapping[str | None, AbstractSet[str | None]]:
    """The dtypes that each library of a backend lacks."""
    return {
        library.name: {*spec.groups["all"]} - {*spec.resolve(library.dtypes)}
        for library in backend.libraries
        if library.dtypes is not None
    }


def _served(
    done: Mapping[str | None, Lowering], lacked: Mapping[str | None, AbstractSet[str | None]]
) -> dict[str | None, Lowering]:
    """What a backend does, without the calls of libraries that lack the dtype."""
    return {
        dtype: replace(lowering, calls=tuple(c for c in lowering.calls if dtype not in lacked.get(c.library, ())))
        for dtype, lowering in done.items()
    }


def _unsupported(spec: Spec, backend: Backend, method: Method, op: str | None) -> Iterator[Lowering]:
    """What the backend lacks because its library lacks a dtype: that of the elements, or that of the results."""
    functor = spec.functor(method, op)
    for name, (reason, place) in backend.lacking.items():
        is_result = functor is not None and functor.result == name
        yield Lowering((), None, None, reason, None if is_result else Names((name,), (place,), listed=True), place)


def _place_of_lack(owners: Sequence[Owner], keys: Sequence[Key]) -> tuple[str, Location]:
    """Whose cell lacks something, and where: the first that has one at all, or else what all others extend."""
    for owner in owners:
        written = (owner.cells.locations.get(f"{part}.{name}") for part, name in keys)
        place = next((location for location in written if location is not None), None)
        if place is not None:
            return _noun(owner), place
    return _noun(owners[-1]), owners[-1].place(keys[0][0])


def _noun(owner: Owner) -> str:
    return f"{'backend' if isinstance(owner, Backend) else 'family'} '{owner.name}'"


def _note_lacking(spec: Spec, lacking: Mapping[Lack, Sequence[str]], problems: list[Problem]) -> None:
    """Note the cells that are not there, those to write at one place together."""
    for (whose, place, dtypes), names in lacking.items():
        of = f" of {', '.join(dtypes)}" if dtypes else ""
        shown = ", ".join(f"'{name}'" for name in _shortened(spec, names))
        message = f"{whose} has no cell{of} for {shown}"
        problems.append(Problem(place, f"{message}; write what it calls, or '{{unsupported: reason}}'"))


def _by_dtype(spec: Spec, lowerings: Sequence[Lowering], dtypes: Sequence[str | None]) -> dict[str | None, Lowering]:
    """The first of `lowerings` for each of `dtypes` that has one."""
    found: dict[str | None, Lowering] = {}
    for lowering in lowerings:
        own = dtypes if lowering.dtypes is None else spec.resolve(lowering.dtypes)
        for dtype in own:
            if dtype in dtypes:
                found.setdefault(dtype, lowering)
    return found


def _shortened(spec: Spec, names: Sequence[str]) -> list[str]:
    """The names of cells, that of a kind in place of those of all its functors."""
    shortened: dict[str, None] = {}
    for name in names:
        kind = spec.functors.get(name.partition(".")[0])
        every = [f"{kind.name}.{functor.name}" for functor in kind.functors] if kind and "." in name else []
        shortened[kind.name if kind and every and set(every) <= set(names) else name] = None
    return list(shortened)


def keys_of(part: str, method: Method, op: str | None) -> list[Key]:
    """Where the cell of an op may stand, the most particular place first."""
    # A method that changes its storage is called otherwise than the functors of its kind, which make new ones.
    if method.kind is None or method.signature.returns == "None":
        return [(part, method.name)]
    return [("functors", f"{method.kind}.{method.functor or op}"), ("functors", method.kind)]


def _table(cells: Cells, part: str) -> Table:
    return {"functors": cells.functors, "storage": cells.storage, "device": cells.device}[part]


def _methods(spec: Spec) -> Iterator[tuple[str, Method]]:
    for method in spec.storage_methods():
        yield "storage", method
    for method in spec.device_methods:
        yield "device", method


def _check_cells(spec: Spec, owner: Owner, problems: list[Problem]) -> None:
    """Note the cells of a file that belong to no op, that name what is not there, or that say something twice."""
    what = _noun(owner)
    subjects: dict[Key, list[Subject]] = {}
    for part, method in _methods(spec):
        for op in () if method.is_broken else spec.ops(method):
            for key in keys_of(part, method, op):
                subjects.setdefault(key, []).append((method, op))
    for part in ("functors", "storage", "device"):
        for name, lowerings in _table(owner.cells, part).items():
            place = owner.cells.locations[f"{part}.{name}"]
            if isinstance(owner, Backend) and owner.missing is not None:
                message = f"{what} has a cell for '{name}' but no runtime; remove the cell, or name its package"
                problems.append(Problem(place, message))
            elif (part, name) in subjects:
                _check_lowerings(spec, f"'{name}' of {what}", subjects[part, name], lowerings, problems)
            elif not _is_noted(spec, part, name):
                noun = {"functors": "functor", "storage": "storage method", "device": "device method"}[part]
                message = f"unknown {noun} '{name}' in {what}"
                problems.append(Problem(place, message + _mend(spec, part, name, list(subjects))))


def _is_noted(spec: Spec, part: str, name: str) -> bool:
    """Whether a mistake elsewhere, which is noted there, is why a cell belongs to no op."""
    broken = [(place, method) for place, method in _methods(spec) if method.is_broken]
    if part != "functors":
        return (part, name) in [(place, method.name) for place, method in broken]
    kind = name.partition(".")[0]
    misnamed = any(method.kind not in (None, *spec.functors) for _, method in _methods(spec))
    return misnamed or kind in [method.kind for _, method in broken] or kind in {*FUNCTOR_KINDS} - {*spec.functors}


def _mend(spec: Spec, part: str, name: str, keys: Sequence[Key]) -> str:
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
    spec: Spec,
    what: str,
    subjects: Sequence[Subject],
    lowerings: Sequence[Lowering],
    problems: list[Problem],
) -> None:
    named = [spec.op_dtypes(method, op) for method, op in subjects]
    wanted = [None] if named[0] is None else [dtype for dtypes in named for dtype in dtypes or ()]
    # Of ops whose dtypes are wrong, which is noted, it is not known what they lack, nor of a dtype without a kind.
    names_of_ops = [spec.op_names(method, op) for method, op in subjects]
    is_sure = all(dtype.kind for dtype in spec.dtypes) and all(
        names is None or (names.texts and are_known(spec, names, (), [])) for names in names_of_ops
    )
    seen: set[str | None] = set()
    for lowering in lowerings:
        place = lowering.location
        _check_form(what, subjects, lowering, problems)
        names = lowering.dtypes
        if names is not None and named[0] is None:
            problems.append(Problem(place, f"{what} has no dtype; remove 'dtypes'"))
            continue
        if names is not None and not are_known(spec, names, (), problems):
            continue
        dtypes = [*dict.fromkeys(wanted)] if names is None else spec.resolve(names)
        for dtype in dtypes:
            if dtype not in wanted:
                if is_sure and names is not None and names.listed:
                    message = f"{what} lists {dtype}, which the op does not have; remove it"
                    problems.append(Problem(place, message))
            elif dtype in seen:
                of = f" for {dtype}" if dtype is not None else ""
                problems.append(Problem(place, f"{what} has two cells{of}; keep one"))
        seen.update(dtypes)


def _check_form(what: str, subjects: Sequence[Subject], lowering: Lowering, problems: list[Problem]) -> None:
    """Note a cell of a form that its methods cannot be lowered to."""
    for method, _ in subjects:
        if (lowering.calls or lowering.attribute is not None) and custom_class(method) is not None:
            message = f"{what} runs a user's op; write '{{forward: name}}'"
        elif lowering.forward is not None and custom_class(method) is None:
            message = f"{what} takes no user's op to forward to; write a call such as 'module.function'"
        elif lowering.attribute is not None and method.signature.parameters:
            message = f"{what} has arguments, which an attribute takes none of; write a call such as 'module.function'"
        else:
            continue
        problems.append(Problem(lowering.location, message))
