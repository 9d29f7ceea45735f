"""What the templates of the dispatch see: the checks of each method, and for each backend the branch that runs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from types import SimpleNamespace as View
from typing import Final, NamedTuple, TypeAlias

from opgen.arguments import Coercion, accepted, coercion
from opgen.cells import FunctionCall, Lowering
from opgen.dtypes import SETS
from opgen.errors import errors_of
from opgen.formats import BLOCKS
from opgen.matrix import op_reason
from opgen.model.backends import Backend
from opgen.model.kinds import METHOD_OP
from opgen.model.methods import Family, Method, inner_name
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.problem import Location
from opgen.signature import OPTIONAL
from opgen.views.hand_over import hand_over, written_storage
from opgen.views.python import quoted

# An op of a method, where it chooses between several, and a dtype.
Case: TypeAlias = tuple[str | None, str | None]
# What branch.include.j2 does with what a method makes, by its type; of another type it is the value.
_RESULTS = {
    "None": "nothing",
    "Storage": "storage",
    "tuple[Storage, ...]": "storages",
    "QStorage": "blocks",
    "Device": "device",
}
_RESULTS_OF_CUSTOM_OPS = {"None": "changed", "tuple[Storage, Shape]": "applied"}
# What is of these classes needs no conversion, and a call takes longer than the question.
_DEVICE_SESSION: Final = ">>> device = tl.Device.default()\n>>> device in tl.devices()\nTrue"
_OWN_CLASSES = {
    "boolean": "bool",
    "complex_number": "float",
    "dtype": "DType",
    "integer": "int",
    "number": "float",
    "real": "float",
}


# Calls that are given more than so many arguments share a list of them.
_MAX_REPEATED: Final = 5


def op_classes(spec: Spec) -> tuple[str, ...]:
    """The enums of the functors that are chosen by an argument."""
    return spec.op_classes


def dtypes_constant(names: Names) -> str:
    """The dtypes that the spec names: a group's constant, or a set."""
    if not names.listed:
        return names.texts[0].upper()
    every = (f"*{name.upper()}" if name in SETS else f"DType.{name.upper()}" for name in names.texts)
    return f"frozenset({_tuple(every)})"


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def method_doc(spec: Spec, method: Method) -> str:
    """What the method does, its dtypes and its errors."""
    errors = errors_of(spec, method)
    names = {dtype for op in spec.ops(method) for dtype in spec.op_dtypes(method, op) or ()}
    paragraphs = [method.doc]
    if names and not method.holds_blocks and len(names) < len(spec.dtype_names):
        paragraphs.append(f"Dtypes: {', '.join(name for name in spec.dtype_names if name in names)}.")
    if method.results and method.functor is None:
        paragraphs.append(f"Gives {', '.join(f'`{result.text}`' for result in method.results)}.")
    if errors and method.signature.parameters:
        paragraphs.append(f"Raises {', '.join(sorted(errors))}.")
    return "\n\n".join(paragraphs)


def storage_method(spec: Spec, method: Method) -> View:
    """A storage method as the template of its family sees it."""
    is_property = not method.signature.parameters
    stored = ["self", *(operand.name for operand in method.single_operands if operand.name != "self")]
    first = method.operands[0].name
    plan = _plan(spec, method, stored) if has_plans(method) else None
    subject = ", ".join(f"{name}.inner" if plan is None else inner_name(name) for name in stored)
    dtype = f"{inner_name(first)}.dtype" if is_property or plan is not None else f"{first}.inner.dtype"
    return View(
        **_method(spec, method, "Storage", stored, _label(method), dtype),
        is_property=is_property,
        # Recorded storages take it from the storage that they hold.
        is_recorded_property=is_property and not method.holds_blocks,
        subject=subject if len(stored) == 1 else f"({subject})",
        checks=() if is_property else (*hand_over(spec, method), *_refusals(method), *_checks(spec, method)),
        # What makes the arguments what the signature says, before all else.
        coercions=() if is_property else tuple(_coercions(method)),
        plan=plan,
        others=tuple(stored[1:]),  # these may be on another backend
        # What the function of a composed method is given.
        composed=None if method.body is None else ", ".join(["self", *method.signature.arguments]),
        written=None if plan is None else written_storage(method),
    )


