"""Builds the model from the loaded files, noting every mistake that one file shows by itself."""

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from opgen.cpp import flaw
from opgen.fields import Fields
from opgen.kernels import build_family, build_widths
from opgen.libraries import build_library
from opgen.loader import Document, Value
from opgen.model import (
    FUNCTOR_KINDS,
    LOWERING_KINDS,
    Backend,
    Check,
    DType,
    Expression,
    Family,
    Functor,
    FunctorKind,
    Lowering,
    Method,
    Names,
    Operand,
    Package,
    Spec,
)
from opgen.problem import Location, Problem, did_you_mean
from opgen.signature import Call, Signature
from opgen.toolchains import build_code_objects

_DTypes: TypeAlias = tuple[tuple[DType, ...], dict[str, tuple[str, ...]], frozenset[str]]
Parsed = TypeVar("Parsed", Signature, Call)

_LOWERING_MEND = f"write one of {', '.join(LOWERING_KINDS)}, or 'unsupported: reason'"
_FOLDERS = {Path("spec", name): name for name in ("functors", "storage", "backends", "kernels", "libraries")}
_WIDTHS = Path("spec/kernels/widths.yaml")
# What pip takes, as far as a package's own version and the Python that it needs go.
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
_PYTHON = re.compile(r"(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?(, ?(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?)*")
_NUMPY_RANK = 64
SINGLE_FILES = (Path("spec/package.yaml"), Path("spec/dtypes.yaml"), Path("spec/device.yaml"))
_NO_PACKAGE = Package("", "", "", "", (), 0, Location(SINGLE_FILES[0]), Location(SINGLE_FILES[0]))


def build(documents: Mapping[Path, Document], problems: list[Problem]) -> Spec:
    """The spec that `documents` hold; what is wrong goes to `problems`."""
    by_folder: dict[str, list[Document]] = {folder: [] for folder in _FOLDERS.values()}
    for path, document in documents.items():
        if path.parent in _FOLDERS:
            if Fields(document.root, "the file", problems).check_name(document.stem, Location(path)):
                by_folder[_FOLDERS[path.parent]].append(document)
        elif path not in SINGLE_FILES:
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
    dtype_values, groups, torn_groups = _dtypes(dtypes, problems) if dtypes else ((), {}, frozenset())
    device_doc, device_methods = _device(device, problems) if device else ("", ())
    functors = [_functor_kind(document, problems) for document in by_folder["functors"]]
    kernels = [document for document in by_folder["kernels"] if document.path != _WIDTHS]
    return Spec(
        package=_package(package, problems) if package else _NO_PACKAGE,
        dtypes=dtype_values,
        groups=groups,
        torn_groups=torn_groups,
        functors={kind.name: kind for kind in functors},
        families=tuple(_family(document, problems) for document in by_folder["storage"]),
        device_doc=device_doc,
        device_methods=device_methods,
        backends=tuple(_backend(document, problems) for document in by_folder["backends"]),
        kernels=tuple(build_family(document, problems) for document in kernels),
        libraries=tuple(build_library(document, problems) for document in by_folder["libraries"]),
        widths=build_widths(documents[_WIDTHS], problems) if _WIDTHS in documents else {},
    )


def _package(document: Document, problems: list[Problem]) -> Package:
    before = len(problems)
    fields = Fields(document.root, "the package", problems)
    package = Package(
        name=fields.name("name"),
        version=fields.matching("version", _VERSION, "1.0.2"),
        summary=fields.text("summary"),
        python=fields.matching("python", _PYTHON, ">=3.11"),
        requires=tuple(text for text, _ in fields.texts("requires")),
        max_rank=fields.integer("max_rank"),
        max_rank_location=fields.place("max_rank"),
        location=fields.place("name"),
    )
    fields.finish()
    if not 1 <= package.max_rank <= _NUMPY_RANK and len(problems) == before:
        message = f"'max_rank' must be from 1 to {_NUMPY_RANK}, the most dims of a NumPy array, not {package.max_rank}"
        fields.problem(package.max_rank_location, message)
    return package


