"""Views of the functors' gradients, as functions of tensors."""

import ast
from collections.abc import Collection, Mapping
from typing import NamedTuple

from opgen.formula import OPERATORS, RESULT, Call, Name, Node, Number, Primitive, names, shared, text_of, walk
from opgen.model import METHOD_OP, Functor, FunctorKind, Monoid, Position, Spec
from opgen.scopes import COUNT, derivatives, is_differentiable, tensor_methods
from opgen.views.dispatch import op_classes

# Python's functions of numbers that are primitives.
_OF_NUMBERS = {"maximum": "max", "minimum": "min"}


class OperandView(NamedTuple):
    """The gradient of one operand."""

    operand: str
    takes: tuple[str, ...]
    parameters: str
    arguments: str
    parts: tuple[tuple[str, str], ...]
    text: str


class GradientView(NamedTuple):
    """The gradients of an op."""

    member: str
    name: str
    operands: tuple[OperandView, ...]

    @property
    def functions(self) -> list[OperandView]:
        """Those with named parts."""
        return [operand for operand in self.operands if operand.parts]


class DerivativesView(NamedTuple):
    """gradients/functors.py."""

    classes: tuple[str, ...]
    gradients: tuple[GradientView, ...]
    others: tuple[str, ...]  # the ops without a gradient


def gradients_functors(spec: Spec) -> DerivativesView:
    """The gradients of all functors, in Tensor's methods."""
    methods = tensor_methods(spec)
    types = {name: "float" for functor in spec.every_functor for name in functor.parameters}
    types |= {name: "Tensor" for functor in spec.every_functor for name in (*functor.operands, RESULT, "g")}
    types |= {COUNT: "int", "dims": "tuple[int, ...]"}
    rows: dict[str, GradientView | None] = {}
    for kind in spec.functors.values():
        for functor in kind.functors:
            row = _gradient(spec, kind, functor, methods, types) if is_differentiable(spec, functor) else None
            rows[kind.member(functor)] = row
    own = [METHOD_OP] if any(kind.methods for kind in spec.functors.values()) else []
    found = tuple(row for row in rows.values() if row is not None)
    return DerivativesView((*op_classes(spec), *own), found, tuple(name for name, row in rows.items() if row is None))


class FormulaRow(NamedTuple):
    """An op, what it computes, and the gradients of its operands."""

    name: str
    formula: str
    gradients: str


class FormulasView(NamedTuple):
    """docs/formulas.md."""

    kinds: tuple[tuple[str, tuple[FormulaRow, ...]], ...]
    primitives: tuple[Primitive, ...]


def docs_formulas(spec: Spec) -> FormulasView:
    """The formulas of all ops, and the gradients that follow from them."""
    rows = []
    for kind in spec.functors.values():
        of_kind = tuple(_row(spec, functor) for functor in kind.functors if not isinstance(functor.reduction, Position))
        rows.append((kind.name, of_kind))
    return FormulasView(tuple(rows), tuple(spec.primitives.values()))


def _row(spec: Spec, functor: Functor) -> FormulaRow:
    reduction = functor.reduction
    if isinstance(reduction, Monoid):
        element = "x" if reduction.element is None else text_of(reduction.element.node)
        texts = [f"`{element}`, joined by `{text_of(reduction.combine.node)}`"]
        texts += [f"finished by `{text_of(reduction.finish.node)}`"] if reduction.finish is not None else []
        formula = ", ".join(texts)
    else:
        formula = f"`{text_of(functor.formula.node)}`" if functor.formula is not None else ""
    found = derivatives(spec, functor) if is_differentiable(spec, functor) else {}
    listed = []
    for operand, node in found.items():
        parts, whole = shared(node)
        named = [f"`{name} = {text_of(part)}`" for name, part in parts.items()]
        listed.append(f"{operand}: `{text_of(whole)}`" + (f" with {', '.join(named)}" if named else ""))
    return FormulaRow(functor.name, formula, "; ".join(listed) or "none")


def _gradient(
    spec: Spec, kind: FunctorKind, functor: Functor, methods: Mapping[str, str], types: Mapping[str, str]
) -> GradientView:
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
        text = _text(whole, numbers, methods, reductions)
        parameters = ", ".join(f"{name}: {types[name]}" for name in ("g", *takes))
        arguments = ", ".join(("g", *takes))
        operands.append(OperandView(operand, tuple(takes), parameters, arguments, tuple(bodies), text))
    return GradientView(kind.member(functor), functor.name, tuple(operands))


def _text(node: Node, numbers: set[str], methods: Mapping[str, str], reductions: Collection[str]) -> str:
    """A formula of tensors, but for the names of numbers, in Tensor's methods."""

    def is_number(node: Node) -> bool:
        return {*names(node)} <= numbers

    def tree(node: Node) -> ast.expr:
        match node:
            case Number(value=value):
                return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))
            case Name(text=text):
                return ast.Name(text)
        if node.primitive == "where":
            condition, *branches = node.arguments
            if is_number(condition):
                body, other = (_zeros() if branch == Number(0) else tree(branch) for branch in branches)
                return ast.IfExp(tree(condition), body, other)
            if all(map(is_number, branches)):
                # A condition is 0 or 1.
                whole = ast.Call(_attribute(tree(condition), "to_dtype"), [_attribute(ast.Name("g"), "dtype")], [])
                if branches == [Number(1), Number(0)]:
                    return whole
                step = ast.BinOp(tree(branches[0]), ast.Sub(), tree(branches[1]))
                return ast.BinOp(ast.BinOp(whole, ast.Mult(), step), ast.Add(), tree(branches[1]))
            return ast.Call(_attribute(tree(condition), "where"), list(map(tree, branches)), [])
        arguments = list(map(tree, node.arguments))
        if node.primitive in OPERATORS:
            operator = ast.parse(node.primitive, mode="eval").body
            match operator:
                case ast.BinOp(op=op):
                    return ast.BinOp(arguments[0], op, arguments[1])
                case ast.UnaryOp(op=op):
                    return ast.UnaryOp(op, arguments[0])
                case ast.Compare(ops=ops):
                    return ast.Compare(arguments[0], ops, arguments[1:])
        first, *rest = arguments
        if is_number(node):
            return ast.Call(ast.Name(_OF_NUMBERS[node.primitive]), arguments, [])
        if node.primitive in reductions:
            keepdim = ast.keyword("keepdim", ast.Constant(True))
            return ast.Call(_attribute(first, node.primitive), [ast.Name("dims")], [keepdim])
        return ast.Call(_attribute(first, methods[node.primitive]), rest, [])

    return ast.unparse(tree(node))


def _attribute(value: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(value, name)


def _zeros() -> ast.expr:
    return ast.Call(_attribute(ast.Name("g"), "zeros_like"), [], [])