def device_method(spec: Spec, method: Method) -> View:
    """A device method as the template of the device sees it."""
    label, dtype = _label(method), "None"
    checks = [*_coercions(method), *_refusals(method)]
    if method.dtypes is not None:
        dtype = "dtype" if "dtype" in method.signature.arguments else "DType.from_numpy(array.dtype)"
        if len(spec.resolve(method.dtypes)) < len(spec.dtype_names):
            reason = quoted(method.unsupported or "")
            checks.append(f"check.known_dtype({label}, dtype, {dtypes_constant(method.dtypes)}, self, {reason})")
    checks += _checks_of_arguments(spec, method)
    return View(
        **_method(spec, method, "Device", ["self"], label, dtype),
        subject="self.inner",
        checks=checks,
        plan=None,
        written=None,
    )


def _method(spec: Spec, method: Method, suffix: str, stored: list[str], label: str, dtype: str) -> Mapping[str, object]:
    """What the views of both kinds of methods have: `label` is the expression that names the op, `dtype` that of it."""
    signature = method.signature
    is_own = suffix == "Storage" and not method.holds_blocks

    def shown(type_text: str) -> str:
        return re.sub(r"\bStorage\b", "Self", type_text) if is_own else type_text

    parameters = ["self", *(f"{p.name}: {shown(accepted(p.type))}" for p in signature.parameters)]
    results = _RESULTS if method.custom_class is None else _RESULTS_OF_CUSTOM_OPS
    return {
        "made_from": (method.location,),
        "name": method.name,
        "parameters": ", ".join(parameters),
        "returns": shown(signature.returns),
        "doc": method_doc(spec, method),
        "label": label,
        "dtype": dtype,
        # The beginning of the error that a backend without the method raises.
        "refusal": f"UnsupportedDevice({label}" if dtype == "None" else f"UnsupportedDType({label}, {dtype}",
        "gives_nothing": signature.returns == "None",
        "result": results.get(signature.returns, "value"),
        "branches": tuple(
            _branch(spec, method, backend, suffix, stored, dtype) for backend in spec.backends if method.body is None
        ),
    }


def storage_class(method: Method, backend: Backend, operand: str) -> str:
    """The class of an operand on a backend: weights in blocks have one of their own."""
    return f"{'Q' * (operand == 'self' and method.holds_blocks)}{backend.class_prefix}Storage"


def has_plans(method: Method) -> bool:
    """Whether what a call of a method did is kept: it depends on the arguments alone, and on no op of a user's."""
    is_own = method.body is None and method.custom_class is None
    return is_own and bool(method.operands) and bool(method.signature.parameters)


def _calls(spec: Spec, method: Method) -> Iterator[FunctionCall]:
    """What the branches of a method call, on all backends."""
    for backend in spec.backends:
        for lowering in spec.lowered(backend, method).values():
            yield from lowering.calls


def _numbers(spec: Spec, method: Method) -> list[str]:
    """The arguments of a method that a plan is given anew in each run: numbers but for those that a library may refuse.

    It may refuse floats that say how something is computed, such as a scale. What computes a functor takes all numbers,
    and elements, which may be integers too, are refused by none. Plans of weights in blocks keep theirs.
    """
    if method.holds_blocks:
        return []
    may_be_refused = method.kind is None and any(call.library is not None for call in _calls(spec, method))
    types = ("int | float", "complex") if may_be_refused else ("float", "int | float", "complex")
    return [item.name for item in method.signature.parameters if item.type in types]


def _attribute(method: Method, name: str, attribute: str, holder: str | None = None) -> str:
    """The attribute of a storage or a layout: None where that is None."""
    holder = holder or name
    found = f"{holder}.{attribute}"
    return f"None if {holder} is None else {found}" if method.is_optional(name) else found


