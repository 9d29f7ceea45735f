"""What storage methods say of their gradients: the key `gradient`, read and checked."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from opgen.decoder import Cursor, Mistakes, members
from opgen.expression import ExpressionError, parse_expression
from opgen.formula import INCOMING, RESULT
from opgen.notes import Mark, Name, names_of
from opgen.problem import Location, Problem, did_you_mean
from opgen.signature import is_optional

if TYPE_CHECKING:
    from opgen.model import Method, Operand, Spec
    from opgen.sources import Sources

# The functions that expressions may call, and what expressions call these.
RULES = PurePosixPath("runtime/gradient/rules.py")
_RULES = "rules"
# What a method makes besides its result, which has no gradients.
OTHERS = "others"
# What knows whether a tensor still shows the storage of which the method is called.
HANDLE = "handle"
# What expressions may name besides these, operands and other arguments: how gradients and layouts are made, and the
# node that knows which are asked for.
_KNOWN = (_RULES, "node", "BinaryOp", "MethodOp", "Layout", "list", "len", "range")


@dataclass(frozen=True)
class Expression:
    """An expression of Python."""

    text: str
    location: Location = field(compare=False)
    FORM: ClassVar = Annotated[str, names_of("rule", token=r"(?<=rules\.)\w+")]
    OVER: ClassVar = f"{INCOMING} and the operands"

    @classmethod
    def decode(cls, cursor: Cursor) -> Self:
        """The text of one."""
        text: str = cursor.decode(str)
        try:
            parse_expression(text or "0")
        except ExpressionError as error:
            cursor.no_value(f"'{text}' is no expression of Python ({error}); write one over {cls.OVER}")
            text = "0"
        return cls(text or "0", cursor.value.location)

    @cached_property
    def _nodes(self) -> Sequence[ast.AST]:
        return list(ast.walk(ast.parse(self.text, mode="eval")))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What it names, each once."""
        return tuple(dict.fromkeys(node.id for node in self._nodes if isinstance(node, ast.Name)))

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The functions of the rules that it calls."""
        found = []
        for node in self._nodes:
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == _RULES:
                    found.append(name)
        return tuple(found)


@dataclass(frozen=True)
class Gradient:
    """The gradients of a storage method."""

    all: Annotated[Expression | None, "The expression of the gradients of all operands together, in their order."]
    instead: Annotated[
        Mapping[Name, Expression],
        Mark.OPTIONAL,
        "By operand, the call that is recorded in place of this one if the operand is given.",
    ]
    none: Annotated[str | None, "Why the method has no gradients."]
    missing: Annotated[str | None, "Why the method cannot be recorded."]
    functions: Annotated[
        Mapping[Name, Expression],
        Mark.OTHERS,
        "An operand, and the expression of its gradient over `g`, which is the gradient of the result, `result`, the "
        "arguments, and the functions of runtime/gradient/rules.py as `rules`. `node` is the recorded call, and "
        "`handle` tells whether a tensor still shows the first operand.",
    ]
    location: Location = field(compare=False)

    def mistakes(self, what: str) -> Mistakes:
        """Note that nothing is said, or more than one thing."""
        said = (self.none, self.missing, self.all or self.functions or self.instead or None)
        if sum(item is not None for item in said) != 1 or (self.all and self.functions):
            forms = "an expression for each operand, one for 'all', or why there are 'none' or they are 'missing'"
            yield "", f"{what} must have one of these: {forms}"

    def expressions(self) -> Iterator[tuple[str, Expression]]:
        """All expressions, each with its key."""
        yield from self.functions.items()
        yield from [] if self.all is None else [("all", self.all)]
        yield from self.instead.items()


def differentiable(spec: "Spec", method: "Method") -> "tuple[Operand, ...]":
    """The operands of a method that may have gradients: those of floats, in the order of the signature."""
    floats = {*spec.groups["float"]}
    found: list[Operand] = []
    if spec.package.without_gradients:
        return ()
    for operand in method.operands:
        names = method.operands[0].dtypes if operand.dtypes.texts == ("same",) else operand.dtypes
        if not operand.is_of_blocks and (names.texts == ("op",) or floats & {*spec.resolve(names)}):
            found.append(operand)
    return tuple(in_order(method, found))


def in_order(method: "Method", operands: "Iterable[Operand]") -> "list[Operand]":
    """Operands as the signature has them, the storage itself first."""
    order = ["self", *method.signature.arguments]
    return sorted(operands, key=lambda operand: order.index(operand.name))


def writes(method: "Method") -> bool:
    """Whether a method writes to a storage of elements and makes none."""
    return method.signature.returns == "None" and not method.holds_blocks


def makes_elements(method: "Method") -> bool:
    """Whether a method makes a storage of elements, or writes to one."""
    return method.signature.returns == "None" or method.signature.returns.startswith(("Storage", "tuple[Storage"))


def is_recorded(spec: "Spec", method: "Method") -> bool:
    """Whether the class of recorded storages has a method of its own for calls of a method."""
    return method.body is None and makes_elements(method) and bool(differentiable(spec, method))


def check_gradients(spec: "Spec", sources: "Sources", problems: list[Problem]) -> None:
    """Note what methods do not say of their gradients, and what is unknown in what they say."""
    functions = sources.functions(RULES) if RULES in sources.paths else None
    for method in spec.storage_methods():
        if method.is_broken or method.body is not None:
            continue
        gradient, operands = method.gradient, differentiable(spec, method)
        # Ops say what the gradients of one result are.
        is_row = method.functor is not None and gradient is not None
        is_own = method.kind is None or method.signature.returns.startswith("tuple") or is_row
        takes = is_own and makes_elements(method) and bool(operands)
        if gradient is None and takes:
            message = f"method '{method.name}' says nothing of gradients; write 'gradient' with an expression for"
            names = ", ".join(operand.name for operand in operands)
            problems.append(Problem(method.location, f"{message} {names}, or '{{none: reason}}'"))
        elif method.functor is not None:
            pass  # it follows from the op
        elif gradient is not None and not takes and all(map(spec.resolve, (it.dtypes for it in method.operands))):
            reason = "its ops say them" if method.kind is not None else "it makes nothing of floats"
            message = f"'gradient' of method '{method.name}' says what it cannot have: {reason}; remove it"
            problems.append(Problem(gradient.location, message))
        elif gradient is not None and takes:
            problems += _mistakes(method, gradient, [operand.name for operand in operands], functions)


def _mistakes(
    method: "Method", gradient: Gradient, operands: list[str], functions: Mapping[str, object] | None
) -> Iterator[Problem]:
    what = f"'gradient' of method '{method.name}'"
    keys = sorted(member.key for member in members(Gradient, "").values())
    for name, expression in gradient.functions.items():
        if name not in operands:
            message = f"{what} has '{name}', which is no operand of floats"
            yield Problem(expression.location, message + did_you_mean(name, [*operands, *keys]))
    for name, expression in gradient.instead.items():
        if name not in operands:
            message = f"'instead' of {what} has '{name}', which is no operand of floats"
            yield Problem(expression.location, message + did_you_mean(name, operands))
    always = any(not is_optional(method.signature.type_of(name)) for name in gradient.instead)
    for name in operands:
        given = name in gradient.functions or name in gradient.instead
        if gradient.functions and not always and not given:
            yield Problem(gradient.location, f"{what} lacks operand '{name}'; write an expression for it")
    signature = method.signature
    # Of several operands there is no one tensor.
    arguments = ["self", *(name for name in signature.arguments if "Storage, ..." not in signature.type_of(name))]
    for key, expression in gradient.expressions():
        known = [*arguments, *_KNOWN, *(() if key in gradient.instead else (INCOMING, RESULT, HANDLE))]
        if signature.returns == "tuple[Storage, ...]":
            known.append(OTHERS)
        if writes(method) and key not in gradient.instead:
            # What was there before is overwritten, and there is no other result.
            known = [name for name in known if name not in ("self", RESULT)]
        for name in expression.names:
            if name not in known:
                message = f"'{key}' of {what} names the unknown '{name}'"
                yield Problem(expression.location, message + did_you_mean(name, known))
        for name in expression.called:
            if functions is not None and name not in functions:
                message = f"'{key}' of {what} calls '{name}', which {RULES} lacks"
                yield Problem(expression.location, message + did_you_mean(name, functions))