def _dtypes(document: Document, problems: list[Problem]) -> _DTypes:
    fields = Fields(document.root, "dtypes.yaml", problems)
    dtypes = tuple(_dtype(name, value, problems) for name, value in fields.mapping("dtypes").items())
    known = [dtype.name for dtype in dtypes]
    groups: dict[str, tuple[str, ...]] = {}
    torn = set()
    for name, value in fields.mapping("groups").items():
        members = fields.text_list(value, name)
        for member, location in members:
            if member not in known:
                torn.add(name)
                fields.problem(location, f"unknown dtype '{member}'{did_you_mean(member, known)}")
        groups[name] = tuple(member for member, _ in members)
    for dtype in dtypes:
        if dtype.compute and dtype.compute not in known:
            fields.problem(
                dtype.location, f"dtype '{dtype.name}' computes in unknown dtype '{dtype.compute}'"
                f"{did_you_mean(dtype.compute, known)}"
            )  # fmt: skip
    fields.finish()
    return dtypes, groups, frozenset(torn)


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
    mark = fields.number_or_none("index_mark")
    bytes_value = fields.required("bytes")
    size = fields.scalar(bytes_value, int, "bytes")
    if bytes_value is not None and size is not None and size not in (1, 2, 4, 8):
        fields.problem(bytes_value.location, f"'bytes' of dtype '{name}' must be 1, 2, 4 or 8, not {size}")
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
        index_mark=mark if isinstance(mark, int) else None,
        location=value.key_location,
    )
    fields.finish()
    return dtype


def _names(fields: Fields, value: Value | None, key: str) -> Names:
    if value is None:
        return Names((), (), listed=True)
    if isinstance(value.content, str):
        return Names((value.content,), (value.location,), listed=False)
    if isinstance(value.content, list):
        pairs = fields.text_list(value, key)
        if not value.content:
            fields.problem(value.location, f"'{key}' of {fields.what} is empty; write what it holds")
        return Names(tuple(text for text, _ in pairs), tuple(place for _, place in pairs), listed=True)
    fields.problem(value.location, f"'{key}' of {fields.what} must be a group or a list of dtypes")
    return Names((), (), listed=True)


def _functor_kind(document: Document, problems: list[Problem]) -> FunctorKind:
    fields = Fields(document.root, f"{document.stem}.yaml", problems)
    kind = document.stem
    if kind not in FUNCTOR_KINDS:
        message = f"unknown functor kind '{kind}'; name the file after one of {', '.join(FUNCTOR_KINDS)}"
        fields.problem(Location(document.path), message)
    value = fields.required("kind")
    text = fields.scalar(value, str, "kind")
    if value is not None and text is not None and text != kind:
        fields.problem(value.location, f"kind '{text}' stands in {document.path.name}; write 'kind: {kind}'")
    functors = tuple(_functor(name, value, kind, problems) for name, value in fields.mapping("ops").items())
    result = FunctorKind(kind, fields.text("unsupported"), functors, document.path)
    fields.finish()
    return result


def _functor(name: str, value: Value, kind: str, problems: list[Problem]) -> Functor:
    fields = Fields(value, f"op '{name}'", problems)
    result, empty_is_error = None, False
    if kind == "reduce":
        text = fields.text("result")
        result = None if text == "same" else text
        empty = fields.required("empty")
        empty_is_error = empty is not None and empty.content == "error"
        if empty is not None and not empty_is_error and not isinstance(empty.content, int | float):
            fields.problem(empty.location, f"'empty' of op '{name}' must be a number or 'error'")
    functor = Functor(
        name=name,
        doc=fields.text("doc"),
        dtypes=_names(fields, fields.required("dtypes"), "dtypes"),
        numpy=_numpy_expression(fields, kind),
        hip=_hip_expression(fields, kind),
        edges=fields.text("edges"),
        result=result,
        empty_is_error=empty_is_error,
        location=value.key_location,
    )
    fields.finish()
    return functor


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


