"""Stage 3: what must hold between the files of a spec. Every error is noted; none stops the others."""

import builtins
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from opgen.aliases import dtype_name
from opgen.arguments import KNOWN_TYPES, coercion
from opgen.claims import check_claims
from opgen.dtypes import SETS, DType
from opgen.examples import check_examples
from opgen.formats import BLOCKS, FORMAT_SETS
from opgen.formula_checks import check_formulas
from opgen.kernels import KernelFamily
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import ANY_RESULT
from opgen.model.methods import DEVICE, Method
from opgen.model.reductions import BOUNDS, Monoid, Position
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.notes import module_name
from opgen.problem import Location, Problems, did_you_mean, unknown_dtype
from opgen.promotion import check_promotion, check_yields
from opgen.reserved import METHOD_WORDS, names_around
from opgen.scan_gradients import check_scans

# What signatures call arguments that the spec's language knows: the op, the layout of `self`, the dtype of the result.
_GIVEN_NAMES = ("op", "layout", "dtype", "dims", "gradient")
# Those of devices say a shape too, and have fewer names of their own.
_DEVICE_NAMES = ("shape",)


def check(spec: Spec, problems: Problems) -> None:
    """Note every error; those of cells are noted by `lower`."""
    _check_backends(spec, problems)
    _check_drivers(spec, problems)
    _check_names(spec, problems)
    if spec.package.breaking:
        _check_rules(spec, problems)
    for method in spec.methods:
        before = len(problems)
        _check_method(spec, method, problems)
        if len(problems) == before and not method.is_broken:
            check_examples(spec, method, problems)
    for dtype in spec.dtypes:
        _check_dtype(spec, dtype, problems)
        _check_parts(spec, dtype, problems)
    check_promotion({dtype.name: dtype for dtype in spec.dtypes}, problems)
    are_sure = [are_known(spec, it.yields_to, (), problems) for it in spec.dtypes if it.yields_to is not None]
    if all(are_sure):
        check_yields(spec, problems)
    families = [family.name for family in spec.families]
    chosen = {method.kind for method in spec.storage_methods()}
    for kind in spec.functors.values():
        if kind.family and kind.family not in families:
            message = f"'family' names '{kind.family}', which is no file of spec/storage"
            problems.unknown(Location(kind.path), message, kind.family, families)
        is_lost = kind.family is None and kind.name not in chosen and chosen <= {None, *spec.functors}
        for functor in kind.methods if is_lost else ():
            message = f"op '{functor.name}' is a method next to the one with 'ops: {kind.name}', which is missing"
            problems.note(functor.location, f"{message}; write it to a file of spec/storage")
        for functor in kind.functors:
            if functor.family and functor.family not in families:
                message = f"'family' of op '{functor.name}' names '{functor.family}', which is no file of spec/storage"
                problems.unknown(functor.location, message, functor.family, families)
            are_known(spec, functor.dtypes, (), problems)
            if not functor.keeps_kind and functor.result not in spec.groups["all"]:
                hint = unknown_dtype(functor.result or "", spec.groups["all"])
                problems.note(functor.result_location, f"unknown dtype '{functor.result}'{hint}")
            _check_reduction(spec, kind, functor, problems)
    if check_formulas(spec, problems):
        check_scans(spec, problems)
        check_claims(spec, problems)
    for family in spec.kernels:
        _check_kernels(spec, family, problems)


def _check_dtype(spec: Spec, dtype: DType, problems: Problems) -> None:
    """Note an integer that is computed in another dtype, and a float that another dtype is too."""
    if dtype.is_integer and dtype.compute not in ("", dtype.name):
        message = f"'compute' of dtype '{dtype.name}' is {dtype.compute}, but it is {dtype.kind}"
        problems.note(dtype.location, f"{message}; write {dtype.name}")
    first = next(other for other in spec.dtypes if other.format == dtype.format)
    if dtype.format is not None and first is not dtype:
        message = f"dtype '{dtype.name}' is {dtype.format.name}, as '{first.name}' is; remove one of them"
        problems.note(dtype.location, message)


