"""Views of the functors' gradients, as functions of tensors."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace as View

from opgen.cache.memo import memoize
from opgen.formula.nodes import (
    BOTH,
    INCOMING,
    OPERATORS,
    RESULT,
    WHERE,
    Call,
    Name,
    Node,
    Number,
    calls,
    is_zero,
    names,
)
from opgen.formula.primitives import Primitive, Primitives
from opgen.formula.printing import operated, text_of, tree_of
from opgen.formula.simplification import shared, simplified
from opgen.gradient_ops import (
    JOINT,
    TAKEN,
    of_vectors,
    op_of_numbers,
    primitives_by_ops,
    row_gradients_of_reductions,
    row_results,
    rows_of,
    saved_numbers,
    second_gradients,
)
from opgen.model.functors import Functor
from opgen.model.kinds import ANY_RESULT, GRADIENT_KINDS, JOINT_KIND, METHOD_OP, NAMED, ROW
from opgen.model.reductions import Monoid, Position
from opgen.model.spec import Spec
from opgen.monoids import COUNT, ITSELF, is_plain_sum
from opgen.op_search import Ops, by_size, is_step, op_of
from opgen.rows import DETACH, MAX, MIN, POSITION, SUM, readable
from opgen.scan_gradients import NUMBER, explained, scan_gradients
from opgen.scopes import decisive, derivatives, has_complex, is_differentiable, tensor_methods, written_out
from opgen.views.cases import Cases, Words, is_gentle
from opgen.views.dispatch_names import op_classes
from opgen.views.python import quoted

# The reductions of row formulas.
_ROW_JOINS = {SUM: "ReduceOp.SUM", MAX: "ReduceOp.MAX", MIN: "ReduceOp.MIN"}
# Python's functions of numbers that are primitives.
_OF_NUMBERS = {"maximum": "max", "minimum": "min"}
# Rules conjugate operands by it.
_CONJUGATE = "conj"


def gradients_functors(spec: Spec) -> View:
    """The gradients of functors, in Tensor's methods and ops that are gradients."""
    return _derivatives(spec, are_gradients=False)


def gradients_second(spec: Spec) -> View:
    """The gradients of those functors that are gradients."""
    return _derivatives(spec, are_gradients=True)


def _derivatives(spec: Spec, *, are_gradients: bool) -> View:
    primitives = primitives_by_ops(spec) if are_gradients else spec.primitives
    words = Words(
        {**tensor_methods(spec), DETACH: "detach"},
        {
            **{functor.name: functor.member for functor in spec.reductions},
            **_ROW_JOINS,
        },
        {functor.name: functor.member for functor in spec.every_functor if _is_gradient_of_elements(functor)},
        {functor.name for functor in spec.every_functor if _is_gradient_of_elements(functor) and is_gentle(functor)},
    )
    every = [functor for functor in spec.every_functor if not functor.is_of_rows and not functor.is_scan]
    functors = [functor for functor in every if functor.is_gradient == are_gradients]
    ops = by_size(spec.every_functor)
    pairs = {it.name.removesuffix(JOINT): it for it in spec.every_functor if it.kind == JOINT_KIND}
    own = [METHOD_OP] if any(kind.methods for kind in spec.functors.values()) else []
    gradients = {
        functor.member: _gradient(functor, derivatives(spec, functor, primitives), words, ops)
        for functor in functors
        if is_differentiable(spec, functor)
    }
    of_complex = () if are_gradients else filter(None, (_complex(spec, it, words) for it in functors))
    return View(
        table="SECOND_DERIVATIVES" if are_gradients else "DERIVATIVES",
        classes=[*op_classes(spec), *own],
        gradients=[*gradients.values()],
        complex=View(
            table="COMPLEX_DERIVATIVES",
            gradients=[it for it in of_complex if not _computes_as(it, gradients.get(it.member))],
            others=[],
        ),
        pairs=[_pair(functor, pairs[functor.name]) for functor in functors if functor.name in pairs],
        others=[functor.member for functor in functors if not is_differentiable(spec, functor)],
        rows=[
            _row_gradient(spec, functor, words)
            for functor in spec.every_functor
            if (functor.kind == ROW and (not functor.per_row or functor.vectors))
            or (functor.is_gradient and functor.numbers)
        ],
        row_gradients=row_gradients_of_reductions(spec),
        scans=View(
            table="SCANS",
            gradients=[] if are_gradients else [_scan(spec, it, words) for it in spec.scans if _has_rule(spec, it)],
            others=[],
        ),
        rules=[_rule(it) for it in spec.scans if _has_rule(spec, it)],
        sum_of_prefixes=next((it.member for it in spec.scans if is_plain_sum(it)), "None"),
    )


