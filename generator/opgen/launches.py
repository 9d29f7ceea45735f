"""The launches' part of the model: how a kernel's struct follows from the operands and the arguments of an op."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from opgen.decoder import Entry, Mark, Name, defines, names_of
from opgen.expression import parse_expression
from opgen.gradients import Expression
from opgen.problem import Location

_NAMES = r"(?<![\w.])[a-z]\w*(?:\.[a-z]\w*(?=\())?"


@dataclass(frozen=True)
class Term(Expression):
    """An expression of a launch."""

    FORM: ClassVar = Annotated[str, names_of("local", "dtype", "function", token=_NAMES)]
    OVER: ClassVar = "the arguments of the op"

    @cached_property
    def node(self) -> ast.expr:
        """The syntax tree."""
        return parse_expression(self.text)


@dataclass(frozen=True)
class Launch:
    """How ops launch the kernels that take a struct.

    Expressions are in Python's notation: numbers, arithmetic, comparisons, `and`, `or`, `not`, `x if y else z`, `max`,
    `min`, `len`, `product(dims)`, functions `module.function(x)` of the backend's ops, and names. These are arguments
    of the op as spec/storage calls them, dtypes, constants of spec/kernels/constants.yaml, `op`, which is the op's
    name, `null`, and parts of `let` and fields above. Operands have `shape`, `strides`, `dtype`, `itemsize`, `count`
    and `is_contiguous`, and are conditions where they are optional; dtypes have `itemsize`, `compute` and `index_form`,
    and `dtype[count]` is a new buffer. An argument that only other ops of the launch have is null.

    A field without an expression is what has its name: a buffer, an argument of the op, or `threads` or `run_parts`,
    which divide the work of a kernel for the host. An operand as a field is the address of its elements in row-major
    order, which are copied where they do not lie so.
    """

    struct: Annotated[str, Entry("launch '{}'"), names_of("struct")]
    ops: Annotated[
        Mapping[Annotated[str, names_of("method")], tuple[str, Location]],
        "The storage methods whose ops launch the kernels, each with the name of its kernel, in which {dtype} is that "
        "of the first operand. opgen emits these ops, and cells call them as `host_launches.method`.",
    ]
    when: Annotated[
        tuple[Term, ...],
        Mark.OPTIONAL,
        "The conditions under which an op launches; otherwise, or where it lacks the kernel, another cell takes the "
        "call.",
    ]
    strided: Annotated[
        Mapping[str, Location], Mark.OPTIONAL, "The operands that the kernel reads as they lie, in any layout."
    ]
    ignores: Annotated[Mapping[str, Location], Mark.OPTIONAL, "The arguments that change nothing."]
    let: Annotated[
        Mapping[Name, Term], Mark.OPTIONAL, "Named parts of the expressions below, each over those above it."
    ]
    fields: Annotated[
        Mapping[Annotated[str, defines("local")], Term],
        Mark.OPTIONAL,
        "The expressions of fields, each over those above it.",
    ]
    scratch: Annotated[Mapping[str, Term], Mark.OPTIONAL, "By field, the buffers that the kernel works in."]
    work: Annotated[
        Term | None, "How many elements take as long as the launch, where those of its operands and results take less."
    ]
    makes: Annotated[
        Mapping[str, Term],
        "By field, the buffers that are the results, in their order, without null. A method that gives one storage has "
        "the first alone.",
    ]
    location: Location = field(compare=False)
