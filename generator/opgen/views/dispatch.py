"""What the templates of the dispatch see: the checks of each method, and for each backend the branch that runs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from opgen.arguments import Coercion, accepted, coercion
from opgen.cells import FunctionCall, Lowering
from opgen.errors import errors_of
from opgen.fields import Names
from opgen.matrix import op_reason
from opgen.model import BLOCKS, METHOD_OP, Backend, Family, Method, Spec, inner_name
from opgen.signature import OPTIONAL, Signature, is_optional
from opgen.views.python import quoted

# An op of a method, where it chooses between several, and a dtype.
Case: TypeAlias = tuple[str | None, str | None]


class Guard(NamedTuple):
    """A part of a branch that raises UnsupportedDType."""

    condition: str | None  # None where it holds for everything
    reason: str


class Attempt(NamedTuple):
    """A call that a branch prefers to the one in its last line."""

    condition: str | None  # on dtypes and ops; None where it holds for all
    library: str | None  # the call is made where this library is there, and may give None
    call: str
    device: str = ""  # what has the library


class Branch(NamedTuple):
    """The case of one backend."""

    backend: str
    pattern: str
    guards: tuple[Guard, ...]
    attempts: tuple[Attempt, ...]
    result: str  # what a library made: that of each backend has a class of its own
    call: str | None  # what is done in the end; None where nothing is supported


class PlanView(NamedTuple):
    """By what a method finds the plan of a call that it made before, and what a run of that is given."""

    storages: tuple[str, ...]  # the statements that name the storages of the backend
    key: str  # all on which it depends what is done
    condition: str  # whether the storages are on one device
    call: str  # of the plan: the storages, then the numbers of the call
    makes_storage: bool  # what it gives is in a storage of the method's own class


class MethodView(NamedTuple):
    """A method of the dispatch."""

    name: str
    parameters: str
    returns: str
    is_property: bool
    doc: str
    label: str  # the expression that names the op in errors
    dtype: str  # that of the dtype
    refusal: str  # the beginning of the error that a backend without it raises
    checks: tuple[str, ...]
    subject: str
    gives_nothing: bool
    result: str  # storage, device, value, nothing, or of a user's op applied (a storage and its shape) or changed
    branches: tuple[Branch, ...]
    others: tuple[str, ...]  # the operands besides the first, which may be on another backend
    coercions: tuple[str, ...] = ()  # what makes the arguments what the signature says, before all else
    plan: PlanView | None = None  # None for a method that does without


def op_classes(spec: Spec) -> tuple[str, ...]:
    """The enums of the functors that are chosen by an argument."""
    return tuple(kind.class_name for kind in spec.functors.values() if kind.chosen)


def dtypes_constant(names: Names) -> str:
    """The dtypes that the spec names: a group's constant, or a set."""
    if not names.listed:
        return names.texts[0].upper()
    return f"frozenset({_tuple(f'DType.{name.upper()}' for name in names.texts)})"


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def method_doc(spec: Spec, method: Method) -> str:
    """What the method does, its dtypes and its errors."""
    errors = errors_of(spec, method)
    names = {dtype for op in spec.ops(method) for dtype in spec.op_dtypes(method, op) or ()}
    paragraphs = [method.doc]
    if names and not method.holds_blocks and len(names) < len(spec.dtypes):
        paragraphs.append(f"Dtypes: {', '.join(dtype.name for dtype in spec.dtypes if dtype.name in names)}.")
    if errors and method.signature.parameters:
        paragraphs.append(f"Raises {', '.join(sorted(errors))}.")
    return "\n\n".join(paragraphs)


