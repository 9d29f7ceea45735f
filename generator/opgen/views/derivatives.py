"""Views of the functors' gradients, as functions of tensors."""

import ast
from collections.abc import Collection, Mapping
from types import SimpleNamespace as View

from opgen.formula import (
    ADD,
    MULTIPLY,
    OPERATORS,
    RESULT,
    SUBTRACT,
    WHERE,
    Call,
    Node,
    Number,
    names,
    operated,
    shared,
    text_of,
    tree_of,
    walk,
)
from opgen.model import METHOD_OP, Functor, Monoid, Position, Spec
from opgen.scopes import COUNT, derivatives, is_differentiable, tensor_methods
from opgen.views.dispatch import op_classes

# Python's functions of numbers that are primitives.
_OF_NUMBERS = {"maximum": "max", "minimum": "min"}


def gradients_functors(spec: Spec) -> View:
    """The gradients of all functors, in Tensor's methods."""
    methods = tensor_methods(spec)
    types = {name: "float" for functor in spec.every_functor for name in functor.parameters}
    types |= {name: "Tensor" for functor in spec.every_functor for name in (*functor.operands, RESULT, "g")}
    types |= {COUNT: "int", "dims": "tuple[int, ...]"}
    members = [(kind.member(functor), functor) for kind in spec.functors.values() for functor in kind.functors]
    own = [METHOD_OP] if any(kind.methods for kind in spec.functors.values()) else []
    return View(
        classes=[*op_classes(spec), *own],
        gradients=[
            _gradient(spec, member, functor, methods, types)
            for member, functor in members
            if is_differentiable(spec, functor)
        ],
        others=[member for member, functor in members if not is_differentiable(spec, functor)],
    )


def docs_formulas(spec: Spec) -> View:
    """The formulas of all ops, and the gradients that follow from them."""
    kinds = [
        (kind.name, [_row(spec, functor) for functor in kind.functors if not isinstance(functor.reduction, Position)])
        for kind in spec.functors.values()
    ]
    primitives = []
    for primitive in spec.primitives.values():
        gradients = {operand: formula.with_parts(primitive.let).node for operand, formula in primitive.gradient.items()}
        primitives.append(View(primitive=primitive, gradients=_listed(gradients)))
    return View(kinds=kinds, primitives=primitives)


def _row(spec: Spec, functor: Functor) -> View:
    reduction = functor.reduction
    if isinstance(reduction, Monoid):
        element = "x" if reduction.element is None else text_of(reduction.element.node)
        texts = [f"`{element}`, joined by `{text_of(reduction.combine.node)}`"]
        texts += [f"finished by `{text_of(reduction.finish.node)}`"] if reduction.finish is not None else []
        formula = ", ".join(texts)
    else:
        formula = f"`{text_of(functor.formula.node)}`" if functor.formula is not None else ""
    found = derivatives(spec, functor) if is_differentiable(spec, functor) else {}
    return View(name=functor.name, formula=formula, gradients=_listed(found))


def _listed(gradients: Mapping[str, Node]) -> str:
    """The gradients of operands, as a cell of a table has them."""
    listed = []
    for operand, node in gradients.items():
        parts, whole = shared(node)
        named = [f"`{name} = {text_of(part)}`" for name, part in parts.items()]
        listed.append(f"{operand}: `{text_of(whole)}`" + (f" with {', '.join(named)}" if named else ""))
    return "; ".join(listed) or "none"


def _gradient(spec: Spec, member: str, functor: Functor, methods: Mapping[str, str], types: Mapping[str, str]) -> View:
    reductions = [other.name for other in spec.every_functor if isinstance(other.reduction, Monoid)]
    operands = []
    for operand, node in derivatives(spec, functor).items():
        if isinstance(node, Number):
            continue  # 0 nearly everywhere
        numbers = {*functor.parameters, COUNT}
        parts, whole = shared(node)
        bodies = []
        for name, part in parts.items():
            if {*names(part)} <= numbers:
                numbers.add(name)
            bodies.append((name, _text(part, numbers, methods, reductions)))
        called = {part.primitive for part in walk(node) if isinstance(part, Call)}
        known = (*functor.operands, RESULT, *functor.parameters, COUNT)
        takes = [name for name in known if name in names(node)] + ["dims"] * bool(called & {*reductions})
        operands.append(
            View(
                operand=operand,
                takes=tuple(takes),
                parameters=", ".join(f"{name}: {types[name]}" for name in ("g", *takes)),
                arguments=", ".join(("g", *takes)),
                parts=bodies,
                text=_text(whole, numbers, methods, reductions),
            )
        )
    functions = [operand for operand in operands if operand.parts]
    return View(member=member, name=functor.name, operands=operands, functions=functions)


def _text(node: Node, numbers: set[str], methods: Mapping[str, str], reductions: Collection[str]) -> str:
    """A formula of tensors, but for the names of numbers, in Tensor's methods."""

    def is_number(node: Node) -> bool:
        return {*names(node)} <= numbers

    def called(call: Call, operands: list[ast.expr]) -> ast.expr:
        first, *rest = operands
        if call.primitive == WHERE:
            return chosen(call, *operands)
        if call.primitive in OPERATORS:
            return operated(call.primitive, operands)
        if is_number(call):
            return ast.Call(ast.Name(_OF_NUMBERS[call.primitive]), operands, [])
        if call.primitive in reductions:
            keepdim = ast.keyword("keepdim", ast.Constant(True))
            return ast.Call(ast.Attribute(first, call.primitive), [ast.Name("dims")], [keepdim])
        return ast.Call(ast.Attribute(first, methods[call.primitive]), rest, [])

    def chosen(call: Call, condition: ast.expr, body: ast.expr, other: ast.expr) -> ast.expr:
        test, *branches = call.arguments
        if is_number(test):
            zeros = ast.Call(ast.Attribute(ast.Name("g"), "zeros_like"), [], [])
            return ast.IfExp(
                condition,
                *(zeros if it == Number(0) else tree for it, tree in zip(branches, (body, other), strict=True)),
            )
        if not all(map(is_number, branches)):
            return ast.Call(ast.Attribute(condition, WHERE), [body, other], [])
        # A condition is 0 or 1.
        whole = ast.Call(ast.Attribute(condition, "to_dtype"), [ast.Attribute(ast.Name("g"), "dtype")], [])
        if branches == [Number(1), Number(0)]:
            return whole
        return operated(ADD, [operated(MULTIPLY, [whole, operated(SUBTRACT, [body, other])]), other])

    return ast.unparse(tree_of(node, called))
