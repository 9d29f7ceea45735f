"""Stage 3, second half: what every backend does for every op and dtype, from its own file and those that it extends."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from opgen.check import are_known
from opgen.model import Backend, BackendFamily, Cells, Lowering, Method, Spec
from opgen.problem import Location, Problem, did_you_mean

Owner: TypeAlias = Backend | BackendFamily


def lower(spec: Spec, problems: list[Problem]) -> Spec:
    """The spec with the lowering of every op on every backend; mistakes of cells go to `problems`."""
    owners: tuple[Owner, ...] = (*spec.backend_families, *spec.backends)
    for owner in owners:
        _check_cells(spec, owner, problems)
    return replace(
        spec,
        lowerings={backend.name: _lowered(spec, backend, problems) for backend in spec.backends},
        packages={
            backend.name: tuple(owner.package for owner in chain(spec, backend, []) if owner.package is not None)
            for backend in spec.backends
        },
    )


def chain(spec: Spec, backend: Backend, problems: list[Problem]) -> list[Owner]:
    """The backend and what it extends, one after the other."""
    known: dict[str, Owner] = {family.name: family for family in spec.backend_families}
    known.update({other.name: other for other in spec.backends})
    owners: list[Owner] = [backend]
    while (name := getattr(owners[-1], "extends", None)) is not None:
        last = owners[-1]
        place = last.place("extends") if isinstance(last, Backend) else Location(last.path)
        if name not in known:
            message = f"backend '{last.name}' extends unknown '{name}'{did_you_mean(name, known)}"
            if last is backend:
                problems.append(Problem(place, f"{message}; write the name of a family or of a backend"))
            break
        names = [owner.name for owner in owners]
        if name in names:
            # Noted once, at the first backend of the ring.
            if name == backend.name == min(names):
                message = f"backends extend each other: {' -> '.join([*names, name])}; write one of them out"
                problems.append(Problem(place, message))
            break
        owners.append(known[name])
    return owners


def _lowered(
    spec: Spec, backend: Backend, problems: list[Problem]
) -> Mapping[tuple[str, str | None], Mapping[str | None, Lowering]]:
    """By method and op, then by dtype, what a backend does."""
    owners = chain(spec, backend, problems)
    found: dict[tuple[str, str | None], Mapping[str | None, Lowering]] = {}
    for part, method in _methods(spec):
        for op in () if method.is_broken else spec.ops(method):
            found[method.name, op] = MappingProxyType(_of_op(spec, backend, owners, (part, method, op), problems))
    return found


def _of_op(
    spec: Spec,
    backend: Backend,
    owners: list[Owner],
    subject: tuple[str, Method, str | None],
    problems: list[Problem],
) -> dict[str | None, Lowering]:
    part, method, op = subject
    wanted = spec.op_dtypes(method, op)
    places: tuple[str | None, ...] = (None,) if wanted is None else wanted
    if backend.missing is not None:
        return dict.fromkeys(places, Lowering((), None, None, backend.missing, None, backend.place("runtime")))
    found: dict[str | None, Lowering] = {}
    is_written = False
    for owner in owners:
        for key in keys_of(part, method, op):
            table = _tables(owner.cells)[key[0]]
            is_written |= key[1] in table
            for lowering in table.get(key[1], ()):
                for dtype in places if lowering.dtypes is None else spec.resolve(lowering.dtypes):
                    if dtype in places:
                        found.setdefault(dtype, lowering)
    missing = [str(dtype) for dtype in places if dtype not in found]
    if missing and (not is_written or found):
        name = method.name if op is None else f"{method.name}.{op}"
        of = f" of {', '.join(missing)}" if wanted is not None and found else ""
        message = (
            f"backend '{backend.name}' has no cell{of} for '{name}'; write what it calls, or 'unsupported: reason'"
        )
        keys = [f"{key[0]}.{key[1]}" for key in keys_of(part, method, op)]
        written = [backend.cells.locations[key] for key in keys if key in backend.cells.locations]
        problems.append(Problem(written[0] if written else backend.place(part), message))
    return found


def keys_of(part: str, method: Method, op: str | None) -> list[tuple[str, str]]:
    """Where the cell of an op may stand, the most particular place first: a table and a key of it."""
    if method.kind is None:
        return [(part, method.name)]
    return [("functors", f"{method.kind}.{method.functor or op}"), ("functors", method.kind)]


def _tables(cells: Cells) -> Mapping[str, Mapping[str, tuple[Lowering, ...]]]:
    return {"functors": cells.functors, "storage": cells.storage, "device": cells.device}


def _methods(spec: Spec) -> Iterator[tuple[str, Method]]:
    for method in spec.storage_methods():
        yield "storage", method
    for method in spec.device_methods:
        yield "device", method


def _check_cells(spec: Spec, owner: Owner, problems: list[Problem]) -> None:
    """Note the cells of a file that belong to no op, that name what is not there, or that say something twice."""
    what = f"{'backend' if isinstance(owner, Backend) else 'family'} '{owner.name}'"
    subjects: dict[tuple[str, str], list[tuple[Method, str | None]]] = {}
    for part, method in _methods(spec):
        for op in () if method.is_broken else spec.ops(method):
            for key in keys_of(part, method, op):
                subjects.setdefault(key, []).append((method, op))
    broken = {(part, method.name) for part, method in _methods(spec) if method.is_broken}
    for part, table in _tables(owner.cells).items():
        known = [name for table_name, name in subjects if table_name == part]
        for name, lowerings in table.items():
            place = owner.cells.locations[f"{part}.{name}"]
            if isinstance(owner, Backend) and owner.missing is not None:
                message = f"{what} has a cell of '{name}' but no runtime; remove the cell, or name its package"
                problems.append(Problem(place, message))
            elif (part, name) not in subjects:
                if (part, name) not in broken:
                    noun = {"functors": "functor", "storage": "storage method", "device": "device method"}[part]
                    problems.append(Problem(place, f"unknown {noun} '{name}' in {what}{did_you_mean(name, known)}"))
            else:
                _check_lowerings(spec, owner, f"'{name}' of {what}", subjects[part, name], lowerings, problems)


def _check_lowerings(
    spec: Spec,
    owner: Owner,
    what: str,
    subjects: list[tuple[Method, str | None]],
    lowerings: tuple[Lowering, ...],
    problems: list[Problem],
) -> None:
    named = [spec.op_dtypes(method, op) for method, op in subjects]
    wanted = None if named[0] is None else {dtype for dtypes in named for dtype in dtypes or ()}
    seen: set[str] = set()
    for lowering in lowerings:
        if isinstance(owner, Backend):
            _check_libraries(owner, what, lowering, problems)
        if lowering.dtypes is not None and wanted is None:
            problems.append(Problem(lowering.location, f"{what} has no dtype; remove 'dtypes'"))
            continue
        if wanted is None:
            continue
        if lowering.dtypes is not None and not are_known(spec, lowering.dtypes, (), problems):
            continue
        dtypes = sorted(wanted) if lowering.dtypes is None else spec.resolve(lowering.dtypes)
        if lowering.dtypes is not None and lowering.dtypes.listed:
            for dtype in dtypes:
                if dtype not in wanted:
                    problems.append(
                        Problem(lowering.location, f"{what} lists {dtype}, which the op does not have; remove it")
                    )
        for dtype in dtypes:
            if dtype in seen and dtype in wanted:
                problems.append(Problem(lowering.location, f"{what} has two cells for {dtype}; keep one"))
        seen.update(dtypes)


def _check_libraries(owner: Backend, what: str, lowering: Lowering, problems: list[Problem]) -> None:
    known = [library.name for library in owner.libraries]
    for call in lowering.calls:
        if call.library is not None and call.library not in known:
            mend = did_you_mean(call.library, known) or "; write it to 'libraries'"
            problems.append(Problem(call.location, f"{what} calls the unknown library '{call.library}'{mend}"))