def storage_method(spec: Spec, method: Method) -> MethodView:
    """A storage method as the template of its family sees it."""
    is_property = not method.signature.parameters
    single = [operand.name for operand in method.single_operands]
    stored = ["self", *(name for name in single if name != "self")]
    first = method.operands[0].name
    plan = _plan(spec, method, stored) if has_plans(method) else None
    subject = ", ".join(f"{name}.inner" if plan is None else inner_name(name) for name in stored)
    label = _label(method)
    return _method(
        spec,
        method,
        "Storage",
        stored,
        label=label,
        dtype=f"{inner_name(first)}.dtype" if is_property or plan is not None else f"{first}.inner.dtype",
        subject=subject if len(stored) == 1 else f"({subject})",
        checks=() if is_property else (*_refusals(method, label), *_checks(spec, method, label)),
        coercions=() if is_property else tuple(_coercions(method, label)),
        plan=plan,
    )


def storage_class(method: Method, backend: Backend, operand: str) -> str:
    """The class of an operand on a backend: weights in blocks have one of their own."""
    return f"{'Q' * (operand == 'self' and method.holds_blocks)}{backend.class_prefix}Storage"


def has_plans(method: Method) -> bool:
    """Whether what a call of a method did is kept: it depends on the arguments alone, and on no op of a user's."""
    return bool(method.operands) and bool(method.signature.parameters) and method.custom_class is None


def _calls(spec: Spec, method: Method) -> Iterator[FunctionCall]:
    """What the branches of a method call, on all backends."""
    for lowered in spec.lowerings.values():
        for (name, _), cells in lowered.items():
            if name == method.name:
                for lowering in cells.values():
                    yield from lowering.calls


def _numbers(spec: Spec, method: Method) -> list[str]:
    """The arguments of a method that a plan is given anew in each run: numbers but for those that a library may refuse.

    It may refuse floats that say how something is computed, such as a scale. What computes a functor takes all numbers,
    and elements, which may be integers too, are refused by none.
    """
    may_be_refused = method.kind is None and any(call.library is not None for call in _calls(spec, method))
    types = ("int | float",) if may_be_refused else ("float", "int | float")
    return [item.name for item in method.signature.parameters if item.type in types]


def _attribute(signature: Signature, name: str, attribute: str, holder: str | None = None) -> str:
    """The attribute of a storage or a layout: None where that is None."""
    is_there, holder = not is_optional(signature.type_of(name)), holder or name
    return f"{holder}.{attribute}" if is_there else f"None if {holder} is None else {holder}.{attribute}"


def _plan(spec: Spec, method: Method, stored: list[str]) -> PlanView:
    """What finds a plan: the layouts, the other arguments but numbers, and what tells storages from each other."""
    signature = method.signature
    several = [operand for operand in method.operands if method.is_several(operand)]
    optional = [name for name in stored if method.is_optional(name)]
    inners = [inner_name(name) for name in stored]
    numbers = _numbers(spec, method)
    known = {*numbers, *stored, *(name for operand in several for name in (operand.name, operand.layout))}
    values = [
        _attribute(signature, item.name, "number") if "Layout" in item.type else item.name
        for item in signature.parameters
        if item.name not in known
    ]
    kinds = [_attribute(signature, name, "kind", inner) for name, inner in zip(stored, inners, strict=True)]
    kinds += [f"{operand.name}_key" for operand in several]
    # What is written may be read through another operand.
    is_written = signature.returns == "None" and not method.holds_blocks
    shared = [f"{inner} is inner" for inner in inners[1:]] if is_written else []
    any_order = any(call.any_order for call in _calls(spec, method))
    given = [inner for name, inner in zip(stored, inners, strict=True) if name not in optional]
    if optional:
        given.append(f"*filter(None, {_tuple(map(inner_name, optional))})")
    storages = [f"{', '.join(inners)} = {', '.join(_attribute(signature, name, 'inner') for name in stored)}"]
    for operand in several:
        name = operand.name
        storages.append(f"{inner_name(name)}, {name}_key = operands_of(inner.device, {name}, {operand.layout})")
    key = ", ".join([quoted(method.name), *values, *kinds, *shared, *["is_deterministic()"] * any_order])
    without = " or ".join(f"{operand.name}_key is None" for operand in several)
    return PlanView(
        storages=tuple(storages),
        key=f"None if {without} else ({key})" if several else key,
        condition=" and ".join(["plan is not None", *(_is_near(signature, name) for name in stored[1:])]),
        call=f"plan({', '.join([*given, *(f'*{inner_name(operand.name)}' for operand in several), *numbers])})",
        makes_storage=signature.returns == "Storage" and not method.holds_blocks,
    )


