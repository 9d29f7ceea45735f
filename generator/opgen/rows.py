"""Row formulas: what an op computes of each element of a row and of reductions over that row.

A row formula calls reductions of spec/functors/reduce.yaml on expressions of the elements: `e / sum(e)`. Here it is
rewritten to sums, maxima and minima, which every backend has.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from opgen.formula.nodes import (
    ADD,
    DIVIDE,
    MULTIPLY,
    SUBTRACT,
    WHERE,
    Call,
    FormulaError,
    Name,
    Node,
    Number,
    inlined,
    is_zero,
    names,
)
from opgen.formula.primitives import Implementation, Primitive, Primitives, built_in
from opgen.formula.simplification import simplified
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid
from opgen.problem import Location

COUNT: Final = "count"
"""The name of the number of elements of the row, in row formulas."""
POSITION: Final = "position"
"""The name of the element's position in its row, in row formulas."""
UNIT: Final = "unit"
DETACH: Final = "detach"
"""The function of row formulas through which no gradient passes."""
EXP: Final = "exp"
EXP_BELOW_ZERO: Final = "exp_below_zero"
SUM, MAX, MIN = "row_sum", "row_max", "row_min"
JOINS: Final = (SUM, MAX, MIN)
"""The reductions that row formulas are rewritten to."""
_COMBINES: Final[Mapping[Node, str]] = {
    Call(ADD, (Name("x"), Name("y"))): SUM,
    Call("maximum", (Name("x"), Name("y"))): MAX,
    Call("minimum", (Name("x"), Name("y"))): MIN,
}


def _language_primitive(call: str, doc: str, location: Location, array: str) -> Primitive:
    return built_in(
        call,
        doc,
        location,
        kind="float",
        array=Implementation(array, array, location),
        kernel=Implementation("x", "x", location),
        complex="none",
    )


def row_primitives(primitives: Primitives, reductions: Collection[Functor]) -> Primitives:
    """Return what row formulas may call: the primitives, `detach`, and the reductions of floats without parameters."""
    location = Location(Path())
    own = {DETACH: _language_primitive(f"{DETACH}(x)", "x, through which no gradient passes", location, "x")}
    own |= {
        reduction.name: _language_primitive(f"{reduction.name}(x)", reduction.doc, location, "x")
        for reduction in reductions
        if not reduction.parameters and reduction.result is None
    }
    own |= {
        join: _language_primitive(f"{join}(x)", "a reduction over the row", location, f"numerics.{join}(x)")
        for join in JOINS
    }
    return Primitives({**own, **primitives})


def reduced(node: Node, reductions: Mapping[str, Functor]) -> Node:
    """Return a row formula with sums, maxima and minima instead of other reductions.

    Raises FormulaError for a reduction that is none of these.
    """
    if not isinstance(node, Call):
        return node
    arguments = tuple(reduced(argument, reductions) for argument in node.arguments)
    functor = reductions.get(node.primitive)
    if functor is None:
        return Call(node.primitive, arguments, node.offset)
    monoid, (argument,) = functor.reduction, arguments
    assert isinstance(monoid, Monoid)
    if monoid.row is not None:
        return reduced(inlined(monoid.row.node, {"x": argument}), reductions)
    join = _COMBINES.get(monoid.combine.node)
    if join is None:
        known = ", ".join(name for name, each in reductions.items() if is_joined(each) and not each.parameters)
        raise FormulaError(f"'{functor.name}' cannot stand in a row formula; write one of {known}", node.offset)
    contribution = argument
    if monoid.element is not None:
        contribution = reduced(inlined(monoid.element.node, {"x": argument}), reductions)
    row: Node = Call(join, (contribution,), node.offset)
    if monoid.finish is not None:
        row = inlined(monoid.finish.node, {"x": row, UNIT: Number(1)})
    return simplified(row)


def with_sums_of_constants(node: Node, varying: Collection[str]) -> Node:
    """Return a rewritten row formula with products instead of sums of values that all elements share.

    The mean of such values is the value.
    """
    if not isinstance(node, Call):
        return node
    total, *others = node.arguments
    if node.primitive == DIVIDE and others == [Name(COUNT)] and isinstance(total, Call) and total.primitive == SUM:
        (same,) = total.arguments
        if is_of_row(same, varying):
            return with_sums_of_constants(same, varying)
    arguments = tuple(with_sums_of_constants(argument, varying) for argument in node.arguments)
    if node.primitive == SUM and is_of_row(arguments[0], varying):
        return Call(MULTIPLY, (arguments[0], Name(COUNT)), node.offset)
    return Call(node.primitive, arguments, node.offset)


