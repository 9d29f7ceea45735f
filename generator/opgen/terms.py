"""The expressions of launches and results: their names looked up, their kinds checked, and the Python they become."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeAlias

from opgen.expression import substituted
from opgen.problem import did_you_mean
from opgen.signature import OPTIONAL as OPTIONAL_TYPE
from opgen.signature import is_optional

# Kinds are texts, of which an optional one ends with OPTIONAL. What functions give is ANY.
ANY, ARRAY, DIMS, DTYPE, FLAG = "a value", "dtype[sizes]", "dims", "a dtype", "a flag"
NULL, NUMBER, OPERAND, TEXT = "null", "a number", "an operand", "a text"
OPTIONAL: Final = " or null"
Attributes: TypeAlias = Mapping[str, Mapping[str, tuple[str, str]]]
"""By kind, the attributes by name: the Python of each over `it`, and its kind."""
FlawOfCall: TypeAlias = Callable[[str, str, int], str | None]
"""Why a function of a module does not take this many arguments; None if it does."""
SignatureOf: TypeAlias = Callable[[str, str], "Signature | None"]
"""The signature of a function of a module that is there."""
# What an argument of a type is in expressions; tuples of integers are dims, and others values of functions alone.
_KINDS: Final = {
    "int": NUMBER,
    "bool": FLAG,
    "str": TEXT,
    "DType": DTYPE,
    "Shape": DIMS,
    "Dims": DIMS,
    "Operand": OPERAND,
    "Buffer": ARRAY,
}
# The functions of the language, which give numbers: what Python calls them, and the kind of their arguments.
_FUNCTIONS: Final = {
    "max": ("max", NUMBER),
    "min": ("min", NUMBER),
    "len": ("len", DIMS),
    "product": ("math.prod", DIMS),
}
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow)
_COMPARISONS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_NONE: Final = ast.Constant(None)
BUILDER: Final = "build"
"""The first parameter of an op or a function that appends steps to a program."""
DYNAMIC: Final = "dynamic"
"""The function of the language that gives the number of elements of a call to a program for any number of them."""
_IS_NOT: Final = ast.IsNot()


class TermError(ValueError):
    """An error in an expression, and its fix."""


class Signature(Protocol):
    """The signature of a function as terms need it."""

    @property
    def parameters(self) -> Sequence[str]:
        """The names of the parameters."""
        ...

    @property
    def returns(self) -> str | None:
        """The type that it returns."""
        ...


class Typed(NamedTuple):
    """An expression in Python, and its kind."""

    node: ast.expr
    kind: str

    @property
    def text(self) -> str:
        """The expression as it is written."""
        return ast.unparse(self.node)


@dataclass
class Scope:
    """The names that expressions may use; `read` and `calls` are the names and the functions that they do use."""

    names: dict[str, Typed]
    attributes: Attributes
    array: Callable[[ast.expr, Typed], ast.expr]
    """Return the Python of `dtype[sizes]`."""
    flaw_of_call: FlawOfCall
    home: str | None = None
    """The module whose functions are called without its name, and give dims."""
    signature_of: SignatureOf = lambda *_: None
    read: set[str] = field(default_factory=set)
    calls: set[tuple[str, str]] = field(default_factory=set)

    def typed(self, node: ast.expr, *wanted: str) -> Typed:
        """An expression of one of the wanted kinds, or of any kind."""
        typed = self._typed(node)
        if wanted and typed.kind not in (*wanted, ANY):
            raise TermError(f"'{ast.unparse(node)}' is {typed.kind}; write {wanted[0]}")
        return typed

    def condition(self, node: ast.expr, test: ast.cmpop = _IS_NOT) -> Typed:
        """An expression as a condition: of an operand, whether it is there, or with `is` whether it is not."""
        typed = self.typed(node)
        if typed.kind not in (FLAG, NULL, OPERAND, OPERAND + OPTIONAL, ANY):
            raise TermError(f"'{ast.unparse(node)}' is {typed.kind}, and no condition; write a comparison")
        if typed.kind == OPERAND + OPTIONAL:
            return Typed(ast.Compare(typed.node, [test], [_NONE]), FLAG)
        if typed.kind == OPERAND:
            return Typed(ast.Constant(test is _IS_NOT), FLAG)
        return typed if test is _IS_NOT else Typed(ast.UnaryOp(ast.Not(), typed.node), FLAG)

    def _typed(self, node: ast.expr) -> Typed:
        match node:
            case ast.Constant(value=bool() | int() as value):
                return Typed(node, FLAG if isinstance(value, bool) else NUMBER)
            case ast.Constant(value=str()):
                return Typed(node, TEXT)
            case ast.Name(id=name) if name in self.names:
                self.read.add(name)
                return self.names[name]
            case ast.Name(id=name):
                raise TermError(f"unknown name '{name}'{did_you_mean(name, self.names)}")
            case ast.Attribute(value=value, attr=attribute):
                return self._attribute(self.typed(value), node, attribute)
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                ends = [None if end is None else self.typed(end, NUMBER).node for end in (lower, upper)]
                return Typed(ast.Subscript(self.typed(value, DIMS).node, ast.Slice(*ends)), DIMS)
            case ast.Subscript(value=value, slice=index):
                of = self.typed(value, DIMS, DTYPE)
                if of.kind == DTYPE:
                    return Typed(self.array(of.node, self.typed(index, NUMBER, DIMS)), ARRAY)
                return Typed(ast.Subscript(of.node, self.typed(index, NUMBER).node), NUMBER)
            case ast.Tuple(elts=parts):
                return Typed(ast.Tuple([self._part(part) for part in parts], ast.Load()), DIMS)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Typed(ast.UnaryOp(node.op, self.typed(operand, NUMBER).node), NUMBER)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.condition(operand, ast.Is())
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
                return Typed(ast.BinOp(self.typed(left, NUMBER).node, op, self.typed(right, NUMBER).node), NUMBER)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARISONS):
                first = self.typed(left, NUMBER, DTYPE, DIMS)
                second = self.typed(right, *[first.kind] * (first.kind != ANY))
                return Typed(ast.Compare(first.node, [op], [second.node]), FLAG)
            case ast.BoolOp(op=op, values=values):
                return _joined(op, list(map(self.condition, values)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._chosen(test, body, self.typed(orelse))
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._called(function, arguments)
        raise TermError(f"'{ast.unparse(node)}' is no part of the language; see spec/README.md")

    def _part(self, node: ast.expr) -> ast.expr:
        """A size in dims, or several of them."""
        if isinstance(node, ast.Starred):
            return ast.Starred(self.typed(node.value, DIMS).node)
        return self.typed(node, NUMBER).node

    def _attribute(self, value: Typed, node: ast.Attribute, attribute: str) -> Typed:
        if value.kind == ANY:
            return Typed(ast.Attribute(value.node, attribute), ANY)
        known = self.attributes.get(value.kind, {})
        if attribute not in known:
            is_optional = value.kind.endswith(OPTIONAL)
            fix = did_you_mean(attribute, known, "test it, as in 'x.count if x else 0'" * is_optional)
            raise TermError(f"'{ast.unparse(node.value)}' is {value.kind}, which has no '{attribute}'{fix}")
        text, kind = known[attribute]
        return Typed(substituted(parsed(text), {"it": value.node}), kind)

    def _chosen(self, test: ast.expr, body: ast.expr, other: Typed) -> Typed:
        condition, inner = self.condition(test), self
        if condition.kind == NULL:
            return other
        if isinstance(condition.node, ast.Constant):
            return self.typed(body) if condition.node.value else other
        if isinstance(test, ast.Name) and self.names[test.id].kind == OPERAND + OPTIONAL:
            inner = replace(self, names={**self.names, test.id: Typed(self.names[test.id].node, OPERAND)})
        value = inner.typed(body, *([ARRAY] if other.kind == NULL else [] if other.kind == ANY else [other.kind]))
        return Typed(ast.IfExp(condition.node, value.node, other.node), value.kind + OPTIONAL * (other.kind == NULL))

    def _called(self, function: ast.expr, arguments: Sequence[ast.expr]) -> Typed:
        match function:
            case ast.Name(id=name) if name == DYNAMIC and self.home is None and len(arguments) == 1:
                return Typed(call(f"{BUILDER}.count", self.typed(arguments[0], NUMBER).node), NUMBER)
            case ast.Name(id=name) if name in _FUNCTIONS:
                called, kind = _FUNCTIONS[name]
                each = self._part if kind == NUMBER else lambda node: self.typed(node, kind).node
                return Typed(call(called, *map(each, arguments)), NUMBER)
            case ast.Name(id=name) if self.home is not None:
                return Typed(self._call_of(self.home, name, arguments, f"{self.home}.{name}"), DIMS)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                node, signature = self._call_of(module, name, arguments), self.signature_of(module, name)
                return Typed(node, ANY if signature is None else argument_kind(signature.returns or ""))
        name = ast.unparse(function)
        raise TermError(f"unknown function '{name}'{did_you_mean(name, _FUNCTIONS, 'write module.function')}")

    def _call_of(self, module: str, name: str, arguments: Sequence[ast.expr], called: str | None = None) -> ast.expr:
        flaw = self.flaw_of_call(module, name, len(arguments))
        if flaw is not None:
            raise TermError(flaw)
        self.calls.add((module, name))
        signature = self.signature_of(module, name)
        builder = [parsed(BUILDER)] if signature is not None and appends_steps(signature) else []
        nodes = (self.typed(each).node for each in arguments)
        return call(called or f"{alias_of(module)}.{name}", *builder, *nodes)


def _joined(op: ast.boolop, values: Sequence[Typed]) -> Typed:
    """Conditions together; `or` leaves out what is null."""
    there = [value for value in values if value.kind != NULL]
    if not there or (isinstance(op, ast.And) and len(there) < len(values)):
        return Typed(_NONE, NULL)
    return there[0] if len(there) == 1 else Typed(ast.BoolOp(op, [value.node for value in there]), FLAG)


def alias_of(module: str) -> str:
    """Return the name of a module of functions in emitted ops, which have the names of methods themselves."""
    return f"{module}_ops"


def appends_steps(signature: Signature) -> bool:
    """Whether a function gets the builder of a program."""
    return tuple(signature.parameters[:1]) == (BUILDER,)


def call(name: str, *arguments: ast.expr) -> ast.expr:
    """A call of a function in Python."""
    return ast.Call(parsed(name), list(arguments), [])


# Nothing changes a tree, and most launches have the same names.
@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """The syntax tree of Python that opgen writes itself."""
    return ast.parse(text, mode="eval").body


def argument_kind(type_text: str) -> str:
    """Return the kind of an argument of a type in expressions."""
    kind = _KINDS.get(type_text.removesuffix(OPTIONAL_TYPE), DIMS if type_text.startswith("tuple[int") else ANY)
    return kind + OPTIONAL if is_optional(type_text) and kind == OPERAND else kind


def named_dtypes(names: Iterable[str]) -> dict[str, Typed]:
    """The names that all expressions may have: those of dtypes, and null."""
    # What is wrong with a name is noted of its dtype.
    dtypes = {name: Typed(ast.Attribute(ast.Name("DType"), name.upper()), DTYPE) for name in names}
    return {**dtypes, "null": Typed(_NONE, NULL)}