def _is_near(signature: Signature, name: str) -> str:
    """The condition that an operand is on the device of the first one."""
    near = f"{inner_name(name)}.device is inner.device"
    return f"({inner_name(name)} is None or {near})" if is_optional(signature.type_of(name)) else near


def device_method(spec: Spec, method: Method) -> MethodView:
    """A device method as the template of the device sees it."""
    label = quoted(method.name)
    checks = [*_coercions(method, label), *_refusals(method, label)]
    if method.dtypes is not None and len(spec.op_dtypes(method, None) or ()) < len(spec.dtypes):
        arguments = [label, "dtype", dtypes_constant(method.dtypes), "self", quoted(method.unsupported or "")]
        checks.append(f"check.known_dtype({', '.join(arguments)})")
    checks += [f"check.{item.call.name}({', '.join([label, *item.call.arguments])})" for item in method.checks]
    dtype = "None"
    if method.dtypes is not None:
        dtype = "dtype" if "dtype" in method.signature.arguments else "DType.from_numpy(array.dtype)"
    return _method(
        spec, method, "Device", ["self"], label=label, dtype=dtype, subject="self.inner", checks=tuple(checks)
    )


def _method(
    spec: Spec,
    method: Method,
    suffix: str,
    stored: list[str],
    *,
    label: str,
    dtype: str,
    subject: str,
    checks: tuple[str, ...],
    coercions: tuple[str, ...] = (),
    plan: PlanView | None = None,
) -> MethodView:
    signature = method.signature
    is_storage = suffix == "Storage"
    own = _own if is_storage and not method.holds_blocks else str
    parameters = ["self", *(f"{p.name}: {own(accepted(p.type))}" for p in signature.parameters)]
    results = {
        "None": "nothing",
        "Storage": "storage",
        "tuple[Storage, ...]": "storages",
        "QStorage": "blocks",
        "Device": "device",
    }
    if method.custom_class is not None:
        results = {"None": "changed", "tuple[Storage, Shape]": "applied"}
    return MethodView(
        name=method.name,
        parameters=", ".join(parameters),
        returns=own(signature.returns),
        is_property=is_storage and not signature.parameters,
        doc=method_doc(spec, method),
        label=label,
        dtype=dtype,
        refusal=f"UnsupportedDevice({label}" if dtype == "None" else f"UnsupportedDType({label}, {dtype}",
        checks=checks,
        subject=subject,
        gives_nothing=signature.returns == "None",
        result=results.get(signature.returns, "value"),
        branches=tuple(_branch(spec, method, backend, suffix, stored, dtype) for backend in spec.backends),
        others=tuple(stored[1:]),
        coercions=coercions,
        plan=plan,
    )


def _own(type_text: str) -> str:
    return re.sub(r"\bStorage\b", "Self", type_text)


def _label(method: Method) -> str:
    """The expression that names the op in errors."""
    if method.kind is not None and method.functor is None:
        return "op.value"
    return "op.name" if "op" in method.signature.arguments else quoted(method.name)


# What is of these classes needs no conversion, and a call takes longer than the question.
_OWN_CLASSES: Final = {"dtype": "DType", "integer": "int", "number": "float", "real": "float"}


