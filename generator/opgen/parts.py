"""The parts of methods that are composed of others: expressions over tensors."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from opgen.model.expressions import Expression


@dataclass(frozen=True)
class Part(Expression):
    """An expression over tensors, in Tensor's methods."""

    OVER: ClassVar = "the operands, the other arguments and the parts before it"

    @cached_property
    def calls(self) -> Sequence[ast.Call]:
        """The calls of methods, the outermost first."""
        return [node for node in self._nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods that it calls, each once."""
        called = (call.func.attr for call in self.calls if isinstance(call.func, ast.Attribute))
        products = ("matmul" for node in self._nodes if isinstance(node, ast.MatMult))
        return tuple(dict.fromkeys([*called, *products]))

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The expressions of its results: those of a tuple, or itself."""
        tree = ast.parse(self.text, mode="eval").body
        return tuple(map(ast.unparse, tree.elts)) if isinstance(tree, ast.Tuple) else (self.text,)