def _complex(spec: Spec, functor: Functor, words: Words) -> View | None:
    """The gradients of an op of complex numbers, as functions of tensors; None where they are those of floats."""
    is_map = functor.formula is not None and functor.condition is None and functor.result != ANY_RESULT
    if spec.package.without_gradients or not (is_map and functor.keeps_kind and has_complex(spec, functor)):
        return None
    gradients = derivatives(spec, functor, spec.primitives.of_complex())
    called = {call.primitive for node in gradients.values() for call in calls(node)}
    if not {_CONJUGATE, *called} <= {*OPERATORS, WHERE, *words.methods}:
        # A project of few ops lacks those that compute them.
        return None
    operands = [_operand(functor, name, gradients[name], words, None, {}) for name in functor.operands]
    functions = [operand for operand in operands if operand.parts]
    return View(
        made_from=(functor.location,),
        member=functor.member,
        name=f"complex_{functor.name}",
        operands=operands,
        functions=functions,
    )


def _computes_as(gradient: View, other: View | None) -> bool:
    """Whether the gradients of an op are the same functions as others."""
    return other is not None and [*map(vars, gradient.operands)] == [*map(vars, other.operands)]


def _is_gradient_of_elements(functor: Functor) -> bool:
    return functor.is_gradient and not functor.is_of_rows


def _row_gradient(spec: Spec, functor: Functor, words: "Words") -> View:
    """The gradients of an op of rows that its gradient op computes, as functions of tensors.

    Of an op with a number for each row, those of vectors, which it does not compute.
    """
    gradients: Mapping[str, Node] = {}
    if (op := op_of_numbers(spec, functor)) is not None:
        gradients = second_gradients(spec, op)
    elif functor.per_row:
        gradients = of_vectors(spec, functor)
    elif is_differentiable(spec, functor):
        of_all = derivatives(spec, functor)
        gradients = {name: of_all[name] for name in row_results(spec, functor)}
    operands = [
        _operand(functor, name, written_out(spec, node), words, None, {})
        for name, node in gradients.items()
        if not is_zero(node)
    ]
    functions = [operand for operand in operands if operand.parts]
    return View(made_from=(functor.location,), member=functor.member, name=functor.name, operands=operands,
                functions=functions)  # fmt: skip


def _has_rule(spec: Spec, functor: Functor) -> bool:
    """Whether the gradient of a scan follows from its reduction; of others it goes to positions."""
    return is_differentiable(spec, functor) and not functor.positions and not is_plain_sum(functor)


def _rule(functor: Functor) -> View:
    monoid = functor.reduction
    assert isinstance(monoid, Monoid)
    identity = "None" if functor.needs_elements else monoid.identity
    made_from = (functor.location,)
    return View(made_from=made_from, member=functor.member, identity=identity, is_finished=monoid.finish is not None)


def _scan(spec: Spec, functor: Functor, words: Words) -> View:
    """Return the parts of a scan's gradient, as functions of tensors."""
    own = replace(functor, kind=NAMED, named=("x", "y", ITSELF, NUMBER), reduction=None, scan=None)
    gradients = scan_gradients(spec, functor)
    operands = [_without_gradient(_operand(own, name, node, words, None, {})) for name, node in gradients.items()]
    functions = [operand for operand in operands if operand.parts]
    made_from = (functor.location,)
    return View(made_from=made_from, member=functor.member, name=functor.name, operands=operands, functions=functions)


def _without_gradient(operand: View) -> View:
    """Return the arguments and the parameters of a function, with another name for a `g` that it does not use."""
    texts = [operand.text or "g", *(text for _, text in operand.parts)]
    if any(re.search(rf"\b{INCOMING}\b", text) for text in texts):
        return operand
    changed = {key: f"_{getattr(operand, key)}" for key in ("parameters", "arguments")}
    return View(**{**vars(operand), **changed})


def docs_formulas(spec: Spec) -> View:
    """The formulas of all ops, and the gradients that follow from them."""
    by_ops = primitives_by_ops(spec)
    kinds = []
    for kind in spec.functors.values():
        functors = (functor for functor in kind.functors if not isinstance(functor.reduction, Position))
        known = by_ops if kind.name in GRADIENT_KINDS else spec.primitives
        kinds.append((kind.name, [_row(spec, functor, known) for functor in functors]))
    return View(kinds=kinds, primitives=[*map(_primitive, spec.primitives.values())])