def _check_function(fields: Fields, key: str, text: str, place: Location) -> None:
    if text and not text.isidentifier():
        fields.problem(place, f"'{key}' of {fields.what} must be the name of a function, not '{text}'")


def _hip_expression(fields: Fields, kind: str) -> Expression:
    """An expression of C++; of a reduction, the name of a function object."""
    expression = _expression(fields, "hip")
    for text in expression.texts:
        if kind == "reduce":
            _check_function(fields, "hip", text, expression.location)
        elif (reason := flaw(text)) is not None:
            message = f"'{text}' is no expression of C++: {reason}; write one over the operands"
            fields.problem(expression.location, message)
    return expression


def _numpy_expression(fields: Fields, kind: str) -> Expression:
    """An expression of Python; of a reduction, the name of a function."""
    expression = _expression(fields, "numpy")
    for text in expression.texts:
        if kind == "reduce":
            _check_function(fields, "numpy", text, expression.location)
        try:
            ast.parse(text or "0", mode="eval")
        except SyntaxError as error:
            message = f"'{text}' is no expression of Python ({error.msg}); write one over the operands"
            fields.problem(expression.location, message)
    return expression


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
    if is_storage:
        kind = fields.text_or_none("ops")
        operands = _operands(fields)
        tensor = _parse(fields, fields.optional("tensor"), "tensor", Signature.parse)
    else:
        dtypes_value = fields.optional("dtypes")
        dtypes = _names(fields, dtypes_value, "dtypes") if dtypes_value is not None else None
    method = Method(
        name=name,
        signature=signature or Signature(name, (), "None"),
        doc=fields.paragraphs("doc"),
        kind=kind,
        operands=operands or (),
        dtypes=dtypes,
        unsupported=fields.text_or_none("unsupported"),
        checks=_checks(fields),
        errors=dict(fields.texts("errors")),
        tensor=tensor,
        is_broken=signature is None or operands == (),
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


def _operand(name: str, value: Value, problems: list[Problem]) -> Operand:
    fields = Fields(value, f"operand '{name}'", problems)
    operand = Operand(
        name=name,
        layout=fields.text_or_none("layout"),
        dtypes=_names(fields, fields.required("dtypes"), "dtypes"),
        written=fields.flag("written"),
        location=value.key_location,
    )
    fields.finish()
    return operand


def _backend(document: Document, problems: list[Problem]) -> Backend:
    fields = Fields(document.root, f"backend '{document.stem}'", problems)
    runtime_value = fields.required("runtime")
    runtime = templates = missing = None
    if runtime_value is not None:
        runtime, templates, missing = _runtime(runtime_value, f"'runtime' of backend '{document.stem}'", problems)
    extra = fields.name_or_none("extra")
    modules = tuple(text for text, _ in fields.texts("modules"))
    if extra is None and (modules or (runtime is None and missing is not None)):
        fields.problem(
            fields.key_location,
            f"backend '{document.stem}' lacks the key 'extra', which names what to install for it; add it",
        )
    compiled = fields.optional("code_objects")
    storage = fields.mapping("storage", may_be_empty=True)
    device = fields.mapping("device", may_be_empty=True)
    backend = Backend(
        name=document.stem,
        doc=fields.text("doc"),
        class_prefix=fields.class_name("class_prefix"),
        extends=fields.text_or_none("extends"),
        runtime=runtime,
        templates=templates,
        missing=missing,
        extra=extra,
        requires=tuple(text for text, _ in fields.texts("requires")),
        modules=modules,
        libraries=fields.texts_by_name("libraries"),
        code_objects=build_code_objects(compiled, document.stem, problems) if compiled is not None else None,
        label=fields.text("label"),
        display=fields.text("display", may_be_empty=True),
        preference=fields.integer("preference"),
        dlpack=fields.integer("dlpack"),
        storage={name: _lowerings(name, value, document.stem, problems) for name, value in storage.items()},
        device={name: _lowerings(name, value, document.stem, problems) for name, value in device.items()},
        locations=_key_locations(document.root, {"storage": storage, "device": device}),
        path=document.path,
    )
    for key in ("label", "display"):
        fields.check_placeholders(key, getattr(backend, key), fields.place(key), ["ordinal"])
    fields.finish()
    return backend


def _key_locations(root: Value, parts: Mapping[str, Mapping[str, Value]]) -> dict[str, Location]:
    keys = root.content if isinstance(root.content, dict) else {}
    found = {key: value.key_location for key, value in keys.items()}
    for part, methods in parts.items():
        found.update({f"{part}.{name}": value.key_location for name, value in methods.items()})
    return found


def _runtime(value: Value, what: str, problems: list[Problem]) -> tuple[str | None, str | None, str | None]:
    """The subpackage of a backend's runtime and the family of its templates, or why there is none."""
    parts = Fields(value, what, problems)
    package, templates = parts.name_or_none("package"), parts.name_or_none("templates")
    missing = parts.text_or_none("missing")
    before = len(problems)
    parts.finish()
    if len(problems) == before and isinstance(value.content, dict) and (package is None) == (missing is None):
        parts.problem(parts.key_location, f"{what} must have one key: its 'package', or why it is 'missing'")
    return package, templates, missing


def _lowerings(
    method: str, value: Value, backend: str, problems: list[Problem]
) -> dict[str | None, tuple[Lowering, ...]]:
    """The lowerings of a method: of the method itself, or of each of its ops where it has ops."""
    content = value.content
    # A lowering is a mapping too, of texts and a list of texts; a mapping of lowerings is one of ops.
    if isinstance(content, dict) and any(_holds_mapping(inner) for inner in content.values()):
        return {op: _lowering_list(inner, f"'{method}.{op}'", backend, problems) for op, inner in content.items()}
    return {None: _lowering_list(value, f"'{method}'", backend, problems)}


def _holds_mapping(value: Value) -> bool:
    elements = value.content if isinstance(value.content, list) else [value]
    return any(isinstance(element.content, dict) for element in elements)


def _lowering_list(value: Value, what: str, backend: str, problems: list[Problem]) -> tuple[Lowering, ...]:
    """The lowerings of one op; none where one of them is wrong, so that `check` does not look for its cells."""
    what = f"{what} of backend '{backend}'"
    elements = value.content if isinstance(value.content, list) else [value]
    before = len(problems)
    lowerings = tuple(_lowering(element, what, problems) for element in elements)
    if not elements:
        problems.append(Problem(value.location, f"{what} is an empty list; {_LOWERING_MEND}"))
    return lowerings if len(problems) == before else ()


def _lowering(value: Value, what: str, problems: list[Problem]) -> Lowering:
    before = len(problems)
    fields = Fields(value, what, problems)
    texts = {kind: fields.text_or_none(kind) for kind in LOWERING_KINDS}
    vias = [f"{kind} {text}" for kind, text in texts.items() if text is not None]
    unsupported = fields.text_or_none("unsupported")
    dtypes = fields.optional("dtypes")
    lowering = Lowering(
        via=" or ".join(reversed(vias)) if unsupported is None else None,
        kernel=texts["kernel"],
        library=texts["library"],
        unsupported=unsupported,
        dtypes=_names(fields, dtypes, "dtypes") if dtypes is not None else None,
        # The key's place: an alias has the place of its anchor.
        location=value.key_location,
    )
    fields.finish()
    if len(problems) == before and not vias and unsupported is None:
        fields.problem(value.key_location, f"{what} does not say how it is done; {_LOWERING_MEND}")
    if len(problems) == before and vias and unsupported is not None:
        fields.problem(value.key_location, f"{what} is both done and unsupported; remove one of the two")
    return lowering