def _coercions(method: Method, label: str) -> Iterable[str]:
    """The statements that make each argument what the signature says."""
    if _errors_need_op(method):
        # Asked in place, because every call asks.
        kind = method.signature.type_of("op")
        error = f"argument.wrong_type({quoted(method.name)}, {quoted('op')}, op, {quoted(kind)})"
        yield f"if not isinstance(op, {kind}): raise {error}"
    for parameter in method.signature.parameters:
        name, made = parameter.name, coercion(parameter.type)
        if name == "op" and method.custom_class is not None:
            yield f"require_op(op, {parameter.type}, backend_name(self))"
        elif made is not None and made.converter is not None:
            if made.converter == "objects" and has_plans(method):
                # What is in a tuple is looked at later.
                yield f"if type({name}) is not tuple: {name} = {_objects(method, label, name)}"
                continue
            rest = [str(made.count)] if made.count is not None else []
            rest += [] if made.kind is None else [_class_of(made), quoted(made.kind)]
            arguments = ", ".join([label, quoted(name), name, *rest])
            kept = f"None if {name} is None else " if made.is_optional else ""
            own = _OWN_CLASSES.get(made.converter)
            if own is not None and not made.is_optional:
                kept = f"{name} if type({name}) is {own} else "
            yield f"{name} = {kept}argument.{made.converter}({arguments})"
        elif made is not None and made.kind == "Shape":
            yield f"{name} = Shape({name})"


def _refusals(method: Method, label: str) -> Iterable[str]:
    """The statements that refuse what is of a wrong class: no call that has a plan needs them."""
    # The op goes first: errors of the others name it.
    for name in sorted(method.signature.arguments, key=lambda name: name != "op"):
        made = coercion(method.signature.type_of(name))
        is_known = name == "op" and (method.custom_class is not None or _errors_need_op(method))
        if made is not None and made.converter is None and made.kind not in (None, "Shape") and not is_known:
            yield _instance(method, label, name)
        elif made is not None and made.converter == "integer" and not made.is_optional and has_plans(method):
            # One of too many bits was let through.
            yield f"argument.integer({label}, {quoted(name)}, {name})"
        elif made is not None and made.converter == "objects" and has_plans(method):
            yield _objects(method, label, name)
    for operand in method.operands:
        if operand.layout is not None and method.is_optional(operand.name):
            names = ", ".join(map(quoted, (operand.name, operand.layout)))
            yield f"argument.both_or_neither({label}, {names}, {operand.name}, {operand.layout})"


def _class_of(made: Coercion) -> str:
    """The class of an argument, or of each of its items."""
    return "StorageBase" if made.kind == "Storage" else str(made.kind)


def _objects(method: Method, label: str, name: str) -> str:
    """The call that refuses items of another class, and makes a tuple of a sequence."""
    made = coercion(method.signature.type_of(name))
    assert made is not None
    return f"argument.objects({label}, {quoted(name)}, {name}, {_class_of(made)}, {quoted(made.kind or '')})"


def _errors_need_op(method: Method) -> bool:
    """Whether what converts an argument names the op, which is chosen by another one."""
    coercions = map(coercion, map(method.signature.type_of, method.signature.arguments))
    return _label(method) == "op.value" and any(made is not None and made.converter is not None for made in coercions)


def _instance(method: Method, label: str, name: str) -> str:
    """The statement that refuses an argument of another class."""
    made = coercion(method.signature.type_of(name))
    assert made is not None
    classes = f"{_class_of(made)}{OPTIONAL * made.is_optional}"
    op = quoted(method.name) if name == "op" else label
    return f"argument.instance({op}, {quoted(name)}, {name}, {classes}, {quoted(made.kind or '')})"


