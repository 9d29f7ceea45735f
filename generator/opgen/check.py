"""Stage 3: what must hold between the files of a spec. Every mistake is noted; none stops the others."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from opgen.arguments import KNOWN_TYPES, border
from opgen.kernels import KernelFamily
from opgen.model import FUNCTOR_KINDS, Backend, Lowering, Method, Names, Spec
from opgen.problem import Location, Problem, did_you_mean, nearest


def check(spec: Spec, problems: list[Problem]) -> Spec:
    """The spec with every backend holding what it extends; mistakes go to `problems`."""
    _check_names(spec, problems)
    _check_rank(spec, problems)
    for method in spec.storage_methods():
        _check_method(spec, method, problems)
    for method in spec.device_methods:
        _check_method(spec, method, problems)
    for kind in spec.functors.values():
        for functor in kind.functors:
            _check_dtypes(spec, functor.dtypes, (), problems)
            if functor.result is not None and functor.result not in _dtype_names(spec):
                message = f"unknown dtype '{functor.result}'{did_you_mean(functor.result, _dtype_names(spec))}"
                problems.append(Problem(functor.location, message))
    for family in spec.kernels:
        _check_kernels(spec, family, problems)
    for backend in spec.backends:
        _check_backend(spec, backend, problems)
    spec = replace(spec, backends=tuple(_extended(spec, backend, problems) for backend in spec.backends))
    _check_libraries(spec, problems)
    return spec


def _check_kernels(spec: Spec, family: KernelFamily, problems: list[Problem]) -> None:
    if family.functors is not None and family.functors not in spec.functors:
        message = f"unknown functor kind '{family.functors}'{did_you_mean(family.functors, spec.functors)}"
        problems.append(Problem(family.functors_location, message))
    elements = [*_dtype_names(spec), *spec.widths]
    for kernel in family.kernels:
        for axis, texts in kernel.over.items():
            place = kernel.over_locations[axis]
            if not texts:
                problems.append(Problem(place, f"'{axis}' of kernel '{kernel.name}' is empty; write what it holds"))
            if texts == ("op",) and axis != "op":
                if "op" not in kernel.over:
                    message = (
                        f"'{axis}' of kernel '{kernel.name}' is that of its op, which it lacks; add 'op' to 'over'"
                    )
                    problems.append(Problem(place, message))
                continue
            known = list(spec.functors) if axis == "op" else [*elements, *(spec.groups if len(texts) == 1 else ())]
            for text in texts:
                if text not in known:
                    message = f"kernel '{kernel.name}' ranges over unknown '{text}'{did_you_mean(text, known)}"
                    problems.append(Problem(place, message))


def _check_libraries(spec: Spec, problems: list[Problem]) -> None:
    for backend in spec.backends:
        cells = [*backend.storage.items(), *backend.device.items()] if backend.runtime is not None else []
        for method, by_op in cells:
            for lowering in (lowering for lowerings in by_op.values() for lowering in lowerings):
                if lowering.library is not None and lowering.library not in backend.libraries:
                    message = f"'{method}' of backend '{backend.name}' names an unknown library, '{lowering.library}'"
                    hint = did_you_mean(lowering.library, backend.libraries, "add it to 'libraries'")
                    problems.append(Problem(lowering.location, message + hint))


def _check_rank(spec: Spec, problems: list[Problem]) -> None:
    # A launch packs `max_rank` dims, whatever the rank of the tensor is.
    lengths = {
        field.length: f"{struct.name} of {family.path.as_posix()}"
        for family in spec.kernels
        for struct in family.structs
        for field in struct.fields
        if field.name == "dims"
    }
    for length, struct in lengths.items():
        if length != spec.package.max_rank:
            message = f"max_rank is {spec.package.max_rank}, but {struct} has {length} dims; give both one number"
            problems.append(Problem(spec.package.max_rank_location, message))


def _dtype_names(spec: Spec) -> list[str]:
    return [dtype.name for dtype in spec.dtypes]


def _check_names(spec: Spec, problems: list[Problem]) -> None:
    # A file with a mistake of its own may not say what it means to.
    torn = {problem.location.path for problem in problems}
    if not spec.backends:
        problems.append(Problem(Location(Path("spec/backends")), "no backend is here; write the file of one"))
    whole = [backend for backend in spec.backends if backend.path not in torn]
    for key in ("class_prefix", "extra", "label", "preference", "dlpack"):
        counted = Counter(getattr(backend, key) for backend in whole)
        for backend in whole:
            value = getattr(backend, key)
            if value is not None and counted[value] > 1:
                shown = f"'{value}'" if isinstance(value, str) else value
                message = f"{key} {shown} is used by more than one backend; choose another"
                problems.append(Problem(backend.place(key), message))
    owners: dict[str, str] = {}
    for backend in spec.backends:
        for target, location in backend.code_objects.targets.items() if backend.code_objects else ():
            # The code objects of a target lie in one folder.
            if owners.setdefault(target, backend.name) != backend.name:
                message = f"target '{target}' is one of backend '{owners[target]}' too; remove it from one of the two"
                problems.append(Problem(location, message))
    for name in FUNCTOR_KINDS:
        if name not in spec.functors:
            problems.append(Problem(Location(Path(f"spec/functors/{name}.yaml")), "the file is missing; write it"))


def _check_dtypes(spec: Spec, names: Names, words: Iterable[str], problems: list[Problem]) -> bool:
    """Whether all dtypes are known; those that are not are noted. A name alone is a group or one of `words`."""
    known = _dtype_names(spec) if names.listed else [*spec.groups, *words]
    what = "dtype" if names.listed else "group of dtypes"
    for text, location in zip(names.texts, names.locations, strict=True):
        if text not in known:
            is_bare = not names.listed and text in _dtype_names(spec)
            hint = f"; write a dtype in brackets, [{text}]" if is_bare else did_you_mean(text, known)
            problems.append(Problem(location, f"unknown {what} '{text}'{hint}"))
    return _are_known(spec, names, words)


def _are_known(spec: Spec, names: Names, words: Iterable[str] = ()) -> bool:
    known = _dtype_names(spec) if names.listed else {*spec.groups, *words} - spec.torn_groups
    return all(text in known for text in names.texts)


def _check_method(spec: Spec, method: Method, problems: list[Problem]) -> None:
    if method.is_broken:
        return
    arguments = method.signature.arguments
    if method.kind is not None and method.kind not in spec.functors:
        message = f"unknown functor kind '{method.kind}' of method '{method.name}'"
        problems.append(Problem(method.location, message + did_you_mean(method.kind, spec.functors)))
    if method.kind is not None and "op" not in arguments:
        message = f"method '{method.name}' chooses between ops but has no parameter 'op'; add it to the signature"
        problems.append(Problem(method.location, message))
    for parameter in method.signature.parameters:
        if border(parameter.type) is None:
            message = f"unknown type '{parameter.type}' of parameter '{parameter.name}' of '{method.name}'"
            problems.append(Problem(method.location, message + did_you_mean(parameter.type, KNOWN_TYPES)))
    are_known = method.dtypes is None or _check_dtypes(spec, method.dtypes, (), problems)
    for position, operand in enumerate(method.operands):
        if operand.name != "self" and operand.name not in arguments:
            message = f"operand '{operand.name}' is no parameter of '{method.name}'"
            problems.append(Problem(operand.location, message + did_you_mean(operand.name, ["self", *arguments])))
        if operand.layout is not None and operand.layout not in arguments:
            message = f"layout '{operand.layout}' is no parameter of '{method.name}'"
            problems.append(Problem(operand.location, message + did_you_mean(operand.layout, arguments)))
        words = ["op"] if method.kind is not None and position == 0 else ["same"] if position else []
        are_known &= _check_dtypes(spec, operand.dtypes, words, problems)
    known = ["self", *arguments]
    for item in method.checks:
        for name in item.call.names():
            if name not in known:
                message = f"check '{item.call.name}' reads '{name}', which is no parameter of '{method.name}'"
                problems.append(Problem(item.location, message + did_you_mean(name, known)))
    limited = [names for names in (*(o.dtypes for o in method.operands), method.dtypes) if names and names.texts]
    some_lack = any(
        set(spec.resolve(names)) < set(_dtype_names(spec))
        for names in limited
        if names.texts not in (("same",), ("op",))
    )
    if some_lack and are_known and method.unsupported is None:
        message = f"method '{method.name}' lacks some dtypes; say why in 'unsupported'"
        problems.append(Problem(method.location, message))


def _extended(spec: Spec, backend: Backend, problems: list[Problem]) -> Backend:
    """`backend` with the lowerings of the backends that it extends, its own going first."""
    chain = [backend.name]
    result = backend
    by_name = {other.name: other for other in spec.backends}
    while (base_name := by_name[chain[-1]].extends) is not None:
        if base_name not in by_name:
            message = f"backend '{chain[-1]}' extends unknown backend '{base_name}'{did_you_mean(base_name, by_name)}"
            problems.append(Problem(by_name[chain[-1]].place("extends"), message))
            break
        if base_name in chain:
            # Noted once, at the first backend of the ring.
            if base_name == backend.name == min(chain):
                message = f"backends extend each other: {' -> '.join([*chain, base_name])}; write one of them out"
                problems.append(Problem(backend.place("extends"), message))
            break
        base = by_name[base_name]
        result = replace(
            result, storage=_merged(base.storage, result.storage), device=_merged(base.device, result.device)
        )
        chain.append(base_name)
    return result


Table = Mapping[str, Mapping[str | None, tuple[Lowering, ...]]]


def _merged(base: Table, own: Table) -> Table:
    return {name: {**base.get(name, {}), **own.get(name, {})} for name in {**base, **own}}


def _check_backend(spec: Spec, backend: Backend, problems: list[Problem]) -> None:
    """Note what is wrong in the backend's own file. What it extends is looked at in its own file, and is complete."""
    for part, table, methods in (
        ("storage", backend.storage, tuple(spec.storage_methods())),
        ("device", backend.device, spec.device_methods),
    ):
        known = [method.name for method in methods]
        meant = set()
        for name in table:
            if name not in known:
                meant.add(nearest(name, known))
                message = f"unknown {part} method '{name}' in backend '{backend.name}'{did_you_mean(name, known)}"
                problems.append(Problem(backend.place(f"{part}.{name}"), message))
        for method in methods:
            place = backend.place(f"{part}.{method.name}", part)
            if method.name in table:
                _check_lowerings(spec, backend, method, table[method.name], place, problems)
            elif backend.extends is None and method.name not in meant:
                message = f"backend '{backend.name}' has no lowering of {part} method '{method.name}'"
                problems.append(Problem(place, f"{message}; write how it is done, or 'unsupported: reason'"))


