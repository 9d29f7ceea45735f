"""Row formulas: what an op computes of each element of a row and of reductions over that row.

A row formula calls reductions of spec/functors/reduce.yaml on expressions of the elements: `e / sum(e)`. Here it is
rewritten to sums, maxima and minima, which every backend has, ordered into passes over the row, and differentiated.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opgen.formula import (
    ADD,
    DIVIDE,
    INCOMING,
    MULTIPLY,
    NEGATE,
    RESULT,
    SUBTRACT,
    WHERE,
    Call,
    Formula,
    FormulaError,
    Implementation,
    Name,
    Node,
    Number,
    Primitive,
    Primitives,
    inlined,
    is_zero,
    names,
    simplified,
    size,
)
from opgen.model import Functor, Monoid
from opgen.problem import Location

COUNT: Final = "count"
"""What row formulas call the number of elements of the row."""
POSITION: Final = "position"
"""What row formulas call the position of the element in its row."""
UNIT: Final = "unit"
DETACH: Final = "detach"
"""What row formulas call to have a value pass no gradient."""
SUM, MAX, MIN = "row_sum", "row_max", "row_min"
JOINS: Final = (SUM, MAX, MIN)
"""The reductions that row formulas are rewritten to."""
_EXPONENTIALS: Final = ("exp", "exp_below_zero")
_COMBINES: Final[Mapping[Node, str]] = {
    Call(ADD, (Name("x"), Name("y"))): SUM,
    Call("maximum", (Name("x"), Name("y"))): MAX,
    Call("minimum", (Name("x"), Name("y"))): MIN,
}


def _language_primitive(call: str, doc: str, location: Location, array: str) -> Primitive:
    return Primitive(
        call=call,
        doc=doc,
        kind="float",
        condition=None,
        result=None,
        integer=None,
        array=Implementation(array, array, location),
        kernel=Implementation("x", "x", location),
        complex="none",
        brief=False,
        of_dtype=False,
        bounded=False,
        let={},
        formula=None,
        gradient={"x": Formula(Number(0), location)},
        location=location,
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


def joined(node: Node, reductions: Mapping[str, Functor]) -> Node:
    """Return a row formula with sums, maxima and minima in the place of other reductions.

    Raises FormulaError for a reduction that is none of these.
    """
    if not isinstance(node, Call):
        return node
    arguments = tuple(joined(argument, reductions) for argument in node.arguments)
    functor = reductions.get(node.primitive)
    if functor is None:
        return Call(node.primitive, arguments, node.offset)
    monoid, (argument,) = functor.reduction, arguments
    assert isinstance(monoid, Monoid)
    if monoid.row is not None:
        return joined(inlined(monoid.row.node, {"x": argument}), reductions)
    join = _COMBINES.get(monoid.combine.node)
    if join is None:
        known = ", ".join(name for name, each in reductions.items() if is_joined(each) and not each.parameters)
        raise FormulaError(f"'{functor.name}' cannot stand in a row formula; write one of {known}", node.offset)
    contribution = argument
    if monoid.element is not None:
        contribution = joined(inlined(monoid.element.node, {"x": argument}), reductions)
    found: Node = Call(join, (contribution,), node.offset)
    if monoid.finish is not None:
        found = inlined(monoid.finish.node, {"x": found, UNIT: Number(1)})
    return simplified(found)


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


@dataclass(frozen=True)
class Join:
    """A reduction over the row: the sum, the maximum or the minimum of what its elements contribute."""

    name: str
    kind: str
    contribution: Node


@dataclass(frozen=True)
class Pass:
    """One pass over the elements of a row."""

    joins: tuple[Join, ...]
    constants: Mapping[str, Node]
    """What follows from the numbers of the row once the pass is over, and is computed once a row."""


@dataclass(frozen=True)
class Passes:
    """A row formula as passes over a row, and then the results of each element."""

    passes: tuple[Pass, ...]
    results: tuple[Node, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The numbers of a row, in the order in which they become known."""
        return tuple(name for each in self.passes for name in (*(join.name for join in each.joins), *each.constants))

    def padding(self, operands: Sequence[str]) -> Mapping[str, float] | None:
        """Elements, 0 or -inf by operand, that contribute nothing to any reduction; None if there are no such."""
        joins = [join for each in self.passes for join in each.joins]
        maxima = {join.name: join.contribution for join in joins if join.kind == MAX}
        for values in itertools.product((0.0, -math.inf), repeat=len(operands)):
            padding = dict(zip(operands, values, strict=True))
            if all(_value(join.contribution, padding, maxima) == _IDENTITIES[join.kind] for join in joins):
                return padding
        return None

    @property
    def rescaled(self) -> tuple[bool, ...]:
        """By pass, whether it sums multiples of e**-m, where m is the maximum that the pass before joins, and no more.

        A kernel finds both in one pass: with a higher maximum it rescales the sums.
        """
        before = (None, *self.passes)
        return tuple(
            last is not None
            and [join.kind for join in last.joins] == [MAX]
            and not last.constants
            and all(join.kind == SUM and _is_multiple(join.contribution, last.joins[0].name) for join in each.joins)
            for last, each in zip(before, self.passes, strict=False)
        )


