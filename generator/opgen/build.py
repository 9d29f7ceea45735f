"""Builds the model from the loaded files, noting every mistake that one file shows by itself."""

import math
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from opgen.decoder import Spot, blank, decode, module_name
from opgen.edges import build_edges
from opgen.fields import Fields, Names, build_names, number_mend
from opgen.formats import Format, Formats
from opgen.formula import Formula, Number, Primitive, PrimitiveFile
from opgen.kernels import Constants, KernelFamily, Room, Widths, with_structs
from opgen.libraries import CLibrary
from opgen.loader import Document, Value
from opgen.model import (
    ANY_RESULT,
    BOUNDS,
    CHOSEN_KINDS,
    DEVICE,
    FUNCTOR_KINDS,
    STORAGE,
    Backend,
    BackendFamily,
    Check,
    Device,
    DType,
    DTypes,
    Family,
    Functor,
    FunctorKind,
    Method,
    Monoid,
    Operand,
    Package,
    Position,
    Spec,
    State,
    sentence,
)
from opgen.problem import Location, Problem, did_you_mean
from opgen.signature import Call, Parameter, Signature

Record = TypeVar("Record")
SINGLE_FILES = _PACKAGE, _DTYPES, _DEVICE = tuple(Path("spec", f"{s}.yaml") for s in ("package", "dtypes", "device"))
_FORMATS, _PRIMITIVES = (Path("spec", f"{s}.yaml") for s in ("formats", "primitives"))
_WIDTHS, _CONSTANTS = (Path("spec", f"kernels/{s}.yaml") for s in ("widths", "constants"))
_FOLDERS = tuple(Path("spec", name) for name in ("functors", "storage", "families", "backends", "kernels", "libraries"))
# The names that the functions of a functor give to what is no operand or parameter of it.
_TAKEN_NAMES = ("self", "x", "y", "op", "inner", "layout", "other", "other_layout", "dtype", "np", "numerics")
# Identities of floats besides finite numbers.
_INFINITIES = ("inf", "-inf")
# As many have the functors that name them: the cells that compute them take no more.
_NAMED_OPERANDS = 3


def build(documents: Mapping[Path, Document], problems: list[Problem]) -> Spec:
    """The spec that `documents` hold; what is wrong goes to `problems`."""

    def file(kind: type[Record], path: Path, variant: str = "") -> Record:
        if path not in documents:
            record: Record = blank(kind, Location(path))
            return record
        return decode(kind, documents[path], problems, variant)

    def folder(kind: type[Record], name: str, variant: str = "") -> list[Record]:
        return [decode(kind, each, problems, variant) for each in by_folder[name]]

    by_folder: dict[str, list[Document]] = {path.name: [] for path in _FOLDERS}
    for path, document in documents.items():
        if path.parent not in _FOLDERS and path not in (*SINGLE_FILES, _FORMATS, _PRIMITIVES):
            problems.append(Problem(Location(path), "no part of a spec; move it to a folder of spec or delete it"))
        elif path.parent in _FOLDERS and path not in (_WIDTHS, _CONSTANTS):
            flaws = [Problem(Location(path), flaw) for flaw in module_name(None, document.stem)]
            problems += flaws
            by_folder[path.parent.name] += [] if flaws else [document]
    for path in SINGLE_FILES:
        if path not in documents and not any(problem.location.path == path for problem in problems):
            problems.append(Problem(Location(path), "the file is missing; write it"))
    package = file(Package, _PACKAGE)
    device = file(Device, _DEVICE, DEVICE)
    functors = {kind.name: kind for kind in (_functor_kind(file, problems) for file in by_folder["functors"])}
    rooms = {kind.name: Room(kind.most_operands, kind.most_parameters) for kind in functors.values()}
    backends = folder(Backend, "backends")
    kernels = folder(KernelFamily, "kernels")
    return Spec(
        package=package,
        dtypes=_known_dtypes(file(DTypes, _DTYPES).dtypes, problems),
        primitives=_by_name(file(PrimitiveFile, _PRIMITIVES).primitives, problems),
        functors=functors,
        families=tuple(_with_functors(family, functors) for family in folder(Family, "storage", STORAGE)),
        formats=_numbered(file(Formats, _FORMATS).formats, problems),
        device_doc=device.doc,
        device_methods=device.methods,
        backend_families=tuple(folder(BackendFamily, "families")),
        backends=tuple(sorted(backends, key=lambda backend: -backend.preference)),
        kernels=tuple(with_structs(family, package.max_rank, rooms, problems) for family in kernels),
        c_libraries=tuple(folder(CLibrary, "libraries")),
        widths=file(Widths, _WIDTHS).widths,
        constants=file(Constants, _CONSTANTS).constants,
    )


def _by_name(primitives: tuple[Primitive, ...], problems: list[Problem]) -> dict[str, Primitive]:
    """The primitives; a name that two have is noted."""
    named: dict[str, Primitive] = {}
    for primitive in primitives:
        first = named.setdefault(primitive.name, primitive)
        if first is not primitive:
            message = f"primitive '{primitive.name}' stands twice, first at line {first.location.line}; keep one"
            problems.append(Problem(primitive.location, message))
    return named


