"""Formulas: what ops compute, over operands, parameters and the primitives of spec/primitives.yaml.

A formula is an expression of Python's grammar: names, numbers, arithmetic, comparisons and calls of primitives. It is
parsed into nodes, checked for the kinds of its parts, differentiated, simplified, and lowered to the languages in which
the primitives have implementations.
"""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from opgen.aliases import constant, last_part
from opgen.cache.memo import memoize
from opgen.declarations import by_name, repetitions
from opgen.decoder import Cursor, Mistakes
from opgen.expression import MAX_NESTED, ExpressionError, parse_expression, substituted
from opgen.loader import is_representable
from opgen.notes import Choice, Entry, Form, Mark, defines, like, names_of
from opgen.notes import Name as Name_
from opgen.problem import Location, Problem, did_you_mean
from opgen.rewriting import corrected, rewritten

Kind: TypeAlias = Literal["bool", "integer", "float", "complex"]
Language: TypeAlias = Literal["array", "kernel"]
Node: TypeAlias = "Number | Name | Call"

INCOMING: Final = "g"
"""What gradients call that of the result."""
RESULT: Final = "result"
"""What gradients call the result."""
LITERALS: Final = ("inf", "nan")
"""What floats have besides numbers."""
DTYPE: Final = "dtype"
"""What functions of arrays call the dtype of the elements."""
ELEMENT: Final = "Element"
"""What those of kernels call the type of elements."""
WHERE: Final = "where"
MAX_PARTS: Final = 500
"""How many operands and calls a formula may have: its gradients have their square, and ops have them as code."""
BOTH: Final = "both"
"""What gives two results, which opgen alone writes."""
TOTAL: Final = "total"
"""What adds up an element of each row, the gradient of an operand that all rows share; opgen alone writes it."""

