"""The launches' part of the model: how a kernel's struct follows from the operands and the arguments of an op."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, Final

from opgen.expression import parse_expression
from opgen.model.expressions import Expression
from opgen.notes import Entry, Mark, Name, defines, names_of
from opgen.problem import Location

PLACEHOLDER: Final = re.compile(r"{(\w+)}")
"""A placeholder in the name of a kernel."""
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

    Values are expressions in Python's notation: numbers, texts, arithmetic, comparisons, `and`, `or`, `not`,
    `x if y else z`, dims `(x, y)` with indexes and slices, `max`, `min`, `len`, `product(dims)`, and functions
    `module.function(x)` of the package of the backend's ops; one whose first parameter is `build` may append steps and
    gets the builder by itself. `dynamic(product(shape))` is the number of elements of an op whose program depends on
    the shape by this number alone, so that one program runs with any; fields of type `value` take it. Names are those
    of the method's arguments, dtypes, constants of spec/kernels/constants.yaml, `op` (the name of the method), `null`,
    entries of `let`, and the fields above. An operand has `shape`, `strides`, `dtype`, `itemsize`, `count` (of its
    elements), `address` and `is_contiguous`, and a field of `results` the `shape` and the `count` of that result; a
    dtype has `itemsize`, `compute` and `index_form`. As a condition, an operand is true if there is one. `dtype[sizes]`
    is a new buffer. An argument that another method of the launch has, and this one lacks, is null.

    A field without an expression has the value of its name: a buffer, an argument, or `threads` or `run_parts`, by
    which kernels of the host share their work among threads. A field of type `address` is the address of an operand's
    elements in row-major order; operands that are not contiguous are copied first.

    An op that several launches of a family name appends all of them, in their order. What `let`, `scratch` and
    `results` of one name is known to those after it; the first names the results of all.

    Kernels of the host take all elements; a launch on a device has a grid: `parts`, `blocks` or `threads`. With
    `parts`, the fields `count` and `geometry` are those of the part, unless they have expressions.
    """

    struct: Annotated[str, Entry("launch '{}'"), names_of("struct")]
    ops: Annotated[
        Mapping[Annotated[str, names_of("method")], tuple[str, Location]],
        "The storage and device methods, each with the name of the kernel that it launches. {dtype} is that of the "
        "first operand, else the argument `dtype`; any other name in braces is an argument or an entry of `let`. opgen "
        "emits an op for each, which cells call as `host_launches.method` or, of kernels for devices, "
        "`launches.method`.",
    ]
    like: Annotated[
        str | None,
        "Another launch, as `family.Struct`, of which this one has `strided`, `unused`, and all entries of `let`, "
        "`fields` and `results` that it does not write itself. Fields that its struct lacks are left out.",
    ]
    when: Annotated[
        tuple[Term, ...],
        Mark.OPTIONAL,
        "The conditions of a launch on the host. Where one is false, or there is no kernel for the dtype, the next "
        "call of the cell takes the operands.",
    ]
    unless: Annotated[
        Term | None,
        "Where it is true, nothing is launched on the device. Without it, that is so if the first result is empty.",
    ]
    instead: Annotated[
        Term | None, "A call `module.function(x)` for the case that nothing is launched; results are buffers in it."
    ]
    strided: Annotated[
        Mapping[str, Location],
        Mark.OPTIONAL,
        "The operands that the kernel reads in any layout, so that they are not copied.",
    ]
    unused: Annotated[Mapping[str, Location], Mark.OPTIONAL, "The arguments that change nothing."]
    let: Annotated[
        Mapping[Name, Term], Mark.OPTIONAL, "Named parts of the expressions below; each may name those above it."
    ]
    fields: Annotated[
        Mapping[Annotated[str, defines("local")], Term],
        Mark.OPTIONAL,
        "The values of fields; each may name those above it.",
    ]
    parts: Annotated[
        Term | None,
        "The launches, one for each part of the elements. Expressions of fields may name `part`, which has `blocks`, "
        "`elements`, `geometry`, and the `first` element and the `offsets` of the operands.",
    ]
    blocks: Annotated[Term | None, "How many blocks a launch has, where that is not the number of the part."]
    steps: Annotated[
        Mapping[str, Term],
        Mark.OPTIONAL,
        "The kernels of a launch that run one after the other, instead of `blocks`: the word {step} of each name, and "
        "its blocks.",
    ]
    shared: Annotated[Term | None, "How many bytes of shared memory a launch needs beyond what the kernel declares."]
    zero: Annotated[Mapping[str, Location], Mark.OPTIONAL, "The fields of buffers that are 0 before the launch."]
    threads: Annotated[
        Term | None,
        "The number of threads of a launch, instead of `blocks`; kernels loop over the remaining elements.",
    ]
    offsets: Annotated[
        Mapping[str, Term],
        Mark.OPTIONAL,
        "By field of type `address`, its offset in elements from the start of the operand or the result.",
    ]
    scratch: Annotated[
        Mapping[str, Term],
        Mark.OPTIONAL,
        "By field, the buffers that the kernel needs while it runs; results are buffers here.",
    ]
    work: Annotated[
        Term | None,
        "How many elements a launch on the host takes the time of, where that is more than its operands and results "
        "have.",
    ]
    results: Annotated[
        Mapping[str, Location],
        Mark.OPTIONAL,
        "The fields of what the method gives, in this order, where that is not `result` alone; `a | b` is that of the "
        "two which is no argument of the method. Those that a method does not give are null. That of a device method "
        "has an expression `dtype[sizes]`.",
    ]
    location: Location = field(compare=False)

    @property
    def terms(self) -> Iterator[Term]:
        """Its expressions, but for `instead`, in which results are buffers."""
        yield from (*self.let.values(), *self.fields.values(), *self.scratch.values(), *self.when)
        yield from (*self.offsets.values(), *self.steps.values())
        yield from filter(None, (self.unless, self.work, self.parts, self.blocks, self.threads, self.shared))

    def resembling(self, other: "Launch", members: Collection[str]) -> "Launch":
        """The launch of a struct of some members, with what `like` takes from another one."""
        fields = {name: term for name, term in other.fields.items() if name in members and name not in self.fields}
        read = {name for term in (*self.terms, *fields.values()) for name in term.names}
        read.update(name for kernel, _ in self.ops.values() for name in PLACEHOLDER.findall(kernel))
        let: dict[str, Term] = {}
        for name, term in reversed([*other.let.items()]):
            if name in read and name not in self.let:
                let[name] = term
                read.update(term.names)
        return replace(
            self,
            # What a launch says itself may name what the other one says.
            let={**dict(reversed(let.items())), **self.let},
            fields={**fields, **self.fields},
            strided={**other.strided, **self.strided},
            unused={**other.unused, **self.unused},
            results=self.results or other.results,
        )

    @property
    def result_fields(self) -> Mapping[str, Location]:
        """The fields of what the method gives, as they are written or by default."""
        return self.results or {"result": self.location}