@memoize(lambda primitive: (primitive,))
def _primitive(primitive: Primitive) -> View:
    formulas = {**primitive.gradient, **{f"complex {name}": it for name, it in primitive.complex_gradient.items()}}
    gradients = {operand: formula.with_parts(primitive.let).node for operand, formula in formulas.items()}
    doc = f"a truth value: {primitive.doc}" if primitive.result is not None else primitive.doc
    if primitive.complex is not None:
        doc = (
            f"{doc}; not of complex numbers" if primitive.complex == "none" else f"{doc}; a real one of complex numbers"
        )
    made_from, shown = (primitive.location,), _listed(gradients)
    return View(made_from=made_from, call=primitive.call, kinds=primitive.kinds, doc=doc, gradients=shown)


@memoize(decisive)
def _row(spec: Spec, functor: Functor, primitives: Primitives) -> View:
    reduction = functor.reduction
    if isinstance(reduction, Monoid):
        element = "x" if reduction.element is None else text_of(reduction.element.node)
        texts = [f"`{element}`, combined by `{text_of(reduction.combine.node)}`"]
        texts += [f"finished by `{text_of(reduction.finish.node)}`"] if reduction.finish is not None else []
        formula = ", ".join(texts)
    else:
        formula = _shown(functor.computed.node) if functor.computed is not None else ""
    gradients: Mapping[str, Node | str] = {}
    if functor.is_scan:
        gradients = explained(spec, functor)
    elif (op := op_of_numbers(spec, functor)) is not None:
        saved = [f"`{name} = {text_of(readable(node))}`" for name, node in saved_numbers(spec, op).items()]
        formula += f", where {', '.join(saved)}" if saved else ""
        gradients = second_gradients(spec, op)
    elif is_differentiable(spec, functor):
        gradients = derivatives(spec, functor, primitives)
    return View(made_from=(functor.location,), name=functor.name, formula=formula, gradients=_listed(gradients))


def _listed(gradients: "Mapping[str, Node | str]") -> str:
    """The gradients of operands, as a cell of a table has them."""
    texts = {operand: it if isinstance(it, str) else _shown(it) for operand, it in gradients.items()}
    return "; ".join(f"{operand}: {text}" for operand, text in texts.items()) or "none"


def _shown(node: Node) -> str:
    """A formula, with names for what it has more than once."""
    parts, body = shared(readable(node))
    named = [f"`{name} = {text_of(part)}`" for name, part in parts.items()]
    return f"`{text_of(body)}`" + (f" with {', '.join(named)}" if named else "")


def _gradient(functor: Functor, gradients: Mapping[str, Node], words: Words, ops: Ops) -> View:
    operands = []
    for operand in functor.operands:
        node = gradients.get(operand, Number(0))
        rows: Mapping[str, Node] = {}
        op = None if is_step(node) else op_of(functor, node, ops)
        if op is None and functor.reduction is not None:
            rows, remainder = rows_of(node, operand, words.reductions)
            op = op_of(functor, remainder, ops) if operand in names(remainder) else None
        operands.append(_operand(functor, operand, node, words, op, rows))
    functions = [operand for operand in operands if operand.parts]
    made_from = (functor.location,)
    return View(
        made_from=made_from,
        member=functor.member,
        name=functor.name,
        operands=operands,
        functions=functions,
    )


def _pair(functor: Functor, pair: Functor) -> View:
    """The call of the op that gives the gradients of both operands of a functor."""
    operands = [TAKEN.get(name, name) for name in pair.operands]
    takes = (*(name for name in operands if name != INCOMING), *pair.parameters)
    others = [*operands[1:], *pair.parameters]
    method = (
        f"{operands[0]}._storage.{pair.name}"
        if pair.is_method
        else f"partial({operands[0]}._storage.{pair.kind}, {pair.member})"
    )
    arguments = ", ".join(("g", *takes))
    return View(
        op=functor.member,
        takes=takes,
        arguments=arguments,
        call=f"{operands[0]}._gradients({method}, {', '.join(others)})",
    )


def _shared_rows(rows: Mapping[str, Node]) -> dict[str, Node]:
    """The rows over what they have more than once, which comes before them."""
    parts, body = shared(Call(BOTH, tuple(rows.values())))
    assert isinstance(body, Call)
    return {**parts, **dict(zip(rows, body.arguments, strict=True))}


def _decisive(
    functor: Functor,
    operand: str,
    node: Node,
    words: Words,
    op: tuple[Functor, tuple[str, ...]] | None,
    rows: Mapping[str, Node],
) -> tuple[object, ...]:
    called = sorted({call.primitive for call in calls(node)})
    key = () if op is None else (op[0], *op[1], *rows.items())
    return (functor, operand, node, *called, *map(words.of, called), *key)


