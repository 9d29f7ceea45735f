"""Formulas in a shorter form: without neutral operations, and with names for repeated parts."""

from collections import Counter

from opgen.formula.nodes import ADD, MULTIPLY, NEGATE, SUBTRACT, WHERE, CachedOnCall, Call, Name, Node, Number, is_zero


def simplified(node: Node) -> Node:
    """A formula with what changes nothing left out, up to the sign of zero and what 0 times NaN or infinity is."""
    if not isinstance(node, Call):
        return node
    result = _simplified(node)
    if isinstance(result, Call):
        _simplified.store(result, result)
    return result


@CachedOnCall
def _simplified(node: Call) -> Node:
    arguments = tuple(map(simplified, node.arguments))
    match node.primitive, arguments:
        case _, (Number(value=x), Number(value=y)) if node.primitive in (ADD, SUBTRACT, MULTIPLY):
            return Number({ADD: x + y, SUBTRACT: x - y, MULTIPLY: x * y}[node.primitive])
        case "x + y", (Number(value=0), y):
            return y
        case "x + y", (x, y) if x == y:
            return simplified(Call(MULTIPLY, (Number(2), x)))
        case (("x + y" | "x - y"), (x, Number(value=0))):
            return x
        case "x - y", (Number(value=0), y):
            return simplified(Call(NEGATE, (y,)))
        case "x - y", (x, y) if x == y:
            return Number(0)
        case "x + y", (Call(primitive="-x", arguments=(x,)), y):
            return simplified(Call(SUBTRACT, (y, x)))
        case "x + y", (x, Call(primitive="-x", arguments=(y,))):
            return simplified(Call(SUBTRACT, (x, y)))
        case "x - y", (x, Call(primitive="-x", arguments=(y,))):
            return simplified(Call(ADD, (x, y)))
        case "x + y", (
            Call(primitive="where", arguments=(c, *one)),
            Call(primitive="where", arguments=(d, *other)),
        ) if c == d:
            sums = [simplified(Call(ADD, pair)) for pair in zip(one, other, strict=True)]
            return simplified(Call(WHERE, (c, *sums)))
        case (("x * y" | "x / y"), (Number(value=0), _)):
            return Number(0)
        case "x * y", (_, Number(value=0)):
            return Number(0)
        case "x * y", (Number(value=1), y):
            return y
        case (("x * y" | "x / y"), (x, Number(value=1))):
            return x
        case (("x * y" | "x / y"), (Call(primitive="-x", arguments=(x,)), y)):
            return simplified(Call(NEGATE, (simplified(Call(node.primitive, (x, y))),)))
        case (("x * y" | "x / y"), (x, Call(primitive="-x", arguments=(y,)))):
            return simplified(Call(NEGATE, (simplified(Call(node.primitive, (x, y))),)))
        # A choice of which one side is 0 takes the factor in.
        case (("x * y" | "x / y"), (Call(primitive="where", arguments=(c, a, b)), y)) if is_zero(a) or is_zero(b):
            return simplified(Call(WHERE, (c, *(Call(node.primitive, (branch, y)) for branch in (a, b)))))
        case "x * y", (x, Call(primitive="where", arguments=(c, a, b))) if is_zero(a) or is_zero(b):
            return simplified(Call(WHERE, (c, *(Call(MULTIPLY, (x, branch)) for branch in (a, b)))))
        case "-x", (Number(value=x),):
            return Number(-x)
        case "-x", (Call(primitive="-x", arguments=(x,)),):
            return x
        case "-x", (Call(primitive="where", arguments=(c, a, b)),) if is_zero(a) or is_zero(b):
            return simplified(Call(WHERE, (c, *(Call(NEGATE, (branch,)) for branch in (a, b)))))
        case "where", (_, x, y) if x == y:
            return x
    return Call(node.primitive, arguments, node.offset)


def shared(node: Node) -> "tuple[dict[str, Node], Node]":
    """Return a formula with names for its repeated parts: the parts, each over those before it, and the remainder."""
    return _shared(node) if isinstance(node, Call) else ({}, node)


@CachedOnCall
def _shared(node: Call) -> "tuple[dict[str, Node], Node]":
    uses: Counter[Node] = Counter()

    def count(node: Node) -> None:
        for argument in node.arguments if isinstance(node, Call) else ():
            uses[argument] += 1
            if uses[argument] == 1:
                count(argument)

    count(node)
    parts: dict[Node, Name] = {}

    def name(node: Node) -> Node:
        if node in parts or not isinstance(node, Call):
            return parts.get(node, node)
        named = Call(node.primitive, tuple(map(name, node.arguments)), node.offset)
        if uses[node] < 2:
            return named
        parts[node] = Name(f"part_{len(parts) + 1}")
        bodies[parts[node].text] = named
        return parts[node]

    bodies: dict[str, Node] = {}
    body = name(node)
    return bodies, body
