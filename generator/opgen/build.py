"""Builds the model from the loaded files, noting every mistake that one file shows by itself."""

import ast
import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from opgen.arrays import ArrayLibrary, Word
from opgen.cells import build_cells
from opgen.cpp import flaw
from opgen.decoder import Spot, decode
from opgen.edges import build_edges
from opgen.fields import Fields, Names, build_names, number_mend
from opgen.formats import Format, Formats
from opgen.kernels import Constants, KernelFamily, Room, Widths, with_structs
from opgen.libraries import CLibrary
from opgen.loader import Document, Value
from opgen.model import (
    ANY_ORDER,
    ANY_RESULT,
    BOUNDS,
    CHOSEN_KINDS,
    FUNCTOR_KINDS,
    MOST_BYTES,
    Backend,
    BackendFamily,
    Check,
    DType,
    Expression,
    Family,
    Functor,
    FunctorKind,
    Library,
    Method,
    Monoid,
    Operand,
    Package,
    Pair,
    Position,
    Spec,
    sentence,
)
from opgen.problem import Location, Problem, did_you_mean
from opgen.signature import Call, Parameter, Signature, is_optional
from opgen.toolchains import CodeObjects

Parsed = TypeVar("Parsed", Signature, Call)

_FOLDERS = {
    Path("spec", name): name for name in ("functors", "storage", "families", "backends", "kernels", "libraries")
}
_WIDTHS = Path("spec/kernels/widths.yaml")
_CONSTANTS = Path("spec/kernels/constants.yaml")
_FORMATS = Path("spec/formats.yaml")
# What pip takes, as far as a package's own version and the Python that it needs go.
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
_PYTHON = re.compile(r"(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?(, ?(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?)*")
_LIBRARY_CLASS = re.compile(r"([a-z]\w*)\.([A-Z]\w*)")
_MODULE = re.compile(r"\w+(?:/\w+)*")
_NUMPY_RANK = 64
# The names that the functions of a functor give to what is no operand or parameter of it.
_TAKEN_NAMES = ("self", "x", "y", "op", "inner", "layout", "other", "other_layout", "dtype", "np", "numerics")
# Identities of floats besides finite numbers.
_INFINITIES = ("inf", "-inf")
# As many have the functors that name them: the cells that compute them take no more.
_NAMED_OPERANDS = 3
SINGLE_FILES = (Path("spec/package.yaml"), Path("spec/dtypes.yaml"), Path("spec/device.yaml"))
_NO_PACKAGE = Package("", "", "", "", (), {}, 0, {}, Location(SINGLE_FILES[0]))


def build(documents: Mapping[Path, Document], problems: list[Problem]) -> Spec:
    """The spec that `documents` hold; what is wrong goes to `problems`."""
    by_folder: dict[str, list[Document]] = {folder: [] for folder in _FOLDERS.values()}
    for path, document in documents.items():
        if path.parent in _FOLDERS:
            if Fields(document.root, "the file", problems).check_name(document.stem, Location(path)):
                by_folder[_FOLDERS[path.parent]].append(document)
        elif path not in (*SINGLE_FILES, _FORMATS):
            problems.append(
                Problem(
                    Location(path),
                    "no part of a spec; move it to a folder of spec or delete it",
                )
            )
    package, dtypes, device = (documents.get(path) for path in SINGLE_FILES)
    for path in SINGLE_FILES:
        if path not in documents and not any(problem.location.path == path for problem in problems):
            problems.append(Problem(Location(path), "the file is missing; write it"))
    dtype_values = _dtypes(dtypes, problems) if dtypes else ()
    device_doc, device_methods = _device(device, problems) if device else ("", ())
    functors = {kind.name: kind for kind in (_functor_kind(file, problems) for file in by_folder["functors"])}
    families = tuple(_family(document, problems) for document in by_folder["storage"])
    kernels = [document for document in by_folder["kernels"] if document.path not in (_WIDTHS, _CONSTANTS)]
    rooms = {kind.name: Room(kind.most_operands, kind.most_parameters) for kind in functors.values()}
    package_value = _package(package, problems) if package else _NO_PACKAGE
    backends = [_backend(document, problems) for document in by_folder["backends"]]
    return Spec(
        package=package_value,
        dtypes=dtype_values,
        functors=functors,
        families=tuple(_with_functors(family, functors) for family in families),
        formats=_formats(documents[_FORMATS], problems) if _FORMATS in documents else (),
        device_doc=device_doc,
        device_methods=device_methods,
        backend_families=tuple(_backend_family(document, problems) for document in by_folder["families"]),
        backends=tuple(sorted(backends, key=lambda backend: -backend.preference)),
        kernels=tuple(
            with_structs(decode(KernelFamily, document, problems), package_value.max_rank, rooms, problems)
            for document in kernels
        ),
        c_libraries=tuple(decode(CLibrary, document, problems) for document in by_folder["libraries"]),
        widths=decode(Widths, documents[_WIDTHS], problems).widths if _WIDTHS in documents else {},
        constants=decode(Constants, documents[_CONSTANTS], problems).constants if _CONSTANTS in documents else (),
    )