_OPERATORS: Final[Mapping[type[ast.AST], str]] = {
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
OPERATORS: Final = tuple(_OPERATORS.values())
ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE, *COMPARISONS = OPERATORS
# As C++ and Python have them: what binds more closely is higher.
_PRECEDENCES: Final[Mapping[type[ast.AST], int]] = {
    **dict.fromkeys((ast.Lt, ast.LtE, ast.Gt, ast.GtE), 3),
    **dict.fromkeys((ast.Eq, ast.NotEq), 2),
    **dict.fromkeys((ast.Add, ast.Sub), 4),
    **dict.fromkeys((ast.Mult, ast.Div), 5),
    ast.USub: 6,
}
_CONDITIONAL, _ATOM = 1, 7
_MAX_SIGNED: Final = 2**63 - 1
_SIGNS: Final[Mapping[type[ast.AST], str]] = {
    kind: text.replace("x", "").replace("y", "").strip() for kind, text in _OPERATORS.items()
}


# As much of a text that is no formula its message quotes.
_MAX_SHOWN = 80
# A function of an array library in an expression over arrays.
_OF_LIBRARY: Final = r"(?<=np\.)\w+"


class FormulaError(ValueError):
    """A mistake in a formula, `what is wrong; its fix`, and where in the formula's text it stands."""

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
    arguments: tuple[Node, ...]
    offset: int = field(default=0, compare=False)

    # Formulas are trees of these: what is asked of each again and again is found once.
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
        """The calls that it is made of, each once, itself first."""
        inner = (call for argument in self.arguments if isinstance(argument, Call) for call in argument.calls)
        return tuple(dict.fromkeys((self, *inner)))

    @cached_property
    def text(self) -> str:
        """It as a person writes it."""
        return _text(self)

    @cached_property
    def shared(self) -> "tuple[dict[str, Node], Node]":
        """It with names for what it has more than once: see `shared`."""
        return _shared(self)

    @cached_property
    def size(self) -> int:
        """How many parts it has, itself among them."""
        return 1 + sum(size(argument) for argument in self.arguments)

    @cached_property
    def depth(self) -> int:
        """How many calls stand inside each other, itself among them."""
        return 1 + max((argument.depth for argument in self.arguments if isinstance(argument, Call)), default=0)

    @cached_property
    def simplified(self) -> "Node":
        """It without what changes nothing: see `simplified`."""
        found = _simplified(self)
        if isinstance(found, Call):
            vars(found)["simplified"] = found  # it is in that form already
        return found


@dataclass(frozen=True)
class Formula:
    """A formula of the spec."""

    node: Node
    location: Location = field(compare=False)
    """Of its first character."""
    FORM: ClassVar = Annotated[str, Form(type=["number", "string"]), names_of("local", "primitive", "op")]

    @classmethod
    def decode(cls, cursor: Cursor) -> "Formula":
        """The formula that a text or a number is."""
        value = cursor.value
        is_number = isinstance(value.content, int | float) and not isinstance(value.content, bool)
        text = str(value.content) if is_number else cursor.scalar(str)
        column = value.location.column + value.is_quoted
        formula = cls(Number(0), replace(value.location, column=column))
        try:
            return replace(formula, node=parse(text)) if text is not None else formula
        except FormulaError as error:
            cursor.unreadable.append(value.location)
            cursor.problems.append(formula.problem(error, cursor.what))
            return formula

    def problem(self, error: FormulaError, what: str) -> Problem:
        """The mistake `error` of the formula, which `what` names, where it stands in the file."""
        place = replace(self.location, column=self.location.column + error.offset)
        # What is wrong may quote a text with that sign.
        wrong, _, fix = str(error).rpartition("; ")
        return Problem(place, f"{wrong} in {what}; {fix}")

    def with_parts(self, parts: Mapping[str, "Formula"]) -> "Formula":
        """The formula with named parts in the place of their names; each part may name those before it.

        It is 0 if it would be too long, which `too_long` reports.
        """
        known: dict[str, Node] = {}
        for name, part in parts.items():
            known[name] = inlined(part.node, known)
            if _is_too_long(known[name]):
                return replace(self, node=Number(0))
        node = inlined(self.node, known)
        return replace(self, node=Number(0) if _is_too_long(node) else node)


def too_long(formulas: Mapping[str, Formula], parts: Mapping[str, Formula], what: str) -> Mistakes:
    """Note each of `formulas`, by its key, that is too long with its named parts written out."""
    for key, formula in formulas.items():
        if formula.node != Number(0) and formula.with_parts(parts).node == Number(0):
            message = f"'{key}' of {what} has more than {MAX_PARTS} parts, or {MAX_NESTED} inside each other"
            yield formula.location, f"{message}, with those of 'let' written out; write a shorter formula"


def _is_too_long(node: Node) -> bool:
    return isinstance(node, Call) and (node.size > MAX_PARTS or node.depth > MAX_NESTED)


@dataclass(frozen=True)
class _SplitImplementation:
    """An implementation in two parts."""

    integer: Annotated[str, names_of("word", token=_OF_LIBRARY), "The expression for integers."]
    float: Annotated[str, names_of("word", token=_OF_LIBRARY), "The expression for floats."]


@dataclass(frozen=True)
class Implementation:
    """What computes a primitive in one language, of integers and of floats: expressions over its parameters."""

    integer: str
    float: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, names_of("word", token=_OF_LIBRARY)] | _SplitImplementation

    @property
    def texts(self) -> tuple[str, ...]:
        """What is written: one expression, or two."""
        return tuple(dict.fromkeys((self.integer, self.float)))

    @classmethod
    def decode(cls, cursor: Cursor) -> "Implementation":
        """An expression, or one of integers and one of floats."""
        if isinstance(cursor.value.content, dict):
            split: _SplitImplementation = cursor.decode(_SplitImplementation)
            found = cls(split.integer, split.float, cursor.value.location)
        else:
            text = cursor.decode(str)
            found = cls(text, text, cursor.value.location)
        for text in found.texts:
            for message in _is_expression(cursor, text):
                cursor.problem(message)
                return replace(found, integer="0", float="0")
        return found


def _is_expression(_: Cursor, text: str) -> Iterator[str]:
    try:
        parse_expression(text or "0")
    except ExpressionError as error:
        yield f"'{text}' is no expression ({error}); write one over the primitive's parameters"


def _is_pattern(_: Cursor, text: str) -> Iterator[str]:
    if pattern(text) is None:
        yield f"'{text}' is no primitive; write its name and parameters, as 'exp(x)', or an operator, as 'x + y'"


def _is_bool(cursor: Cursor, text: str) -> Iterator[str]:
    if text != "bool":
        yield f"{cursor.what} must be 'bool', not '{text}'; leave it out where it has the kind of the operands"