def _formula(fields: Fields, value: Value | None, key: str) -> Formula | None:
    return None if value is None else Formula.decode(Spot(value, key, fields.what, fields.problems))


def _formulas(fields: Fields, key: str) -> dict[str, Formula]:
    return {
        name: Formula.decode(Spot(value, name, fields.what, fields.problems))
        for name, value in fields.named(key).items()
    }


def _numbered(formats: tuple[Format, ...], problems: list[Problem]) -> tuple[Format, ...]:
    """The formats; a number that two have is noted."""
    owners: dict[int, str] = {}
    for item in formats:
        if owners.setdefault(item.number, item.name) != item.name:
            message = f"number {item.number} is that of format '{owners[item.number]}' too; choose another"
            problems.append(Problem(item.location, message))
    return formats


def _known_dtypes(dtypes: tuple[DType, ...], problems: list[Problem]) -> tuple[DType, ...]:
    """The dtypes; one that another computes in, and that there is not, is noted."""
    known = [dtype.name for dtype in dtypes]
    for dtype in dtypes:
        if dtype.compute and dtype.compute not in known:
            message = f"dtype '{dtype.name}' computes in unknown dtype '{dtype.compute}'"
            problems.append(Problem(dtype.location, message + did_you_mean(dtype.compute, known)))
    return dtypes


def _functor_kind(document: Document, problems: list[Problem]) -> FunctorKind:
    fields = Fields(document.root, f"{document.stem}.yaml", problems)
    kind = document.stem
    if kind not in FUNCTOR_KINDS:
        message = f"unknown functor kind '{kind}'; name the file after one of {', '.join(FUNCTOR_KINDS)}"
        fields.problem(Location(document.path), message)
    # Ops that name their operands have no more in common.
    unsupported = fields.text("unsupported") if kind in CHOSEN_KINDS else ""
    functors = tuple(
        _functor(name, value, kind, unsupported, problems) for name, value in fields.mapping("ops").items()
    )
    family = None if kind in CHOSEN_KINDS else fields.name("family")
    states = fields.named("states") if kind == "reduce" else {}
    result = FunctorKind(
        kind,
        family,
        unsupported,
        functors,
        {name: Spot(value, name, fields.what, problems).decode(State) for name, value in states.items()},
        document.path,
    )
    fields.finish()
    return result


def _functor(name: str, value: Value, kind: str, unsupported: str, problems: list[Problem]) -> Functor:
    fields = Fields(value, f"op '{name}'", problems)
    is_named = kind not in CHOSEN_KINDS
    operands = _named_operands(fields) if is_named else CHOSEN_KINDS[kind]
    condition = fields.optional("condition") if is_named else None
    # What is chosen has the dtype that it has.
    result = fields.text_or_none("result") if condition is None else None
    parameters = {} if kind == "cmp" else _parameters(fields, operands)
    let = _formulas(fields, "let")
    formula = None if kind == "reduce" else _formula(fields, fields.required("formula"), "formula")
    is_method = is_named or bool(parameters) or result == ANY_RESULT
    functor = Functor(
        name=name,
        doc=fields.text("doc"),
        operands=operands,
        condition=None if condition is None else build_names(fields, condition, "condition"),
        dtypes=build_names(fields, fields.required("dtypes"), "dtypes"),
        parameters=parameters,
        formula=None if formula is None else formula.with_parts(let),
        gradient={operand: it.with_parts(let) for operand, it in _formulas(fields, "gradient").items()},
        note=fields.text_or_none("note"),
        edges=build_edges(fields, name, operands, parameters, is_reduction=kind == "reduce"),
        result=result,
        reduction=_reduction(fields) if kind == "reduce" else None,
        unsupported=(fields.text_or_none("unsupported") or "") if is_named else unsupported,
        is_method=is_method,
        has_front=fields.scalar(fields.optional("tensor"), bool, "tensor") is not False,
        location=value.key_location,
    )
    fields.finish()
    if is_method and not functor.has_front and any(default is not None for default in parameters.values()):
        message = f"op '{name}' has a default of a parameter, but no tensor method that takes it; write null"
        fields.problem(fields.place("parameters"), message)
    return functor


def _named_operands(fields: Fields) -> tuple[str, ...]:
    """The operands of a functor that names them."""
    value = fields.required("operands")
    listed = [] if value is None else fields.text_list(value, "operands")
    free = [name for name, location in listed if _check_free(fields, name, location, _TAKEN_NAMES, "an operand")]
    if len(free) < len(listed):
        return ()
    names = tuple(dict.fromkeys(free))
    if value is not None and len(names) != _NAMED_OPERANDS:
        mend = "; compute it in two ops, or write a storage method with kernels of its own"
        message = f"'operands' of {fields.what} must be {_NAMED_OPERANDS} names, not {len(names)}"
        fields.problem(value.location, message + (mend if len(names) > _NAMED_OPERANDS else ""))
    return names