@memoize(_decisive)
def _operand(
    functor: Functor,
    operand: str,
    node: Node,
    words: Words,
    op: tuple[Functor, tuple[str, ...]] | None,
    rows: Mapping[str, Node],
) -> View:
    """The gradient of an operand, which `op` computes if there is such an op, of a reduction with names for `rows`."""
    if isinstance(node, Number):
        return View(operand=operand, text=None, parts=())
    numbers = {*functor.parameters, COUNT}
    by_cases = Cases(numbers, words)
    if op is None:
        parts, body = shared(simplified(by_cases.separate(node)))
    else:
        parts, body = _shared_rows({name: simplified(by_cases.separate(row)) for name, row in rows.items()}), node
    bodies = []
    for name, part in parts.items():
        if {*names(part)} <= numbers:
            numbers.add(name)
        bodies.append((name, _text(part, numbers, words)))
    chooser = functor.operands[0] if functor.condition is not None else None
    types = {**dict.fromkeys(functor.parameters, "float"), COUNT: "int", "dims": "tuple[int, ...]"}
    known = (*functor.elements, *functor.numbers, RESULT, *functor.parameters, COUNT, POSITION)
    is_reducing = any(call.primitive in words.reductions for call in calls(node))
    takes = [name for name in known if name in names(node)] + ["dims"] * is_reducing
    return View(
        operand=operand,
        takes=tuple(takes),
        parameters=", ".join(f"{name}: {types.get(name, 'Tensor')}" for name in ("g", *takes)),
        arguments=", ".join(("g", *takes)),
        parts=bodies,
        text=_text(body, numbers, words, chooser)
        if op is None
        else _called(words, *op, stretched="" if functor.reduction is None else operand),
    )


def _called(words: Words, functor: Functor, arguments: tuple[str, ...], stretched: str) -> str:
    """The call of an op on tensors and numbers; tensors get the shape of that which is `stretched`, if one is."""
    tensors = arguments[: len(functor.operands)]
    first, *others = [
        f"{name}.broadcast_as({stretched}.shape)" if stretched not in ("", name) else name for name in tensors
    ]
    numbers = arguments[len(functor.operands) :]
    if not functor.is_gradient:
        return f"{first}.{functor.name}({', '.join([*others, *numbers])})"
    if not functor.is_method:
        return f"{first}._gradient({words.gradients[functor.name]}, {', '.join(others)})"
    operands = (f"{name}={tensor}" for name, tensor in zip(functor.operands[1:], others, strict=True))
    method = f"{first}._storage.{functor.name}"
    return f"{first}._with_operands({', '.join([quoted(functor.name), method, *numbers, *operands])})"


def _text(node: Node, numbers: set[str], words: Words, chooser: str | None = None) -> str:
    """A formula of tensors, but for the names of numbers, in Tensor's methods; `chooser` has an integer dtype."""

    def is_number(node: Node) -> bool:
        return {*names(node)} <= numbers

    def called(call: Call, operands: list[ast.expr]) -> ast.expr:
        first, *others = operands
        if call.primitive == WHERE:
            return chosen(call, *operands)
        if call.primitive in OPERATORS:
            return operated(call.primitive, operands)
        if is_number(call):
            return ast.Call(ast.Name(_OF_NUMBERS[call.primitive]), operands, [])
        if call.primitive in words.gradients:
            return ast.Call(ast.Attribute(first, "_gradient"), [ast.Name(words.gradients[call.primitive]), *others], [])
        if call.primitive in words.reductions:
            arguments = [ast.Name(words.reductions[call.primitive]), ast.Name("dims"), ast.Constant(True)]
            return ast.Call(ast.Attribute(first, "_reduce"), arguments, [])
        return ast.Call(ast.Attribute(first, words.methods[call.primitive]), others, [])

    def chosen(call: Call, condition: ast.expr, body: ast.expr, other: ast.expr) -> ast.expr:
        test, *branches = call.arguments
        match test:
            case Call(arguments=(Name(text=name), Number(value=0))) if name == chooser:
                condition = ast.Name(name)  # != 0
        if is_number(test):
            zeros = ast.Call(ast.Attribute(ast.Name("g"), "zeros_like"), [], [])
            return ast.IfExp(
                condition,
                *(zeros if is_zero(it) else tree for it, tree in zip(branches, (body, other), strict=True)),
            )
        if not all(map(is_number, branches)):
            return ast.Call(ast.Attribute(condition, WHERE), [body, other], [])
        if branches == [Number(1), Number(0)]:
            # A condition is 0 or 1.
            return ast.Call(ast.Attribute(condition, "to_dtype"), [ast.Attribute(ast.Name("g"), "dtype")], [])
        arguments = [ast.Constant(WHERE), body, ast.Constant("on_true")]
        return ast.Call(
            ast.Attribute(condition, WHERE),
            [ast.Call(ast.Attribute(ast.Name("g"), "_operand"), arguments, []), other],
            [],
        )

    return ast.unparse(tree_of(node, called))
