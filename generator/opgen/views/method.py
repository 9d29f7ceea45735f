"""What the templates of the dispatch see of a method: its definition, its checks and a branch for each backend."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opgen.arguments import accepted, border
from opgen.matrix import Cell, method_cells
from opgen.model import Backend, Method, Names, Spec
from opgen.signature import Signature
from opgen.views.python import LINE_LENGTH, docstring, frozenset_of, quoted, set_of, tuple_of, wrapped

# Columns at which a method's body and a branch's body stand in a class.
_BODY = 8
_BRANCH = 16


@dataclass(frozen=True)
class Branch:
    """The case of one backend."""

    pattern: str
    body: str  # raises for the dtypes that the backend lacks, then does the work for those that it has


@dataclass(frozen=True)
class MethodView:
    """A method of the dispatch."""

    definition: str
    opening: str  # the docstring and the checks before the match
    subject: str
    branches: tuple[Branch, ...]
    otherwise: Branch  # the case beyond all backends


_UNREACHABLE = Branch("unknown", "assert_never(unknown)")


def _joined(statements: list[str], indent: int) -> str:
    """Statements below each other, the first without its indentation."""
    return f"\n{' ' * indent}".join(statements)


def _opening(spec: Spec, method: Method, checks: list[str]) -> str:
    return _joined([method_doc(spec, method), *checks], _BODY)


def class_name(kind: str) -> str:
    """The enum of a functor kind: unary -> UnaryOp."""
    return f"{kind.capitalize()}Op"


def types_in(signature: Signature) -> set[str]:
    """The class names that a signature's types mention."""
    text = " ".join([parameter.type for parameter in signature.parameters] + [signature.returns])
    return set(re.findall(r"[A-Z]\w*", text))


def _own(type_text: str) -> str:
    # device.py imports the storage modules, so these reach Device through its module, when it is there.
    return re.sub(r"\bStorage\b", "Self", type_text).replace("Device", '"device_module.Device"')


def definition(signature: Signature, *, own: bool, is_border: bool = False, indent: int = 4) -> str:
    """The `def` line of a method; with `own`, Storage is written as Self, at the border types as what is accepted."""
    rewrite = _own if own else str
    types = [accepted(p.type) if is_border else p.type for p in signature.parameters]
    named = zip(signature.arguments, types, strict=True)
    parameters = ["self", *(f"{name}: {rewrite(type_text)}" for name, type_text in named)]
    return wrapped(f"def {signature.name}(", parameters, f") -> {rewrite(signature.returns)}:", indent)


def method_doc(spec: Spec, method: Method, indent: int = _BODY) -> str:
    """The docstring: what the method does, its dtypes and its errors."""
    errors = set(method.errors)
    text = method.doc
    if method.operands:
        errors.add("UnsupportedDType")
        if len(method.operands) > 1:
            errors.add("DeviceMismatch")
        if any(operand.dtypes.texts == ("same",) for operand in method.operands):
            errors.add("DTypeMismatch")
        if any(operand.layout for operand in method.operands):
            errors.add("InvalidLayout")
    elif method.dtypes is not None:
        errors.add("UnsupportedDType")
    names = {dtype for op in spec.ops(method) for dtype in spec.op_dtypes(method, op) or ()}
    lines = [text]
    if names and len(names) < len(spec.dtypes):
        lines.append(f"Dtypes: {', '.join(dtype.name for dtype in spec.dtypes if dtype.name in names)}.")
    if errors and method.signature.parameters:
        lines.append(f"Raises {', '.join(sorted(errors))}.")
    return docstring("\n\n".join(lines), indent)


def storage_method(spec: Spec, method: Method) -> MethodView:
    """A storage method as the template of its family sees it."""
    signature = method.signature
    others = [operand.name for operand in method.operands if operand.name != "self"]
    stored = ["self", *others]
    label = _label(method)
    is_property = not signature.parameters
    first = method.operands[0].name
    dtype = f"{_inner(first)}.dtype" if is_property else f"{first}.inner.dtype"
    subject = ", ".join(f"{name}.inner" for name in stored)
    mismatch = Branch("_", wrapped("raise device_mismatch(", [label, *stored], ")", _BRANCH))
    return MethodView(
        definition=("@property\n    " if is_property else "") + definition(signature, own=True, is_border=True),
        opening=_opening(spec, method, [] if is_property else _checks(spec, method, label)),
        subject=subject if len(stored) == 1 else f"({subject})",
        branches=tuple(
            _branch(spec, method, backend, "Storage", stored, label, dtype, _storage_statement(method, backend))
            for backend in spec.backends
        ),
        otherwise=mismatch if others else _UNREACHABLE,
    )


