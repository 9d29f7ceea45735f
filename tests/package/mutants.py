"""Code of Python with one thing changed."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# What is put instead of an operator, and of a method.
OPERATORS: dict[type[ast.AST], Sequence[type[ast.AST]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
}
METHODS = {"triu": "tril", "tril": "triu", "eq": "ne", "ne": "eq", "sum": "mean", "mean": "sum", "softmax": "sigmoid"}
METHODS |= {"exp": "expm1", "sqr": "abs", "rsqrt": "recip", "max": "min", "cumsum": "cumprod", "cumprod": "cumsum"}
# What has more digits differs by a rounding, and a list is as good as a tuple.
SAME = ("widened", "list", "tuple")
# What takes its arguments in any order.
SYMMETRIC = ("transpose", "max")
# Whether what is too long is told of, and the only device of these tests.
ALIKE = ("strict", "device")
MODULES = ("collectives", "convolutions", "decompositions", "fourier", "math", "normalization", "np", "recurrent")
MODULES += ("row_formulas", "rules", "scans", "walk")
# Operands in another order are another result.
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.MatMult)


@dataclass(frozen=True)
class Mutant:
    """A tree in which one node is another one."""

    whole: ast.AST
    around: ast.AST
    """What shows where the node is: itself, or what a name or a number is an operand of."""
    node: ast.AST
    other: ast.AST

    @property
    def tree(self) -> ast.AST:
        """Return the mutated tree."""
        return ast.fix_missing_locations(self._changed(self.whole))

    def _changed(self, part: ast.AST) -> ast.AST:
        # A copy, but for the node.
        return copy.deepcopy(part, {id(self.node): self.other})

    def __str__(self) -> str:
        before, after = (" ".join(ast.unparse(it).split()) for it in (self.around, self._changed(self.around)))
        return f"{before} -> {after}"


def mutants(tree: ast.AST) -> Iterator[Mutant]:
    """A tree with one thing changed, everywhere where it has it."""
    for node, around in parts(tree, tree):
        for other in others(node):
            yield Mutant(tree, around, node, other)


def parts(node: ast.AST, around: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What of a tree runs, but for what is told in errors; each with what shows where it is."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert) or getattr(node, "arg", None) in ALIKE:
        return
    is_small = isinstance(node, ast.Constant | ast.Name | ast.UnaryOp | ast.keyword)
    yield node, around if is_small else node
    for name, value in ast.iter_fields(node):
        # What a function is told of types does not run.
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for it in value if isinstance(value, list) else [value]:
            if isinstance(it, ast.AST):
                yield from parts(it, around if is_small else node)


def others(node: ast.AST) -> Iterator[ast.AST]:
    """Return the replacement of a part."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 1.25 if value else 1.0)
        case ast.Name(id="dim", ctx=ast.Load()):
            yield ast.BinOp(node, ast.Sub(), ast.Constant(1))
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right):
            yield from (ast.BinOp(left, other(), right) for other in OPERATORS.get(type(op), ()))  # type: ignore[arg-type]
            yield from (left, right)
            if isinstance(op, ORDERED):
                yield ast.BinOp(right, op, left)
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            yield from (ast.Compare(left, [other()], comparators) for other in OPERATORS[type(op)])  # type: ignore[list-item]
        case ast.BoolOp(op=op, values=values):
            yield from (ast.BoolOp(other(), values) for other in OPERATORS[type(op)])  # type: ignore[arg-type]
            yield from (ast.BoolOp(op, fewer) if fewer[1:] else fewer[0] for fewer in without_one(values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Attribute(value=value, attr="T" | "mT", ctx=ast.Load()):
            yield value
        case ast.Subscript(value=value, slice=ast.Slice(), ctx=ast.Load()):
            yield value
        case ast.Tuple(elts=elements, ctx=ast.Load()) | ast.List(elts=elements, ctx=ast.Load()):
            yield from (type(node)(each, ast.Load()) for each in (*swapped(elements), *without_one(elements)))
        case ast.Call():
            yield from other_calls(node)
        case ast.If(test=test, body=body, orelse=orelse) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if names(value, name) and not is_same(value):
            yield ast.Pass()


def other_calls(call: ast.Call) -> Iterator[ast.expr]:
    """A call of another method, with other arguments, and what it is called of in its place."""
    arguments, keywords = call.args, call.keywords
    name = name_of(call.func)
    if name not in SYMMETRIC:
        yield from (ast.Call(call.func, each, keywords) for each in swapped(arguments))
    if arguments and not isinstance(arguments[-1], ast.Starred):
        yield ast.Call(call.func, arguments[:-1], keywords)
    yield from (
        ast.Call(call.func, arguments, [*keywords[:index], *keywords[index + 1 :]])
        for index, keyword in enumerate(keywords)
        if keyword.arg not in ALIKE
    )
    # The gradient of the result is a tensor as well.
    for index, argument in enumerate(arguments):
        if isinstance(argument, ast.Name) and argument.id != "g":
            others = [*arguments[:index], ast.Name("g", ast.Load()), *arguments[index + 1 :]]
            yield ast.Call(call.func, others, keywords)
    match call.func:
        case ast.Attribute(value=value, attr=method) if not names_a_module_or_class(value):
            yield value
            if method in METHODS:
                yield ast.Call(ast.Attribute(value, METHODS[method], ast.Load()), arguments, keywords)
        case _ if arguments and not isinstance(arguments[0], ast.Starred) and name not in SAME:
            yield arguments[0]


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_same(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) in SAME


def names_a_module_or_class(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and (node.id in MODULES or node.id[0].isupper())


def names(node: ast.AST, name: str) -> bool:
    """Whether an expression has a variable in it."""
    return any(isinstance(it, ast.Name) and it.id == name for it in ast.walk(node))


def swapped(elements: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    """Elements of which two neighbours have changed places."""
    for index, (one, other) in enumerate(itertools.pairwise(elements)):
        # Texts tell of errors.
        if ast.dump(one) != ast.dump(other) and not (is_text(one) and is_text(other)):
            yield [*elements[:index], other, one, *elements[index + 2 :]]


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def without_one(elements: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    for index in range(len(elements)):
        yield [*elements[:index], *elements[index + 1 :]]
