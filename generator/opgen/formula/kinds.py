"""The kinds of formulas: truth values, integers, floats and complex numbers."""

from collections.abc import Mapping

from opgen.aliases import constant, last_part
from opgen.expression import parse_expression
from opgen.formula.nodes import IMAGINARY, INCOMING, LITERALS, FormulaError, Kind, Name, Node, Number
from opgen.formula.parsing import suggestion
from opgen.formula.primitives import Primitives
from opgen.formula.printing import text_of
from opgen.problem import did_you_mean
from opgen.rewriting import rewritten


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
            if text == IMAGINARY:
                if kinds.get(INCOMING) != "complex":
                    raise FormulaError(f"'{text}' can stand in 'complex_gradient' alone", offset)
                return "complex"
            raise FormulaError(f"unknown name '{text}'{_meant(text, kinds, primitives)}", offset)
    primitive = primitives.get(node.primitive)
    if primitive is None:
        default = f"known are {', '.join(primitives)}; another one is an entry of spec/primitives.yaml"
        fix = rewritten(parse_expression(text_of(node)))
        hint = did_you_mean(node.primitive, primitives, default) if fix is None else f"; {suggestion(fix, default)}"
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
