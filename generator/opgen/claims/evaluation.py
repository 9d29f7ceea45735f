"""Compiling formulas to functions of Python's numbers.

Floats are computed in f64, whichever dtype they have, and rounded at the end; integers wrap in each step. A primitive
computes its `formula`, or its expression over arrays or in kernels, or NumPy's function of its name. One that has none
of these is unknown here, and left to the tests.
"""

import ast
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any, Literal, TypeAlias

from opgen.claims.formats import Integers
from opgen.claims.scalars import OF_FLOATS, OF_INTEGERS, QUOTIENT, Function
from opgen.formula.nodes import (
    ADD,
    DIVIDE,
    LITERALS,
    MULTIPLY,
    NEGATE,
    OPERATORS,
    SUBTRACT,
    WHERE,
    Call,
    Name,
    Node,
    Number,
)
from opgen.formula.parsing import parse
from opgen.formula.primitives import Language, Primitive, Primitives
from opgen.formula.simplification import shared

Kind: TypeAlias = Literal["integer", "float"]
_Called: TypeAlias = Callable[[str], Function]
LANGUAGES: Sequence[Language] = ("array", "kernel")
_TEXTS = {name: name.replace("x", "{0}").replace("y", "{1}") for name in OPERATORS} | {
    WHERE: "{1} if {0} else {2}",
    DIVIDE: "_divide({0}, {1})",
}
_WRAPPING = frozenset((ADD, SUBTRACT, MULTIPLY, NEGATE, DIVIDE))


class Unknown(Exception):
    """A formula names something that opgen cannot compute."""


@dataclass
class Evaluator:
    """Compiles formulas, for floats or for the integers of one dtype."""

    primitives: Primitives
    integers: Integers | None = None
    _known: dict[str, Function | None] = field(default_factory=dict)
    _compiled_formulas: dict[tuple[Node, tuple[str, ...]], Function] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The kind of its numbers."""
        return "float" if self.integers is None else "integer"

    def function(self, node: Node, names: Sequence[str], extra: Mapping[str, Function] | None = None) -> Function:
        """Compile a formula to a function of `names`. It may call the functions in `extra` too. Raises Unknown."""
        if extra:
            return self._compile(node, names, lambda name: extra[name] if name in extra else self.of(name))
        key = node, tuple(names)
        if key not in self._compiled_formulas:
            self._compiled_formulas[key] = self._compile(node, names, self.of)
        return self._compiled_formulas[key]

    def of(self, name: str) -> Function:
        """Return the function that a primitive computes. Raises Unknown."""
        if name not in self._known:
            self._known[name] = None  # while its own formula is compiled
            self._known[name] = self._found(name)
        function = self._known[name]
        if function is None:
            raise Unknown(name)
        return function

    def implementations(self, primitive: Primitive) -> Iterator[tuple[str, Function]]:
        """Yield the function of each key that says what a primitive computes, as far as opgen can compute it."""
        if primitive.name in _TEXTS:
            own = Call(primitive.name, tuple(map(Name, primitive.parameters)))
            yield "", self.function(own, primitive.parameters)
        if primitive.formula is not None:
            with contextlib.suppress(Unknown):
                yield "formula", self.function(primitive.formula.node, primitive.parameters)
        for language in LANGUAGES:
            with contextlib.suppress(Unknown):
                yield language, self._implemented(primitive, language)

    def _found(self, name: str) -> Function | None:
        primitive = self.primitives.get(name)
        if primitive is None or self.kind not in primitive.kinds:
            return None
        for _, function in self.implementations(primitive):
            return function
        return self._wrapping(self._table("array").get(name))

    def _table(self, language: Language) -> Mapping[str, Function]:
        return OF_INTEGERS if self.integers is not None else OF_FLOATS[language]

    def _wrapping(self, function: Function | None) -> Function | None:
        """Wrap the results of a function of integers."""
        if function is None or self.integers is None:
            return function
        wrap = self.integers.wrap
        return lambda *operands: wrap(function(*operands))

    def _implemented(self, primitive: Primitive, language: Language) -> Function:
        """Compile the expression of a language to a function of the primitive's parameters."""

        def called(name: str) -> Function:
            module, _, own = name.rpartition(".")
            # Functions of the runtime and of kernels have the names of the primitives that they compute.
            is_of_runtime = module == "numerics" or language == "kernel"
            function = self._wrapping(self._table(language).get(own)) if module != "numerics" else None
            if function is None and is_of_runtime and own != primitive.name:
                function = self.of(own)
            if function is None:
                raise Unknown(name)
            return function

        implementation = primitive.implementation(language)
        expression = implementation.float if self.integers is None else implementation.integer
        return self._compile(node_of(ast.parse(expression, mode="eval").body), primitive.parameters, called)

    def _compile(self, node: Node, names: Sequence[str], called: _Called) -> Function:
        parts, result = shared(node)
        scope: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "_divide": QUOTIENT[self.kind]}
        if self.integers is not None:
            scope["_wrap"] = self.integers.wrap
        local = {name: f"v{position}" for position, name in enumerate((*names, *parts))}
        lines = [f"{local[name]} = {self._text(part, local, scope, called)}" for name, part in parts.items()]
        lines.append(f"return {self._text(result, local, scope, called)}")
        arguments = ", ".join(local[name] for name in names)
        exec(_code("\n  ".join((f"def computed({arguments}):", *lines))), scope)
        function: Function = scope["computed"]
        return function

    def _text(self, node: Node, local: Mapping[str, str], scope: dict[str, Any], called: _Called) -> str:
        """Return a formula as Python text, and put the functions that it calls into `scope`."""
        match node:
            case Number(value=value):
                return f"({_as_float(value)!r})" if self.integers is None else f"({value!r})"
            case Name(text=text):
                if text not in local and text not in LITERALS:
                    raise Unknown(text)
                return local.get(text, text)
        inner = [self._text(argument, local, scope, called) for argument in node.arguments]
        if node.primitive not in _TEXTS:
            name = f"f{len(scope)}"
            scope[name] = called(node.primitive)
            return f"{name}({', '.join(inner)})"
        text = _TEXTS[node.primitive].format(*inner)
        return f"_wrap({text})" if self.integers is not None and node.primitive in _WRAPPING else f"({text})"


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


@cache
def _code(source: str) -> CodeType:
    """Compile a function once: that of the integers of all dtypes has the same text."""
    return compile(source, "<formula>", "exec")


def node_of(tree: ast.expr) -> Node:
    """Convert an expression of an implementation to a formula. Raises Unknown for syntax that formulas lack."""
    x, y = ast.Name("x"), ast.Name("y")
    match tree:
        case ast.IfExp(test=test, body=body, orelse=other):
            return Call(WHERE, (node_of(test), node_of(body), node_of(other)))
        case ast.Call(func=function, args=arguments, keywords=[]):
            return Call(ast.unparse(function), tuple(map(node_of, arguments)))
        case ast.BinOp(left=left, op=operator, right=right):
            return _operated(ast.BinOp(x, operator, y), left, right)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _operated(ast.Compare(x, [comparison], [y]), left, right)
        case ast.UnaryOp(op=sign, operand=operand):
            return _operated(ast.UnaryOp(sign, x), operand)
        case ast.Name() | ast.Constant(value=int() | float()):
            return parse(ast.unparse(tree))
    raise Unknown(ast.unparse(tree))


def _operated(pattern: ast.expr, *operands: ast.expr) -> Node:
    operator = ast.unparse(pattern)
    if operator not in OPERATORS:
        raise Unknown(operator)
    return Call(operator, tuple(map(node_of, operands)))