def _checks(spec: Spec, method: Method, label: str) -> Iterable[str]:
    spread = {operand.name: "*" if method.is_several(operand) else "" for operand in method.operands}
    others = [f"{spread[operand.name]}{operand.name}" for operand in method.operands if operand.name != "self"]
    if others:
        yield f"require_same_device({', '.join([label, 'self', *others])})"
    for operand in method.operands:
        texts = operand.dtypes.texts
        given = f"if {operand.name} is not None: " if method.is_optional(operand.name) else ""
        if texts == ("op",):
            if any(len(spec.op_dtypes(method, op) or ()) < len(spec.dtypes) for op in spec.ops(method)):
                yield f"{given}require_dtype({label}, {operand.name}, op.dtypes, op.unsupported)"
        elif texts == ("same",):
            yield f"require_same_dtype({label}, {method.operands[0].name}, {spread[operand.name]}{operand.name})"
        elif texts != (BLOCKS,) and len(spec.resolve(operand.dtypes)) < len(spec.dtypes):
            arguments = [label, operand.name, dtypes_constant(operand.dtypes), quoted(op_reason(spec, method) or "")]
            yield f"{given}require_dtype({', '.join(arguments)})"
    for item in method.checks:
        yield f"check.{item.call.name}({', '.join([label, *item.call.arguments])})"
    for operand in method.operands:
        if operand.layout is not None and spread[operand.name]:
            yield f"check.several_layouts({label}, {operand.name}, {operand.layout})"
        elif operand.layout is not None:
            name, layout = operand.name, operand.layout
            given = f"if {name} is not None and {layout} is not None: " if method.is_optional(name) else ""
            yield f"{given}{layout}.check({label}, {name}.inner.length)"


def _expression(method: Method, backend: Backend, call: FunctionCall) -> str:
    library = [] if call.library is None else [call.library]
    arguments = [*library, *method.call_arguments(f"{backend.name}.")]
    function = f"{backend.name}.{call.module}.{call.function}"
    if not has_plans(method):
        return f"{function}({', '.join(arguments)})"
    # What is called, and with what, so that the call can be made again with other storages and numbers.
    return ", ".join([function, *arguments])


def _last(method: Method, backend: Backend, lowering: Lowering) -> str:
    """What a lowering does where no library takes the work."""
    if lowering.attribute is not None:
        return f"inner.{lowering.attribute}"
    if lowering.forward is not None:
        stored = {operand.name for operand in method.operands}
        names = [inner_name(name) if name in stored else name for name in method.signature.arguments if name != "op"]
        return ", ".join(["op", f"op.{backend.name}_{lowering.forward}", "inner", *names])
    return _expression(method, backend, lowering.calls[-1])


def _branch(spec: Spec, method: Method, backend: Backend, suffix: str, stored: list[str], dtype: str) -> Branch:
    """The branch of `backend`: what it lacks raises, then come the calls of libraries, then the call that takes all."""
    lowered = {
        (op, element): lowering
        for (name, op), lowerings in spec.lowerings[backend.name].items()
        for element, lowering in lowerings.items()
        if name == method.name
    }
    # No storage has a dtype that the backend's library lacks, which the device says when it shall make one.
    absent = backend.lacking if suffix == "Storage" else {}
    lowered = {case: lowering for case, lowering in lowered.items() if case[1] not in absent} or lowered
    guarded: dict[str, list[Case]] = {}
    done: dict[Lowering, list[Case]] = {}
    for case, lowering in lowered.items():
        if lowering.unsupported is not None:
            guarded.setdefault(lowering.unsupported, []).append(case)
        else:
            done.setdefault(lowering, []).append(case)
    condition = _Conditions(spec, method, dtype, frozenset(lowered))
    # The call that serves most needs no condition.
    counts: dict[str, int] = {}
    for lowering, cases in done.items():
        text = _last(method, backend, lowering)
        counts[text] = counts.get(text, 0) + len(cases)
    final = max(counts, key=counts.__getitem__, default=None)
    attempts = []
    is_device = suffix == "Device"
    holder = "inner" if is_device else "inner.device"
    for lowering, cases in done.items():
        last = _last(method, backend, lowering)
        for where in condition.of(cases, is_all=len(done) == 1):
            for call in lowering.calls[:-1]:
                asked = [where] if where else []
                asked += ["not is_deterministic()"] if call.any_order else []
                made = _expression(method, backend, call)
                attempts.append(Attempt(" and ".join(asked) or None, call.library, made, holder))
            if last != final:
                attempts.append(Attempt(where, None, last))
    guards = [
        Guard(where, quoted(reason))
        for reason, cases in guarded.items()
        for where in condition.of(cases, is_all=not done and len(guarded) == 1)
    ]
    uses_inner = final is not None or (dtype.startswith("inner.") and not has_plans(method))
    names = {n: f"{backend.class_prefix}Device" if is_device else storage_class(method, backend, n) for n in stored}
    classes = {n: f"({name}() | None)" if method.is_optional(n) else f"{name}()" for n, name in names.items()}
    patterns = [f"{made} as {inner_name(operand)}" if uses_inner else made for operand, made in classes.items()]
    return Branch(
        backend=backend.name,
        pattern=patterns[0] if len(patterns) == 1 else f"({', '.join(patterns)})",
        guards=tuple(guards),
        attempts=tuple(attempts),
        result=f"{backend.name}_result",
        call=final,
    )