def _check_parts(spec: Spec, dtype: DType, problems: Problems) -> None:
    """Note the parts of a complex dtype that do not fill it; that there are none of the name is noted before."""
    parts = [other.name for other in spec.dtypes if other.kind == "float" and 2 * other.bytes == dtype.bytes]
    if dtype.is_complex and dtype.bytes and dtype.real in {*spec.dtype_names} - {*parts}:
        message = f"'real' of dtype '{dtype.name}' is '{dtype.real}', which is no float of half its {dtype.bytes} bytes"
        problems.note(dtype.location, f"{message}; write {' or '.join(parts) or 'one that is, and add it'}")


def _check_kernels(spec: Spec, family: KernelFamily, problems: Problems) -> None:
    for kind, location in family.functors.items():
        if kind not in spec.functors:
            problems.unknown(location, f"unknown functor kind '{kind}'", kind, spec.functors)
        elif kind in family.ranged:
            problems.note(location, f"the source has '{kind}', as kernels range over it; remove it from 'functors'")
    elements = [*spec.groups["all"], *spec.widths, *spec.sets[BLOCKS], *spec.functor_names]
    for kernel in family.kernels:
        for axis, texts in kernel.over.items():
            over_location = kernel.over_locations[axis]
            if not texts:
                problems.note(over_location, f"'{axis}' of kernel '{kernel.name}' is empty; write what it holds")
            if texts == ("op",) and axis != "op":
                if "op" not in kernel.over:
                    message = f"'{axis}' of kernel '{kernel.name}' is that of its op, which it lacks"
                    problems.note(over_location, f"{message}; add 'op' to 'over'")
                continue
            known = list(spec.functors) if axis == "op" else [*elements, *(spec.sets if len(texts) == 1 else ())]
            for text in texts:
                # A number is one of how many, such as packs.
                if text not in known and not (axis != "op" and text.isdecimal()):
                    problems.unknown(over_location, f"kernel '{kernel.name}' ranges over unknown '{text}'", text, known)


def _check_reduction(spec: Spec, kind: FunctorKind, functor: Functor, problems: Problems) -> None:
    """Note what a reduction names that there is not, and an identity that it cannot have."""
    reduction, location, op = functor.reduction, functor.location, f"op '{functor.name}'"
    if isinstance(reduction, Position):
        monoids = {other.name: other.reduction for other in kind.functors if isinstance(other.reduction, Monoid)}
        known = [name for name, monoid in monoids.items() if monoid.identity in BOUNDS]
        if reduction.of not in known:
            message = f"{op} is the position of '{reduction.of}', which finds no element"
            problems.unknown(location, message, reduction.of, known)
        return
    if reduction is None:
        return
    floats = spec.groups["float"]
    if reduction.accumulate is not None and reduction.accumulate not in floats:
        message = f"{op} accumulates in unknown float dtype '{reduction.accumulate}'"
        problems.note(location, message + unknown_dtype(reduction.accumulate, floats))
    if reduction.identity in BOUNDS:
        if functor.parameters:
            problems.note(location, f"{op} has parameters, but no result of nothing; make its 'identity' a number")
        return
    names = spec.resolve(functor.dtypes)
    # Of a dtype without a kind or a size, which is noted, it is not known what it holds.
    exact = [dtype for dtype in spec.dtypes if dtype.name in names and dtype.is_exact and dtype.bytes]
    lacking = ", ".join(dtype.name for dtype in exact if not dtype.holds(reduction.number))
    if lacking:
        message = f"'identity' of {op} is {reduction.identity}, which {lacking} cannot hold"
        problems.note(reduction.identity_location, f"{message}; write 'highest' or 'lowest', or fewer dtypes")