def _formats(document: Document, problems: list[Problem]) -> tuple[Format, ...]:
    formats = decode(Formats, document, problems).formats
    owners: dict[int, str] = {}
    for item in formats:
        if owners.setdefault(item.number, item.name) != item.name:
            message = f"number {item.number} is that of format '{owners[item.number]}' too; choose another"
            problems.append(Problem(item.location, message))
    return formats


def _package(document: Document, problems: list[Problem]) -> Package:
    before = len(problems)
    fields = Fields(document.root, "the package", problems)
    package = Package(
        name=fields.name("name"),
        version=fields.matching("version", _VERSION, "1.0.2"),
        summary=fields.text("summary"),
        python=fields.matching("python", _PYTHON, ">=3.11"),
        requires=tuple(text for text, _ in fields.texts("requires")),
        extras=fields.text_lists_by_name("extras"),
        max_rank=fields.integer("max_rank"),
        public=_public(fields),
        location=fields.place("name"),
    )
    fields.finish()
    if not 1 <= package.max_rank <= _NUMPY_RANK and len(problems) == before:
        message = f"'max_rank' must be from 1 to {_NUMPY_RANK}, the most dims of a NumPy array, not {package.max_rank}"
        fields.problem(fields.place("max_rank"), message)
    return package


def _public(fields: Fields) -> dict[str, tuple[str, Location]]:
    value = fields.optional("public")
    modules: dict[str, tuple[str, Location]] = {}
    if value is not None and not isinstance(value.content, dict):
        fields.problem(value.location, f"'public' of {fields.what} must be a mapping, not {value.type_name}")
    elif value is not None and isinstance(value.content, dict):
        for name, inner in value.content.items():
            path = fields.line(inner, name) or ""
            wrong = next((text for text in (name, path) if not _MODULE.fullmatch(text)), None)
            if wrong is None:
                modules[name] = (path, inner.location)
            elif wrong:
                fields.problem(inner.location, f"'{wrong}' is no module; write its path, like 'files/gguf'")
    return modules


def _dtypes(document: Document, problems: list[Problem]) -> tuple[DType, ...]:
    fields = Fields(document.root, "dtypes.yaml", problems)
    dtypes = tuple(_dtype(name, value, problems) for name, value in fields.mapping("dtypes").items())
    known = [dtype.name for dtype in dtypes]
    for dtype in dtypes:
        if dtype.compute and dtype.compute not in known:
            fields.problem(
                dtype.location, f"dtype '{dtype.name}' computes in unknown dtype '{dtype.compute}'"
                f"{did_you_mean(dtype.compute, known)}"
            )  # fmt: skip
    fields.finish()
    return dtypes


def _dtype(name: str, value: Value, problems: list[Problem]) -> DType:
    fields = Fields(value, f"dtype '{name}'", problems)
    dlpack = fields.required("dlpack")
    pair = None
    if dlpack is not None and dlpack.content is not None:
        elements = dlpack.content if isinstance(dlpack.content, list) else []
        numbers = [element.content for element in elements]
        if len(numbers) == 2 and isinstance(numbers[0], int) and isinstance(numbers[1], int):
            pair = (numbers[0], numbers[1])
        else:
            fields.problem(dlpack.location, f"'dlpack' of dtype '{name}' must be [type code, bits] or null")
    mark_value = fields.optional("index_mark")
    mark = None if mark_value is None or mark_value.content is None else fields.scalar(mark_value, int, "index_mark")
    bytes_value = fields.required("bytes")
    size = fields.scalar(bytes_value, int, "bytes")
    if bytes_value is not None and size is not None and size not in (1, 2, 4, 8):
        fields.problem(bytes_value.location, f"'bytes' of dtype '{name}' must be 1, 2, 4 or 8, not {size}")
        size = None
    dtype = DType(
        name=name,
        doc=fields.text("doc"),
        kind=fields.choice("kind", ("unsigned", "signed", "float")),
        bytes=size or 0,
        numpy=fields.text("numpy"),
        cpp=fields.text("cpp"),
        compute=fields.text("compute"),
        safetensors=fields.text("safetensors"),
        dlpack=pair,
        may_index=mark_value is not None,
        index_mark=mark,
        location=value.key_location,
    )
    if mark_value is not None and dtype.kind and dtype.bytes:
        _check_mark(fields, dtype, mark_value.location)
    fields.finish()
    return dtype


