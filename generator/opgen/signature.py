"""Method signatures as the spec writes them: `name(parameter: type, ...) -> type`."""

import ast
from dataclasses import dataclass
from functools import cached_property

from opgen.expression import ExpressionError, parse_expression, parse_statements

OPTIONAL = " | None"
"""How the type of an argument ends that may be None."""

_SIGNATURE_FORM = "'name(parameter: type, ...) -> type'"


def is_optional(type_text: str) -> bool:
    """Whether an argument of a type may be None."""
    return type_text.endswith(OPTIONAL)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method and the Python type of its argument."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class Signature:
    """A method's name, parameters and result; `str` gives back the text that it was parsed from."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))}) -> {self.returns}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    def type_of(self, name: str) -> str:
        """The type of the argument `name`; none where there is no such argument, as for `self`."""
        return next((parameter.type for parameter in self.parameters if parameter.name == name), "")

    @staticmethod
    def parse(text: str) -> "Signature":
        """Parse `text`; ValueError says what is wrong with it."""
        try:
            function = parse_statements(f"def {text}: pass").body[0]
        except ExpressionError as error:
            raise ValueError(f"'{text}' is not a signature ({error}); write {_SIGNATURE_FORM}") from None
        if not isinstance(function, ast.FunctionDef) or function.returns is None:
            raise ValueError(f"'{text}' is not a signature; write {_SIGNATURE_FORM}")
        parameters = []
        required = len(function.args.args) - len(function.args.defaults)
        defaults = ["", *(f" = {ast.unparse(value)}" for value in function.args.defaults)]
        for index, argument in enumerate(function.args.args):
            if argument.annotation is None:
                raise ValueError(
                    f"parameter '{argument.arg}' of '{function.name}' lacks its type; write {_SIGNATURE_FORM}"
                )
            default = defaults[max(index - required + 1, 0)]
            parameters.append(Parameter(argument.arg, f"{ast.unparse(argument.annotation)}{default}"))
        signature = Signature(function.name, tuple(parameters), ast.unparse(function.returns))
        # What the parse drops (stars, comments) or rewrites would be lost without a word.
        if str(signature) != text:
            raise ValueError(f"signature '{text}' would be emitted as '{signature}'; write it so")
        return signature


def _is_spread(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Starred)


@dataclass(frozen=True)
class Call:
    """A call of a check as the spec writes it: `name(argument, ...)`."""

    name: str
    arguments: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> "Call":
        """Parse `text`; ValueError says what is wrong with it."""
        try:
            expression = parse_expression(text)
        except ExpressionError as error:
            raise ValueError(f"'{text}' is not a call ({error}); write 'name(argument, ...)'") from None
        match expression:
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if not any(map(_is_spread, arguments)):
                return Call(name, tuple(map(ast.unparse, arguments)))
        raise ValueError(f"'{text}' is not a call; write 'name(argument, ...)'")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables that the arguments read."""
        trees = (ast.walk(ast.parse(argument, mode="eval")) for argument in self.arguments)
        return tuple(node.id for tree in trees for node in tree if isinstance(node, ast.Name))