def _plan(spec: Spec, method: Method, stored: list[str]) -> View:
    """What finds a plan: the layouts, the other arguments but numbers, and what tells storages from each other."""
    several = [operand for operand in method.operands if method.is_several(operand)]
    inners = [inner_name(name) for name in stored]
    optional = [inner_name(name) for name in stored if method.is_optional(name)]
    numbers = _numbers(spec, method)
    known = {*numbers, *stored, *(name for operand in several for name in (operand.name, operand.layout))}
    values = [
        _attribute(method, item.name, "number") if "Layout" in item.type else item.name
        for item in method.signature.parameters
        if item.name not in known
    ]
    kinds = [_attribute(method, name, "kind", inner_name(name)) for name in stored]
    kinds += [f"{operand.name}_key" for operand in several]
    # What is written may be read through another operand.
    is_written = method.signature.returns == "None" and not method.holds_blocks
    shared = [f"{inner} is inner" for inner in inners[1:]] if is_written else []
    modes = ["is_deterministic()"] * any(call.any_order for call in _calls(spec, method))
    # In the order of the operands.
    arguments = list(takewhile(lambda inner: inner not in optional, inners))
    others = inners[len(arguments) :]
    if len(others) == 1:
        # Cheaper than a call of filter.
        arguments.append(f"*(() if {others[0]} is None else {_tuple(others)})")
    elif others:
        arguments.append(f"*filter(None, {_tuple(others)})")
    storages = [f"{', '.join(inners)} = {', '.join(_attribute(method, name, 'inner') for name in stored)}"]
    for operand in several:
        # A list that is written to has its length for good.
        most = "MAX_WRITTEN" if is_written else "MAX_JOINED"
        inner, made = inner_name(operand.name), f"operands_of(inner.device, {operand.name}, {operand.layout}, {most})"
        storages.append(f"{inner}, {operand.name}_key = {made}")
    key = ", ".join([quoted(method.name), *values, *kinds, *shared, *modes])
    without = " or ".join(f"{operand.name}_key is None" for operand in several)
    near = {name: f"{inner_name(name)}.device is inner.device" for name in stored[1:]}
    near = {name: f"({inner_name(name)} is None or {text})" if method.is_optional(name) else text
            for name, text in near.items()}  # fmt: skip
    return View(
        storages=storages,  # the statements that name the storages of the backend
        key=f"None if {without} else ({key})" if several else key,  # all on which it depends what is done
        condition=" and ".join(["plan is not None", *near.values()]),  # whether the storages are on one device
        call=f"plan({', '.join([*arguments, *(f'*{inner_name(operand.name)}' for operand in several), *numbers])})",
        makes_storage=method.signature.returns == "Storage" and not method.holds_blocks,
    )


def _label(method: Method) -> str:
    """The expression that names the op in errors."""
    if method.kind is not None and method.functor is None:
        return "op.value"
    return "op.name" if "op" in method.signature.arguments and method.operands else quoted(method.name)


def _coercions(method: Method) -> Iterable[str]:
    """The statements that make each argument what the signature says."""
    label = _label(method)
    if _errors_need_op(method):
        # Asked in place, because every call asks.
        kind = method.signature.type_of("op")
        error = f"argument.wrong_type({quoted(method.name)}, {quoted('op')}, op, {quoted(kind)})"
        yield f"if not isinstance(op, {kind}): raise {error}"
    for parameter in method.signature.parameters:
        name, made = parameter.name, coercion(parameter.type)
        if name == "op" and method.custom_class is not None:
            yield f"require_op(op, {parameter.type}, backend_name(self))"
        elif made is None:
            continue
        elif made.converter == "objects" and has_plans(method):
            # What is in a tuple is looked at later.
            yield f"if type({name}) is not tuple: {name} = {_converted(label, name, made)}"
        elif made.converter == "integers" and not made.is_optional:
            yield f"if type({name}) is not argument.Checked: {name} = {_converted(label, name, made)}"
        elif made.converter is not None:
            # Where there are plans, one of too many bits is let through until they are asked.
            is_checked_later = made.converter != "integer" or has_plans(method)
            own = _OWN_CLASSES.get(made.converter) if is_checked_later and not made.is_optional else None
            kept = f"None if {name} is None else " if made.is_optional else ""
            kept = f"{name} if type({name}) is {own} else " if own is not None else kept
            yield f"{name} = {kept}{_converted(label, name, made)}"
        elif made.kind == "Shape":
            yield f"if type({name}) is not Shape: {name} = Shape({name})"