def _check_mark(fields: Fields, dtype: DType, place: Location) -> None:
    """Note an index that is no integer, and a mark that is none of its values."""
    least, most = dtype.bounds
    if dtype.kind == "float":
        fields.problem(place, f"dtype '{dtype.name}' is no integer, so that it cannot index; remove 'index_mark'")
    elif dtype.index_mark is None and dtype.bytes == MOST_BYTES:
        # Kernels see indexes in so many bytes, and a mark that is no index where there is none.
        fields.problem(place, f"'index_mark' of {fields.what} must be a number, as it has {MOST_BYTES} bytes")
    elif dtype.index_mark is not None and not least <= dtype.index_mark <= most:
        fields.problem(place, f"'index_mark' of {fields.what} must be from {least} to {most}, not {dtype.index_mark}")


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
    result = FunctorKind(kind, family, unsupported, functors, document.path)
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
    is_method = is_named or bool(parameters) or result == ANY_RESULT
    nothing = Expression("", "", fields.location)
    functor = Functor(
        name=name,
        doc=fields.text("doc"),
        operands=operands,
        condition=None if condition is None else build_names(fields, condition, "condition"),
        dtypes=build_names(fields, fields.required("dtypes"), "dtypes"),
        parameters=parameters,
        numpy=nothing if kind == "reduce" else _numpy_expression(fields),
        hip=nothing if kind == "reduce" else _hip_expression(fields),
        brief=kind in ("unary", "binary") and fields.flag("brief"),
        bounded=kind == "unary" and fields.flag("bounded"),
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
        is_broken=False,
        location=functor.location,
    )


def _expression(fields: Fields, key: str) -> Expression:
    value = fields.required(key)
    place = fields.place(key)
    if value is not None and isinstance(value.content, dict):
        parts = Fields(value, f"'{key}' of {fields.what}", fields.problems)
        expression = Expression(parts.text("integer"), parts.text("float"), place)
        parts.finish()
        return expression
    text = fields.line(value, key) or ""
    return Expression(text, text, place)


def _hip_expression(fields: Fields) -> Expression:
    expression = _expression(fields, "hip")
    for text in expression.texts:
        _check_cpp(fields, text, expression.location)
    return expression


def _check_cpp(fields: Fields, text: str, place: Location) -> None:
    if (reason := flaw(text)) is not None:
        fields.problem(place, f"'{text}' is no expression of C++: {reason}; write one over the operands")


def _numpy_expression(fields: Fields) -> Expression:
    expression = _expression(fields, "numpy")
    for text in expression.texts:
        _check_python(fields, text, expression.location)
    return expression


def _check_python(fields: Fields, text: str, place: Location) -> None:
    try:
        ast.parse(text or "0", mode="eval")
    except SyntaxError as error:
        message = f"'{text}' is no expression of Python ({error.msg}); write one over the operands"
        fields.problem(place, message)


def _reduction(fields: Fields) -> Monoid | Position:
    of = fields.text_or_none("position")
    if of is not None:
        return Position(of, fields.text("numpy"), fields.place("numpy"))
    identity = fields.required("identity")
    text = "0" if identity is None else str(identity.content)
    if identity is not None and text not in (*BOUNDS, *_INFINITIES) and not _is_finite(identity):
        message = f"'identity' of {fields.what} must be a number, 'inf', '-inf', 'highest' or 'lowest'"
        fields.problem(identity.location, message + number_mend(identity))
        text = "0"
    element, finish, state = fields.optional("element"), fields.optional("finish"), fields.optional("state")
    parts = None if state is None else Fields(state, f"'state' of {fields.what}", fields.problems)
    if parts is not None and text != "0":
        fields.problem(
            fields.place("identity"), f"'identity' of {fields.what} must be 0, as the numbers of a state are"
        )
    monoid = Monoid(
        identity=text,
        element=None if element is None else _pair(fields, element, "element"),
        combine=_pair(fields, fields.required("combine"), "combine"),
        accumulate=fields.text_or_none("accumulate"),
        finish=None if finish is None else _pair(fields, finish, "finish"),
        given=fields.text_or_none("given"),
        state=None if parts is None else parts.text("struct"),
        numbers=1 if parts is None else parts.integer("numbers"),
        identity_location=fields.place("identity"),
    )
    if parts is not None:
        parts.finish()
    return monoid


