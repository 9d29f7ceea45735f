"""The key `result` of storage methods: a dtype and sizes in terms of the arguments."""

import ast
from dataclasses import dataclass
from typing import Annotated, ClassVar

from opgen.launches import Term
from opgen.notes import names_of

COMPLEX = "complex"


@dataclass(frozen=True)
class Result(Term):
    """A result of a method, as `dtype[sizes]`."""

    FORM: ClassVar = Annotated[str, names_of("dtype", "shape", token=r"(?<![\w.])[a-z]\w*")]
    OVER: ClassVar = "the operands and the other arguments"

    @property
    def is_complex(self) -> bool:
        """Whether its dtype is the complex one of the precision of another."""
        return any(isinstance(node, ast.Attribute) and node.attr == COMPLEX for node in ast.walk(self.node))