def with_quick_powers(node: Node) -> Node:
    """Return a rewritten row formula with quicker powers of e where exponents are not above 0: `x - max(x)`.

    Differences that are 0 where both numbers are equal need no other case, which gradients have.
    """
    if not isinstance(node, Call):
        return node
    if node.primitive == WHERE:
        _, chosen, other = node.arguments
        if isinstance(other, Call) and other.primitive == SUBTRACT:
            is_equal = Call("x == y", other.arguments)
            if chosen == Call(WHERE, (is_equal, Number(0), other)):
                return chosen
    name = EXP_BELOW_ZERO if node.primitive == EXP and _is_below_zero(node.arguments[0]) else node.primitive
    return Call(name, tuple(map(with_quick_powers, node.arguments)), node.offset)


def _is_below_zero(node: Node) -> bool:
    if not isinstance(node, Call):
        return isinstance(node, Number) and float(node.value) <= 0
    if node.primitive == WHERE:
        return all(map(_is_below_zero, node.arguments[1:]))
    return node.primitive == SUBTRACT and node.arguments[1] == Call(MAX, node.arguments[:1])


def readable(node: Node) -> Node:
    """Return a rewritten row formula as a person writes it."""
    if not isinstance(node, Call):
        return node
    name = node.primitive.removeprefix("row_") if node.primitive in JOINS else node.primitive
    return Call(name, tuple(map(readable, node.arguments)), node.offset)


def is_joined(functor: Functor) -> bool:
    """Return True for a reduction of which kernels of rows have a functor."""
    monoid = functor.reduction
    if not isinstance(monoid, Monoid) or functor.is_scan or functor.result is not None:
        return False
    return monoid.row is not None or monoid.combine.node in _COMBINES


def joins_of(node: Node) -> Iterator[Call]:
    """Yield the reductions of a rewritten row formula, each once, those that it depends on first."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Call]:
        if not isinstance(node, Call) or node in seen:
            return
        seen.add(node)
        for argument in node.arguments:
            yield from visit(argument)
        if node.primitive in JOINS:
            yield node

    return visit(node)


def is_of_row(node: Node, varying: Collection[str]) -> bool:
    """Return True for a rewritten formula that is one number for each row; `varying` differ between its elements."""
    return not _varies(node, varying)


def row_constants(node: Node, varying: Collection[str], known: Collection[str]) -> list[Node]:
    """Return the largest parts of a rewritten row formula that are one number for each row, of reductions.

    Parts that depend on the names `known` do not count.
    """
    if not isinstance(node, Call):
        return []
    if any(joins_of(node)) and not _varies(node, varying) and not {*names(node)} & {*known}:
        return [node]
    parts = [part for argument in node.arguments for part in row_constants(argument, varying, known)]
    return [*dict.fromkeys(parts)]


def with_elements_at(node: Node, index: str, operands: Collection[str]) -> Node:
    """Return a rewritten row formula with the elements at an index instead of sums that select them."""
    if not isinstance(node, Call):
        return node
    if node.primitive == SUM and isinstance(node.arguments[0], Call) and node.arguments[0].primitive == WHERE:
        condition, chosen, other = node.arguments[0].arguments
        if condition == Name(index) and is_zero(other) and POSITION not in names(chosen):
            return _at(with_elements_at(chosen, index, operands), operands)
    arguments = tuple(with_elements_at(argument, index, operands) for argument in node.arguments)
    return Call(node.primitive, arguments, node.offset)


def _at(node: Node, operands: Collection[str]) -> Node:
    if isinstance(node, Call):
        if node.primitive in JOINS:
            return node
        return Call(node.primitive, tuple(_at(argument, operands) for argument in node.arguments), node.offset)
    return Name(element_at(node.text)) if isinstance(node, Name) and node.text in operands else node


def element_at(operand: str) -> str:
    """Return the name of the element of an operand that the index names."""
    return f"{operand}_at_index"


def _varies(node: Node, varying: Collection[str]) -> bool:
    if isinstance(node, Call):
        return node.primitive not in JOINS and any(_varies(argument, varying) for argument in node.arguments)
    return isinstance(node, Name) and node.text in varying


def replaced(node: Node, others: Mapping[Node, Node]) -> Node:
    """Return a formula with some of its parts replaced, the outermost first."""
    if node in others:
        return others[node]
    if isinstance(node, Call):
        return Call(node.primitive, tuple(replaced(argument, others) for argument in node.arguments), node.offset)
    return node
