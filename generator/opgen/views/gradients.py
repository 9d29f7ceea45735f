"""The views of gradients: what each storage method records, and the gradients of its operands."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace as View

from opgen.arguments import accepted
from opgen.formula.nodes import RESULT
from opgen.gradients import GRADIENTS, HANDLE, OTHERS, RESULTS, in_order, is_recorded, modules_of, writes
from opgen.model.expressions import Expression
from opgen.model.gradients import Gradient
from opgen.model.kinds import ANY_RESULT, METHOD_OP
from opgen.model.methods import Family, Method, Operand
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.results import results_of, typed_result
from opgen.row_methods import SAVES
from opgen.views.dispatch_names import argument_names, mixin_name
from opgen.views.python import quoted
from opgen.views.results import dims


def _parameters(method: Method) -> str:
    # What is in a storage of elements is a node or a backend's storage.
    own = "Any" if method.holds_blocks else "Self"
    parameters = [(it.name, re.sub(r"\bStorage\b", own, accepted(it.type))) for it in method.signature.parameters]
    return ", ".join(["self", *(f"{name}: {type_text}" for name, type_text in parameters)])


def _stored(method: Method) -> list[Operand]:
    """The operands that are storages of elements."""
    return [operand for operand in in_order(method, method.operands) if not operand.is_of_blocks]


def _recorded_operands(method: Method) -> list[Operand]:
    """Return the operands of a recorded call: with others, other calls are recorded instead."""
    instead = {} if method.gradient is None else method.gradient.instead
    return [operand for operand in _stored(method) if operand.name not in instead]


def _variables(name: str) -> tuple[str, str]:
    return ("plain", "node") if name == "self" else (f"plain_{name}", f"{name}_node")


def _opening(method: Method, operand: Operand) -> Iterator[str]:
    """The statements that name the plain storage of an operand, and its node where that is needed.

    But for several storages they call nothing: that takes time.
    """
    plain, node = _variables(operand.name)
    records = _has_gradients(method)
    if operand.name == "self" and len(_stored(method)) == 1 and records:
        # No plain storage hands such a call over.
        yield f"{plain}, {node} = self.value, self.inner"
    elif method.is_several(operand):
        yield (
            f"{plain}, {node} = unwrap_each({operand.name})" if records else f"{plain} = unwrap_each({operand.name})[0]"
        )
    else:
        name = operand.name
        is_given = f"{name} is not None and " if method.is_optional(name) else ""
        yield f"{node} = inner if {is_given}type(inner := {name}.inner) is Node else None"
        unrecorded = f"tracked({name})" if records else name
        if records and method.kind is not None and not is_given:
            # Ops are called often, and nearly always the operand is tracked already.
            unrecorded = f"{name} if {name}.written is not None else {unrecorded}"
        yield f"{plain} = {name}.value if {is_given}{node} is not None else {unrecorded}"


def _has_gradients(method: Method) -> bool:
    return method.gradient is None or bool(method.gradient.functions) or method.gradient.all is not None


def _rule(spec: Spec, method: Method, gradient: Gradient) -> View:
    operands, every = _stored(method), gradient.all
    stored = [operand.name for operand in operands]
    used, layouts = _named(spec, method, gradient), _layouts(method)
    statements = [f"{name}: Layout = node.inputs[{2 * index + 1}]" for name, index in layouts.items() if name in used]
    arguments = _arguments(spec, method, gradient)
    takes_each = _takes_each(gradient)
    # From the end, since operands may be several; the results of a call come last.
    end = len(arguments) + takes_each
    statements += [
        f"{name}: {_type_of(method, name)} = node.saved[{index - end}]" for index, name in enumerate(arguments)
    ]
    if takes_each:
        shapes = ", ".join(_shape(spec, method, index)[0] for index in range(len(method.results)))
        statements.append(f"{GRADIENTS}, {RESULTS} = results_of(node, g, ({shapes},))")
    elif not writes(method):
        statements += [] if _gives_shape(method) else [f"shape = {_shape(spec, method)[0]}"]
        statements.append("if g._layout.shape != shape: g = g.reshape(shape)")
    if every is not None:
        statements += [*_fetched(method, stored, every), f"yield from enumerate({every.text})"]
    requested = [(index, operand) for index, operand in enumerate(operands) if operand.name in gradient.functions]
    # What may write to an operand comes last, since the others read it.
    requested.sort(key=lambda it: HANDLE in gradient.functions[it[1].name].names)
    parts = tuple(
        View(
            made_from=(gradient.functions[operand.name].location,),
            condition="any(node.inputs[::2])"
            if method.is_several(operand)
            else f"node.inputs[{2 * index}] is not None",
            operands=tuple(_fetched(method, stored, gradient.functions[operand.name])),
            gives=_gives(method, operand, index, gradient.functions[operand.name]),
        )
        for index, operand in requested
    )
    taken = "Parts" if takes_each else "Tensor"
    return View(made_from=(gradient.location,), name=method.name, taken=taken, statements=statements, parts=parts)


def _takes_each(gradient: Gradient) -> bool:
    """Whether the gradients of all results are taken, not of the first one alone."""
    return any(GRADIENTS in expression.names for _, expression in gradient.expressions())


def _gives(method: Method, operand: Operand, index: int, gradient: Expression) -> str:
    """Return the expression that a part yields."""
    return f"from enumerate({gradient.text}, {index})" if method.is_several(operand) else f"{index}, {gradient.text}"


def _gives_shape(method: Method) -> bool:
    return method.signature.returns == "tuple[Storage, Shape]"


def _type_of(method: Method, name: str) -> str:
    if name == "self":
        return "QStorage"
    if name == OTHERS:
        return "tuple[Storage, ...]"
    if name == HANDLE:
        return "Any"
    return "Shape" if name == "shape" and _gives_shape(method) else method.signature.type_of(name)


def _fetched(method: Method, stored: list[str], expression: Expression) -> Iterator[str]:
    """The statements that name the operands which an expression needs."""
    for name in expression.names:
        if name in stored:
            how = "optional" if method.is_optional(name) else "operand"
            yield f"{name} = node.{how}({stored.index(name)})"
        elif name == RESULT:
            yield f"{RESULT} = node.result_as(shape)"


def _named(spec: Spec, method: Method, gradient: Gradient) -> set[str]:
    """Return the names in expressions, and the arguments that the shape of the result depends on."""
    named = {
        name for key, expression in gradient.expressions() if key not in gradient.instead for name in expression.names
    }
    if not writes(method) and not _gives_shape(method):
        count = len(method.results) if _takes_each(gradient) else 1
        named |= {name for index in range(count) for name in _shape(spec, method, index)[1]}
    return named - {GRADIENTS, RESULTS}


def _shape(spec: Spec, method: Method, index: int = 0) -> tuple[str, frozenset[str]]:
    """Return the shape of a result, and its inputs: layouts instead of operands, and other arguments."""
    layouts = {it.name: str(it.layout) for it in _stored(method)}
    shape, _ = typed_result(spec, method, results_of(method)[index], dims, layouts)
    return shape.text, frozenset(node.id for node in ast.walk(shape.node) if isinstance(node, ast.Name))


def _layouts(method: Method) -> dict[str, int]:
    """Return the layouts of operands by their index; gradients that sum need them."""
    stored = _stored(method)
    if any(map(method.is_several, stored)):
        return {}
    return {str(it.layout): index for index, it in enumerate(stored) if index or not writes(method)}


def _arguments(spec: Spec, method: Method, gradient: Gradient) -> list[str]:
    """Return the other names in expressions, and the shape of the result if it follows from none of them."""
    named, layouts = _named(spec, method, gradient), _layouts(method)
    stored = [operand.name for operand in _stored(method)]
    shape = ["shape"] if _gives_shape(method) else []
    names = ("self", *method.signature.arguments, OTHERS, HANDLE)
    return [name for name in names if name in named and name not in (*stored, *layouts)] + shape


def _kept_result(method: Method, gradient: Gradient) -> str | None:
    """Return the expression of the saved result; None if it is never saved."""
    if gradient.all is not None:
        return "output" if RESULT in gradient.all.names else None
    requested = [name for name, it in gradient.functions.items() if RESULT in it.names]
    if len(_stored(method)) == 1:
        return "output" if requested else None
    return (
        f"output if {' or '.join(f'{_variables(name)[1]} is not None' for name in requested)} else None"
        if requested
        else None
    )


def _kept(method: Method, gradient: Gradient) -> dict[str, str]:
    """The operands that gradients need, where they are requested."""
    stored = {}
    for operand in _recorded_operands(method):
        value = _variables(operand.name)[0]
        requested = [name for name, expression in gradient.functions.items() if operand.name in expression.names]
        if gradient.all is not None and operand.name in gradient.all.names:
            stored[operand.name] = value
        elif requested:
            condition = " or ".join(f"{_variables(name)[1]} is not None" for name in requested)
            # A recorded call has an operand that is recorded, and no integers are.
            every = [it.name for it in _recorded_operands(method) if it.dtypes.texts != ("index",)]
            stored[operand.name] = value if {*every} <= {*requested} else f"{value} if {condition} else None"
    return stored


def _recorded_parts(method: Method, stored: Mapping[str, str], arguments: list[str]) -> tuple[str, str]:
    """Return the parts of a node: its inputs, and the values that its gradients need. See `Node`."""
    inputs, saved = [], []
    for index, operand in enumerate(_stored(method)):
        node = _variables(operand.name)[1] if operand in _recorded_operands(method) else "None"
        if method.is_several(operand):
            inputs.append(f"*inputs_of({node}, {operand.layout})")
        else:
            # The gradient of what was written to is that of all its elements.
            inputs += [node, "None" if writes(method) and not index else str(operand.layout)]
            saved.append(stored.get(operand.name, "None"))
    return f"({', '.join(inputs)})", _tuple([*saved, *arguments])


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _op(method: Method) -> str:
    """The op of a functor's method."""
    return "op" if method.functor is None else f"_{method.functor.upper()}"


