"""Views of the architectures: the tensors and the layer of each, and which module has which names."""

import ast
from collections.abc import Iterable
from typing import NamedTuple

from opgen.architectures import Architecture, Step, calls, used
from opgen.model import Spec
from opgen.views.python import quoted


class TensorRow(NamedTuple):
    """A tensor: what steps call it and what files call it, as Python."""

    name: str
    tensor: str


class ArchitectureView(NamedTuple):
    """What the module of an architecture says."""

    doc: str
    tensors: tuple[TensorRow, ...]
    layer: tuple[TensorRow, ...]
    optional: str  # the names of those that a file may lack
    functions: str  # of the steps, to import
    steps: tuple[str, ...]
    result: str


class ArchitecturesView(NamedTuple):
    """The module of each name."""

    modules: tuple[TensorRow, ...]


def architecture(spec: Spec, member: str | None) -> ArchitectureView:
    """One architecture."""
    (found,) = (architecture for architecture in spec.architectures if architecture.name == member)
    return ArchitectureView(
        doc=found.doc,
        tensors=_rows(found.tensors.items()),
        layer=_rows([*found.layer.items(), *found.optional.items()]),
        optional=", ".join(map(quoted, found.optional)),
        functions=", ".join(sorted({name for step in found.steps for name, _ in calls(step.value)})),
        steps=tuple(f"{step.target} = {_expression(found, step)}" for step in found.steps[:-1]),
        result=_expression(found, found.steps[-1]),
    )


def architectures(spec: Spec, _: str | None) -> ArchitecturesView:
    """All of them."""
    return ArchitecturesView(_rows((name, found.name) for found in spec.architectures for name in found.names))


def _rows(items: Iterable[tuple[str, str]]) -> tuple[TensorRow, ...]:
    return tuple(TensorRow(quoted(name), quoted(tensor)) for name, tensor in items)


class _Placed(ast.NodeTransformer):
    """Gives functions the place of the tokens, and reads tensors from the weights."""

    def __init__(self, tensors: set[str]) -> None:
        self._tensors = tensors

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments: list[ast.expr] = [self.visit(argument) for argument in node.args]
        return ast.Call(node.func, [ast.Name("at"), *arguments], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._tensors:
            return node
        return ast.Subscript(ast.Name("weights"), ast.Constant(node.id))


def _expression(found: Architecture, step: Step) -> str:
    tensors = used(step.value) & {*found.layer, *found.optional}
    return ast.unparse(_Placed(tensors).visit(step.value))