def _check_backends(spec: Spec, problems: Problems) -> None:
    """Note what two backends share that each must have for itself, and unknown dtypes of libraries."""
    invalid_files = problems.invalid_files
    if not spec.backends:
        problems.note(Location(Path("spec/backends")), "no backend is here; write the file of one")
    valid = [backend for backend in spec.backends if backend.path not in invalid_files]
    for key in ("class_prefix", "package", "extra", "label", "preference", "dlpack"):
        counted = Counter(getattr(backend, key) for backend in valid)
        for backend in valid:
            value = getattr(backend, key)
            if value is not None and counted[value] > 1:
                shown = f"'{value}'" if isinstance(value, str) else value
                message = f"{key} {shown} is used by more than one backend; choose another"
                problems.note(backend.location_of(key, "runtime"), message)
    for backend in valid:
        if backend.extra in spec.package.extras:
            message = f"extra '{backend.extra}' is one of the package too, from {spec.package.location}; choose another"
            problems.note(backend.location_of("extra", "runtime"), message)
    owners: dict[str, str] = {}
    for backend in spec.backends:
        for target, location in backend.code_objects.targets.items() if backend.code_objects else ():
            # The code objects of a target lie in one folder.
            if owners.setdefault(target, backend.name) != backend.name:
                message = f"target '{target}' is one of backend '{owners[target]}' too; remove it from one of the two"
                problems.note(location, message)
    _check_targets(spec, problems)
    for backend in spec.backends:
        for library in backend.libraries:
            if library.dtypes is not None:
                are_known(spec, library.dtypes, (), problems)


def _check_targets(spec: Spec, problems: Problems) -> None:
    """Note targets of no backend, backends without targets, and kernels that need what no target has."""
    names = [backend.name for backend in spec.backends]
    for name, targets in spec.targets.items():
        if name not in names and not targets[0].location.is_of_base:
            problems.unknown(targets[0].location, f"targets are of unknown backend '{name}'", name, names)
    for backend in spec.backends:
        if backend.code_objects is not None and not backend.code_objects.targets:
            message = f"'code_objects' of {backend} have no targets; write 'targets', or the backend's"
            problems.note(backend.location_of("code_objects"), f"{message} to spec/kernels/targets.yaml")
    features = dict.fromkeys(feature for each in spec.targets.values() for target in each for feature in target.has)
    for family in spec.kernels:
        for feature, location in family.needs.items():
            if feature not in features:
                message = f"kernels need '{feature}', which no target has"
                problems.note(location, message + did_you_mean(feature, features))


def _check_drivers(spec: Spec, problems: Problems) -> None:
    """Report what the tables of drivers lack of what their families ask, and tables that no backend uses."""
    known = {owner.name for owner in spec.owners}
    # A backend may be meant to have a driver whose family is unknown, which is reported itself.
    used = {each.name for each in spec.backends if each.extends not in (None, *known)}
    drivers = []
    for backend in spec.backends:
        family = spec.family_of(backend) if backend.package is not None else None
        if family is None or not family.driver:
            continue
        table = spec.driver_of(backend)
        drivers.append(backend.name)
        if table is None:
            path = Path("spec/drivers", f"{backend.name}.yaml")
            problems.note(Location(path), f"{backend} has no table of its driver's calls; write it to this file")
            continue
        used.add(table.backend)
        # That of another backend is checked there.
        if table.backend != backend.name:
            continue
        for location, flaw in table.flaws(family.driver, family.compiler):
            problems.note(location, flaw)
        if not spec.targets_of(backend):
            problems.note(Location(backend.path), f"{backend} has no targets; write them to spec/kernels/targets.yaml")
    for table in spec.drivers:
        if table.backend not in used and not Location(table.path).is_of_base:
            message = f"no backend uses driver '{table.backend}'"
            problems.unknown(Location(table.path), message, table.backend, drivers)


def _check_names(spec: Spec, problems: Problems) -> None:
    for backend in spec.backends:
        # Modules of the package call the ops of a backend by its name.
        if backend.name in METHOD_WORDS or hasattr(builtins, backend.name):
            message = f"'{backend.name}' cannot be a backend, the name is taken; choose another one"
            problems.note(Location(backend.path), message)
    sets = {*SETS, *FORMAT_SETS, "same", "op", ANY_RESULT}
    for dtype in spec.dtypes:
        if dtype.name in sets:
            problems.note(dtype.location, f"'{dtype.name}' cannot be a dtype, a set has that name; choose another one")
    storage = {method.name: method.location for method in spec.storage_methods()}
    for method in spec.device_methods:
        # Cells and the support matrix call both by their names alone.
        if method.name in storage:
            message = f"device method '{method.name}' has the name of a storage method, from {storage[method.name]}"
            problems.note(method.location, f"{message}; choose another name")
    for family in spec.families:
        for method in family.methods:
            if family.holds_blocks and not method.holds_blocks and not method.is_broken:
                message = f"'{method.name}' stands among the methods of {BLOCKS}; move it to another file"
                problems.note(method.location, message)