def _is_finite(value: Value) -> bool:
    content = value.content
    return isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)


def _pair(fields: Fields, value: Value | None, key: str) -> Pair:
    """The texts for NumPy and for HIP below a key."""
    if value is None:
        return Pair("", "", fields.location, fields.location)
    parts = Fields(value, f"'{key}' of {fields.what}", fields.problems)
    pair = Pair(parts.text("numpy"), parts.text("hip"), parts.place("numpy"), parts.place("hip"))
    _check_python(fields, pair.numpy, pair.numpy_location)
    _check_cpp(fields, pair.hip, pair.hip_location)
    parts.finish()
    return pair


def _family(document: Document, problems: list[Problem]) -> Family:
    fields = Fields(document.root, f"{document.stem}.yaml", problems)
    methods = tuple(
        _method(name, value, problems, is_storage=True) for name, value in fields.mapping("methods").items()
    )
    family = Family(document.stem, fields.text("doc"), methods, document.path)
    fields.finish()
    return family


def _device(document: Document, problems: list[Problem]) -> tuple[str, tuple[Method, ...]]:
    fields = Fields(document.root, "device.yaml", problems)
    methods = tuple(
        _method(name, value, problems, is_storage=False) for name, value in fields.mapping("methods").items()
    )
    doc = fields.text("doc")
    fields.finish()
    return doc, methods