_IDENTITIES: Final = {SUM: 0.0, MAX: -math.inf, MIN: math.inf}


def _value(node: Node, operands: Mapping[str, float], maxima: Mapping[str, Node]) -> float | None:
    """Return what a formula is where the operands have these values; None where that depends on others."""
    if isinstance(node, Number):
        return float(node.value)
    if isinstance(node, Name):
        return operands.get(node.text)
    values = [_value(argument, operands, maxima) for argument in node.arguments]
    first, last = node.arguments[0], node.arguments[-1]
    if (
        node.primitive == SUBTRACT
        and values[0] == -math.inf
        and isinstance(last, Name)
        and maxima.get(last.text) == first
    ):
        # If that maximum is -inf or NaN, elements of the row are too, and give NaN where this does.
        return -math.inf
    match node.primitive, values:
        case "exp" | "exp_below_zero", [float(x)]:
            return math.exp(x) if x <= 0 else None
        case op, [float(x)] if op == NEGATE:
            return -x
        case op, [float(x), float(y)] if op == MULTIPLY:
            return x * y
        case op, [float(x), float(y)] if op == ADD:
            return x + y
    return None


def _is_multiple(node: Node, maximum: str) -> bool:
    """Whether a formula is a multiple of e**-maximum."""
    if not isinstance(node, Call):
        return False
    first, *others = node.arguments
    if node.primitive in _EXPONENTIALS:
        return (
            isinstance(first, Call)
            and first.primitive == SUBTRACT
            and [maximum in names(argument) for argument in first.arguments] == [False, True]
            and first.arguments[1] == Name(maximum)
        )
    if node.primitive == MULTIPLY and maximum not in names(first):
        first, *others = others[0], first
    return (
        node.primitive in (MULTIPLY, DIVIDE)
        and _is_multiple(first, maximum)
        and not any(maximum in names(other) for other in others)
    )