def _check_lowerings(
    spec: Spec,
    backend: Backend,
    method: Method,
    by_op: Mapping[str | None, tuple[Lowering, ...]],
    place: Location,
    problems: list[Problem],
) -> None:
    if method.is_broken or (method.kind is not None and method.kind not in spec.functors):
        return
    ops = spec.ops(method)
    meant = set()
    for op in by_op:
        if op is None and method.kind is not None:
            if not by_op[op]:  # what stands there could not be read, which is noted
                return
            message = f"'{method.name}' of backend '{backend.name}' must list its ops: {', '.join(map(str, ops))}"
            problems.append(Problem(place, message))
            return
        if op not in ops:
            known = [name for name in ops if name]
            meant.add(nearest(str(op), known))
            hint = did_you_mean(str(op), known) if method.kind else f"; '{method.name}' has no ops, write its lowering"
            where = by_op[op][0].location if by_op[op] else place
            problems.append(Problem(where, f"unknown op '{op}' of '{method.name}' in backend '{backend.name}'{hint}"))
    for op in ops:
        name = method.name if op is None else f"{method.name}.{op}"
        if op not in by_op:
            if method.kind is not None and backend.extends is None and op not in meant:
                message = f"backend '{backend.name}' has no lowering of '{name}'"
                problems.append(Problem(place, f"{message}; write how it is done, or 'unsupported: reason'"))
            continue
        names = spec.op_names(method, op)
        if names is None or _are_known(spec, names):
            _check_cover(spec, backend, name, spec.op_dtypes(method, op), by_op[op], problems)