def _computed(spec: Spec, method: Method) -> Iterator[str]:
    """Yield the statements that record a call of an op, whose rule says what its gradients need."""
    signature, stored = method.signature, _stored(method)
    functor = None if method.functor is None else spec.functor(method, None)
    names = () if functor is None else functor.parameters
    yield f"rule = {_op(method)}.rule"
    is_plain = "rule is None"
    if functor is not None and functor.result == ANY_RESULT:
        is_plain += " or not output.inner.dtype.is_inexact"
    yield f"if {is_plain}: return output"
    if len(stored) == 1:
        keeps, needs_site = ["rule.keeps_x", "rule.keeps_result"], "rule.needs_site"
    else:
        keeps, needs_site = [*(f"keeps_{it.name}" for it in stored), "keeps_result"], "needs_site"
        # A bool as an index takes longer than a number.
        requested = "".join(f"[0 if {_variables(it.name)[1]} is None else 1]" for it in stored)
        yield f"{', '.join([*keeps, needs_site])} = rule.saves{requested}"
    saved = {it.name: f"{_variables(it.name)[0]} if {how} else None" for it, how in zip(stored, keeps, strict=False)}
    dims = ["dims"] if "dims" in signature.arguments else []
    parameters = f"{{{', '.join(f'{quoted(name)}: {name}' for name in names)}}}" if names else "NO_PARAMETERS"
    parts = _recorded_parts(method, saved, [*dims, parameters])
    yield f"return record(output, rule, {', '.join(parts)}, output if {keeps[-1]} else None, {needs_site})"