def device_method(spec: Spec, method: Method) -> MethodView:
    """A device method as the template of the device sees it."""
    signature = method.signature
    label = quoted(method.name)
    dtype = "dtype" if "dtype" in signature.arguments else "DType.from_numpy(array.dtype)"
    checks = _borders(method, label)
    if method.dtypes is not None and len(spec.op_dtypes(method, None) or ()) < len(spec.dtypes):
        dtypes = dtype_set(method.dtypes, _BODY + 4, len(","))
        items = [label, "dtype", dtypes, "self.backend", quoted(method.unsupported or "")]
        checks.append(wrapped("check.known_dtype(", items, ")", _BODY))
    checks += [_check_call(item.call.name, label, item.call.arguments) for item in method.checks]
    call = f"inner.{method.name}({', '.join(signature.arguments)})"
    return MethodView(
        definition=definition(signature, own=False, is_border=True),
        opening=_opening(spec, method, checks),
        subject="self.inner",
        branches=tuple(
            _branch(spec, method, backend, "Device", ["self"], label, dtype, _statement(method, "Storage", call))
            for backend in spec.backends
        ),
        otherwise=_UNREACHABLE,
    )


def custom_class(method: Method) -> str | None:
    """The class that users derive the ops of a method from; None for a method that the backends have themselves."""
    types = {parameter.name: parameter.type for parameter in method.signature.parameters}
    return types.get("op") if method.kind is None else None


def _label(method: Method) -> str:
    """The expression that names the op in errors."""
    if method.kind is not None:
        return "op.value"
    return "op.name" if "op" in method.signature.arguments else quoted(method.name)


def _inner(name: str) -> str:
    return "inner" if name == "self" else f"{name}_inner"


def _backend_arguments(method: Method) -> list[str]:
    """What a backend is given: the arguments, with its own storages in place of those that dispatch."""
    others = {operand.name for operand in method.operands}
    return [_inner(name) if name in others else name for name in method.signature.arguments]


def _storage_statement(method: Method, backend: Backend) -> str:
    """The statement of a branch of the storage dispatch."""
    signature = method.signature
    arguments = _backend_arguments(method)
    if custom_class(method) is not None:
        items = ["op", f"op.{backend.name}_fwd", "inner", *(name for name in arguments if name != "op")]
        head = "self._change(" if signature.returns == "None" else "return self._apply("
        return wrapped(head, items, ")", _BRANCH)
    wrap = {"Device": "device_module.Device"}.get(signature.returns, "self._new")
    call = f"inner.{method.name}({', '.join(arguments)})" if signature.parameters else f"inner.{method.name}"
    return _statement(method, wrap, call)


def _statement(method: Method, wrap: str, call: str) -> str:
    """The call of a branch as a statement; `wrap` makes a dispatching object of a backend's."""
    returns = method.signature.returns
    if returns == "None":
        return call
    if "Storage" in returns or returns == "Device":
        return wrapped(f"return {wrap}(", [call], ")", _BRANCH)
    return f"return {call}"


def dtype_set(names: Names, indent: int, around: int) -> str:
    """The dtypes that the spec names: a group's constant, or a set of those that it lists, by `frozenset_of`."""
    if not names.listed:
        return names.texts[0].upper()
    return frozenset_of([f"DType.{name.upper()}" for name in names.texts], indent, around)


def _check_call(name: str, label: str, arguments: tuple[str, ...]) -> str:
    return wrapped(f"check.{name}(", [label, *arguments], ")", _BODY)


def _borders(method: Method, label: str) -> list[str]:
    """The statements that make each argument what the signature says, or refuse it."""
    lines = []
    # The op goes first: errors of the others name it.
    for parameter in sorted(method.signature.parameters, key=lambda parameter: parameter.name != "op"):
        name, made = parameter.name, border(parameter.type)
        if name == "op" and custom_class(method) is not None:
            lines.append(f"require_op(op, {parameter.type}, backend_name(self))")
            continue
        if made is None:
            continue
        items = [quoted(method.name) if name == "op" else label, quoted(name), name]
        if made.converter is not None:
            items += [] if made.count is None else [str(made.count)]
            head = f"None if {name} is None else " if made.is_optional else ""
            lines.append(wrapped(f"{name} = {head}argument.{made.converter}(", items, ")", _BODY))
        elif made.kind == "Shape":
            lines.append(f"{name} = Shape({name})")
        elif made.kind is not None:
            error = wrapped("raise argument.wrong_type(", [*items, quoted(made.kind)], ")", _BODY + 4)
            kind = "StorageBase" if made.kind == "Storage" else made.kind
            lines.append(f"if not isinstance({name}, {kind}):\n{' ' * (_BODY + 4)}{error}")
    return lines