class _Conditions(NamedTuple):
    """How a branch asks for some ops and dtypes of a method."""

    spec: Spec
    method: Method
    dtype: str
    every: frozenset[Case]  # of the method on a backend

    def of(self, cases: list[Case], *, is_all: bool) -> list[str | None]:
        """Conditions of which one holds for each of the cases and for no other; None holds for everything."""
        if is_all:
            return [None]
        by_op: dict[str | None, list[str]] = {}
        for op, dtype in cases:
            by_op.setdefault(op, []).append(dtype or "")
        by_dtypes: dict[tuple[str, ...], list[str | None]] = {}
        for op, dtypes in by_op.items():
            is_whole = set(dtypes) == {dtype or "" for other, dtype in self.every if other == op}
            by_dtypes.setdefault(() if is_whole else tuple(dtypes), []).append(op)
        return [self._condition(ops, dtypes) for dtypes, ops in by_dtypes.items()]

    def _condition(self, ops: list[str | None], dtypes: tuple[str, ...]) -> str | None:
        parts = []
        if ops != list(self.spec.ops(self.method)):
            members = _tuple(f"{self.spec.functors[self.method.kind or ''].class_name}.{str(op).upper()}" for op in ops)
            parts.append(f"op in {members}")
        if dtypes:
            enum = "GgmlDType" if self.method.holds_blocks else "DType"
            parts.append(f"{self.dtype} in {_tuple(f'{enum}.{dtype.upper()}' for dtype in dtypes)}")
        return " and ".join(parts) or None


class FamilyView(NamedTuple):
    """One family's module."""

    doc: str
    class_name: str
    base: str
    methods: tuple[MethodView, ...]
    names: Mapping[str, tuple[str, ...]]  # what the module may import, by module


def mixin_name(family: Family) -> str:
    """The class of a family's methods: reduce -> ReduceMethods."""
    return "".join(word.capitalize() for word in family.name.split("_")) + "Methods"


def backend_classes(spec: Spec, suffix: str, prefix: str = "") -> tuple[str, ...]:
    """The storage or device classes of all backends; of those of weights in blocks the prefix is Q."""
    return tuple(f"{prefix}{backend.class_prefix}{suffix}" for backend in spec.backends)


def ops_names(spec: Spec) -> tuple[str, ...]:
    """How branches call the ops of the backends that have a runtime."""
    return tuple(backend.name for backend in spec.backends if backend.package is not None)


def _types(spec: Spec, pattern: str) -> tuple[str, ...]:
    """The types in the signatures of storage methods whose names match."""
    texts = (parameter.type for method in spec.storage_methods() for parameter in method.signature.parameters)
    return tuple(sorted({name for text in texts for name in re.findall(r"[A-Z]\w*", text) if re.match(pattern, name)}))


