"""The checks of a method: the statements that convert and check its arguments before any branch."""

from collections.abc import Iterable

from opgen.arguments import Coercion, coercion
from opgen.dtypes import SETS
from opgen.formats import BLOCKS
from opgen.matrix import op_reason
from opgen.model.methods import Method
from opgen.model.spec import Spec
from opgen.names import Names
from opgen.views.call_plans import has_plans
from opgen.views.python import quoted, tuple_text

_OWN_CLASSES = {
    "boolean": "bool",
    "complex_number": "float",
    "dtype": "DType",
    "integer": "int",
    "number": "float",
    "real": "float",
}


def dtypes_constant(names: Names) -> str:
    """The dtypes that the spec names: a group's constant, or a set."""
    if not names.listed:
        return names.texts[0].upper()
    every = (f"*{name.upper()}" if name in SETS else f"DType.{name.upper()}" for name in names.texts)
    return f"frozenset({tuple_text(every)})"


def op_label(method: Method) -> str:
    """The expression that names the op in errors."""
    if method.kind is not None and method.functor is None:
        return "op.value"
    return "op.name" if "op" in method.signature.arguments and method.operands else quoted(method.name)


def coercions(method: Method) -> Iterable[str]:
    """The statements that make each argument what the signature says."""
    label = op_label(method)
    if _errors_need_op(method):
        # Checked inline, because every call does.
        kind = method.signature.type_of("op")
        error = f"argument.wrong_type({quoted(method.name)}, {quoted('op')}, op, {quoted(kind)})"
        yield f"if not isinstance(op, {kind}): raise {error}"
    for parameter in method.signature.parameters:
        name, conversion = parameter.name, coercion(parameter.type)
        if name == "op" and method.custom_class is not None:
            yield f"require_op(op, {parameter.type}, backend_name(self))"
        elif conversion is None:
            continue
        elif conversion.converter == "objects" and has_plans(method):
            # What is in a tuple is looked at later.
            yield f"if type({name}) is not tuple: {name} = {_converted(label, name, conversion)}"
        elif conversion.converter == "integers" and not conversion.is_optional:
            yield f"if type({name}) is not argument.Checked: {name} = {_converted(label, name, conversion)}"
        elif conversion.converter is not None:
            # Where there are plans, one of too many bits is accepted until they are looked up.
            is_checked_later = conversion.converter != "integer" or has_plans(method)
            own = _OWN_CLASSES.get(conversion.converter) if is_checked_later and not conversion.is_optional else None
            prefix = f"None if {name} is None else " if conversion.is_optional else ""
            prefix = f"{name} if type({name}) is {own} else " if own is not None else prefix
            yield f"{name} = {prefix}{_converted(label, name, conversion)}"
        elif conversion.kind == "Shape":
            yield f"if type({name}) is not Shape: {name} = Shape({name})"


def refusals(method: Method) -> Iterable[str]:
    """The statements that refuse what is of a wrong class: no call that has a plan needs them."""
    label = op_label(method)
    layouts = []
    # The op goes first: errors of the others name it.
    for name in sorted(method.signature.arguments, key=lambda name: name != "op"):
        conversion = coercion(method.signature.type_of(name))
        is_known = name == "op" and (method.custom_class is not None or _errors_need_op(method))
        if conversion is None or is_known:
            continue
        if conversion.converter is None and conversion.kind not in (None, "Shape"):
            op = quoted(method.name) if name == "op" else label
            classes, kind = _class_of(conversion), conversion.kind or ""
            condition = f"if {name} is not None: " if conversion.is_optional else ""
            text = f"{condition}require_instance({op}, {quoted(name)}, {name}, {classes}, {quoted(kind)})"
            if kind == "Layout" and has_plans(method):
                layouts.append(text)
            else:
                yield text
        elif has_plans(method) and (
            conversion.converter == "objects" or (conversion.converter == "integer" and not conversion.is_optional)
        ):
            # See coercions.
            yield _converted(label, name, conversion)
    if layouts:
        # The key has the number of each: it is an error where one of them is no layout.
        yield "if type(key) is not tuple:"
        yield from (f"    {text}" for text in layouts)
    for operand in method.operands:
        if operand.layout is not None and method.is_optional(operand.name):
            names = ", ".join(map(quoted, (operand.name, operand.layout)))
            yield f"argument.both_or_neither({label}, {names}, {operand.name}, {operand.layout})"


def _converted(label: str, name: str, conversion: Coercion) -> str:
    """The call that makes an argument what it should be."""
    arguments = [] if conversion.count is None else [str(conversion.count)]
    arguments += [] if conversion.kind is None else [_class_of(conversion), quoted(conversion.kind)]
    return f"argument.{conversion.converter}({', '.join([label, quoted(name), name, *arguments])})"


def _class_of(conversion: Coercion) -> str:
    """The class of an argument, or of each of its items."""
    return "StorageBase" if conversion.kind == "Storage" else str(conversion.kind)


def _errors_need_op(method: Method) -> bool:
    """Whether what converts an argument names the op, which is chosen by another one."""
    coercions = (coercion(parameter.type) for parameter in method.signature.parameters)
    return op_label(method) == "op.value" and any(
        conversion is not None and conversion.converter is not None for conversion in coercions
    )


def checks_of(spec: Spec, method: Method) -> Iterable[str]:
    """Yield the statements that check devices, dtypes, arguments and layouts."""
    label = op_label(method)
    spread = {operand.name: "*" * method.is_several(operand) for operand in method.operands}
    others = [f"{spread[operand.name]}{operand.name}" for operand in method.operands if operand.name != "self"]
    if others:
        yield f"require_same_device({', '.join([label, 'self', *others])})"
    for operand in method.operands:
        texts = operand.dtypes.texts
        condition = f"if {operand.name} is not None: " if method.is_optional(operand.name) else ""
        if texts == ("op",):
            if any(len(spec.op_dtypes(method, op) or ()) < len(spec.dtype_names) for op in spec.ops(method)):
                yield f"{condition}require_dtype({label}, {operand.name}, op.dtypes, op.unsupported)"
        elif texts == ("same",):
            yield f"require_same_dtype({label}, {method.operands[0].name}, {spread[operand.name]}{operand.name})"
        elif operand.is_of_blocks and len(formats := spec.resolve(operand.dtypes)) < len(spec.sets[BLOCKS]):
            reason = quoted(op_reason(spec, method, None) or "")
            yield f"require_format({label}, {operand.name}, frozenset({formats}), {reason})"
        elif not operand.is_of_blocks and len(spec.resolve(operand.dtypes)) < len(spec.dtype_names):
            reason = quoted(op_reason(spec, method, None) or "")
            arguments = [label, operand.name, dtypes_constant(operand.dtypes), reason]
            yield f"{condition}require_dtype({', '.join(arguments)})"
    yield from checks_of_arguments(spec, method)
    for operand in method.operands:
        name, layout = operand.name, operand.layout
        if layout is not None and spread[name]:
            yield f"check.several_layouts({label}, {name}, {layout})"
        elif layout is not None:
            condition = f"if {name} is not None and {layout} is not None: " if method.is_optional(name) else ""
            yield f"{condition}{layout}.check({label}, {name}.inner.length)"


def checks_of_arguments(spec: Spec, method: Method) -> list[str]:
    """Return the calls of the checks that the spec lists for a method."""
    modules = {name: check.module for name, check in spec.checks.items()}
    calls = [(modules.get(item.call.name, "check"), item.call) for item in method.checks]
    return [f"{module}.{call.name}({', '.join([op_label(method), *call.arguments])})" for module, call in calls]