def _parse(fields: Fields, value: Value | None, key: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    text = fields.scalar(value, str, key)
    if value is None or text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        fields.problem(value.location, str(error))
        return None


def _method(name: str, value: Value, problems: list[Problem], *, is_storage: bool) -> Method:
    fields = Fields(value, f"method '{name}'", problems)
    signature = _parse(fields, fields.required("signature"), "signature", Signature.parse)
    if signature is not None and signature.name != name:
        message = f"method '{name}' has the signature of '{signature.name}'; give both one name"
        fields.problem(value.key_location, message)
    kind = operands = dtypes = tensor = None
    is_broken = signature is None
    if is_storage:
        kind = fields.text_or_none("ops")
        operands = _operands(fields)
        is_broken |= not operands or (signature is not None and not _are_parameters(operands, signature, problems))
        tensor = _parse(fields, fields.optional("tensor"), "tensor", Signature.parse)
    else:
        dtypes_value = fields.optional("dtypes")
        dtypes = build_names(fields, dtypes_value, "dtypes") if dtypes_value is not None else None
    method = Method(
        name=name,
        signature=signature or Signature(name, (), "None"),
        doc=fields.paragraphs("doc"),
        kind=kind,
        functor=None,
        operands=operands or (),
        dtypes=dtypes,
        unsupported=fields.text_or_none("unsupported"),
        checks=_checks(fields),
        errors=dict(fields.texts("errors")),
        tensor=tensor,
        is_broken=is_broken,
        location=value.key_location,
    )
    fields.finish()
    return method


def _checks(fields: Fields) -> tuple[Check, ...]:
    found = []
    for element in fields.elements("checks"):
        call = _parse(fields, element, "checks", Call.parse)
        if call is not None:
            found.append(Check(call, element.location))
    return tuple(found)


def _operands(fields: Fields) -> tuple[Operand, ...]:
    operands = fields.mapping("operands")
    if operands and "self" not in operands:
        fields.problem(fields.key_location, f"{fields.what} has no operand 'self'; add it to 'operands'")
    return tuple(_operand(name, value, fields.problems) for name, value in operands.items())


def _are_parameters(operands: tuple[Operand, ...], signature: Signature, problems: list[Problem]) -> bool:
    """Whether the operands and their layouts are parameters; those that are not are noted."""
    before = len(problems)
    for operand in operands:
        for what, name, known in (
            ("operand", operand.name, ("self", *signature.arguments)),
            ("layout", operand.layout, signature.arguments),
        ):
            if name is not None and name not in known:
                message = f"{what} '{name}' is no parameter of '{signature.name}'{did_you_mean(name, known)}"
                problems.append(Problem(operand.location, message))
        types = [signature.type_of(name) for name in (operand.name, operand.layout) if name is not None]
        if len(set(map(is_optional, types))) > 1:
            message = f"only one of '{operand.name}' and its layout '{operand.layout}' may be None; let both or neither"
            problems.append(Problem(operand.location, message))
    return len(problems) == before


def _operand(name: str, value: Value, problems: list[Problem]) -> Operand:
    fields = Fields(value, f"operand '{name}'", problems)
    operand = Operand(
        name=name,
        layout=fields.text_or_none("layout"),
        dtypes=build_names(fields, fields.required("dtypes"), "dtypes"),
        location=value.key_location,
    )
    fields.finish()
    return operand


def _backend_family(document: Document, problems: list[Problem]) -> BackendFamily:
    fields = Fields(document.root, f"family '{document.stem}'", problems)
    vocabulary = fields.optional("vocabulary")
    words = Spot(vocabulary, "vocabulary", fields.what, problems).decode(tuple[Word, ...]) if vocabulary else ()
    first: dict[str, Word] = {}
    for word in words:
        if word.call != word.name and first.setdefault(word.name, word) is not word:
            message = f"word '{word.name}' stands twice, first at line {first[word.name].location.line}; keep one"
            fields.problem(word.location, message)
    family = BackendFamily(
        name=document.stem,
        package=fields.name("package"),
        vocabulary=first,
        cells=build_cells(fields, f"family '{document.stem}'"),
        locations=_key_locations(document.root),
        path=document.path,
    )
    fields.finish()
    return family


def _backend(document: Document, problems: list[Problem]) -> Backend:
    what = f"backend '{document.stem}'"
    fields = Fields(document.root, what, problems)
    runtime_value = fields.required("runtime")
    package = missing = None
    if runtime_value is not None:
        package, missing = _runtime(runtime_value, f"'runtime' of {what}", problems)
    extra = fields.name_or_none("extra")
    modules = tuple(text for text, _ in fields.texts("modules"))
    array_value = fields.optional("array")
    array = None if array_value is None else Spot(array_value, "array", what, problems).decode(ArrayLibrary)
    if array is not None and modules:
        message = f"{what} names its modules below 'array'; remove 'modules'"
        fields.problem(fields.place("modules"), message)
    elif array is not None and extra is not None:
        modules = tuple(array.modules.values())
    if extra is None and (modules or (package is None and missing is not None)):
        message = f"{what} lacks the key 'extra', which names what to install for it; add it"
        fields.problem(fields.key_location, message)
    compiled = fields.optional("code_objects")
    backend = Backend(
        name=document.stem,
        doc=fields.text("doc"),
        class_prefix=fields.class_name("class_prefix"),
        extends=fields.text_or_none("extends"),
        package=package,
        missing=missing,
        extra=extra,
        requires=tuple(text for text, _ in fields.texts("requires")),
        modules=modules,
        libraries=_libraries(fields),
        array=array,
        code_objects=None if compiled is None else Spot(compiled, "code_objects", what, problems).decode(CodeObjects),
        label=fields.text("label"),
        display=fields.text("display", may_be_empty=True),
        preference=fields.integer("preference"),
        dlpack=fields.integer("dlpack"),
        cells=build_cells(fields, what),
        locations=_key_locations(document.root),
        path=document.path,
    )
    for key in ("label", "display"):
        fields.check_placeholders(key, getattr(backend, key), fields.place(key), ["ordinal"])
    fields.finish()
    return backend


def _libraries(fields: Fields) -> tuple[Library, ...]:
    """The vendor's libraries: what cells call them, and the class of the backend's package that opens each."""
    value = fields.optional("libraries")
    content = value.content if value is not None and isinstance(value.content, dict) else {}
    if value is not None and not content:
        fields.problem(
            value.location, f"'libraries' of {fields.what} must be a mapping of names to '{{class: module.Class}}'"
        )
    found = []
    for name, inner in content.items():
        if fields.check_name(name, inner.key_location) and name == ANY_ORDER:
            fields.problem(inner.key_location, f"'{name}' says when a call is made; give the library another name")
        own = Fields(inner, f"library '{name}'", fields.problems)
        module, _, class_name = own.matching("class", _LIBRARY_CLASS, "module.Class").rpartition(".")
        dtypes = own.optional("dtypes")
        names = None if dtypes is None else build_names(own, dtypes, "dtypes")
        own.finish()
        if module:
            found.append(Library(name, module, class_name, names, own.place("class")))
    return tuple(found)


def _key_locations(root: Value) -> dict[str, Location]:
    keys = root.content if isinstance(root.content, dict) else {}
    return {key: value.key_location for key, value in keys.items()}


def _runtime(value: Value, what: str, problems: list[Problem]) -> tuple[str | None, str | None]:
    """The subpackage of a backend's runtime, or why there is none."""
    parts = Fields(value, what, problems)
    package, missing = parts.name_or_none("package"), parts.text_or_none("missing")
    before = len(problems)
    parts.finish()
    if len(problems) == before and isinstance(value.content, dict) and (package is None) == (missing is None):
        parts.problem(parts.key_location, f"{what} must have one key: its 'package', or why it is 'missing'")
    return package, missing if package is None else None
