"""The gradients of rewritten row formulas, which are row formulas too."""

from collections.abc import Collection, Sequence

from opgen.formula.nodes import (
    ADD,
    DIVIDE,
    INCOMING,
    MULTIPLY,
    NEGATE,
    RESULT,
    SUBTRACT,
    WHERE,
    Call,
    Name,
    Node,
    Number,
    inlined,
    is_zero,
    names,
    size,
)
from opgen.formula.primitives import Primitives
from opgen.formula.simplification import simplified
from opgen.rows import COUNT, SUM, is_of_row, joins_of, replaced


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
    symbols: dict[Node, Node] = {join: Name(f"join_{index}") for index, join in enumerate(joins)}
    back = {name.text: join for join, name in symbols.items() if isinstance(name, Name)}
    full_node = replaced(node, symbols)
    wanted = [*operands, *back]
    of = dict(primitives.gradients(full_node, wanted))
    own = {name: of[name] for name in operands}

    def full(part: Node) -> Node:
        """Write the reductions out."""
        for name in reversed(back):
            part = inlined(part, {name: back[name]})
        return part

    sums = {
        f"join_{index}": replaced(join.arguments[0], symbols)
        for index, join in enumerate(joins)
        if join.primitive == SUM
    }
    # Differences from a mean have the sum 0.
    vanishing = {Call(SUBTRACT, (part, Call(DIVIDE, (Name(name), Name(COUNT))))) for name, part in sums.items()}

    def summed(part: Node) -> Node:
        return row_sum(part, varying, full_node, vanishing)

    # The gradient of a number of the row is one number too.
    totals = {name: summed(of[name]) if INCOMING in varying else of[name] for name in back}
    for index in reversed(range(len(joins))):
        name, join = f"join_{index}", joins[index]
        total = totals[name]
        if is_zero(total):
            continue
        contribution = replaced(join.arguments[0], symbols)
        partials = primitives.gradients(contribution, [*operands, *(f"join_{i}" for i in range(index))])
        for other, partial in partials.items():
            if is_zero(partial):
                continue
            share = _share(join.primitive, contribution, Name(name), total, partial)
            if other in own:
                own[other] = simplified(Call(ADD, (own[other], share)))
            else:
                totals[other] = simplified(Call(ADD, (totals[other], summed(share))))
    result = _Factors.of(full(full_node))
    return {
        name: _with_result(full(_common_factors(gradient)), full(full_node), result) for name, gradient in own.items()
    }


def _share(kind: str, contribution: Node, total_of_ties: Node, total: Node, partial: Node) -> Node:
    """Return the gradient by what a contribution depends on, of the gradient `total` of the reduction."""
    if kind == SUM:
        return simplified(inlined(partial, {INCOMING: total}))
    # NaN wins, and then the elements that are NaN share the gradient.
    is_joint, is_nan = Call("x == y", (contribution, total_of_ties)), Call("x != y", (contribution, contribution))
    one, zero = Number(1), Number(0)
    ties = Call(SUM, (Call(WHERE, (is_joint, one, Call(WHERE, (is_nan, one, zero)))),))
    of_each = simplified(inlined(partial, {INCOMING: Call(DIVIDE, (total, ties))}))
    return Call(WHERE, (is_joint, of_each, Call(WHERE, (is_nan, of_each, zero))))


def row_sum(node: Node, varying: Collection[str], atom: Node, vanishing: Collection[Node]) -> Node:
    """Return the sum over the row of a formula, of which factors that all elements share are taken out.

    The formula `atom` is not divided: it is the result, which may be at hand. The sums of `vanishing` formulas are 0.
    """
    node = simplified(node)
    if is_zero(node):
        return Number(0)
    factors = _Factors.of(node, atom)
    own = _Factors(factors.sign, *([part for part in parts if not is_of_row(part, varying)] for parts in factors.parts))
    shared = _Factors(1, *([part for part in parts if is_of_row(part, varying)] for parts in factors.parts))
    inner = _Factors(1, *own.parts).node
    if inner in vanishing:
        return Number(0)
    if not own.above and not own.below:
        return simplified(Call(MULTIPLY, (factors.node, Name(COUNT))))
    return _Factors(factors.sign, [Call(SUM, (inner,)), *shared.above], shared.below).node


class _Factors:
    """A formula as a product of factors over another one."""

    def __init__(self, sign: int, above: Sequence[Node], below: Sequence[Node]) -> None:
        self.sign, self.above, self.below = sign, [*above], [*below]

    @property
    def parts(self) -> tuple[list[Node], list[Node]]:
        return self.above, self.below

    @classmethod
    def of(cls, node: Node, atom: "Node | None" = None) -> "_Factors":
        """Return the factors of a formula, in which `atom` is not split."""
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
        product: Node = self.above[0] if self.above else Number(1)
        for factor in self.above[1:]:
            product = Call(MULTIPLY, (product, factor))
        for divisor in self.below:
            product = Call(DIVIDE, (product, divisor))
        return simplified(Call(NEGATE, (product,)) if self.sign < 0 else product)

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
    """Return a formula with (a - b) / c instead of a / c - b / c, so that it has c once."""
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


def with_joint_factors(node: Node, varying: Collection[str]) -> Node:
    """Return a gradient whose products have the factors next to each other that are reductions of a row, except `g`.

    So they are one number of the row, which can be saved.
    """
    if not isinstance(node, Call):
        return node
    if node.primitive not in (MULTIPLY, DIVIDE):
        return Call(node.primitive, tuple(with_joint_factors(part, varying) for part in node.arguments), node.offset)
    factors = _Factors.of(node)

    def is_reduced(part: Node) -> bool:
        return is_of_row(part, varying) and any(joins_of(part)) and INCOMING not in names(part)

    above, below = ([part for part in parts if is_reduced(part)] for parts in factors.parts)
    if len(above) + len(below) < 2:
        return node
    others = _Factors(factors.sign, *([part for part in parts if not is_reduced(part)] for parts in factors.parts))
    of_row = [part for part in others.above if is_of_row(part, varying)]
    of_elements = [part for part in others.above if not is_of_row(part, varying)]
    return _Factors(others.sign, [*of_row, _Factors(1, above, below).node, *of_elements], others.below).node


def _with_result(gradient: Node, formula: Node, result: _Factors) -> Node:
    """Return a gradient over the result where that spares it operands; otherwise the gradient itself."""

    def rewritten(node: Node) -> Node:
        if node == formula and isinstance(formula, Call):
            return Name(RESULT)
        if not isinstance(node, Call) or size(node) < size(formula):
            return node
        if node.primitive in (MULTIPLY, DIVIDE, NEGATE) and (result.below or len(result.above) > 1):
            factors = _Factors.of(node).with_result(result)
            if factors is not None:
                above, below = ([rewritten(part) for part in parts] for parts in factors.parts)
                return _Factors(factors.sign, above, below).node
        return Call(node.primitive, tuple(map(rewritten, node.arguments)), node.offset)

    gradient = simplified(gradient)
    shorter = simplified(rewritten(gradient))
    return shorter if len(names(shorter)) < len({*names(gradient), RESULT}) else gradient