def _refusals(method: Method) -> Iterable[str]:
    """The statements that refuse what is of a wrong class: no call that has a plan needs them."""
    label = _label(method)
    # The op goes first: errors of the others name it.
    for name in sorted(method.signature.arguments, key=lambda name: name != "op"):
        made = coercion(method.signature.type_of(name))
        is_known = name == "op" and (method.custom_class is not None or _errors_need_op(method))
        if made is None or is_known:
            continue
        if made.converter is None and made.kind not in (None, "Shape"):
            op = quoted(method.name) if name == "op" else label
            classes = f"{_class_of(made)}{OPTIONAL * made.is_optional}"
            yield f"require_instance({op}, {quoted(name)}, {name}, {classes}, {quoted(made.kind or '')})"
        elif has_plans(method) and (
            made.converter == "objects" or (made.converter == "integer" and not made.is_optional)
        ):
            # See _coercions.
            yield _converted(label, name, made)
    for operand in method.operands:
        if operand.layout is not None and method.is_optional(operand.name):
            names = ", ".join(map(quoted, (operand.name, operand.layout)))
            yield f"argument.both_or_neither({label}, {names}, {operand.name}, {operand.layout})"


def _converted(label: str, name: str, made: Coercion) -> str:
    """The call that makes an argument what it should be."""
    rest = [] if made.count is None else [str(made.count)]
    rest += [] if made.kind is None else [_class_of(made), quoted(made.kind)]
    return f"argument.{made.converter}({', '.join([label, quoted(name), name, *rest])})"


def _class_of(made: Coercion) -> str:
    """The class of an argument, or of each of its items."""
    return "StorageBase" if made.kind == "Storage" else str(made.kind)


def _errors_need_op(method: Method) -> bool:
    """Whether what converts an argument names the op, which is chosen by another one."""
    coercions = (coercion(parameter.type) for parameter in method.signature.parameters)
    return _label(method) == "op.value" and any(made is not None and made.converter is not None for made in coercions)


def _checks(spec: Spec, method: Method) -> Iterable[str]:
    label = _label(method)
    spread = {operand.name: "*" * method.is_several(operand) for operand in method.operands}
    others = [f"{spread[operand.name]}{operand.name}" for operand in method.operands if operand.name != "self"]
    if others:
        yield f"require_same_device({', '.join([label, 'self', *others])})"
    for operand in method.operands:
        texts = operand.dtypes.texts
        given = f"if {operand.name} is not None: " if method.is_optional(operand.name) else ""
        if texts == ("op",):
            if any(len(spec.op_dtypes(method, op) or ()) < len(spec.dtype_names) for op in spec.ops(method)):
                yield f"{given}require_dtype({label}, {operand.name}, op.dtypes, op.unsupported)"
        elif texts == ("same",):
            yield f"require_same_dtype({label}, {method.operands[0].name}, {spread[operand.name]}{operand.name})"
        elif operand.is_of_blocks and len(formats := spec.resolve(operand.dtypes)) < len(spec.sets[BLOCKS]):
            reason = quoted(op_reason(spec, method, None) or "")
            yield f"require_format({label}, {operand.name}, frozenset({formats}), {reason})"
        elif not operand.is_of_blocks and len(spec.resolve(operand.dtypes)) < len(spec.dtype_names):
            reason = quoted(op_reason(spec, method, None) or "")
            arguments = [label, operand.name, dtypes_constant(operand.dtypes), reason]
            yield f"{given}require_dtype({', '.join(arguments)})"
    yield from _checks_of_arguments(spec, method)
    for operand in method.operands:
        name, layout = operand.name, operand.layout
        if layout is not None and spread[name]:
            yield f"check.several_layouts({label}, {name}, {layout})"
        elif layout is not None:
            given = f"if {name} is not None and {layout} is not None: " if method.is_optional(name) else ""
            yield f"{given}{layout}.check({label}, {name}.inner.length)"


def _checks_of_arguments(spec: Spec, method: Method) -> list[str]:
    modules = {name: check.module for name, check in spec.checks.items()}
    calls = [(modules.get(item.call.name, "check"), item.call) for item in method.checks]
    return [f"{module}.{call.name}({', '.join([_label(method), *call.arguments])})" for module, call in calls]


def _expression(method: Method, backend: Backend, call: FunctionCall, operands: str | None) -> str:
    """A call of a branch, which may have named all `operands` together."""
    function = f"{backend.name}.{call.module}.{call.function}"
    library = [] if call.library is None else [call.library]
    given = method.call_arguments(f"{backend.name}.") if operands is None else [f"*{operands}"]
    if given[:1] == ["inner"] and not method.operands:
        return f"inner.make({', '.join([function, *library, *given[1:]])})"
    arguments = [*library, *given]
    # Of a method with plans, what is called, and with what, so that it can be called again with other operands.
    return ", ".join([function, *arguments]) if has_plans(method) else f"{function}({', '.join(arguments)})"


