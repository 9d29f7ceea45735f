"""Stage 3: what must hold between the files of a spec. Every mistake is noted; none stops the others."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from opgen.arguments import KNOWN_TYPES, coercion
from opgen.fields import Names
from opgen.kernels import KernelFamily
from opgen.model import (
    ANY_RESULT,
    BLOCKS,
    BOUNDS,
    CHOSEN_KINDS,
    DType,
    Functor,
    FunctorKind,
    Method,
    Monoid,
    Position,
    Spec,
)
from opgen.problem import Location, Problem, did_you_mean
from opgen.scopes import check_formulas

# The kinds of integer dtypes.
_INTEGERS = ("unsigned", "signed")


def check(spec: Spec, problems: list[Problem]) -> None:
    """Note every mistake; those of cells are noted by `lower`."""
    _check_names(spec, problems)
    for method in spec.storage_methods():
        _check_method(spec, method, problems)
    for method in spec.device_methods:
        _check_method(spec, method, problems)
    for dtype in spec.dtypes:
        _check_integer(dtype, problems)
    families = [family.name for family in spec.families]
    chosen = {method.kind for method in spec.storage_methods()}
    for kind in spec.functors.values():
        if kind.family and kind.family not in families:
            message = f"'family' names '{kind.family}', which is no file of spec/storage"
            problems.append(Problem(Location(kind.path), message + did_you_mean(kind.family, families)))
        is_lost = kind.family is None and kind.name not in chosen and chosen <= {None, *spec.functors}
        for functor in kind.methods if is_lost else ():
            message = f"op '{functor.name}' is a method beside the one with 'ops: {kind.name}', which is missing"
            problems.append(Problem(functor.location, f"{message}; write it to a file of spec/storage"))
        for functor in kind.functors:
            are_known(spec, functor.dtypes, (), problems)
            if functor.result is not None and functor.result not in (ANY_RESULT, *_dtype_names(spec)):
                message = f"unknown dtype '{functor.result}'{did_you_mean(functor.result, _dtype_names(spec))}"
                problems.append(Problem(functor.location, message))
            _check_reduction(spec, kind, functor, problems)
    check_formulas(spec, problems)
    for family in spec.kernels:
        _check_kernels(spec, family, problems)
    for backend in spec.backends:
        for library in backend.libraries:
            if library.dtypes is not None:
                are_known(spec, library.dtypes, (), problems)


def _check_integer(dtype: DType, problems: list[Problem]) -> None:
    """Note what an integer dtype is called elsewhere that its kind and its size do not say."""
    if dtype.kind not in _INTEGERS or not dtype.bytes:
        return
    bits, sign = 8 * dtype.bytes, "u" if dtype.kind == "unsigned" else ""
    code = 1 if sign else 0
    named = {
        "numpy": (dtype.numpy, f"numpy.{sign}int{bits}"),
        "cpp": (dtype.cpp, f"{sign}int{bits}_t"),
        "compute": (dtype.compute, dtype.name),
        "dlpack": (list(dtype.dlpack or (code, bits)), [code, bits]),
    }
    for key, (found, wanted) in named.items():
        if found and found != wanted:
            message = f"'{key}' of dtype '{dtype.name}' is {found}, but it is {dtype.kind} and has {dtype.bytes} bytes"
            problems.append(Problem(dtype.location, f"{message}; write {wanted}"))


def _check_kernels(spec: Spec, family: KernelFamily, problems: list[Problem]) -> None:
    for kind, location in family.functors.items():
        if kind not in spec.functors:
            problems.append(Problem(location, f"unknown functor kind '{kind}'{did_you_mean(kind, spec.functors)}"))
    elements = [*_dtype_names(spec), *spec.widths, *spec.sets[BLOCKS]]
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
            known = list(spec.functors) if axis == "op" else [*elements, *(spec.sets if len(texts) == 1 else ())]
            for text in texts:
                # A number is one of how many, such as packs.
                if text not in known and not (axis != "op" and text.isdecimal()):
                    message = f"kernel '{kernel.name}' ranges over unknown '{text}'{did_you_mean(text, known)}"
                    problems.append(Problem(place, message))


def _check_reduction(spec: Spec, kind: FunctorKind, functor: Functor, problems: list[Problem]) -> None:
    """Note a position in a reduction that there is not, and an unknown dtype to accumulate in."""
    reduction = functor.reduction
    if isinstance(reduction, Position):
        known = [
            other.name
            for other in kind.functors
            if isinstance(other.reduction, Monoid) and other.reduction.identity in BOUNDS
        ]
        if reduction.of not in known:
            message = f"op '{functor.name}' is the position of '{reduction.of}', which finds no element"
            problems.append(Problem(functor.location, message + did_you_mean(reduction.of, known)))
    elif reduction is not None:
        _check_identity(spec, functor, reduction, problems)
    if isinstance(reduction, Monoid) and functor.parameters and reduction.identity in BOUNDS:
        message = f"op '{functor.name}' has parameters, but no result of nothing; make its 'identity' a number"
        problems.append(Problem(functor.location, message))
    if isinstance(reduction, Monoid) and reduction.accumulate is not None:
        floats = spec.groups["float"]
        if reduction.accumulate not in floats:
            message = f"op '{functor.name}' accumulates in unknown float dtype '{reduction.accumulate}'"
            problems.append(Problem(functor.location, message + did_you_mean(reduction.accumulate, floats)))


def _check_identity(spec: Spec, functor: Functor, monoid: Monoid, problems: list[Problem]) -> None:
    """Note an identity that integers of the op lack."""
    names = spec.resolve(functor.dtypes)
    # Of a dtype without a kind or a size, which is noted, it is not known what it holds.
    integers = [dtype for dtype in spec.dtypes if dtype.name in names and dtype.kind in _INTEGERS and dtype.bytes]
    if monoid.identity in BOUNDS:
        return
    lacking = [dtype.name for dtype in integers if not dtype.holds(monoid.number)]
    if lacking:
        message = f"'identity' of op '{functor.name}' is {monoid.identity}, which {', '.join(lacking)} cannot hold"
        problems.append(Problem(monoid.identity_location, f"{message}; write 'highest' or 'lowest', or fewer dtypes"))


def _dtype_names(spec: Spec) -> list[str]:
    return [dtype.name for dtype in spec.dtypes]


def _check_names(spec: Spec, problems: list[Problem]) -> None:
    # A file with a mistake of its own may not say what it means to.
    torn = {problem.location.path for problem in problems}
    if not spec.backends:
        problems.append(Problem(Location(Path("spec/backends")), "no backend is here; write the file of one"))
    whole = [backend for backend in spec.backends if backend.path not in torn]
    for key in ("class_prefix", "package", "extra", "label", "preference", "dlpack"):
        counted = Counter(getattr(backend, key) for backend in whole)
        for backend in whole:
            value = getattr(backend, key)
            if value is not None and counted[value] > 1:
                shown = f"'{value}'" if isinstance(value, str) else value
                message = f"{key} {shown} is used by more than one backend; choose another"
                problems.append(Problem(backend.place(key, "runtime"), message))
    for backend in whole:
        if backend.extra in spec.package.extras:
            message = f"extra '{backend.extra}' is one of the package too, from {spec.package.location}; choose another"
            problems.append(Problem(backend.place("extra", "runtime"), message))
    owners: dict[str, str] = {}
    for backend in spec.backends:
        for target, location in backend.code_objects.targets.items() if backend.code_objects else ():
            # The code objects of a target lie in one folder.
            if owners.setdefault(target, backend.name) != backend.name:
                message = f"target '{target}' is one of backend '{owners[target]}' too; remove it from one of the two"
                problems.append(Problem(location, message))
    storage = {method.name: method.location for method in spec.storage_methods()}
    for method in spec.device_methods:
        # Cells and the support matrix call both by their names alone.
        if method.name in storage:
            message = f"device method '{method.name}' has the name of a storage method, from {storage[method.name]}"
            problems.append(Problem(method.location, f"{message}; choose another name"))
    for family in spec.families:
        for method in family.methods:
            if family.holds_blocks and not method.holds_blocks and not method.is_broken:
                message = f"'{method.name}' stands among the methods of {BLOCKS}; move it to another file"
                problems.append(Problem(method.location, message))
    for name in CHOSEN_KINDS:
        if name not in spec.functors:
            problems.append(Problem(Location(Path(f"spec/functors/{name}.yaml")), "the file is missing; write it"))


def are_known(spec: Spec, names: Names, words: Iterable[str], problems: list[Problem]) -> bool:
    """Whether all dtypes are known; those that are not are noted. A name alone is a group or one of `words`."""
    known = _dtype_names(spec) if names.listed else [*spec.groups, *words]
    what = "dtype" if names.listed else "group of dtypes"
    for text, location in zip(names.texts, names.locations, strict=True):
        if text not in known:
            is_bare = not names.listed and text in _dtype_names(spec)
            hint = f"; write a dtype in brackets, [{text}]" if is_bare else did_you_mean(text, known)
            problems.append(Problem(location, f"unknown {what} '{text}'{hint}"))
    return all(text in known for text in names.texts)


def _check_method(spec: Spec, method: Method, problems: list[Problem]) -> None:
    if method.is_broken:
        return
    arguments = method.signature.arguments
    if method.kind is not None and method.kind not in spec.functors:
        message = f"unknown functor kind '{method.kind}' of method '{method.name}'"
        problems.append(Problem(method.location, message + did_you_mean(method.kind, spec.functors)))
    if method.kind is not None and method.functor is None and "op" not in arguments:
        message = f"method '{method.name}' chooses between ops but has no parameter 'op'; add it to the signature"
        problems.append(Problem(method.location, message))
    for parameter in method.signature.parameters:
        if coercion(parameter.type) is None:
            message = f"unknown type '{parameter.type}' of parameter '{parameter.name}' of '{method.name}'"
            problems.append(Problem(method.location, message + did_you_mean(parameter.type, KNOWN_TYPES)))
    is_known = method.dtypes is None or are_known(spec, method.dtypes, (), problems)
    for position, operand in enumerate(method.operands):
        words = ["op"] if method.kind is not None and position == 0 else ["same"] if position else [BLOCKS]
        is_known &= are_known(spec, operand.dtypes, words, problems)
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
        if names.texts not in (("same",), ("op",), (BLOCKS,))
    )
    if some_lack and is_known and method.unsupported is None:
        message = f"method '{method.name}' lacks some dtypes; say why in 'unsupported'"
        problems.append(Problem(method.location, message))