def _check_cover(
    spec: Spec,
    backend: Backend,
    name: str,
    wanted: tuple[str, ...] | None,
    lowerings: tuple[Lowering, ...],
    problems: list[Problem],
) -> None:
    """Note where the lowerings of an op miss one of its dtypes, or give one twice."""
    what = f"'{name}' of backend '{backend.name}'"
    seen: dict[str, Lowering] = {}
    are_known = True
    families = [family.name for family in spec.kernels]
    for lowering in lowerings:
        # Backends of one family of templates launch the kernels of spec/kernels; another's kernels are its own affair.
        if backend.templates is not None and lowering.kernel is not None and lowering.kernel not in families:
            message = f"{what} names an unknown family of kernels, '{lowering.kernel}'"
            problems.append(Problem(lowering.location, message + did_you_mean(lowering.kernel, families)))
        if wanted is None:
            if lowering.dtypes is not None:
                problems.append(Problem(lowering.location, f"{what} has no dtype; remove 'dtypes'"))
            if len(lowerings) > 1:
                problems.append(
                    Problem(lowering.location, f"{what} has no dtype, so it has one lowering; remove the rest")
                )
            continue
        if lowering.dtypes is None:
            problems.append(Problem(lowering.location, f"{what} lacks the key 'dtypes'; write 'dtypes: all' or a list"))
            return
        are_known &= _check_dtypes(spec, lowering.dtypes, (), problems)
        resolved = spec.resolve(lowering.dtypes)
        if lowering.dtypes.listed:
            for dtype in resolved:
                if dtype not in wanted:
                    message = f"{what} lists {dtype}, which the op does not have; remove it"
                    problems.append(Problem(lowering.location, message))
        for dtype in resolved:
            if dtype in seen and dtype in wanted:
                problems.append(Problem(lowering.location, f"{what} lists {dtype} twice; keep one"))
            seen[dtype] = lowering
    missing = [dtype for dtype in wanted or () if dtype not in seen]
    if missing and lowerings and are_known:
        message = f"{what} has no cell for {', '.join(missing)}; write how, or 'unsupported: reason'"
        problems.append(Problem(lowerings[0].location, message))