def storage_family(spec: Spec, member: str | None) -> FamilyView:
    """The module of the family named `member`."""
    family = next(family for family in spec.families if family.name == member)
    return FamilyView(
        doc=family.doc,
        class_name=mixin_name(family),
        base="QStorageBase" if family.holds_blocks else "StorageBase",
        methods=tuple(storage_method(spec, method) for method in family.methods),
        names={
            "runtime.core.argument": ("DTypeLike",),
            "backends": (
                *backend_classes(spec, "Storage"),
                *backend_classes(spec, "Storage", "Q"),
                *ops_names(spec),
            ),
            "runtime.core.conv": _types(spec, "Params"),
            "custom_op": _types(spec, "CustomOp|InplaceOp"),
            "dtype": ("Array", "DType", *(group.upper() for group in spec.groups)),
            "ggml_dtype": ("GgmlDType",),
            "op": (*op_classes(spec), METHOD_OP),
        },
    )


class StoragePackageView(NamedTuple):
    """storage/__init__.py: the class Storage made of the families."""

    families: tuple[tuple[str, str], ...]  # module and class
    classes: tuple[str, ...]
    block_classes: tuple[str, ...]  # of storages of weights in blocks


def storage_package(spec: Spec, _: str | None) -> StoragePackageView:
    """The package that makes one class of the families' methods."""
    classes = {holds: [mixin_name(f) for f in spec.families if f.holds_blocks is holds] for holds in (False, True)}
    families = tuple((family.name, mixin_name(family)) for family in spec.families)
    return StoragePackageView(families, tuple(classes[False]), tuple(classes[True]))


class StorageBaseView(NamedTuple):
    """storage/base.py: what the families share."""

    backends: tuple[Backend, ...]
    storages: tuple[str, ...]
    blocks: tuple[str, ...]  # the storages of weights in blocks
    numbers: Mapping[str, int]  # how many numbers plans of a method are given, where these are any


def storage_base(spec: Spec, _: str | None) -> StorageBaseView:
    """The base of the families' methods."""
    counts = {method.name: len(_numbers(spec, method)) for method in spec.storage_methods() if has_plans(method)}
    numbers = {name: count for name, count in counts.items() if count}
    classes = backend_classes(spec, "Storage"), backend_classes(spec, "Storage", "Q")
    return StorageBaseView(spec.backends, *classes, numbers)


class OpenerView(NamedTuple):
    """How a device of one backend is opened and named."""

    name: str
    prefix: str
    parameters: str
    ordinal: str
    own_parameters: str  # of the tensor method that moves there
    own_arguments: str
    lacking: str  # the dtypes that its library has not
    label: str
    display: str
    dlpack: int


class DeviceView(NamedTuple):
    """device.py and device_base.py."""

    doc: str
    backends: tuple[OpenerView, ...]  # from the preferred one down
    classes: tuple[str, ...]  # those of the backends' devices
    names: tuple[str, ...]  # what branches need of the backends
    example: str
    groups: tuple[str, ...]
    methods: tuple[MethodView, ...]


def device(spec: Spec, _: str | None) -> DeviceView:
    """The class Device, and what it is derived from."""
    numbered = [f"{backend.name}:1" for backend in spec.backends if backend.is_numbered]
    openers = [
        OpenerView(
            name=backend.name,
            prefix=backend.class_prefix,
            parameters="cls, ordinal: int = 0" if backend.is_numbered else "cls",
            ordinal='argument.integer("device", "ordinal", ordinal)' if backend.is_numbered else "0",
            own_parameters="self, ordinal: int = 0" if backend.is_numbered else "self",
            own_arguments="ordinal" if backend.is_numbered else "",
            lacking="".join(f"DType.{name.upper()}, " for name in backend.lacking),
            label=backend.label,
            display=backend.display,
            dlpack=backend.dlpack,
        )
        for backend in spec.backends
    ]
    return DeviceView(
        doc=f"A device of some backend: `inner` is that backend's own. {spec.device_doc}",
        backends=tuple(openers),
        classes=tuple(backend_classes(spec, "Device")),
        names=(*backend_classes(spec, "Device"), *ops_names(spec)),
        example=[*numbered, spec.backends[0].name][0],
        groups=tuple(group.upper() for group in spec.groups),
        methods=tuple(device_method(spec, method) for method in spec.device_methods),
    )
