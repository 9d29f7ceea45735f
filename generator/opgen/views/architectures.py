"""Views of the architectures: the tensors and the layer of each, and which module has which names."""

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple

from opgen.architectures import VOCABULARY, Architecture, ModelTensor, calls, used
from opgen.model import Spec
from opgen.views.python import quoted


class TensorRow(NamedTuple):
    """A tensor: what steps call it, what files call it, and its shape, as Python."""

    name: str
    tensor: str
    shape: str


class ModuleRow(NamedTuple):
    """A name of an architecture and its module, as Python."""

    name: str
    module: str


class ArchitectureView(NamedTuple):
    """What the module of an architecture says."""

    doc: str
    tensors: tuple[TensorRow, ...]
    layer: tuple[TensorRow, ...]
    all_tensors: tuple[TensorRow, ...]
    optional: str  # the names of those that a file may lack
    joined: str  # the groups of weights by which the same is multiplied, as Python
    functions: str  # of the steps, to import
    steps: tuple[str, ...]
    result: str


class ArchitecturesView(NamedTuple):
    """The module of each name."""

    modules: tuple[ModuleRow, ...]


def architecture(spec: Spec, member: str | None) -> ArchitectureView:
    """One architecture."""
    (found,) = (architecture for architecture in spec.architectures if architecture.name == member)
    lines, groups = _lines(found)
    functions = {name for line in lines for name, _ in calls(ast.parse(line).body[0])}
    return ArchitectureView(
        doc=found.doc,
        tensors=_rows(found.tensors.items()),
        layer=_rows([*found.layer.items(), *found.optional.items()]),
        all_tensors=_rows(found.all_tensors.items()),
        optional=", ".join(map(quoted, found.optional)),
        joined="".join(f"({', '.join(map(quoted, group))})," for group in groups),
        functions=", ".join(sorted(functions)),
        steps=tuple(lines[:-1]),
        result=lines[-1].partition(" = ")[2],
    )


def architectures(spec: Spec, _: str | None) -> ArchitecturesView:
    """All of them."""
    return ArchitecturesView(
        tuple(ModuleRow(quoted(name), quoted(found.name)) for found in spec.architectures for name in found.names)
    )


def _rows(items: Iterable[tuple[str, ModelTensor]]) -> tuple[TensorRow, ...]:
    return tuple(TensorRow(quoted(name), quoted(tensor.name), _shape(tensor)) for name, tensor in items)


def _shape(tensor: ModelTensor) -> str:
    return ast.unparse(ast.Tuple([_Sized().visit(deepcopy(size)) for size, _ in tensor.shape]))


class _Sized(ast.NodeTransformer):
    """Reads sizes from a config, but for the one that it does not have."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id == VOCABULARY else ast.Attribute(ast.Name("config"), node.id)


def _lines(found: Architecture) -> tuple[list[str], list[tuple[str, ...]]]:
    """The lines of a layer, in which all products of a step's result are one, and the weights of each of these."""
    lines: list[str] = []
    groups: list[tuple[str, ...]] = []
    tensors = {*found.layer, *found.optional}
    for number, step in enumerate(found.steps):
        lines.append(f"{step.target} = {_expression(tensors, groups, step.value)}")
        ends = next((n for n, other in enumerate(found.steps) if n > number and other.target == step.target), None)
        group = tuple(
            product.weight
            for other in found.steps[number + 1 : None if ends is None else ends + 1]
            for product in _products(other.value)
            if product.factor == step.target and product.weight in found.layer
        )
        if len(group) > 1:
            groups.append(group)
            weights = ", ".join(map(repr, group))
            lines.append(f"{', '.join(group)} = linears(at, {step.target}, weights[{weights}])")
    return lines, groups


class _Product(NamedTuple):
    """A step's call of `linear`, of names alone."""

    factor: str
    weight: str


def _products(value: ast.expr) -> Iterator[_Product]:
    for node in ast.walk(value):
        match node:
            case ast.Call(func=ast.Name("linear"), args=[ast.Name(factor), ast.Name(weight), *_]):
                yield _Product(factor, weight)


class _Placed(ast.NodeTransformer):
    """Gives functions the place of the tokens, and reads tensors from the weights, or from products made before."""

    def __init__(self, tensors: set[str], joined: set[str]) -> None:
        self._tensors = tensors
        self._joined = joined

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments: list[ast.expr] = [self.visit(argument) for argument in node.args]
        match node:
            case ast.Call(func=ast.Name("linear"), args=[_, ast.Name(weight), *bias]) if weight in self._joined:
                return ast.Call(ast.Name("plus"), [ast.Name("at"), *arguments[1:]], []) if bias else arguments[1]
        return ast.Call(node.func, [ast.Name("at"), *arguments], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._tensors or node.id in self._joined:
            return node
        return ast.Subscript(ast.Name("weights"), ast.Constant(node.id))


def _expression(tensors: set[str], groups: Iterable[tuple[str, ...]], value: ast.expr) -> str:
    joined = {weight for group in groups for weight in group}
    return ast.unparse(_Placed(used(value) & tensors, joined).visit(value))