def _ends(spec: Spec, method: Method) -> Iterator[str]:
    """Yield the statements that record a call and return its results."""
    signature, gradient = method.signature, method.gradient
    assert gradient is not None
    stored, result = _kept(method, gradient), _kept_result(method, gradient)
    names = _arguments(spec, method, gradient)
    others = {OTHERS: "results[1:]", HANDLE: "handle_of(self)"}
    saved = [others.get(name, name) for name in names]
    if _takes_each(gradient):
        parts = _recorded_parts(method, stored, [*saved, RESULTS])
        yield f"return record_each({', '.join(['results', f'_{method.name}', *parts])})"
        return
    parts = _recorded_parts(method, stored, saved)
    if writes(method):
        yield f"rewritten(self, _{method.name}, {', '.join(parts)})"
        return
    # Only errors about overwritten values say where the op was called.
    ends = ["None", "False"] if result is None and not stored else [] if result is None else [result]
    call = f"record({', '.join(['output', f'_{method.name}', *parts, *ends])})"
    if signature.returns == "tuple[Storage, ...]":
        yield "output = results[0]"
        yield f"first_result = {call}"
        functor = spec.functor(method, None)
        is_private = functor is not None and functor.per_row
        # Gradients depend on the operands as well; no tensor shows what ops of numbers save.
        refuses = OTHERS in names and not is_private
        more = f"without_gradients({quoted(method.name)}, results[1:])" if refuses else "results[1:]"
        if SAVES in signature.arguments:
            yield f"return (first_result, *results[1:]) if {SAVES} else (first_result, results[1])"
        else:
            yield f"return (first_result, *{more}) if len(results) > 1 else (first_result,)"
    elif _gives_shape(method):
        # A user's op may make integers.
        yield f"return ({call} if output.dtype.is_inexact else output), shape"
    else:
        yield f"return {call}"