def _last(method: Method, backend: Backend, lowering: Lowering, operands: str | None) -> str:
    """What a lowering does where no library takes the work."""
    if lowering.attribute is not None:
        return f"inner.{lowering.attribute}"
    if lowering.forward is not None:
        stored = {operand.name for operand in method.operands}
        names = [inner_name(name) if name in stored else name for name in method.signature.arguments if name != "op"]
        return ", ".join(["op", f"op.{backend.name}_{lowering.forward}", "inner", *names])
    return _expression(method, backend, lowering.calls[-1], operands)


def _branch(spec: Spec, method: Method, backend: Backend, suffix: str, stored: list[str], dtype: str) -> View:
    """The branch of `backend`: what it lacks raises, then come the calls of libraries, then the call that takes all."""
    lowered = spec.lowered(backend, method)
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
    conditions = _Conditions(spec, method, dtype, frozenset(lowered))
    given = method.call_arguments(f"{backend.name}.")
    # A type checker does not know the classes in a list of which some are counted at run time.
    is_list = len(given) > _MAX_REPEATED and not any(map(method.is_several, method.operands))
    is_repeated = is_list and sum(len(lowering.calls) for lowering in done) > 1
    operands = f"{backend.name}_operands" if is_repeated else None
    # The call that serves most needs no condition.
    counts: dict[str, int] = {}
    for lowering, cases in done.items():
        text = _last(method, backend, lowering, operands)
        counts[text] = counts.get(text, 0) + len(cases)
    final = max(counts, key=counts.__getitem__, default=None)
    attempts = []
    for lowering, cases in done.items():
        last = _last(method, backend, lowering, operands)
        for where in conditions.of(cases, is_all=len(done) == 1):
            for call in lowering.calls[:-1]:
                asked = [*([where] if where else []), *["not is_deterministic()"] * call.any_order]
                made = _expression(method, backend, call, operands)
                condition, place = " and ".join(asked), (call.location,)
                attempts.append(View(made_from=place, condition=condition, library=call.library, call=made))
            if last != final:
                place = (lowering.location,)
                attempts.append(View(made_from=place, condition=where, library=None, call=last))
    guards = [
        View(made_from=_places(lowered, cases), condition=where, reason=quoted(reason))
        for reason, cases in guarded.items()
        for where in conditions.of(cases, is_all=not done and len(guarded) == 1)
    ]
    is_device = suffix == "Device"
    uses_inner = final is not None or (dtype.startswith("inner.") and not has_plans(method))
    patterns = []
    for name in stored:
        kind = f"{backend.class_prefix}Device" if is_device else storage_class(method, backend, name)
        pattern = f"({kind}() | None)" if method.is_optional(name) else f"{kind}()"
        patterns.append(f"{pattern} as {inner_name(name)}" if uses_inner else pattern)
    return View(
        made_from=_places(lowered, [case for case in lowered if lowered[case].unsupported is None] or [*lowered]),
        backend=backend.name,
        pattern=patterns[0] if len(patterns) == 1 else f"({', '.join(patterns)})",
        guards=guards,  # each raises UnsupportedDType, on a condition or always
        # Calls that are preferred to the last one: on a condition, and where a library is there, which may give None.
        attempts=attempts,
        # What several calls are given, and its name, where it is long.
        operands=operands and View(name=operands, values=given),
        device="inner" if is_device else "inner.device",  # what has the libraries
        result=f"{backend.name}_result",  # what a library made: that of each backend has a class of its own
        call=final,  # what is done in the end; None where nothing is supported
    )


def _places(lowered: Mapping[Case, Lowering], cases: Iterable[Case]) -> tuple[Location, ...]:
    """Where the cells of some ops and dtypes stand."""
    return tuple(dict.fromkeys(lowered[case].location for case in cases))


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
            kind = self.spec.functor_kind(self.method.kind or "")
            parts.append(f"op in {_tuple(f'{kind.class_name}.{str(op).upper()}' for op in ops)}")
        if dtypes:
            enum = "GgmlDType" if self.method.holds_blocks else "DType"
            parts.append(f"{self.dtype} in {_tuple(f'{enum}.{dtype.upper()}' for dtype in dtypes)}")
        return " and ".join(parts) or None