def passes_of(nodes: Sequence[Node], elements: Collection[str]) -> Passes:
    """Order rewritten row formulas into passes; `elements` are the names that differ between elements of a row."""
    found: dict[Call, Name] = {}
    depths: dict[str, int] = {}
    joins: dict[str, Join] = {}

    def named(node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        if node in found:
            return found[node]
        arguments = tuple(map(named, node.arguments))
        if node.primitive == DETACH:
            return arguments[0]
        if node.primitive not in JOINS:
            return Call(node.primitive, arguments, node.offset)
        name = f"join_{len(joins) + 1}"
        found[node] = Name(name)
        (contribution,) = arguments
        depths[name] = 1 + max((depths[other] for other in names(contribution) if other in depths), default=0)
        joins[name] = Join(name, node.primitive, contribution)
        return found[node]

    results = [named(node) for node in nodes]
    count = max(depths.values(), default=0)
    by_pass = [[join for name, join in joins.items() if depths[name] == depth] for depth in range(1, count + 1)]
    hoisted: dict[Node, str] = {}
    ready: dict[str, int] = {name: depth - 1 for name, depth in depths.items()}

    def hoist(node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        of = names(node)
        if not {*of} & {*elements} and any(name in ready for name in of):
            if node not in hoisted:
                name = f"constant_{len(hoisted) + 1}"
                hoisted[node] = name
                ready[name] = max(ready[other] for other in of if other in ready)
            return Name(hoisted[node])
        first, *others = node.arguments
        if node.primitive == WHERE and isinstance(first, Call):
            # A truth value is no number of a row: its operands are.
            condition = Call(first.primitive, tuple(map(hoist, first.arguments)), first.offset)
            return Call(WHERE, (condition, *map(hoist, others)), node.offset)
        return Call(node.primitive, tuple(map(hoist, node.arguments)), node.offset)

    by_pass = [[Join(join.name, join.kind, hoist(join.contribution)) for join in each] for each in by_pass]
    results = [hoist(node) for node in results]
    constants: list[dict[str, Node]] = [{} for _ in by_pass]
    for node, name in hoisted.items():
        constants[ready[name]][name] = node
    passes = tuple(Pass(tuple(each), own) for each, own in zip(by_pass, constants, strict=True))
    return Passes(passes, tuple(results))


def row_gradients(
    node: Node, operands: Sequence[str], primitives: Primitives, varying: Collection[str]
) -> dict[str, Node]:
    """Differentiate a rewritten row formula: by operand, the gradient as a row formula over `g`.

    `varying` are the names that differ between elements of a row, `g` among them where the result has elements.

    A gradient has `result`, the op's result, where that spares it an operand. The gradients of reductions follow the
    chain rule: each element's share of a sum is the sum's own, and elements that are the maximum share that of the
    maximum equally. Raises FormulaError for a primitive without a gradient.
    """
    node = simplified(node)
    joins = list(joins_of(node))
    symbols: dict[Node, Node] = {join: Name(f"join_{place}") for place, join in enumerate(joins)}
    back = {name.text: join for join, name in symbols.items() if isinstance(name, Name)}
    whole = replaced(node, symbols)
    wanted = [*operands, *back]
    of = dict(primitives.gradients(whole, wanted))
    own = {name: of[name] for name in operands}

    def full(part: Node) -> Node:
        """Write the reductions out."""
        for name in reversed(back):
            part = inlined(part, {name: back[name]})
        return part

    sums = {
        f"join_{place}": replaced(join.arguments[0], symbols)
        for place, join in enumerate(joins)
        if join.primitive == SUM
    }
    # Differences from a mean have the sum 0.
    vanishing = {Call(SUBTRACT, (part, Call(DIVIDE, (Name(name), Name(COUNT))))) for name, part in sums.items()}

    def summed(part: Node) -> Node:
        return row_sum(part, varying, whole, vanishing)

    # The gradient of a number of the row is one number too.
    totals = {name: summed(of[name]) if INCOMING in varying else of[name] for name in back}
    for place in reversed(range(len(joins))):
        name, join = f"join_{place}", joins[place]
        total = totals[name]
        if is_zero(total):
            continue
        contribution = replaced(join.arguments[0], symbols)
        partials = primitives.gradients(contribution, [*operands, *(f"join_{i}" for i in range(place))])
        for other, partial in partials.items():
            if is_zero(partial):
                continue
            share = _share(join.primitive, contribution, Name(name), total, partial)
            if other in own:
                own[other] = simplified(Call(ADD, (own[other], share)))
            else:
                totals[other] = simplified(Call(ADD, (totals[other], summed(share))))
    result = _Factors.of(full(whole))
    return {name: _with_result(full(_common_factors(gradient)), full(whole), result) for name, gradient in own.items()}


def _share(kind: str, contribution: Node, joint: Node, total: Node, partial: Node) -> Node:
    """Return the gradient by what a contribution depends on, of the gradient `total` of the reduction."""
    if kind == SUM:
        return simplified(inlined(partial, {INCOMING: total}))
    # NaN wins, and then the elements that are NaN share the gradient.
    is_joint, is_nan = Call("x == y", (contribution, joint)), Call("x != y", (contribution, contribution))
    one, zero = Number(1), Number(0)
    ties = Call(SUM, (Call(WHERE, (is_joint, one, Call(WHERE, (is_nan, one, zero)))),))
    of_each = simplified(inlined(partial, {INCOMING: Call(DIVIDE, (total, ties))}))
    return Call(WHERE, (is_joint, of_each, Call(WHERE, (is_nan, of_each, zero))))


def is_of_row(node: Node, varying: Collection[str]) -> bool:
    """Return True for a rewritten formula that is one number for each row; `varying` differ between its elements."""
    return not _varies(node, varying)


def row_constants(node: Node, varying: Collection[str], given: Collection[str]) -> list[Node]:
    """Return the largest parts of a rewritten row formula that are one number for each row, of reductions.

    Those that depend on the names `given` are none.
    """
    if not isinstance(node, Call):
        return []
    if any(joins_of(node)) and not _varies(node, varying) and not {*names(node)} & {*given}:
        return [node]
    parts = [part for argument in node.arguments for part in row_constants(argument, varying, given)]
    return [*dict.fromkeys(parts)]


def with_elements_at(node: Node, index: str, operands: Collection[str]) -> Node:
    """Return a rewritten row formula with the elements that an index names in the place of sums that choose them."""
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


def row_sum(node: Node, varying: Collection[str], atom: Node, vanishing: Collection[Node]) -> Node:
    """Return the sum over the row of a formula, of which factors that all elements share are taken out.

    The formula `atom` is not divided: it is the result, which may be at hand. The sums of `vanishing` formulas are 0.
    """
    node = simplified(node)
    if is_zero(node):
        return Number(0)
    factors = _Factors.of(node, atom)
    own = _Factors(factors.sign, *([part for part in parts if _varies(part, varying)] for parts in factors.parts))
    shared = _Factors(1, *([part for part in parts if not _varies(part, varying)] for parts in factors.parts))
    inner = _Factors(1, *own.parts).node
    if inner in vanishing:
        return Number(0)
    if not own.above and not own.below:
        return simplified(Call(MULTIPLY, (factors.node, Name(COUNT))))
    return _Factors(factors.sign, [Call(SUM, (inner,)), *shared.above], shared.below).node


def _varies(node: Node, varying: Collection[str]) -> bool:
    if isinstance(node, Call):
        return node.primitive not in JOINS and any(_varies(argument, varying) for argument in node.arguments)
    return isinstance(node, Name) and node.text in varying


class _Factors:
    """A formula as a product of factors over another one."""

    def __init__(self, sign: int, above: Sequence[Node], below: Sequence[Node]) -> None:
        self.sign, self.above, self.below = sign, [*above], [*below]

    @property
    def parts(self) -> tuple[list[Node], list[Node]]:
        return self.above, self.below

    @classmethod
    def of(cls, node: Node, atom: "Node | None" = None) -> "_Factors":
        """Return the factors of a formula, in which `atom` stays whole."""
        if isinstance(node, Call) and node != atom:
            if node.primitive == NEGATE:
                inner = cls.of(node.arguments[0], atom)
                return cls(-inner.sign, *inner.parts)
            if node.primitive in (MULTIPLY, DIVIDE):
                x, y = (cls.of(argument, atom) for argument in node.arguments)
                above, below = (y.above, y.below) if node.primitive == MULTIPLY else (y.below, y.above)
                return cls(x.sign * y.sign, [*x.above, *above], [*x.below, *below])
        return cls(1, [] if node == Number(1) else [node], [])

    @property
    def node(self) -> Node:
        """The formula."""
        found: Node = self.above[0] if self.above else Number(1)
        for factor in self.above[1:]:
            found = Call(MULTIPLY, (found, factor))
        for divisor in self.below:
            found = Call(DIVIDE, (found, divisor))
        return simplified(Call(NEGATE, (found,)) if self.sign < 0 else found)

    def with_result(self, result: "_Factors") -> "_Factors | None":
        """Return the factors with `result` by its name where all of its factors are among them; else None."""
        above, below = [*self.above], [*self.below]
        for mine, others in ((above, result.above), (below, result.below)):
            for other in others:
                if other not in mine:
                    return None
                mine.remove(other)
        return _Factors(self.sign * result.sign, [*above, Name(RESULT)], below)


def _common_factors(node: Node) -> Node:
    """Return a formula with (a - b) / c in the place of a / c - b / c, so that it has c once."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(map(_common_factors, node.arguments))
    if node.primitive in (ADD, SUBTRACT):
        x, y = (_Factors.of(argument) for argument in arguments)
        common: tuple[list[Node], list[Node]] = ([], [])
        for shared, mine, others in zip(common, x.parts, y.parts, strict=True):
            for factor in [*mine]:
                if factor in others and not isinstance(factor, Number):
                    shared.append(factor)
                    mine.remove(factor)
                    others.remove(factor)
        if any(common):
            first = simplified(Call(node.primitive, (x.node, y.node)))
            return _Factors(1, [first, *common[0]], common[1]).node
    return Call(node.primitive, arguments, node.offset)


def _with_result(gradient: Node, formula: Node, result: _Factors) -> Node:
    """Return a gradient over the result where that spares it operands; otherwise the gradient itself."""

    def rewritten(node: Node) -> Node:
        if node == formula and isinstance(formula, Call):
            return Name(RESULT)
        if not isinstance(node, Call) or size(node) < size(formula):
            return node
        if node.primitive in (MULTIPLY, DIVIDE, NEGATE) and (result.below or len(result.above) > 1):
            found = _Factors.of(node).with_result(result)
            if found is not None:
                above, below = ([rewritten(part) for part in parts] for parts in found.parts)
                return _Factors(found.sign, above, below).node
        return Call(node.primitive, tuple(map(rewritten, node.arguments)), node.offset)

    gradient = simplified(gradient)
    shorter = simplified(rewritten(gradient))
    return shorter if len(names(shorter)) < len({*names(gradient), RESULT}) else gradient


def replaced(node: Node, others: Mapping[Node, Node]) -> Node:
    """Return a formula with others in the place of some of its parts, the outermost first."""
    if node in others:
        return others[node]
    if isinstance(node, Call):
        return Call(node.primitive, tuple(replaced(argument, others) for argument in node.arguments), node.offset)
    return node