def _check_free(fields: Fields, name: str, location: Location, taken: Container[str], noun: str) -> bool:
    """Whether `name` can be that of an operand or parameter; that it cannot is noted."""
    if name in taken:
        message = f"'{name}' cannot be {noun} of {fields.what}, the name is taken; choose another one"
        fields.problem(location, message)
    return fields.check_name(name, location) and name not in taken


def _parameters(fields: Fields, operands: tuple[str, ...]) -> dict[str, float | None]:
    """The parameters of a functor: a name and its default, a number, or null where it has none."""
    value = fields.optional("parameters")
    if value is None:
        return {}
    found: dict[str, float | None] = {}
    content = value.content if isinstance(value.content, dict) else {}
    if not content:
        fields.problem(value.location, f"'parameters' of {fields.what} must map names to defaults or null")
    for name, inner in content.items():
        _check_free(fields, name, inner.key_location, (*_TAKEN_NAMES, *operands), "a parameter")
        default = inner.content
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        found[name] = default if isinstance(default, int | float) else None
        if default is not None and not is_number:
            message = f"the default of '{name}' must be a number or null, not {inner.type_name}"
            fields.problem(inner.location, message + number_mend(inner))
        elif isinstance(default, float) and not math.isfinite(default):
            fields.problem(inner.location, f"the default of '{name}' must be a finite number, not {default}")
        elif default is None and any(other is not None for other in found.values()):
            message = f"parameter '{name}' without a default follows one with a default; move it before that one"
            fields.problem(inner.key_location, message)
    return found


def _with_functors(family: Family, kinds: Mapping[str, FunctorKind]) -> Family:
    """A family of storage methods with the functors that are methods of their own, beside the method of their kind."""
    names = {method.kind for method in family.methods}
    own = [kind for kind in kinds.values() if kind.name in names or kind.family == family.name]
    functors = [_functor_method(kind, functor) for kind in own for functor in kind.methods]
    return replace(family, methods=(*family.methods, *functors))


def _functor_method(kind: FunctorKind, functor: Functor) -> Method:
    """The storage method, and the tensor method, of a functor that is one."""
    others = ["other" if name == "y" else name for name in functor.operands[1:]]
    layouts = ["layout", *(f"{name}_layout" for name in others)]
    parameters = [Parameter("layout", "Layout")]
    checks = [Check(Call("same_shape", ("layout", name)), functor.location) for name in layouts[1:]]
    if functor.reduction is not None:
        parameters.append(Parameter("dims", "tuple[int, ...]"))
        checks.append(Check(Call("distinct_dims", ("layout", "dims")), functor.location))
    for name, layout in zip(others, layouts[1:], strict=True):
        parameters += [Parameter(name, "Storage"), Parameter(layout, "Layout")]
    front = [Parameter(name, "Self | float") for name in others]
    if functor.result == ANY_RESULT:
        parameters.append(Parameter("dtype", "DType"))
        front.append(Parameter("dtype", "DTypeLike"))
    parameters += [Parameter(name, "int | float") for name in functor.parameters]
    front += [
        Parameter(name, "float" if default is None else f"float = {default!r}")
        for name, default in functor.parameters.items()
    ]
    same = Names(("same",), (functor.location,), listed=False)
    stored = list(zip(("self", *others), layouts, strict=True))
    # The first is the one whose dtype the matrix lists.
    alike = stored if functor.condition is None else stored[1:]
    operands = [
        Operand(name, layout, same if position else functor.dtypes, functor.location)
        for position, (name, layout) in enumerate(alike)
    ]
    if functor.condition is not None:
        operands.append(Operand(*stored[0], functor.condition, functor.location))
    return Method(
        name=functor.name,
        signature=Signature(functor.name, tuple(parameters), "Storage"),
        doc=sentence(functor.summary),
        kind=kind.name,
        functor=functor.name,
        operands=tuple(operands),
        dtypes=None,
        unsupported=functor.unsupported or None,
        checks=tuple(checks),
        errors={},
        tensor=Signature(functor.name, tuple(front), "Tensor") if functor.has_front else None,
        owner=STORAGE,
        location=functor.location,
    )


def _reduction(fields: Fields) -> Monoid | Position:
    of = fields.text_or_none("position")
    if of is not None:
        return Position(of)
    identity = fields.required("identity")
    text = "0" if identity is None else str(identity.content)
    if identity is not None and text not in (*BOUNDS, *_INFINITIES) and not _is_finite(identity):
        message = f"'identity' of {fields.what} must be a number, 'inf', '-inf', 'highest' or 'lowest'"
        fields.problem(identity.location, message + number_mend(identity))
        text = "0"
    state = fields.text_or_none("state")
    if state is not None and text != "0":
        fields.problem(
            fields.place("identity"), f"'identity' of {fields.what} must be 0, as the numbers of a state are"
        )
    return Monoid(
        identity=text,
        element=_formula(fields, fields.optional("element"), "element"),
        combine=_formula(fields, fields.required("combine"), "combine") or Formula(Number(0), fields.location),
        accumulate=fields.text_or_none("accumulate"),
        finish=_formula(fields, fields.optional("finish"), "finish"),
        state=state,
        identity_location=fields.place("identity"),
    )


def _is_finite(value: Value) -> bool:
    content = value.content
    return isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