def _checks(spec: Spec, method: Method, label: str) -> list[str]:
    lines = _borders(method, label)
    others = [operand.name for operand in method.operands if operand.name != "self"]
    if others:
        lines.append(wrapped("require_same_device(", [label, "self", *others], ")", _BODY))
    for operand in method.operands:
        texts = operand.dtypes.texts
        if texts == ("op",):
            if any(len(spec.op_dtypes(method, op) or ()) < len(spec.dtypes) for op in spec.ops(method)):
                lines.append(f"require_dtype({label}, {operand.name}, op.dtypes, op.unsupported)")
        elif texts == ("same",):
            lines.append(f"require_same_dtype({label}, {method.operands[0].name}, {operand.name})")
        elif len(spec.resolve(operand.dtypes)) < len(spec.dtypes):
            dtypes = dtype_set(operand.dtypes, _BODY + 4, len(","))
            items = [label, operand.name, dtypes, quoted(method.unsupported or "")]
            lines.append(wrapped("require_dtype(", items, ")", _BODY))
    lines += [_check_call(item.call.name, label, item.call.arguments) for item in method.checks]
    for operand in method.operands:
        if operand.layout is not None:
            lines.append(f"{operand.layout}.check({label}, {operand.name}.inner.length)")
    return lines


def _branch(
    spec: Spec, method: Method, backend: Backend, suffix: str, stored: list[str], label: str, dtype: str, statement: str
) -> Branch:
    """The branch of `backend`: the dtypes that it lacks raise, then the call."""
    name = f"{backend.class_prefix}{suffix}"
    lacking: dict[tuple[str, tuple[str, ...]], list[str | None]] = {}
    has_any = False
    for op in spec.ops(method):
        cells = method_cells(spec, method, op, backend)
        reasons = _lacking(spec, method, op, cells)
        has_any |= any(cell.status != "unsupported" for cell in cells)
        for reason, dtypes in reasons.items():
            is_whole = op is not None and set(dtypes) == set(spec.op_dtypes(method, op) or ())
            lacking.setdefault((reason, () if is_whole else dtypes), []).append(op)
    guards = []
    for (reason, dtypes), ops in lacking.items():
        expression = dtype if method.dtypes is not None or method.operands else "None"
        error = wrapped(
            "raise UnsupportedDType(", [label, expression, quoted(backend.name), quoted(reason)], ")", _BRANCH
        )
        if not has_any:
            guards.append(error)
            break
        among = {dtype: [f"DType.{name.upper()}" for name in dtypes]} if dtypes else {}
        if ops != list(spec.ops(method)):
            among = {"op": [f"{class_name(method.kind or '')}.{str(op).upper()}" for op in ops], **among}
        deeper = wrapped(
            "raise UnsupportedDType(", [label, expression, quoted(backend.name), quoted(reason)], ")", _BRANCH + 4
        )
        guards.append(f"{_condition(among)}\n{' ' * (_BRANCH + 4)}{deeper}")
    uses_inner = has_any or dtype.startswith("inner.")
    patterns = [f"{name}() as {_inner(operand)}" if uses_inner else f"{name}()" for operand in stored]
    return Branch(
        pattern=patterns[0] if len(patterns) == 1 else f"({', '.join(patterns)})",
        body=_joined([*guards, statement] if has_any else guards, _BRANCH),
    )


def _condition(among: Mapping[str, Sequence[str]]) -> str:
    """An `if` that each key is among its values; the values have names where they do not fit on its line."""
    line = f"if {' and '.join(f'{subject} in {tuple_of(items)}' for subject, items in among.items())}:"
    if _BRANCH + len(line) <= LINE_LENGTH:
        return line
    names = {subject: f"lacking_{subject.rpartition('.')[2]}s" for subject in among}
    lines = [set_of(f"{names[subject]} = ", items, _BRANCH) for subject, items in among.items()]
    lines.append(f"if {' and '.join(f'{subject} in {name}' for subject, name in names.items())}:")
    return f"\n{' ' * _BRANCH}".join(lines)


def _lacking(spec: Spec, method: Method, op: str | None, cells: list[Cell]) -> dict[str, tuple[str, ...]]:
    """By reason, the dtypes that the op has but the backend lacks."""
    has = spec.op_dtypes(method, op)
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell.status == "unsupported" and (has is None or cell.dtype in has):
            found.setdefault(cell.reason or "", []).append(cell.dtype or "")
    return {reason: tuple(dtypes) for reason, dtypes in found.items()}
