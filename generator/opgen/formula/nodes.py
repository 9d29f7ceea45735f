"""The syntax trees of formulas."""

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, Literal, TypeAlias, TypeVar

Kind: TypeAlias = Literal["bool", "integer", "float", "complex"]
Value = TypeVar("Value")

INCOMING: Final = "g"
"""The name of the result's gradient in gradients."""
RESULT: Final = "result"
"""The name of the result in gradients."""
LITERALS: Final = ("inf", "nan")
# The imaginary unit, which gradients of complex numbers may have.
IMAGINARY: Final = "1j"
"""The literals of floats besides numbers."""
WHERE: Final = "where"
BOTH: Final = "both"
"""The primitive that gives two results, which opgen alone writes."""
TOTAL: Final = "total"
"""The primitive that sums an element over all rows, for operands that the rows share; opgen alone writes it."""

OPERATOR_OF: Final[Mapping[type[ast.AST], str]] = {
    ast.Add: "x + y",
    ast.Sub: "x - y",
    ast.Mult: "x * y",
    ast.Div: "x / y",
    ast.USub: "-x",
    ast.Lt: "x < y",
    ast.LtE: "x <= y",
    ast.Gt: "x > y",
    ast.GtE: "x >= y",
    ast.Eq: "x == y",
    ast.NotEq: "x != y",
}
OPERATORS: Final = tuple(OPERATOR_OF.values())
ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE, *COMPARISONS = OPERATORS


class FormulaError(ValueError):
    """An error in a formula, as `what is wrong; its fix`, and its offset in the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True)
class Number:
    """A number as it is written: an integer has the kind that it meets.

    Two are equal if they are written alike: 2 is not 2.0, nor 0.0 -0.0.
    """

    value: int | float
    offset: int = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number) or self.value != other.value:
            return False
        # Zero alone has two signs.
        return type(self.value) is type(other.value) and (self.value != 0 or str(self.value) == str(other.value))

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Name:
    """An operand, a parameter, a named part, or a literal."""

    text: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """A primitive of arguments. One of an operator is named as it is written of x and y."""

    primitive: str
    arguments: "tuple[Node, ...]"
    offset: int = field(default=0, compare=False)

    # Formulas are trees of calls, so that properties of each are cached.
    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        # Texts have other hashes in another process.
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        return hash((self.primitive, self.arguments))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that it has: see `names`."""
        return tuple(dict.fromkeys(name for argument in self.arguments for name in names(argument)))

    @cached_property
    def calls(self) -> "tuple[Call, ...]":
        """The distinct calls in it, itself first."""
        inner = (call for argument in self.arguments if isinstance(argument, Call) for call in argument.calls)
        return tuple(dict.fromkeys((self, *inner)))

    @cached_property
    def size(self) -> int:
        """How many parts it has, itself among them."""
        return 1 + sum(size(argument) for argument in self.arguments)

    @cached_property
    def depth(self) -> int:
        """How many calls stand inside each other, itself among them."""
        return 1 + max((argument.depth for argument in self.arguments if isinstance(argument, Call)), default=0)


Node: TypeAlias = Number | Name | Call


class CachedOnCall(Generic[Value]):
    """A function of calls that stores its result on each call, where it lives as long as the call."""

    def __init__(self, function: Callable[[Call], Value]) -> None:
        self._function = function
        self._key = f"{function.__module__}.{function.__qualname__}"

    def __call__(self, call: Call) -> Value:
        """Return the stored result, or compute and store it."""
        if self._key not in vars(call):
            self.store(call, self._function(call))
        value: Value = vars(call)[self._key]
        return value

    def store(self, call: Call, value: Value) -> None:
        """Store a result that is known already."""
        vars(call)[self._key] = value


def is_zero(node: Node) -> bool:
    """Return True of the number 0, of either type and sign."""
    return isinstance(node, Number) and node.value == 0


def inlined(node: Node, parts: Mapping[str, Node]) -> Node:
    """Return a formula with others substituted for names."""
    match node:
        case Name(text=text):
            return parts.get(text, node)
        case Call(primitive=primitive, arguments=arguments, offset=offset):
            return Call(primitive, tuple(inlined(argument, parts) for argument in arguments), offset)
    return node


def names(node: Node) -> tuple[str, ...]:
    """The names that a formula has, in their order: operands and parameters, not primitives."""
    if isinstance(node, Call):
        return node.names
    return (node.text,) if isinstance(node, Name) and node.text not in (*LITERALS, IMAGINARY) else ()


def size(node: Node) -> int:
    """How many parts a formula has, itself among them."""
    return node.size if isinstance(node, Call) else 1


def total_of(node: Node, operand: str) -> Node:
    """Return the gradient of an operand that all rows share: the sum over the rows of a formula."""
    return Call(TOTAL, (node, Name(operand)))


def totalled(node: Node) -> str | None:
    """Return the operand whose gradient a sum over all rows is; None for another formula."""
    if not isinstance(node, Call) or node.primitive != TOTAL:
        return None
    _, operand = node.arguments
    return operand.text if isinstance(operand, Name) else None


def without_total(node: Node) -> Node:
    """Return what a sum over all rows adds up, or the formula itself."""
    return node.arguments[0] if isinstance(node, Call) and node.primitive == TOTAL else node


def neutral_number(nodes: Collection[Node], name: str) -> float | None:
    """Return the number that is neutral if substituted for a name of which every use is a factor or a summand."""
    own = Name(name)
    uses = [part for node in nodes for part in walk(node) if isinstance(part, Call) and own in part.arguments]
    if uses and all(part.primitive == MULTIPLY for part in uses):
        return 1.0
    # Of -0.0 and 0.0 the former changes no sum.
    return -0.0 if uses and all(part.primitive == ADD for part in uses) else None


def calls(node: Node) -> tuple[Call, ...]:
    """Return the distinct calls in a formula."""
    return node.calls if isinstance(node, Call) else ()


def walk(node: Node) -> Iterator[Node]:
    """A formula and its parts."""
    yield node
    for argument in node.arguments if isinstance(node, Call) else ():
        yield from walk(argument)
