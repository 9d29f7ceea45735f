"""Functors: the ops of spec/functors."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated

from opgen.decoder import Diagnostics
from opgen.docstrings import sentence
from opgen.edges import Edge
from opgen.formula.formula import Formula, too_long
from opgen.formula.nodes import BOTH, Node, names, neutral_number, totalled, without_total
from opgen.formula.nodes import Call as FormulaCall
from opgen.model.kinds import (
    ANY_RESULT,
    CHOSEN_KINDS,
    ENUM_KINDS,
    GRADIENT_KINDS,
    METHOD_OP,
    NAMED,
    REAL_RESULT,
    ROW,
    ROW_GRADIENT,
    SCAN,
    op_class,
)
from opgen.model.operands import MAX_ROW_OPERANDS, NAMED_OPERANDS, RowOperand, UnusedName, are_row_operands, are_three
from opgen.model.reductions import BOUNDS, Monoid, Position, Prefixes
from opgen.names import Names
from opgen.notes import Entry, Example, Form, Key, LocationOf, Mark, Name, Of, defines, is_name, names_of
from opgen.problem import Location

_NAMED = Of((NAMED,))
_OF_ROWS = Of((ROW,))


@dataclass(frozen=True)
class Functor:
    """An op: a formula for each element, or a reduction of several."""

    name: Annotated[Name, Entry("op '{}'"), defines("op")]
    kind: Annotated[str, Mark.VARIANT]
    named: Annotated[
        tuple[Annotated[Name, UnusedName("an operand"), defines("local")], ...],
        Key("operands"),
        _NAMED,
        are_three,
        Form(minItems=NAMED_OPERANDS, maxItems=NAMED_OPERANDS, uniqueItems=True),
        "The names of the operands in the formula. All but the first are parameters of the methods too.",
    ]
    of_rows: Annotated[
        tuple[RowOperand, ...],
        Key("operands"),
        _OF_ROWS,
        Mark.OPTIONAL,
        are_row_operands,
        Form(minItems=2, maxItems=MAX_ROW_OPERANDS, uniqueItems=True),
        "The operands in the formula, `x` alone without this key. All but the first are parameters of the methods too. "
        "They are broadcast to one shape, but `weight along row` is a vector with an element for each position in the "
        "row: its gradient sums over all rows, and writes nothing of their size. `weight?` may be left out: then it is "
        "the number that changes none of the products or sums in which it stands. `target index` has an integer for "
        "each row, the position of an element; in the formula it is a condition, which holds for that element alone: "
        "`sum(where(target, x, 0))` is the element, and kernels load it by its position. Rows whose index is the "
        "argument `ignore_index`, or the mark of its dtype, have results of 0.",
    ]
    last_dim: Annotated[
        bool,
        Key("last_dim"),
        _OF_ROWS,
        "True if rows lie along the last dim, always; else calls choose the dim.",
    ]
    per_row: Annotated[
        bool,
        Key("per_row"),
        _OF_ROWS,
        "True if the formula is one number for each row, in which elements stand in reductions alone. Results are in "
        "the compute dtype. The methods give several: after the numbers, with an index, what each row counts for, and "
        "then the numbers of each row that the gradient reads.",
    ]
    counts: Annotated[
        Formula | None,
        _OF_ROWS,
        "With `per_row` and an index, what a row counts for, if it is not 1: a formula like that of the numbers, such "
        "as the weight of its target. Rows whose index does not count have 0.",
    ]
    specialized: Annotated[
        bool,
        _OF_ROWS,
        "True if the op and its gradient also have kernels for calls that leave out all optional operands: there the "
        "numbers that stand for these are constants of the formula, and sums of them are none.",
    ]
    adds_residual: Annotated[
        bool,
        Key("residual"),
        _OF_ROWS,
        "True if the methods take an optional `residual` as their last operand, of the shape of `x`: then `x` in the "
        "formula is the sum of both, rounded, which is the second result. The gradient takes one too, and adds it to "
        "that of `x` before it is rounded.",
    ]
    condition: Annotated[
        Names | None,
        _NAMED,
        "The dtypes of the first operand, if it only chooses between the others. Then elements are only moved, and "
        "kernels know no more of them than their widths.",
    ]
    result: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype of the result, if it is not that of the operands; truth values are 1 and 0, and a reduction joins "
        "contributions in it. `real` is the dtype of the parts of complex operands, and of others their own. `any` is "
        "the dtype that the argument `dtype` names, to which the result is converted as `to_dtype` does.",
    ]
    parameters: Annotated[
        Mapping[Annotated[Name, UnusedName("a parameter"), defines("local")], Annotated[float | None, Mark.NULL]],
        Mark.OPTIONAL,
        Example("slope: 0.01"),
        Of(("unary", "binary", "reduce", NAMED, ROW)),
        "Numbers besides the operands, each with its default or null. A parameter is converted to the compute dtype as "
        "`to_dtype` does. An op with parameters is a storage method and a tensor method of its own.",
    ]
    let: Annotated[
        Mapping[Annotated[Name, UnusedName("a named part"), defines("local")], Formula],
        Mark.OPTIONAL,
        "Named parts of the formula and of the gradients, each over those before it.",
    ]
    written: Annotated[
        Formula,
        Key("formula"),
        Of(("unary", "binary", "cmp", NAMED, ROW)),
        "What the op computes of each element: an expression over the operands, the parameters and the primitives of "
        "spec/primitives.yaml; in row.yaml also over reductions of the row such as `sum(x)`, `count`, `position` and "
        "`detach(...)`, through which no gradient passes. Floats are in the compute dtype of their dtype, and the "
        "result is rounded once. An op that has only floats may use the literals `inf` and `nan`.",
    ]
    gradients: Annotated[
        Mapping[Annotated[Name, names_of("local")], Formula],
        Key("gradient"),
        Mark.OPTIONAL,
        "By operand, the formula of its gradient, if it is not what follows from the formula. It is over the "
        "operands, the parameters, `result`, and `g`, the gradient of the result; in a reduction over an element `x`, "
        "`count` and other reductions as well. In a scan it is that of `combine`, by `x` and `y`, over both, `g` and "
        "`result`, which they join to; that of the elements follows from it.",
    ]
    doc: Annotated[str, "What the op computes, for the docs."]
    dtypes: Annotated[Names, "The dtypes that the op has: a set such as `float`, or a list of dtypes and sets."]
    note: Annotated[str | None, "What else callers should know; the docs add it to `doc`."]
    examples: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example('"tl.Tensor([-1.0, 1.0]).relu()": "Tensor([0., 1.], dtype=f32)"'),
        "Expressions of the package `tl` that show the op, and what Python's prompt prints of each. They end the "
        "docstring of the tensor method, and tests run them.",
    ]
    edges: Annotated[
        tuple[Edge, ...],
        Mark.OPTIONAL,
        Example("silu(-inf): -0.0"),
        "Calls with numbers at which the op is easily wrong, and their results, to the sign of zero. Tests make them "
        "on every backend and real dtype that has the numbers. A name instead of a number stands for every finite one; "
        "the arguments of a reduction are its elements, those of a scan a line of which this is the last result.",
    ]
    reduction: Annotated[Position | Monoid | None, Of(("reduce",)), Mark.INLINE]  # instead of the formula
    scan: Annotated[Prefixes | Monoid | None, Of((SCAN,)), Mark.INLINE]  # by which `with_scans` finds its reduction
    positions: Annotated[
        bool,
        Of((SCAN,)),
        "True if the op also gives the positions of the elements that it finds, in u32: of equals the last, and of NaN "
        "the first. Then `identity` is `highest` or `lowest`.",
    ]
    widened: Annotated[
        bool,
        Key("wide"),
        Of((SCAN,)),
        "True if the tensor method first converts truth values, and integers of fewer than 8 bytes, to i64.",
    ]
    unsupported: Annotated[
        str, Mark.OPTIONAL, "Why the op lacks the dtypes that it does not have, if not for the reason of its file."
    ]
    family: Annotated[
        str | None,
        _OF_ROWS,
        names_of("family"),
        "The file of spec/storage that its method is in, if not that of its kind. Its gradient's is in the file with "
        "`_gradient` after that name if there is one, else in the same.",
    ]
    tensor: Annotated[
        bool | None,
        "False if no tensor method is this op alone; a tensor method of the same name is then in the runtime.",
    ]
    location: Location = field(compare=False)
    result_location: Annotated[Location, LocationOf("result")] = field(compare=False)

    @cached_property
    def variants(self) -> "tuple[Functor, ...]":
        """The op itself, and the variant that its kernels have for calls that leave out all optional operands."""
        if not self.specialized or not self.optional:
            return (self,)
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        own["name"] = f"{self.name}_without_{'_'.join(self.optional)}"
        own["of_rows"] = tuple(operand for operand in self.of_rows if not operand.is_optional)
        return self, Variant(**own, complete=self)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands, as the expressions call them."""
        if self.is_scan:
            return ("x",)
        if self.is_of_rows:
            own = [operand.name for operand in self.of_rows if not operand.is_index and not operand.is_number]
            return tuple(filter(is_name, own)) or ("x",)
        return CHOSEN_KINDS.get(self.kind, tuple(filter(is_name, self.named)))

    @property
    def vectors(self) -> tuple[str, ...]:
        """The operands of an op of rows that have an element for each position, which all rows share."""
        return tuple(operand.name for operand in self.of_rows if operand.is_vector)

    @property
    def index(self) -> str | None:
        """The operand of an op of rows that has the position of an element for each row, if there is one."""
        return next((operand.name for operand in self.of_rows if operand.is_index), None)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The operands of an op of rows that have a number for each row."""
        return tuple(operand.name for operand in self.of_rows if operand.is_number)

    @property
    def elements(self) -> tuple[str, ...]:
        """The operands that vary along a row."""
        return (*self.operands, *filter(None, [self.index]))

    @property
    def optional(self) -> tuple[str, ...]:
        """The operands of an op of rows that calls may leave out."""
        return tuple(operand.name for operand in self.of_rows if operand.is_optional)

    @cached_property
    def absent(self) -> Mapping[str, float | None]:
        """By optional operand, the number that stands for it if it is left out; None if no number is neutral."""
        known = {operand.name: operand.absent for operand in self.of_rows if operand.is_optional}
        return {
            name: neutral_number(self.results, name) if number is None else number for name, number in known.items()
        }

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of row kernels that it may have."""
        if self.totals:
            return ("totals",)
        has_own_rows = self.last_dim or self.per_row or self.index is not None or bool(self.numbers)
        return ("without_totals",) if has_own_rows else ("without_totals", "any_dim")

    @property
    def totals(self) -> tuple[str, ...]:
        """The operands of an op of rows whose gradients the last results are: sums over all rows."""
        return tuple(filter(None, map(totalled, self.results)))

    @property
    def is_of_rows(self) -> bool:
        """Whether it computes of rows."""
        return self.kind in (ROW, ROW_GRADIENT)

    @property
    def is_scan(self) -> bool:
        """Whether it reduces the elements up to each."""
        return self.kind == SCAN

    @property
    def needs_elements(self) -> bool:
        """Whether it has no result of no elements."""
        bounded = isinstance(self.reduction, Monoid) and self.reduction.identity in BOUNDS
        return bounded or isinstance(self.reduction, Position)

    @property
    def borrows(self) -> bool:
        """Whether its reduction is that of another op, which is checked there."""
        return isinstance(self.scan, Prefixes)

    @property
    def joins(self) -> bool:
        """Whether it is a reduction or a scan, which have no formula of an element."""
        return self.reduction is not None or self.is_scan

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient of another op, which opgen has derived."""
        return self.kind in (*GRADIENT_KINDS, ROW_GRADIENT)

    @cached_property
    def formula(self) -> Formula | None:
        """The formula for each element alone; None for a reduction or a row op."""
        return None if self.joins or self.is_of_rows else self.written.with_parts(self.let)

    @cached_property
    def row(self) -> Formula | None:
        """The formula of a row op for each element; None for another op."""
        return self.written.with_parts(self.let) if self.is_of_rows else None

    @property
    def computed(self) -> Formula | None:
        """The formula of what it computes of each element, alone or in its row; None of a reduction."""
        return self.formula or self.row

    @cached_property
    def results(self) -> tuple[Node, ...]:
        """The formulas of its results for each element; empty for a reduction."""
        node = None if self.computed is None else self.computed.node
        if isinstance(node, FormulaCall) and node.primitive == BOTH:
            return node.arguments
        return () if node is None else (node,)

    @cached_property
    def gradient(self) -> Mapping[str, Formula]:
        """The gradients of operands, where they are not what follows from the formula."""
        return {operand: formula.with_parts(self.let) for operand, formula in self.gradients.items()}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All its formulas."""
        monoid = self.reduction if isinstance(self.reduction, Monoid) else None
        own = (monoid.element, monoid.combine, monoid.finish) if monoid is not None else ()
        others = (formula.node for formula in (*own, *self.gradient.values()) if formula is not None)
        return (*map(without_total, self.results), *others)

    @property
    def is_method(self) -> bool:
        """Whether it is a storage method of its own; the others are chosen by an argument `op`."""
        is_unlike_others = bool(self.parameters) or self.condition is not None or self.result == ANY_RESULT
        return self.kind not in ENUM_KINDS or is_unlike_others

    @property
    def keeps_kind(self) -> bool:
        """Whether it gives numbers like its operands: not of one dtype, whichever they have."""
        return self.result in (None, ANY_RESULT, REAL_RESULT)

    @property
    def member(self) -> str:
        """The member of an enum that it is."""
        return f"{METHOD_OP if self.is_method else op_class(self.kind)}.{self.name.upper()}"

    @property
    def has_front(self) -> bool:
        """Whether the tensor method is this op alone."""
        return self.tensor is not False

    def diagnostics(self, what: str) -> Diagnostics:
        """Note parameters that calls could not give, edges that are no calls of it, and a dtype that it cannot have."""
        own = {} if self.joins else {"formula": self.written}
        gradients = {f"gradient.{name}": formula for name, formula in self.gradients.items()}
        long = [*too_long({**own, **gradients}, self.let, what)]
        yield from long
        named = {*names(self.written.with_parts(self.let).node)}
        # What it names that there is not is another error.
        if own and not long and named <= self.parameters.keys():
            message = f"'formula' of {what} names no operand, so that its result has no shape"
            yield "formula", f"{message}; write it over {' and '.join(self.operands)}"
        defaults = list(self.parameters.values())
        for position, name in enumerate(self.parameters):
            if name in (*self.operands, *self.let):
                message = f"'{name}' cannot be a parameter of {what}, the name is taken; choose another one"
                yield ("parameters", name, None), message
            if defaults[position] is None and any(default is not None for default in defaults[:position]):
                message = f"parameter '{name}' without a default follows one with a default; move it before that one"
                yield ("parameters", name, None), message
        others = [name for name in self.operands[1:] if name not in self.vectors]
        if self.per_row and others:
            message = f"{what} has a number for each row of {self.operands[0]}, and other operands lie along the row"
            yield "per_row", f"{message}; write '{others[0]} along row', or remove it"
        if self.per_row and self.has_front and len(self.operands) > 1:
            message = f"{what} has vectors, which tensor methods of numbers of rows do not take"
            yield "per_row", f"{message}; write 'tensor: false', and one in the runtime"
        if self.counts is not None and not (self.per_row and self.index is not None):
            message = f"'counts' of {what} says what rows with an index count for"
            yield "counts", f"{message}; write 'per_row: true' and an operand such as 'target index', or remove it"
        if self.index is not None and self.has_front:
            yield (
                "",
                f"{what} has an index, which tensor methods check; write 'tensor: false', and one in the runtime",
            )
        if self.is_method and not self.has_front and any(default is not None for default in defaults):
            message = f"{what} has a default of a parameter, but no tensor method that takes it; write null"
            yield "parameters", message
        if self.condition is not None and self.result is not None:
            yield ("result", None), f"{what} has the dtype of what it chooses; remove 'result'"
        parameters = None if self.joins else self.parameters
        for edge in self.edges:
            if edge.functor and (message := edge.flaw(self.name, self.operands, parameters) or ""):
                yield edge.location, message

    @property
    def summary(self) -> str:
        """Its doc, its note and its edges, in one sentence."""
        return "; ".join(filter(None, [self.doc, self.note, ", ".join(map(str, self.edges))]))

    @property
    def description(self) -> str:
        """The docstring of its tensor method: what it computes, what it gives at its edges, and examples."""
        edges = ", ".join(map(str, self.edges))
        own = "`reverse` begins at the last element." if self.is_scan else ""
        if self.is_scan and not self.needs_elements:
            own = "`reverse` begins at the last element, and `exclusive` leaves out the element itself."
        session = "\n".join(f">>> {call}\n{shown}" for call, shown in self.examples.items())
        details = " ".join(filter(None, [own, self.note and sentence(self.note), edges and f"{edges}."]))
        return "\n\n".join(filter(None, [sentence(self.doc), details, session]))


@dataclass(frozen=True)
class Variant(Functor):
    """An op of rows without its optional operands."""

    complete: Functor