@dataclass(frozen=True)
class Primitive:
    """A function that formulas are made of."""

    call: Annotated[str, Entry("primitive '{}'"), _is_pattern, defines("primitive", token=r"^\w+(?=\()")]
    doc: Annotated[str, "What the primitive gives."]
    kind: Annotated[
        str | None, Choice(("integer", "float")), "The kind of its operands; without this key it has both kinds."
    ]
    condition: Annotated[str | None, "The parameter that is a truth value."]
    result: Annotated[str | None, _is_bool, like("bool"), "`bool` if it gives truth values."]
    integer: Annotated[
        str | None,
        _is_expression,
        names_of("word", token=r"^\w+(?=\()"),
        "The expression of integers, where both languages have the same one: an operand, or a function that numerics "
        "and the kernels' headers have by one name.",
    ]
    array: Annotated[
        Implementation | None,
        "The expression over arrays, in words of spec/families/array.yaml: `np` is the library, `numerics` the "
        "functions of runtime/numerics/numerics.py, and another module there is known by its name, as in "
        "`number_theory.gcd(np, x, y)`. Without it, an operator is itself, another primitive np's function of its "
        "name.",
    ]
    kernel: Annotated[
        Implementation | None,
        "The expression over elements, of functions of the kernels' headers, overloaded for float and double. Without "
        "it, the primitive itself.",
    ]
    complex: Annotated[
        str | None,
        Choice(("none", "real")),
        "What it gives of complex numbers: `real` ones, or `none` where they have no such function, as they have no "
        "order. Without this key it gives complex ones.",
    ]
    header: Annotated[
        str | None,
        names_of("header", token=r"[\w./]+"),
        "The header of runtime/kernels that defines the kernel's function, if those of the families do not.",
    ]
    brief: Annotated[
        bool,
        "Whether the kernel's function has an overload in brief.hpp, quick and exact enough for floats of at most 11 "
        "bits.",
    ]
    of_dtype: Annotated[
        bool,
        "Whether its functions are told the dtype of the elements, to which the result is rounded: those of kernels as "
        "the first argument of their template, those of arrays as the last argument.",
    ]
    bounded: Annotated[bool, "Whether the function has an overload in vector_math.hpp, quick for floats of up to 1e5."]
    let: Annotated[Mapping[Annotated[Name_, defines("local")], Formula], Mark.OPTIONAL, "Named parts of the gradients."]
    formula: Annotated[
        Formula | None,
        "The formula of what it computes, of other primitives, where neither language has an expression of NumPy's "
        "functions or of C's. Nothing is made of it: `opgen check` compares expressions, gradients and edges with it.",
    ]
    gradient: Annotated[
        Mapping[str, Formula],
        Mark.OPTIONAL,
        "By operand, the formula of its gradient, over the operands and `g`, the gradient of the result. An operand "
        "whose gradient is 0 nearly everywhere has 0.",
    ]
    location: Location = field(compare=False)

    @property
    def name(self) -> str:
        """What formulas call it; an operator is called as it is written of x and y."""
        return (pattern(self.call) or ("", ()))[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its operands."""
        return (pattern(self.call) or ("", ()))[1]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that its operands may have."""
        every: tuple[Kind, ...] = ("integer", "float")
        # One that is no kind is noted.
        return tuple(kind for kind in every if self.kind == kind) or every

    def implementation(self, language: Language) -> Implementation:
        """What computes it in a language: NumPy's function of its name, or the kernels', where it does not say so."""
        default = f"np.{self.call}" if language == "array" and self.name not in OPERATORS else self.call
        written = self.array if language == "array" else self.kernel
        found = written or Implementation(default, default, self.location)
        if self.integer is None:
            return found
        is_called = language == "array" and self.integer not in self.parameters
        return replace(found, integer=f"numerics.{self.integer}" if is_called else self.integer)

    def written_in(self, language: Language, text: str) -> str:
        """The key that says an expression of an implementation."""
        is_of_integers = self.integer is not None and text == self.implementation(language).integer
        return "integer" if is_of_integers else language

    def gradient_of(self, operand: str) -> "Node | None":
        """The gradient of an operand; None where it has none."""
        return self.gradient[operand].with_parts(self.let).node if operand in self.gradient else None

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All that is written of it as formulas."""
        own = () if self.formula is None else (self.formula,)
        return (*own, *self.gradient.values(), *self.let.values())

    def mistakes(self, what: str) -> Mistakes:
        """Note operands that it does not have."""
        known = ", ".join(self.parameters)
        if self.condition is not None and self.condition not in self.parameters:
            yield "condition", f"'condition' of {what} must be one of {known}, not '{self.condition}'"
        if self.integer is not None:
            if "integer" not in self.kinds:
                yield "integer", f"{what} is of floats alone; remove 'integer', or its 'kind'"
            for key, written in (("array", self.array), ("kernel", self.kernel)):
                if written is not None and len(written.texts) > 1:
                    yield key, f"'{key}' of {what} says again what 'integer' says; write the expression of floats alone"
        yield from too_long(self.gradient, self.let, what)
        for operand in self.gradient:
            if self.result is not None:
                yield ("gradient", operand, None), f"truth values such as {what} have no gradient; remove it"
            elif operand not in self.parameters or operand == self.condition:
                yield (
                    ("gradient", operand, None),
                    f"'gradient' of {what} has an unknown operand '{operand}'; write one of {known}",
                )


class Primitives(dict[str, Primitive]):
    """The primitives by their names. What follows from them is found once."""

    def __init__(self, primitives: Mapping[str, Primitive]) -> None:
        super().__init__(primitives)
        self._gradients: dict[tuple[Node, tuple[str, ...]], Mapping[str, Node]] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._behind: dict[tuple[Node, ...], Primitives] = {}

    def behind(self, nodes: tuple[Node, ...]) -> "Primitives":
        """Those on which anything depends that follows from formulas: the same object as long as these are the same.

        All of them where a formula calls one that there is not, or names one, as the message about it names others.
        """
        if nodes not in self._behind:
            called = {call.primitive for node in nodes for call in calls(node)}
            is_mistaken = any(name.rpartition(".")[2] in self for node in nodes for name in names(node))
            reached = frozenset[str]().union(*map(self._reach, (WHERE, *OPERATORS, *called)))
            own = (primitive for name, primitive in self.items() if name in reached)
            self._behind[nodes] = _chosen(*own) if called <= self.keys() and not is_mistaken else self
        return self._behind[nodes]

    def _reach(self, name: str) -> frozenset[str]:
        """A primitive with those that its gradients call, and so on."""
        if name not in self._reached:
            found, waiting = {name}, [name]
            while waiting:
                primitive = self.get(waiting.pop())
                formulas = primitive.formulas if primitive is not None else ()
                new = {call.primitive for formula in formulas for call in calls(formula.node)} - found
                found |= new
                waiting += new
            self._reached[name] = frozenset(found)
        return self._reached[name]

    def gradients(self, node: Node, wanted: Iterable[str]) -> Mapping[str, Node]:
        """The gradients of what a formula names: see `gradients`."""
        key = node, tuple(wanted)
        if key not in self._gradients:
            self._gradients[key] = gradients(*key, self)
        return self._gradients[key]


@memoize(lambda *primitives: primitives)
def _chosen(*primitives: Primitive) -> Primitives:
    return Primitives({primitive.name: primitive for primitive in primitives})


_BOTH: Final = Primitive(
    call=f"{BOTH}(x, y)",
    doc="two results",
    kind="float",
    condition=None,
    result=None,
    integer=None,
    array=Implementation("(x, y)", "(x, y)", Location(Path())),
    kernel=None,
    complex="none",
    header=None,
    brief=False,
    of_dtype=False,
    bounded=False,
    let={},
    formula=None,
    gradient={},
    location=Location(Path()),
)


@dataclass(frozen=True, eq=False)
class PrimitiveFile:
    """What the formulas of spec/functors are made of."""

    primitives: Annotated[
        tuple[Primitive, ...], "The primitives, each as formulas write it of its parameters: `exp(x)` or `x + y`."
    ]

    @cached_property
    def named(self) -> Primitives:
        """The primitives by their names, the first one of each."""
        return Primitives(by_name(self.primitives))

    def mistakes(self, _: str) -> Mistakes:
        """Report names that several primitives have."""
        return repetitions("primitive", self.primitives)


def parse(text: str) -> Node:
    """The formula that `text` is.

    Raises FormulaError where it is none.
    """
    if not text.strip():
        raise FormulaError("nothing is written; write it like 'x * sigmoid(x)'", 0)
    try:
        tree = parse_expression(text.strip())
    except ExpressionError as error:
        fix = _fix(corrected(text), "write it like 'x * sigmoid(x)'")
        raise FormulaError(f"'{_shortened(text)}' is no formula ({error}); {fix}", error.offset) from None
    return _node(tree)


def _node(tree: ast.expr) -> Node:
    offset = tree.col_offset
    match tree:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and is_representable(value):
            return Number(value, offset)
        case ast.Name(id=name):
            return Name(name, offset)
        case ast.Attribute(value=ast.Name(id=name), attr=part):
            return Name(f"{name}.{part}", offset)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return Call(name, tuple(map(_node, arguments)), offset)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Call(NEGATE, (_node(operand),), offset)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return Call(_OPERATORS[type(operator)], (_node(left), _node(right)), offset)
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _OPERATORS:
            return Call(_OPERATORS[type(operator)], (_node(left), _node(right)), offset)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            raise FormulaError("a number is beyond the largest double; write a smaller one, or inf", offset)
    signs = ", ".join(dict.fromkeys(_SIGNS.values()))
    fix = _fix(rewritten(tree), f"write names, numbers, primitives and {signs}")
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitXor):
        fix += ", or bitwise_xor(x, y) for bits"
    raise FormulaError(f"'{_shortened(ast.unparse(tree))}' cannot stand; {fix}", offset)


def _fix(formula: str | None, otherwise: str) -> str:
    """How to write a formula, where `formula` is one."""
    if formula is None or len(formula) > _MAX_SHOWN:
        return otherwise
    try:
        _node(parse_expression(formula))
    except (ExpressionError, FormulaError):
        return otherwise
    return f"write {formula}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


@cache
def pattern(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The name and the parameters of a primitive that is written as `exp(x)` or `x + y`; None where `text` is none."""
    try:
        node = parse(text)
    except FormulaError:
        return None
    if not isinstance(node, Call):
        return None
    names = [argument.text for argument in node.arguments if isinstance(argument, Name)]
    if len(names) < len(node.arguments) or len({*names}) < len(names) or INCOMING in names:
        return None
    return (node.primitive, tuple(names)) if node.primitive in OPERATORS or "(" in text else None


def is_zero(node: Node) -> bool:
    """Return True of the number 0, of either type and sign."""
    return isinstance(node, Number) and node.value == 0


def inlined(node: Node, parts: Mapping[str, Node]) -> Node:
    """A formula with others in the place of names."""
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
    return (node.text,) if isinstance(node, Name) and node.text not in LITERALS else ()


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
    """Return the number that changes no result in the place of a name, of which every use is a factor or a summand."""
    own = Name(name)
    uses = [part for node in nodes for part in walk(node) if isinstance(part, Call) and own in part.arguments]
    if uses and all(part.primitive == MULTIPLY for part in uses):
        return 1.0
    # Of -0.0 and 0.0 the former changes no sum.
    return -0.0 if uses and all(part.primitive == ADD for part in uses) else None


def calls(node: Node) -> tuple[Call, ...]:
    """The calls that a formula is made of, each once."""
    return node.calls if isinstance(node, Call) else ()


def walk(node: Node) -> Iterator[Node]:
    """A formula and its parts."""
    yield node
    for argument in node.arguments if isinstance(node, Call) else ():
        yield from walk(argument)


def kind_of(node: Node, kinds: Mapping[str, Kind], primitives: Primitives) -> Kind | None:
    """The kind of a formula whose names have `kinds`; None of an integer that has the kind that it meets.

    Raises FormulaError for what has none: unknown names and primitives, and operands of kinds that these do not have.
    """
    match node:
        case Number(value=value):
            return "float" if isinstance(value, float) else None
        case Name(text=text, offset=offset):
            if text in kinds:
                return kinds[text]
            if text in LITERALS:
                return "float"
            raise FormulaError(f"unknown name '{text}'{_meant(text, kinds, primitives)}", offset)
    primitive = primitives.get(node.primitive)
    if primitive is None:
        default = f"known are {', '.join(primitives)}; another one is an entry of spec/primitives.yaml"
        fix = rewritten(parse_expression(text_of(node)))
        hint = did_you_mean(node.primitive, primitives, default) if fix is None else f"; {_fix(fix, default)}"
        raise FormulaError(f"unknown primitive '{node.primitive}'{hint}", node.offset)
    if len(node.arguments) != len(primitive.parameters):
        call = f"{primitive.name}({', '.join(primitive.parameters)})"
        raise FormulaError(f"'{text_of(node)}' has another number of operands; write {call}", node.offset)
    own: Kind | None = None
    for parameter, argument in zip(primitive.parameters, node.arguments, strict=True):
        kind = kind_of(argument, kinds, primitives)
        if parameter == primitive.condition:
            if kind != "bool":
                raise FormulaError(
                    f"the condition of '{primitive.name}' must be a comparison; write x != 0", argument.offset
                )
        elif kind == "bool":
            raise FormulaError(f"'{primitive.name}' has no truth values; write where(..., 1, 0)", argument.offset)
        elif {kind, own} == {"complex", "float"}:
            own = "complex"
        elif kind is not None and own not in (None, kind):
            for it in node.arguments:
                if isinstance(it, Number | Name) and kind_of(it, kinds, primitives) == "float":
                    message = f"'{text_of(it)}' is a float, and the op has integers; give the op floats alone"
                    raise FormulaError(message, it.offset)
            raise FormulaError(
                f"'{primitive.name}' has operands of one kind, not an integer and a float; write operands of one kind",
                argument.offset,
            )
        else:
            own = kind or own
    if own == "complex" and (primitive.complex == "none" or "float" not in primitive.kinds):
        message = (
            f"complex numbers have no '{primitive.name}'; remove them from 'dtypes' of the op, or compute of real(x)"
        )
        raise FormulaError(message, node.offset)
    if own not in (None, "complex", *primitive.kinds):
        message = f"'{primitive.name}' is of {primitive.kinds[0]}s alone, not of an {own}; give the op these alone"
        raise FormulaError(message, node.offset)
    if own == "complex" and primitive.complex == "real":
        own = "float"
    return "bool" if primitive.result == "bool" else own or (primitive.kinds[0] if len(primitive.kinds) == 1 else None)


def _meant(name: str, kinds: Mapping[str, Kind], primitives: Primitives) -> str:
    """The end of a message about a name that a formula has and that nothing answers to."""
    owner, _, attribute = name.rpartition(".")
    function = attribute if owner in kinds else last_part(name)
    if function in primitives and "(" in primitives[function].call:
        arguments = (owner, *primitives[function].parameters[1:]) if owner in kinds else primitives[function].parameters
        return f"; write {function}({', '.join(arguments)})"
    number = constant(name)
    return f"; write {number}" if number is not None else did_you_mean(name, [*kinds, *LITERALS])


def lowered(
    node: Node,
    language: Language,
    kinds: Mapping[str, Kind],
    primitives: Primitives,
    literal: Callable[[str], str] = str,
    brief: Collection[str] | None = None,
) -> str:
    """A formula in a language. `literal` says how this language writes a number that is given to a function.

    `brief` are the names that quick implementations of kernels take as they are, if there are any: what is computed
    of them is marked for these.
    """

    def implemented(call: Call, arguments: list[ast.expr]) -> ast.expr:
        primitive = primitives[call.primitive]
        of_operands = (kind_of(argument, kinds, primitives) for argument in call.arguments)
        operand = next((kind for kind in of_operands if kind not in (None, "bool")), "float")
        if primitive.brief and brief is not None and operand == "float":
            marked = ast.Name("brief<T>")
            arguments = [
                argument
                if isinstance(argument, ast.Name) and argument.id in brief
                else ast.Call(marked, [argument], [])
                for argument in arguments
            ]
        implementation = primitive.implementation(language)
        expression = _tree(implementation.integer if operand == "integer" else implementation.float)
        if primitive.of_dtype and isinstance(expression, ast.Call):
            if language == "array":
                expression = ast.Call(expression.func, [*expression.args, ast.Name(DTYPE)], [])
            else:
                expression = ast.Call(ast.Name(f"{ast.unparse(expression.func)}<{ELEMENT}>"), expression.args, [])
        return substituted(expression, dict(zip(primitive.parameters, arguments, strict=True)))

    def named(text: str) -> ast.expr:
        return ast.Name(literal(text) if text in LITERALS and text not in kinds else text)

    def number(value: float) -> ast.expr:
        # C++ takes plain literals for signed.
        is_unsigned = language == "kernel" and value > _MAX_SIGNED and isinstance(value, int)
        return ast.Name(literal(f"{value}u")) if is_unsigned else _Written(value)

    return printed(tree_of(node, implemented, named, number), literal)


def with_both(primitives: Primitives) -> Primitives:
    """The primitives, and what gives two results: Python has a tuple, C++ a struct."""
    return primitives if BOTH in primitives else Primitives({**primitives, BOTH: _BOTH})


def tree_of(
    node: Node,
    called: Callable[[Call, list[ast.expr]], ast.expr],
    named: Callable[[str], ast.expr] = ast.Name,
    number: Callable[[int | float], ast.expr] = ast.Constant,
) -> ast.expr:
    """A formula as an expression of Python; `called` makes that of a primitive, of those of its operands."""
    match node:
        case Number(value=value):
            return number(value) if value >= 0 else ast.UnaryOp(ast.USub(), number(-value))
        case Name(text=text):
            return named(text)
    return called(node, [tree_of(argument, called, named, number) for argument in node.arguments])


def operated(operator: str, operands: list[ast.expr]) -> ast.expr:
    """An operator of operands."""
    return substituted(_tree(operator), dict(zip("xy", operands, strict=False)))


class _Written(ast.Constant):
    """A number of a formula, and none of an implementation."""


@cache
def _tree(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def printed(tree: ast.expr, literal: Callable[[str], str] = str) -> str:
    """An expression as C++ has it, and Python where it has no choice; `literal` writes operands of functions."""
    return _printed(tree, literal, is_operand=False)[0]


def _printed(tree: ast.expr, literal: Callable[[str], str], *, is_operand: bool) -> tuple[str, int]:
    """An expression, and how closely its outermost operator binds."""

    def part(inner: ast.expr, least: int) -> str:
        text, precedence = _printed(inner, literal, is_operand=True)
        return text if precedence >= least else f"({text})"

    match tree:
        case ast.Name(id=name):
            return name, _ATOM
        case ast.Constant(value=value):
            # Operators give an integer the type of what it meets.
            is_plain = not isinstance(tree, _Written) or (is_operand and isinstance(value, int))
            return repr(value) if is_plain else literal(repr(value)), _ATOM
        case ast.Call(func=function, args=arguments):
            inner = ", ".join(_printed(argument, literal, is_operand=False)[0] for argument in arguments)
            return f"{ast.unparse(function)}({inner})", _ATOM
        case ast.Tuple(elts=items):
            inner = ", ".join(_printed(item, literal, is_operand=False)[0] for item in items)
            return f"({inner})", _ATOM
        case ast.UnaryOp(op=operator, operand=operand):
            precedence = _PRECEDENCES[type(operator)]
            if isinstance(operand, _Written) and not is_operand:
                # A negative number is given to a function as others are.
                return f"{_SIGNS[type(operator)]}{literal(repr(operand.value))}", precedence
            # Two signs in a row would be another operator.
            return f"{_SIGNS[type(operator)]}{part(operand, precedence + 1)}", precedence
        case (
            ast.BinOp(left=left, op=operator, right=right) | ast.Compare(left=left, ops=[operator], comparators=[right])
        ):
            precedence = _PRECEDENCES[type(operator)]
            return f"{part(left, precedence)} {_SIGNS[type(operator)]} {part(right, precedence + 1)}", precedence
        case ast.IfExp(test=test, body=body, orelse=other):
            branches = [_printed(branch, literal, is_operand=False) for branch in (body, other)]
            body_text, other_text = (
                text if precedence > _CONDITIONAL else f"({text})" for text, precedence in branches
            )
            return f"{part(test, _CONDITIONAL + 1)} ? {body_text} : {other_text}", _CONDITIONAL
    raise FormulaError(
        f"'{ast.unparse(tree)}' has no form in C++; write calls, arithmetic and comparisons",
        getattr(tree, "col_offset", 0),
    )


def text_of(node: Node) -> str:
    """A formula as a person writes it."""
    return node.text if isinstance(node, Call) else _text(node)


def _text(node: Node) -> str:

    def called(call: Call, operands: list[ast.expr]) -> ast.expr:
        if call.primitive in OPERATORS:
            return operated(call.primitive, operands)
        return ast.Call(ast.Name(call.primitive), operands, [])

    return ast.unparse(tree_of(node, called))


def gradients(node: Node, wanted: Collection[str], primitives: Primitives) -> dict[str, Node]:
    """The gradients of what a formula names, of the gradient `g` of its result: by the chain rule, simplified.

    What the formula has more than once is differentiated once, of the sum of the gradients that it has there. Raises
    FormulaError for a primitive that has no gradient of an operand that depends on one of them.
    """
    parts, whole = shared(node)
    found: dict[str, Node] = dict.fromkeys(wanted, Number(0))
    for name, part in parts.items():
        if {*names(part)} & found.keys():
            found[name] = Number(0)

    def visit(node: Node, incoming: Node) -> None:
        if isinstance(node, Name) and node.text in found:
            found[node.text] = simplified(Call(ADD, (found[node.text], incoming)))
        if not isinstance(node, Call) or not {*names(node)} & found.keys():
            return
        primitive = primitives[node.primitive]
        given: dict[str, Node] = dict(zip(primitive.parameters, node.arguments, strict=True))
        for parameter, argument in given.items():
            # Of a truth value nothing is differentiable.
            if parameter == primitive.condition or primitive.result == "bool" or not {*names(argument)} & found.keys():
                continue
            partial = primitive.gradient_of(parameter)
            if partial is None:
                message = f"'{primitive.name}' has no gradient of '{parameter}'; write 'gradient' to the op"
                raise FormulaError(message, node.offset)
            visit(argument, simplified(_by_cases(incoming, partial, given)))

    visit(whole, Name(INCOMING))
    for name, part in reversed(parts.items()):
        if not is_zero(found.get(name, Number(0))):
            visit(part, found[name])
    bodies: dict[str, Node] = {}
    for name, part in parts.items():
        bodies[name] = inlined(part, bodies)
    return {name: inlined(found[name], bodies) for name in wanted}


def _by_cases(incoming: Node, partial: Node, given: Mapping[str, Node]) -> Node:
    """The gradient of an operand, of that of the result: `partial` of each case in which `incoming` is not 0.

    A gradient is linear in that of the result, but 0 times an infinite slope would be NaN: a case that was not chosen
    must not reach a product.
    """
    terms = list(_terms(incoming))
    # In the cases of several terms their sum is what is passed on.
    whole = inlined(partial, {**given, INCOMING: incoming})
    if not all(map(_has_zero, terms)):
        return whole
    if len(terms) == 1:
        return _mapped(incoming, lambda case: inlined(partial, {**given, INCOMING: case}), Number(0))
    found: Node = Number(0)
    for term in reversed(terms):
        found = _mapped(term, lambda _: whole, found)
    return found


def _terms(node: Node) -> Iterator[Node]:
    """The terms of a sum, whatever their signs."""
    if isinstance(node, Call) and node.primitive in (ADD, SUBTRACT):
        for argument in node.arguments:
            yield from _terms(argument)
    else:
        yield node


def _has_zero(node: Node) -> bool:
    """Whether a formula is chosen by cases, in one of which it is 0."""
    if not isinstance(node, Call) or node.primitive != WHERE:
        return node == Number(0)
    return any(map(_has_zero, node.arguments[1:]))


def _mapped(node: Node, of_case: Callable[[Node], Node], zero: Node) -> Node:
    """Something of each case of a formula, and `zero` in those in which it is 0."""
    if node == Number(0):
        return zero
    if isinstance(node, Call) and node.primitive == WHERE:
        condition, *cases = node.arguments
        return Call(WHERE, (condition, *(_mapped(case, of_case, zero) for case in cases)))
    return of_case(node)


def with_result(gradient: Node, formula: Node) -> Node:
    """A gradient over the result of a formula, where that spares it the operands; otherwise the gradient itself."""
    shorter = _replaced(gradient, formula, Name(RESULT))
    return shorter if len(names(shorter)) < len({*names(gradient), RESULT}) else gradient


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node == old and not isinstance(old, Name):
        return new
    if isinstance(node, Call) and node.size > size(old):
        arguments = tuple(_replaced(argument, old, new) for argument in node.arguments)
        return Call(node.primitive, arguments, node.offset)
    return node


def simplified(node: Node) -> Node:
    """A formula with what changes nothing left out, up to the sign of zero and what 0 times NaN or infinity is."""
    return node.simplified if isinstance(node, Call) else node


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
    """A formula whose parts that it has more than once are named, each over those before it: the parts and the rest."""
    return node.shared if isinstance(node, Call) else ({}, node)


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
    whole = name(node)
    return bodies, whole