def are_known(spec: Spec, names: Names, words: Iterable[str], problems: Problems) -> bool:
    """Whether all dtypes are known; those that are not are noted. A name alone is a group or one of `words`."""
    dtypes = spec.groups["all"]
    known = [*dtypes, *spec.groups] if names.listed else [*spec.groups, *words]
    what = "dtype" if names.listed else "group of dtypes"
    for text, location in zip(names.texts, names.locations, strict=True):
        if text not in known:
            meant = text if text in dtypes else dtype_name(text)
            is_bare = not names.listed and meant in dtypes
            hint = f"; write a dtype in brackets, [{meant}]" if is_bare else unknown_dtype(text, (*known, *dtypes))
            problems.note(location, f"unknown {what} '{text}'{hint}")
    return all(text in known for text in names.texts)


def _check_rules(spec: Spec, problems: Problems) -> None:
    # They take long to import, and few packages allow what breaks one.
    from opgen.comparison.rules import RULES

    for rule, exceptions in spec.package.breaking.items():
        for _, location in exceptions.values() if rule not in RULES else ():
            problems.unknown(location, f"unknown rule '{rule}' in 'breaking' of the package", rule, RULES)


def _check_parameters(spec: Spec, method: Method, problems: Problems) -> None:
    """Note parameters whose names a method has for something else; those of an op are noted where they stand too."""
    arguments = method.signature.arguments
    taken = names_around(["self", *arguments], [backend.name for backend in spec.backends])
    taken |= {library.name for backend in spec.backends for library in backend.libraries}
    if method.functor is None:
        taken |= METHOD_WORDS - {*_GIVEN_NAMES, *(_DEVICE_NAMES if method.owner == DEVICE else ())}
    for name in arguments:
        for flaw in module_name(None, name) if method.functor is None else ():
            problems.note(method.location, flaw)
        if name in taken:
            message = f"'{name}' cannot be a parameter of '{method.name}', its method has another use for that name"
            problems.note(method.location, f"{message}; choose another one")


def _check_method(spec: Spec, method: Method, problems: Problems) -> None:
    if method.is_broken:
        return
    arguments, location = method.signature.arguments, method.location
    if method.kind is not None and method.kind not in spec.functors:
        message = f"unknown functor kind '{method.kind}' of method '{method.name}'"
        problems.unknown(location, message, method.kind, spec.functors)
    if method.kind is not None and method.functor is None and "op" not in arguments:
        message = f"method '{method.name}' chooses between ops but has no parameter 'op'; add it to the signature"
        problems.note(location, message)
    _check_parameters(spec, method, problems)
    for parameter in method.signature.parameters:
        if coercion(parameter.type) is None:
            message = f"unknown type '{parameter.type}' of parameter '{parameter.name}' of '{method.name}'"
            problems.unknown(location, message, parameter.type, KNOWN_TYPES)
    is_known = method.dtypes is None or are_known(spec, method.dtypes, (), problems)
    for position, operand in enumerate(method.operands):
        words = ["op"] if method.kind is not None and position == 0 else ["same"] if position else [*FORMAT_SETS]
        is_known &= are_known(spec, operand.dtypes, words, problems)
    known = ["self", *arguments]
    for item in method.checks:
        for name in item.call.names:
            if name not in known:
                message = f"check '{item.call.name}' reads '{name}', which is no parameter of '{method.name}'"
                problems.unknown(item.location, message, name, known)
    named = [names for names in (*(operand.dtypes for operand in method.operands), method.dtypes) if names is not None]
    sets = [spec.resolve(each) for each in named if each.texts and each.texts not in (("same",), ("op",))]
    some_lack = any(set(dtypes) < {*spec.groups["all"]} or set(dtypes) < {*spec.sets[BLOCKS]} for dtypes in sets)
    if some_lack and is_known and method.unsupported is None:
        problems.note(location, f"method '{method.name}' lacks some dtypes; say why in 'unsupported'")