def mixin_name(family: Family) -> str:
    """The class of a family's methods: reduce -> ReduceMethods."""
    return "".join(word.capitalize() for word in family.name.split("_")) + "Methods"


def backend_classes(spec: Spec, suffix: str, prefix: str = "") -> tuple[str, ...]:
    """The storage or device classes of all backends; of those of weights in blocks the prefix is Q."""
    return tuple(f"{prefix}{backend.class_prefix}{suffix}" for backend in spec.backends)


def ops_names(spec: Spec) -> tuple[str, ...]:
    """How branches call the ops of the backends that have a runtime."""
    return tuple(backend.name for backend in spec.backends if backend.package is not None)


def argument_names(spec: Spec) -> dict[str, list[str]]:
    """What the signatures of storage methods name, by the module that has it."""
    classes = spec.argument_classes
    named = {
        "runtime.core.argument": ["DTypeLike"],
        "runtime.core.conv": [name for name in classes if name.startswith("ParamsConv")],
        "runtime.core.pool": [name for name in classes if name.startswith("ParamsPool")],
        "runtime.ranks.group": [name for name in classes if name == "Group"],
        "custom_op": [name for name in classes if name.startswith(("CustomOp", "InplaceOp"))],
        "op": [*op_classes(spec), METHOD_OP],
    }
    return {module: names for module, names in named.items() if names}


def family_module(spec: Spec, family: Family) -> View:
    """The module of a family."""
    return View(
        made_from=(Location(family.path),),
        doc=family.doc,
        class_name=mixin_name(family),
        base="BlocksBase" if family.holds_blocks else "StorageBase",
        methods=[storage_method(spec, method) for method in family.methods],
        # What the module may import.
        names={
            **argument_names(spec),
            "backends": [*(backend_classes(spec, "Storage") + backend_classes(spec, "Storage", "Q")), *ops_names(spec)],
            "dtype": ["Array", "DType", *(group.upper() for group in spec.groups)],
            "ggml_dtype": ["GgmlDType"],
        },
    )


def storage(spec: Spec) -> View:
    """The package that makes one class of the families' methods."""
    has_base = spec.package.base is not None
    lacks = ["WithoutMethods"] * has_base
    return View(
        has_base=has_base,
        families=[(family.name, mixin_name(family)) for family in spec.families],
        classes=[*(mixin_name(family) for family in spec.families if not family.holds_blocks), *lacks],
        block_classes=[*(mixin_name(family) for family in spec.families if family.holds_blocks), *lacks],
    )


def storage_base(spec: Spec) -> View:
    """The base of the families' methods."""
    counts = {method.name: len(_numbers(spec, method)) for method in spec.storage_methods() if has_plans(method)}
    return View(
        storages=backend_classes(spec, "Storage"),
        blocks=backend_classes(spec, "Storage", "Q"),
        # How many numbers plans of a method are given, where these are any.
        numbers={name: count for name, count in counts.items() if count},
    )


def device(spec: Spec) -> View:
    """The class Device, what it is derived from, and the tensor methods that move there."""
    numbered = [f"{backend.name}:1" for backend in spec.backends if backend.is_numbered]
    classes = backend_classes(spec, "Device")
    openers = [
        View(
            backend=backend,
            parameters="cls, ordinal: int = 0" if backend.is_numbered else "cls",
            ordinal='argument.integer("device", "ordinal", ordinal)' if backend.is_numbered else "0",
            own_parameters="self, ordinal: int = 0" if backend.is_numbered else "self",
            own_arguments="ordinal" if backend.is_numbered else "",
            lacking="".join(f"DType.{name.upper()}, " for name in backend.lacking),
        )
        for backend in spec.backends
    ]
    return View(
        doc=f"A device of some backend: `inner` is that backend's own. {spec.device_doc}\n\n{_DEVICE_SESSION}",
        openers=openers,
        classes=classes,
        names=(*classes, *ops_names(spec)),
        example=[*numbered, spec.backends[0].name][0],
        groups=[group.upper() for group in spec.groups],
        methods=[device_method(spec, method) for method in spec.device_methods],
    )


device_base = tensor_moves = device
