"""Example calls of storage methods: those that are written, those that follow from the signature, and their checks."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from opgen.model.examples import Example, Literal
from opgen.model.expressions import Expression
from opgen.model.methods import Method, Operand
from opgen.model.spec import Spec
from opgen.problem import Problems
from opgen.signature import OPTIONAL, is_optional

SELF: Final = "self"
LENGTHS: Final = (4, 1337)
"""Those of vectors for methods without examples: a few elements, and more than a block of threads has."""
ROWS: Final = ((3, 4), (37, 300))
"""The shapes of `self` for ops along a dim, which is the last one."""
VECTOR: Final = LENGTHS[:1]
"""The shape of `self` where an example has none."""
SHAPED: Final = ("Array", "Shape")
"""The types of parameters whose examples are shapes."""
_SEVERAL: Final = "tuple[Storage, ...]"
_DIMS: Final = "tuple[int, ...]"
_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "complex": (int, float),
    "int | float": (int, float),
    "str": (str,),
    "GgmlDType": (str,),
}
_TUPLE: Final = re.compile(r"tuple\[(int|str)(?:, int)*(?:, \.\.\.)?\]")
# They follow from the operands, from the dtype that is called for, or are alike in every call.
_FOLLOWING: Final = ("Layout", "tuple[Layout, ...]", "DType", "Group")
_OP: Final = re.compile(r"\w*Op\d?")
# The classes of convolutions' parameters.
_PARAMETERS: Final = "Params"


def examples_of(method: Method) -> Sequence[Example]:
    """The examples of a method, the smallest first: of one that has none written, calls of vectors."""
    if method.examples:
        return method.examples
    shaped = [each.name for each in method.signature.parameters if each.type in SHAPED]
    owner = SELF if method.operands else next(iter(shaped), None)
    if owner is None:
        return [Example.of({}, method.location)]
    needed = {name: _type_of(method, name) for name in (_needed(method) if method.functor is not None else ())}
    is_along_dim = "int" in needed.values()
    defaults: Mapping[str, Literal] = {"bool": False, "int": 1, _DIMS: (0,)}
    values = {name: defaults.get(type_text, 1.0) for name, type_text in needed.items()}
    shapes = ROWS if is_along_dim else [(length,) for length in LENGTHS]
    smallest, largest = (Example.of({owner: shape, **values}, method.location) for shape in shapes)
    # Along another dim than the last one too, and with each switch on.
    others = {name: 0 for name, type_text in needed.items() if type_text == "int"}
    changes = [others] * is_along_dim + [{name: True} for name, type_text in needed.items() if type_text == "bool"]
    return [smallest, *(Example.of({**smallest.arguments, **each}, method.location) for each in changes), largest]


def _operands(method: Method) -> list[str]:
    return [operand.name for operand in method.operands]


def _type_of(method: Method, name: str) -> str:
    return method.signature.type_of(name).removesuffix(OPTIONAL)


def _needed(method: Method) -> list[str]:
    """The parameters that an example must have, since they follow from nothing."""
    operands = _operands(method)

    def follows(name: str, type_text: str) -> bool:
        if type_text in (*_FOLLOWING, *SHAPED) or is_optional(type_text) or _OP.fullmatch(type_text):
            return True
        return name in operands and type_text != _SEVERAL

    return [each.name for each in method.signature.parameters if not follows(each.name, each.type)]


def check_examples(spec: Spec, method: Method, problems: Problems) -> None:
    """Note examples that do not match the signature of their method, and that one needs some."""
    for operand in method.operands:
        if operand.values is not None and operand.values.bound is not None:
            _check_bound(method, operand, operand.values.bound, problems)
    if not method.examples and method.functor is None and (needed := _needed(method)):
        listed = ", ".join(f"{name}: .." for name in needed)
        message = f"method '{method.name}' has no example, but parameters; write 'example: [{{{listed}}}]'"
        problems.note(method.location, message)
    # Those of functors are written nowhere.
    for example in method.examples if method.functor is None else ():
        if example.is_read:
            _check(spec, method, example, problems)


def _check_bound(method: Method, operand: Operand, bound: Expression, problems: Problems) -> None:
    known = [*method.signature.arguments]
    for name in bound.names:
        if name not in known:
            message = f"'values' of operand '{operand.name}' of '{method.name}' reads '{name}', which is no parameter"
            problems.unknown(operand.location, message, name, known)


def _check(spec: Spec, method: Method, example: Example, problems: Problems) -> None:
    operands = _operands(method)
    what = f"an example of method '{method.name}'"
    known = [*operands, *(name for name in method.signature.arguments if name not in operands)]
    for name in _needed(method):
        if name not in example.arguments:
            problems.note(example.location, f"{what} lacks '{name}'; write its value")
    for name, value in example.arguments.items():
        wanted = _type_of(method, name)
        location = example.locations[name]
        if name not in known:
            problems.unknown(location, f"{what} has '{name}', which is no parameter", name, known)
        elif wanted in _FOLLOWING or _OP.fullmatch(wanted):
            problems.note(location, f"{what} has '{name}', which follows from the call; remove it")
        elif (form := _form(spec, wanted, value, is_shape=name in operands or wanted in SHAPED)) is not None:
            problems.note(location, f"'{name}' of {what} must be {form}")


def _form(spec: Spec, type_text: str, value: Literal, *, is_shape: bool) -> str | None:
    """Return the form that a parameter of a type requires, if the value lacks it."""
    if type_text == _SEVERAL:
        is_one = isinstance(value, tuple) and all(_is_shape(each) for each in value)
        return None if is_one else "a list of shapes"
    if is_shape:
        return None if _is_shape(value) else "a shape, which is a list of sizes"
    if isinstance(value, Mapping) and type_text == "str":
        # A text for each set of dtypes.
        is_one = all(key in (*spec.groups, *spec.dtype_names) and isinstance(each, str) for key, each in value.items())
        return None if is_one else "text, or a text for each set of dtypes"
    if type_text in _SCALARS:
        kinds = _SCALARS[type_text]
        is_one = isinstance(value, kinds) and isinstance(value, bool) == (bool in kinds)
        is_finite = not isinstance(value, float) or math.isfinite(value)
        return None if is_one and is_finite else f"of type {type_text}"
    if type_text.startswith(_PARAMETERS):
        is_one = isinstance(value, Mapping) and all(
            type(each) in (int, bool) or _is_shape(each) for each in value.values()
        )
        return None if is_one else "a mapping to integers, lists of them, true and false"
    if type_text == "Sequence[complex]":
        return None if isinstance(value, tuple) else "a list of numbers"
    match = _TUPLE.fullmatch(type_text)
    kind = str if match is not None and match[1] == "str" else int
    is_one = isinstance(value, tuple) and all(type(each) is kind for each in value)
    is_long = isinstance(value, tuple) and ("..." in type_text or len(value) == type_text.count("int"))
    return None if is_one and is_long else f"of type {type_text}"


def _is_shape(value: Literal) -> bool:
    return isinstance(value, tuple) and all(type(size) is int and size >= 0 for size in value)
