"""The passes over a row that a rewritten row formula takes."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from opgen.formula.nodes import ADD, DIVIDE, MULTIPLY, NEGATE, SUBTRACT, WHERE, Call, Name, Node, Number, names
from opgen.rows import DETACH, EXP, EXP_BELOW_ZERO, JOINS, MAX, MIN, SUM

_EXPONENTIALS: Final = (EXP, EXP_BELOW_ZERO)


@dataclass(frozen=True)
class Join:
    """A reduction over the row: the sum, the maximum or the minimum of what its elements contribute."""

    name: str
    kind: str
    contribution: Node
    formula: Node
    """All of it, of elements and other joins."""


@dataclass(frozen=True)
class Pass:
    """One pass over the elements of a row."""

    joins: tuple[Join, ...]
    constants: Mapping[str, Node]
    """The values that follow from the numbers of the row after the pass, computed once per row."""


@dataclass(frozen=True)
class Passes:
    """A row formula as passes over a row, and then the results of each element."""

    begun: Mapping[str, Node]
    """The numbers derived from a row's arguments before the first pass."""
    passes: tuple[Pass, ...]
    results: tuple[Node, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The numbers of a row, in the order in which they become known."""
        own = [name for each in self.passes for name in (*(join.name for join in each.joins), *each.constants)]
        return (*self.begun, *own)

    def joined(self, inputs: Mapping[str, str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """For each join its formula, as a template of `inputs` by name, and the numbers of the joins in it.

        The formula is empty if it has other inputs: the same formula of the same inputs is the same number.
        """
        joins = [join for each in self.passes for join in each.joins]
        numbers = {join.name: number for number, join in enumerate(joins)}
        terms = {**inputs, **{name: f"{{j{number}}}" for name, number in numbers.items()}}
        return tuple(
            (_text(join.formula, terms), tuple(sorted(numbers[name] for name in {*names(join.formula)} & {*numbers})))
            for join in joins
        )

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


def _text(node: Node, terms: Mapping[str, str]) -> str:
    """A formula as text; empty if it has a name that is none of the terms."""
    match node:
        case Number(value=value):
            return repr(value)
        case Name(text=text):
            return terms.get(text, "")
    arguments = [_text(argument, terms) for argument in node.arguments]
    if not all(arguments):
        return ""
    match node.primitive.split():
        case [_, operator, _]:
            return f"({f' {operator} '.join(arguments)})"
    return f"{node.primitive}({', '.join(arguments)})"


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
        case op, [float(x)] if op in _EXPONENTIALS:
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


def passes_of(nodes: Sequence[Node], elements: Collection[str], known: Collection[str] = ()) -> Passes:
    """Order rewritten row formulas into passes.

    `elements` are the names that differ between elements of a row, `known` those of its input numbers.
    """
    parts: dict[Call, Name] = {}
    depths: dict[str, int] = {}
    joins: dict[str, Join] = {}

    def named(node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        if node in parts:
            return parts[node]
        arguments = tuple(map(named, node.arguments))
        if node.primitive == DETACH:
            return arguments[0]
        if node.primitive not in JOINS:
            return Call(node.primitive, arguments, node.offset)
        name = f"join_{len(joins) + 1}"
        parts[node] = Name(name)
        (contribution,) = arguments
        depths[name] = 1 + max((depths[other] for other in names(contribution) if other in depths), default=0)
        joins[name] = Join(name, node.primitive, contribution, Call(node.primitive, arguments))
        return parts[node]

    results = [named(node) for node in nodes]
    count = max(depths.values(), default=0)
    by_pass = [[join for name, join in joins.items() if depths[name] == depth] for depth in range(1, count + 1)]
    hoisted: dict[Node, str] = {}
    ready = {**dict.fromkeys(known, -1), **{name: depth - 1 for name, depth in depths.items()}}

    def hoist(node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        match node.arguments:
            # Doubling a number of the row is cheaper than doubling a product with each element.
            case (Number(value=2) as two, Call(primitive=primitive, arguments=(x, y))) if (
                node.primitive == primitive == MULTIPLY
            ):
                node = Call(MULTIPLY, (Call(MULTIPLY, (two, x), node.offset), y), node.offset)
            case _:
                pass
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

    by_pass = [[replace(join, contribution=hoist(join.contribution)) for join in each] for each in by_pass]
    results = [hoist(node) for node in results]
    constants: dict[int, dict[str, Node]] = {}
    for node, name in hoisted.items():
        constants.setdefault(ready[name], {})[name] = node
    passes = tuple(Pass(tuple(each), constants.get(number, {})) for number, each in enumerate(by_pass))
    return Passes(constants.get(-1, {}), passes, tuple(results))