def _method(spec: Spec, method: Method) -> View:
    signature = method.signature
    return View(
        made_from=(method.location,),
        name=method.name,
        parameters=_parameters(method),
        # That of a mixin's own class is not known here.
        returns=re.sub(r"\bStorage\b", "Any", signature.returns),
        doc=_doc(method),
        statements=tuple(_statements(spec, method)),
    )


def _statements(spec: Spec, method: Method) -> Iterator[str]:
    """Yield the statements of a recording method."""
    gradient, signature = method.gradient, method.signature
    gives = "return " * (signature.returns != "None")
    operands = [("*" if method.is_several(it) else "") + it.name for it in _stored(method)]
    if len(operands) > 1 and not method.holds_blocks:
        # What is recorded outside of `vmap` meets what is batched inside.
        handed = f"self.recorded.{method.name}({', '.join(['self', *signature.arguments])})"
        handed = f"return {handed}" if gives else f"{handed}; return"
        yield f"if live_batches and is_mixed({', '.join(operands)}): {handed}"
    if method.kind is not None and writes(method):
        yield f"changed(self, {', '.join(signature.arguments)})"
        return
    for name, call in {} if gradient is None else gradient.instead.items():
        if not method.is_optional(name):
            yield f"{gives}{call.text}"
            return
        yield f"if {name} is not None: {gives}{call.text}"
    if gradient is not None and gradient.missing is not None:
        yield f"if mode().records: raise GradientError({quoted(method.name)}, {quoted(gradient.missing)})"
    stored = _recorded_operands(method)
    for operand in stored:
        yield from _opening(method, operand)
    if writes(method) and _has_gradients(method):
        yield f"require_writable({quoted(method.name)}, node)"
    names = [operand.name for operand in stored]
    values = [_variables(name)[0] if name in names else name for name in signature.arguments]
    values = ["True" if value == SAVES else value for value in values]
    holder = _variables("self")[0] if "self" in names else "self"
    yield f"{_made(method)}{holder}.{method.name}({', '.join(values)})"
    if method.kind is not None and gradient is None:
        yield from _computed(spec, method)
    elif _has_gradients(method):
        yield from _ends(spec, method)


def _made(method: Method) -> str:
    """Return the target names of a call's results."""
    returns = method.signature.returns
    if returns == "None":
        return ""
    several = {"tuple[Storage, ...]": "results = ", "tuple[Storage, Shape]": "output, shape = "}
    return several.get(returns, "output = ") if _has_gradients(method) else "return "


def _doc(method: Method) -> str:
    gradient = method.gradient
    if gradient is not None and gradient.none is not None:
        return f"Do the same; there is no gradient: {gradient.none}."
    if gradient is not None and gradient.missing is not None:
        return f"Refused while calls are recorded: {gradient.missing}."
    return f"Record `{method.name}`."


def class_of(family: Family) -> str:
    """The class of what a family's methods record: reduce -> RecordedReduceMethods."""
    return f"Recorded{mixin_name(family)}"


def recorded_module(spec: Spec, family: Family) -> View:
    """The module of a family."""
    methods = [method for method in family.methods if is_recorded(spec, method)]
    return View(
        made_from=(Location(family.path),),
        family=family.name,
        class_name=class_of(family),
        base="QStorage" if family.holds_blocks else "RecordedBase",
        methods=[_method(spec, method) for method in methods],
        rules=rules_of(spec, methods),
        ops=[method.functor.upper() for method in methods if method.functor is not None and not writes(method)],
        op_class=METHOD_OP,
        names={**argument_names(spec), "dtype": ["DType"]},
        modules=sorted(set().union(*map(modules_of, methods))),
    )


def rules_of(spec: Spec, methods: Iterable[Method]) -> list[View]:
    """The gradients of operands, of the methods that say them."""
    return [_rule(spec, method, method.gradient) for method in methods if method.gradient and _has_gradients(method)]


def gradients_storages(spec: Spec) -> View:
    """The view of the classes of recorded storages, with the methods of each family."""
    return View(
        families=[(family.name, class_of(family)) for family in spec.families],
        classes=[class_of(family) for family in spec.families if not family.holds_blocks],
        block_classes=[class_of(family) for family in spec.families if family.holds_blocks],
    )
