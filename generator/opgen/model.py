"""Stage 2: the spec as frozen classes. What one file says by itself is checked here, what holds between files later."""

import math
import re
from collections.abc import Callable as Function
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

from opgen.arrays import ArrayLibrary, LackingWord, Word
from opgen.cells import CELL_KEYS, CellFile, Lowering, Lowerings
from opgen.declarations import by_name, repetitions
from opgen.decoder import Cursor, Mistakes
from opgen.drivers import DriverTable, Operation
from opgen.dtypes import SETS, DType
from opgen.edges import Edge
from opgen.examples import Example as CallExample
from opgen.examples import Values
from opgen.formats import Format
from opgen.formula import BOTH, Formula, Node, Primitives, names, neutral_number, too_long, totalled, without_total
from opgen.formula import Call as FormulaCall
from opgen.gradients import Gradient
from opgen.kernels import Constant, FieldGroup, KernelFamily, TupleType
from opgen.libraries import CLibrary
from opgen.names import Names
from opgen.notes import (
    Entry,
    Example,
    Form,
    Key,
    Mark,
    Name,
    Of,
    Pattern,
    Place,
    Placeholders,
    Range,
    Using,
    defines,
    exactly,
    is_name,
    like,
    module_name,
    names_of,
)
from opgen.parts import Part
from opgen.problem import Location, did_you_mean, nearest
from opgen.reserved import is_reserved, no_cpp_word, not_reserved
from opgen.results import Result
from opgen.signature import Call, Signature, is_optional
from opgen.targets import Target
from opgen.toolchains import CodeObjects

if TYPE_CHECKING:
    from opgen.launch_ops import LaunchOp
    from opgen.words import Uses

# What the expressions of each kind of functors call their operands; a reduction's combine has a y too. The functors of
# such a kind may be chosen by an argument, which is of an enum.
CHOSEN_KINDS = {"unary": ("x",), "binary": ("x", "y"), "cmp": ("x", "y"), "reduce": ("x",)}
# The others name their operands themselves.
NAMED = "ternary"
# The one whose ops compute of rows, and name their operands too where they have several.
ROW = "row"
RESIDUAL = "residual"
"""What is added to the elements of ops of rows, if calls give it."""
# The gradients of those, as ops of rows.
ROW_GRADIENT = "row_gradient"
# Those that reduce the elements up to each.
SCAN = "scan"
# The one whose ops give the gradients of both operands.
JOINT_KIND = "binary_gradients"
# Those that are found: the gradients of the ops of other kinds.
GRADIENT_KINDS = {"unary_gradient": ("unary",), "binary_gradient": ("binary",), JOINT_KIND: ("binary", NAMED)}
# Those of which a package has an enum.
ENUM_KINDS = (*CHOSEN_KINDS, *GRADIENT_KINDS)
FUNCTOR_KINDS = (*CHOSEN_KINDS, NAMED, ROW, ROW_GRADIENT, SCAN, *GRADIENT_KINDS)
# The result of a functor whose dtype is an argument.
ANY_RESULT = "any"
REAL_RESULT = "real"
# Identities that are no numbers: of the dtype of the elements.
BOUNDS = ("highest", "lowest")
# The dtypes of an operand that holds weights in blocks: the formats.
BLOCKS = "blocks"
# The enum of the functors that are storage methods of their own.
METHOD_OP = "MethodOp"
# The variants of methods.
STORAGE, DEVICE = "storage", "device"
# What pip takes, as far as a package's own version and the Python that it needs go.
_FOLDER = r"[a-z]\w*"
_VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"
_PYTHON = r"(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?(, ?(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?)*"
_MODULE = re.compile(r"\w+(?:/\w+)*")
# What functors of a kind call their operands, besides the names that are reserved.
_TAKEN_NAMES = ("x", "y", "other", "other_layout")
# What formulas of rows, and methods of these, call something else.
_ROW_NAMES = ("count", "position", "dim", "gradient", "output", "residual", "layout", "y", "other", "other_layout")
# Identities of floats besides finite numbers.
_INFINITIES = ("inf", "-inf")
# As many have the functors that name them: the cells that compute them take no more.
_NAMED_OPERANDS = 3
# Kernels of rows keep all operands of a row in registers.
_MAX_ROW_OPERANDS = 4
_ROW_OPERAND = r"(?P<name>[A-Za-z_]\w*)(?P<optional>\?)?(?: (?P<form>along row|index))?"
_NAMED = Of((NAMED,))
_OF_ROWS = Of((ROW,))
_JOINING = Of((NAMED, ROW, ROW_GRADIENT, SCAN))
_ORDINAL = Placeholders(("ordinal",))


def op_class(kind: str) -> str:
    """The enum of the functors of a kind that an argument chooses: unary_gradient -> UnaryGradientOp."""
    return f"{kind.title().replace('_', '')}Op"


def sentence(text: str) -> str:
    """`text` as a sentence; the name of an operand, of one letter, keeps its case, and so does a formula."""
    word = text.partition(" ")[0].rstrip(",")
    first = text if (len(word) == 1 and word != "a") or "(" in word else f"{text[:1].upper()}{text[1:]}"
    return f"{first}."


@dataclass(frozen=True)
class BasePackage:
    """The installed package that a project stands on, and the families of kernels that it has from there."""

    CALLED: ClassVar = "the base"
    package: Annotated[Name, "The name by which Python imports it."]
    kernels: Annotated[tuple[str, ...], Mark.OPTIONAL, "The families of kernels that this package has from there."]


@dataclass(frozen=True)
class Package:
    """The package that opgen emits."""

    CALLED: ClassVar = "the package"
    name: Annotated[Name, "The name that users import."]
    version: Annotated[str, Pattern(_VERSION, "1.0.2"), "The version of the package, as pip has it."]
    summary: Annotated[str, "One line on the package, for indexes of packages."]
    python: Annotated[str, Pattern(_PYTHON, ">=3.11"), "The versions of Python that the package runs on."]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL, "What pip always installs beside the package."]
    extras: Annotated[
        Mapping[Name, tuple[str, ...]],
        Mark.OPTIONAL,
        "By the name of an extra, what pip installs for a part that not everybody uses.",
    ]
    urls: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example("Issues: https://example.org/issues"),
        "Pages of the package by their labels. Its README and its self-test send problems to the page `Issues`.",
    ]
    max_rank: Annotated[
        int,
        Range(1, 64, "the most dims of a NumPy array"),
        "The most dims that a layout may have. Kernels carry dims and strides in arrays of this length.",
    ]
    public: Annotated[
        Mapping[Annotated[str, like(_MODULE.pattern)], tuple[Annotated[str, like(_MODULE.pattern)], Location]],
        Mark.OPTIONAL,
        "Modules that users import by these names, and the module of runtime/ that holds the names of each.",
    ]
    breaking: Annotated[
        Mapping[str, Mapping[str, tuple[str, Location]]],
        Mark.OPTIONAL,
        Example("OP_REMOVED: {unary.gelu: reason}"),
        "Why the package breaks its callers, by the rule and by what breaks, as `opgen diff` says both.",
    ]
    base: Annotated[
        BasePackage | None,
        Example("package: name"),
        "The installed package whose runtime, templates, primitives and families this one has.",
    ]
    shared: Annotated[
        Mapping[Annotated[str, like(_FOLDER)], Location],
        Mark.OPTIONAL,
        "Folders of the project that the package holds, beside the runtime, for projects that stand on it.",
    ]
    without_gradients: Annotated[bool, "Whether no op and no method has a gradient, so that none need be written."]
    location: Annotated[Location, Place("name")] = field(compare=False)

    def mistakes(self, _: str) -> Mistakes:
        """Note what is no module."""
        for name, (home, place) in self.public.items():
            for text in (name, home):
                if text and not _MODULE.fullmatch(text):
                    yield place, f"'{text}' is no module; write its path, like 'files/gguf'"
        for folder, place in self.shared.items():
            if not re.fullmatch(r"[a-z]\w*", folder):
                yield place, f"'{folder}' is no folder of the project; write its name alone"


@dataclass(frozen=True)
class PublicModule:
    """A module that users import: what a module of the runtime has for them."""

    name: str  # as a path
    home: str  # below runtime/, without an ending
    doc: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Free:
    """A rule for the name of an operand or a parameter."""

    noun: str
    taken: tuple[str, ...] = _TAKEN_NAMES

    def __call__(self, cursor: Cursor, text: str) -> Iterator[str]:
        if text in self.taken or is_reserved(text):
            yield f"'{text}' cannot be {self.noun} of {cursor.owner}, the name is taken; choose another one"

    def schema(self) -> Mapping[str, object]:
        """No name that is taken."""
        return {"allOf": [{"not": like("|".join(self.taken)).schema()}, not_reserved().schema()]}


@dataclass(frozen=True)
class StatePart:
    """One number of a state."""

    name: Annotated[Name, no_cpp_word, Entry("part '{}'")]
    element: Annotated[Formula, "The formula of what an element `x` begins it with."]
    combine: Annotated[
        Formula,
        "The formula of what it is of two states `x` and `y` together, over their parts (`x.name`) and the parts of "
        "`let`.",
    ]


@dataclass(frozen=True)
class State:
    """What kernels know of some elements of a reduction, where that is several numbers."""

    name: Annotated[Name, Entry("state '{}'"), defines("state")]
    doc: Annotated[str, "What the state is."]
    let: Annotated[
        Mapping[Name, Formula], Mark.OPTIONAL, "Named parts of `combine`, each a formula over those before it."
    ]
    parts: Annotated[
        tuple[StatePart, ...], "Numbers of the compute dtype by name, all 0 where nothing has joined the state."
    ]
    result: Annotated[Formula, "The formula of what the contributions come to, over the parts."]
    unit: Annotated[
        Formula | None,
        "The formula of the number by which the elements were divided whose contributions come to `result`, if it is "
        "not 1; over the parts. The `finish` of an op multiplies by it.",
    ]
    location: Location = field(compare=False)

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All its formulas."""
        of_parts = (formula for part in self.parts for formula in (part.element, part.combine))
        return (*self.let.values(), *of_parts, *self.results)

    @property
    def results(self) -> tuple[Formula, ...]:
        """The formulas of what is known of all elements."""
        return (self.result,) if self.unit is None else (self.result, self.unit)


_IDENTITY = Annotated[int | float | str, exactly("|".join((*BOUNDS, *_INFINITIES)))]


def _identity(cursor: Cursor) -> str:
    content = cursor.value.content
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    if is_number or str(content) in (*BOUNDS, *_INFINITIES):
        return str(content)
    cursor.no_value(f"{cursor.what} must be a number, 'inf', '-inf', 'highest' or 'lowest'")
    return "0"


@dataclass(frozen=True)
class Monoid:
    """How a reduction joins what its elements contribute."""

    identity: Annotated[
        str,
        Using(_identity, _IDENTITY),
        "What changes no result when it joins in. A number, which may be `inf` or `-inf` if the op has only floats, is "
        "the result of no elements. With the `highest` or the `lowest` of the dtype, no elements have no result "
        "(EmptyTensor).",
    ]
    element: Annotated[
        Formula | None,
        "The formula of what an element `x` contributes, if that is not `x` itself. It may contain the result of "
        "another reduction of all elements, such as `mean(x)`, which array libraries find first.",
    ]
    combine: Annotated[Formula, "The formula of what two contributions `x` and `y` join to."]
    accumulate: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype in which array libraries join floats; kernels always join them in the compute dtype.",
    ]
    finish: Annotated[
        Formula | None,
        "The formula of the result, over the parameters and `x`, which is what `count` elements contribute together. "
        "Where these may be too large or too small, `x` is that of the elements divided by `unit`, which kernels have "
        "from the state, and array libraries from the largest magnitude. In a scan it is over `element` too, which is "
        "the element itself. Without the key, `x` is the result.",
    ]
    state: Annotated[
        str | None,
        names_of("state"),
        "What kernels know of some elements, if that is more than a number: one of `states`. With it kernels read each "
        "element once, where array libraries read them again.",
    ]
    row: Annotated[
        Formula | None,
        "The formula by which row formulas have the reduction, of other reductions of `x`, where contributions are "
        "joined by another formula than that of a sum, a maximum or a minimum.",
    ]
    identity_location: Annotated[Location, Place("identity")] = field(compare=False)
    state_location: Annotated[Location, Place("state")] = field(compare=False)

    def mistakes(self, what: str) -> Mistakes:
        """Note a state of which nothing would have no result."""
        if self.state is not None and self.identity in BOUNDS:
            yield "identity", f"'identity' of {what} must be a number: what its state results in of nothing"

    @property
    def number(self) -> float:
        """Its identity, where that is a number."""
        # A float would round a large integer.
        return int(self.identity) if self.identity.lstrip("-").isdecimal() else float(self.identity or 0)


@dataclass(frozen=True)
class Position:
    """A reduction whose result is where another one finds its element."""

    of: Annotated[
        str,
        Key("position"),
        names_of("op"),
        "In place of `identity`, `element` and `combine`: the result is the position at which the reduction of this "
        "name finds its element, by the word of the op's own name.",
    ]


@dataclass(frozen=True)
class Prefixes:
    """A scan whose results are those of a reduction of the elements up to each."""

    of: Annotated[
        str,
        names_of("op"),
        "In place of `identity`, `element`, `combine` and the other keys of a reduction: the op of reduce.yaml that "
        "reduces the elements up to each.",
    ]
    accumulate: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype in which the host and array libraries join floats, if it is not the reduction's: they join one "
        "after the other, so that rounding errors add up.",
    ]


def _are_as_many(cursor: Cursor, names: tuple[str, ...]) -> Iterator[str]:
    count = len(names) if len(names) > _NAMED_OPERANDS else len({*names})
    mend = "; compute it in two ops, or write a storage method with kernels of its own"
    if count != _NAMED_OPERANDS:
        yield f"{cursor.what} must be {_NAMED_OPERANDS} names, not {count}{mend if count > _NAMED_OPERANDS else ''}"


@dataclass(frozen=True)
class RowOperand:
    """An operand of an op of rows: `x`, `residual?`, `weight along row`, `target index`."""

    name: str
    is_optional: bool
    is_vector: bool
    """Whether it has an element for each position, which all rows share; others have the shape of the first one."""
    location: Location = field(compare=False)
    absent: float | None = None
    """The number that stands for it where it is left out, if that does not follow from the formula."""
    is_index: bool = False
    """Whether it has an integer for each row, the position of an element."""
    is_number: bool = False
    """Whether it has a number for each row, in the compute dtype; gradients of ops with `per_row` alone have such."""
    FORM: ClassVar = Annotated[
        str, Form(pattern=_ROW_OPERAND), defines("local", r"[A-Za-z_]\w*(?=\??(?: along row| index)?$)")
    ]

    @classmethod
    def decode(cls, cursor: Cursor) -> "RowOperand":
        """The operand that a text is."""
        text, location = cursor.scalar(str) or "", cursor.value.location
        match = re.fullmatch(_ROW_OPERAND, text)
        if match is None:
            cursor.no_value(f"'{text}' cannot be an operand of {cursor.owner}; write it like 'weight? along row'")
            return cls("x", False, False, location)
        cursor.keep_rules(match["name"], str, (module_name, _Free("an operand", _ROW_NAMES)))
        is_optional, form = match["optional"] is not None, match["form"]
        return cls(match["name"], is_optional, form == "along row", location, is_index=form == "index")


def _are_few(cursor: Cursor, operands: tuple[RowOperand, ...]) -> Iterator[str]:
    count = len({operand.name for operand in operands})
    if not 2 <= count == len(operands) <= _MAX_ROW_OPERANDS:
        yield f"{cursor.what} must be 2 to {_MAX_ROW_OPERANDS} different names; without the key the operand is x"
    if operands and (operands[0].is_optional or operands[0].is_vector or operands[0].is_index):
        yield f"{cursor.what} begins with an operand that other calls or rows share; write one such as x first"
    if any(operand.is_index and operand.is_optional for operand in operands):
        yield f"{cursor.what} has an index that calls may leave out; remove the question mark"
    if sum(operand.is_index for operand in operands) > 1:
        yield f"{cursor.what} has several indexes; rows have one at most"


@dataclass(frozen=True)
class Functor:
    """What one op computes of each element, or of all elements that it reduces."""

    name: Annotated[Name, Entry("op '{}'"), defines("op")]
    kind: Annotated[str, Mark.VARIANT]
    named: Annotated[
        tuple[Annotated[Name, _Free("an operand"), defines("local")], ...],
        Key("operands"),
        _NAMED,
        _are_as_many,
        Form(minItems=_NAMED_OPERANDS, maxItems=_NAMED_OPERANDS, uniqueItems=True),
        "The names of the operands in the formula. All but the first are parameters of the methods too.",
    ]
    of_rows: Annotated[
        tuple[RowOperand, ...],
        Key("operands"),
        _OF_ROWS,
        Mark.OPTIONAL,
        _are_few,
        Form(minItems=2, maxItems=_MAX_ROW_OPERANDS, uniqueItems=True),
        "The operands in the formula, `x` alone without this key. All but the first are parameters of the methods too. "
        "They are broadcast to one shape, but `weight along row` is a vector with an element for each position in the "
        "row: its gradient sums over all rows, and writes nothing of their size. `weight?` may be left out: then it is "
        "the number that changes none of the products or sums in which it stands. `target index` has an integer for "
        "each row, the position of an element; in the formula it is a condition, which holds for that element alone: "
        "`sum(where(target, x, 0))` is the element, and kernels load it by its position. Rows whose index is the "
        "argument `ignore_index`, or the mark of its dtype, have results of 0.",
    ]
    last_dim: Annotated[
        bool,
        Key("last_dim"),
        _OF_ROWS,
        "True if rows lie along the last dim, always; else calls choose the dim.",
    ]
    per_row: Annotated[
        bool,
        Key("per_row"),
        _OF_ROWS,
        "True if the formula is one number for each row, in which elements stand in reductions alone. Results are in "
        "the compute dtype. The methods give several: after the numbers, with an index, what each row counts for, and "
        "then the numbers of each row that the gradient reads.",
    ]
    counts: Annotated[
        Formula | None,
        _OF_ROWS,
        "With `per_row` and an index, what a row counts for, if it is not 1: a formula like that of the numbers, such "
        "as the weight of its target. Rows whose index does not count have 0.",
    ]
    adds_residual: Annotated[
        bool,
        Key("residual"),
        _OF_ROWS,
        "True if the methods take an optional `residual` as their last operand, of the shape of `x`: then `x` in the "
        "formula is the sum of both, rounded, which is the second result. The gradient takes one too, and adds it to "
        "that of `x` before it is rounded.",
    ]
    condition: Annotated[
        Names | None,
        _NAMED,
        "The dtypes of the first operand, if it only chooses between the others. Then elements are only moved, and "
        "kernels know no more of them than their widths.",
    ]
    result: Annotated[
        str | None,
        names_of("dtype"),
        "The dtype of the result, if it is not that of the operands; truth values are 1 and 0, and a reduction joins "
        "contributions in it. `real` is the dtype of the parts of complex operands, and of others their own. `any` is "
        "the dtype that the argument `dtype` names, to which the result is converted as `to_dtype` does.",
    ]
    parameters: Annotated[
        Mapping[Annotated[Name, _Free("a parameter"), defines("local")], Annotated[float | None, Mark.NULL]],
        Mark.OPTIONAL,
        Example("slope: 0.01"),
        Of(("unary", "binary", "reduce", NAMED, ROW)),
        "Numbers besides the operands, each with its default or null. A parameter is converted to the compute dtype as "
        "`to_dtype` does. An op with parameters is a storage method and a tensor method of its own.",
    ]
    let: Annotated[
        Mapping[Annotated[Name, _Free("a named part"), defines("local")], Formula],
        Mark.OPTIONAL,
        "Named parts of the formula and of the gradients, each over those before it.",
    ]
    written: Annotated[
        Formula,
        Key("formula"),
        Of(("unary", "binary", "cmp", NAMED, ROW)),
        "What the op computes of each element: an expression over the operands, the parameters and the primitives of "
        "spec/primitives.yaml; in row.yaml also over reductions of the row such as `sum(x)`, `count`, `position` and "
        "`detach(...)`, through which no gradient passes. Floats are in the compute dtype of their dtype, and the "
        "result is rounded once. An op that has only floats may use the literals `inf` and `nan`.",
    ]
    gradients: Annotated[
        Mapping[Annotated[Name, names_of("local")], Formula],
        Key("gradient"),
        Mark.OPTIONAL,
        "By operand, the formula of its gradient, if it is not what follows from the formula. It is over the "
        "operands, the parameters, `result`, and `g`, the gradient of the result; in a reduction over an element `x`, "
        "`count` and other reductions as well. In a scan it is that of `combine`, by `x` and `y`, over both, `g` and "
        "`result`, which they join to; that of the elements follows from it.",
    ]
    doc: Annotated[str, "What the op computes, for the docs."]
    dtypes: Annotated[Names, "The dtypes that the op has: a set such as `float`, or a list of dtypes and sets."]
    note: Annotated[str | None, "What else callers should know; the docs add it to `doc`."]
    examples: Annotated[
        Mapping[str, str],
        Mark.OPTIONAL,
        Example('"tl.Tensor([-1.0, 1.0]).relu()": "Tensor([0., 1.], dtype=f32)"'),
        "Expressions of the package `tl` that show the op, and what Python's prompt prints of each. They end the "
        "docstring of the tensor method, and tests run them.",
    ]
    edges: Annotated[
        tuple[Edge, ...],
        Mark.OPTIONAL,
        Example("silu(-inf): -0.0"),
        "Calls with numbers at which the op is easily wrong, and their results, to the sign of zero. Tests make them "
        "on every backend and real dtype that has the numbers. A name in place of its number stands for every finite "
        "one; the arguments of a reduction are its elements, those of a scan a line of which this is the last result.",
    ]
    reduction: Annotated[Position | Monoid | None, Of(("reduce",)), Mark.INLINE]  # in place of the formula
    scan: Annotated[Prefixes | Monoid | None, Of((SCAN,)), Mark.INLINE]  # by which `with_scans` finds its reduction
    positions: Annotated[
        bool,
        Of((SCAN,)),
        "True if the op also gives the positions of the elements that it finds, in u32: of equals the last, and of NaN "
        "the first. Then `identity` is `highest` or `lowest`.",
    ]
    widened: Annotated[
        bool,
        Key("wide"),
        Of((SCAN,)),
        "True if the tensor method first converts truth values, and integers of fewer than 8 bytes, to i64.",
    ]
    unsupported: Annotated[
        str, Mark.OPTIONAL, "Why the op lacks the dtypes that it does not have, if not for the reason of its file."
    ]
    family: Annotated[
        str | None,
        _OF_ROWS,
        names_of("family"),
        "The file of spec/storage that its methods join, those of its gradient too, if not that of its kind.",
    ]
    tensor: Annotated[
        bool | None,
        "False if no tensor method is this op alone; a tensor method of the same name is then in the runtime.",
    ]
    location: Location = field(compare=False)
    result_location: Annotated[Location, Place("result")] = field(compare=False)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands, as the expressions call them."""
        if self.is_scan:
            return ("x",)
        if self.is_of_rows:
            own = [operand.name for operand in self.of_rows if not operand.is_index and not operand.is_number]
            return tuple(filter(is_name, own)) or ("x",)
        return CHOSEN_KINDS.get(self.kind, tuple(filter(is_name, self.named)))

    @property
    def vectors(self) -> tuple[str, ...]:
        """The operands of an op of rows that have an element for each position, which all rows share."""
        return tuple(operand.name for operand in self.of_rows if operand.is_vector)

    @property
    def index(self) -> str | None:
        """The operand of an op of rows that has the position of an element for each row, if there is one."""
        return next((operand.name for operand in self.of_rows if operand.is_index), None)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The operands of an op of rows that have a number for each row."""
        return tuple(operand.name for operand in self.of_rows if operand.is_number)

    @property
    def elements(self) -> tuple[str, ...]:
        """What differs between the elements of a row."""
        return (*self.operands, *filter(None, [self.index]))

    @property
    def optional(self) -> tuple[str, ...]:
        """The operands of an op of rows that calls may leave out."""
        return tuple(operand.name for operand in self.of_rows if operand.is_optional)

    @cached_property
    def absent(self) -> Mapping[str, float | None]:
        """By optional operand, the number in its place where it is left out; None where no number changes nothing."""
        known = {operand.name: operand.absent for operand in self.of_rows if operand.is_optional}
        return {
            name: neutral_number(self.results, name) if number is None else number for name, number in known.items()
        }

    @property
    def forms(self) -> tuple[str, ...]:
        """What of the kernels of ops of rows it may have."""
        if self.totals:
            return ("totals",)
        has_own_rows = self.last_dim or self.per_row or self.index is not None or bool(self.numbers)
        return ("without_totals",) if has_own_rows else ("without_totals", "any_dim")

    @property
    def totals(self) -> tuple[str, ...]:
        """The operands of an op of rows whose gradients the last results are: sums over all rows."""
        return tuple(filter(None, map(totalled, self.results)))

    @property
    def is_of_rows(self) -> bool:
        """Whether it computes of rows."""
        return self.kind in (ROW, ROW_GRADIENT)

    @property
    def is_scan(self) -> bool:
        """Whether it reduces the elements up to each."""
        return self.kind == SCAN

    @property
    def needs_elements(self) -> bool:
        """Whether it has no result of no elements."""
        bounded = isinstance(self.reduction, Monoid) and self.reduction.identity in BOUNDS
        return bounded or isinstance(self.reduction, Position)

    @property
    def borrows(self) -> bool:
        """Whether its reduction is that of another op, which is checked there."""
        return isinstance(self.scan, Prefixes)

    @property
    def joins(self) -> bool:
        """Whether it is a reduction or a scan, which have no formula of an element."""
        return self.reduction is not None or self.is_scan

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient of another op, which opgen has found."""
        return self.kind in (*GRADIENT_KINDS, ROW_GRADIENT)

    @cached_property
    def formula(self) -> Formula | None:
        """What it computes of each element alone; None of a reduction, and of an op of rows."""
        return None if self.joins or self.is_of_rows else self.written.with_parts(self.let)

    @cached_property
    def row(self) -> Formula | None:
        """What an op of rows computes of each element; None of another op."""
        return self.written.with_parts(self.let) if self.is_of_rows else None

    @property
    def computed(self) -> Formula | None:
        """The formula of what it computes of each element, alone or in its row; None of a reduction."""
        return self.formula or self.row

    @cached_property
    def results(self) -> tuple[Node, ...]:
        """What it gives of each element: one formula, or several; none of a reduction."""
        node = None if self.computed is None else self.computed.node
        if isinstance(node, FormulaCall) and node.primitive == BOTH:
            return node.arguments
        return () if node is None else (node,)

    @cached_property
    def gradient(self) -> Mapping[str, Formula]:
        """The gradients of operands, where they are not what follows from the formula."""
        return {operand: formula.with_parts(self.let) for operand, formula in self.gradients.items()}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All its formulas."""
        monoid = self.reduction if isinstance(self.reduction, Monoid) else None
        own = (monoid.element, monoid.combine, monoid.finish) if monoid is not None else ()
        others = (formula.node for formula in (*own, *self.gradient.values()) if formula is not None)
        return (*map(without_total, self.results), *others)

    @property
    def is_method(self) -> bool:
        """Whether it is a storage method of its own; the others are chosen by an argument `op`."""
        is_unlike_others = bool(self.parameters) or self.condition is not None or self.result == ANY_RESULT
        return self.kind not in ENUM_KINDS or is_unlike_others

    @property
    def keeps_kind(self) -> bool:
        """Whether it gives numbers like its operands: not of one dtype, whichever they have."""
        return self.result in (None, ANY_RESULT, REAL_RESULT)

    @property
    def member(self) -> str:
        """The member of an enum that it is."""
        return f"{METHOD_OP if self.is_method else op_class(self.kind)}.{self.name.upper()}"

    @property
    def has_front(self) -> bool:
        """Whether the tensor method is this op alone."""
        return self.tensor is not False

    def mistakes(self, what: str) -> Mistakes:
        """Note parameters that calls could not give, edges that are no calls of it, and a dtype that it cannot have."""
        own = {} if self.joins else {"formula": self.written}
        gradients = {f"gradient.{name}": formula for name, formula in self.gradients.items()}
        long = [*too_long({**own, **gradients}, self.let, what)]
        yield from long
        named = {*names(self.written.with_parts(self.let).node)}
        # What it names that there is not is another mistake.
        if own and not long and named <= self.parameters.keys():
            message = f"'formula' of {what} names no operand, so that its result has no shape"
            yield "formula", f"{message}; write it over {' and '.join(self.operands)}"
        defaults = list(self.parameters.values())
        for position, name in enumerate(self.parameters):
            if name in (*self.operands, *self.let):
                message = f"'{name}' cannot be a parameter of {what}, the name is taken; choose another one"
                yield ("parameters", name, None), message
            if defaults[position] is None and any(default is not None for default in defaults[:position]):
                message = f"parameter '{name}' without a default follows one with a default; move it before that one"
                yield ("parameters", name, None), message
        others = [name for name in self.operands[1:] if name not in self.vectors]
        if self.per_row and others:
            message = f"{what} has a number for each row of {self.operands[0]}, and other operands lie along the row"
            yield "per_row", f"{message}; write '{others[0]} along row', or remove it"
        if self.per_row and self.has_front and len(self.operands) > 1:
            message = f"{what} has vectors, which tensor methods of numbers of rows do not take"
            yield "per_row", f"{message}; write 'tensor: false', and one in the runtime"
        if self.counts is not None and not (self.per_row and self.index is not None):
            message = f"'counts' of {what} says what rows with an index count for"
            yield "counts", f"{message}; write 'per_row: true' and an operand such as 'target index', or remove it"
        if self.index is not None and self.has_front:
            yield (
                "",
                f"{what} has an index, which tensor methods check; write 'tensor: false', and one in the runtime",
            )
        if self.is_method and not self.has_front and any(default is not None for default in defaults):
            message = f"{what} has a default of a parameter, but no tensor method that takes it; write null"
            yield "parameters", message
        if self.condition is not None and self.result is not None:
            yield ("result", None), f"{what} has the dtype of what it chooses; remove 'result'"
        parameters = None if self.joins else self.parameters
        for edge in self.edges:
            if edge.functor and (message := edge.flaw(self.name, self.operands, parameters) or ""):
                yield edge.location, message

    @property
    def summary(self) -> str:
        """What it computes and gives at its edges, in one sentence."""
        return "; ".join(filter(None, [self.doc, self.note, ", ".join(map(str, self.edges))]))

    @property
    def description(self) -> str:
        """The docstring of its tensor method: what it computes, what it gives at its edges, and examples."""
        edges = ", ".join(map(str, self.edges))
        own = "`reverse` begins at the last element." if self.is_scan else ""
        if self.is_scan and not self.needs_elements:
            own = "`reverse` begins at the last element, and `exclusive` leaves out the element itself."
        session = "\n".join(f">>> {call}\n{shown}" for call, shown in self.examples.items())
        details = " ".join(filter(None, [own, self.note and sentence(self.note), edges and f"{edges}."]))
        return "\n\n".join(filter(None, [sentence(self.doc), details, session]))


@dataclass(frozen=True)
class FunctorKind:
    """A file of spec/functors: ops with the same operands.

    An op with parameters, with operands that it names, or with a result of any dtype is a storage method and a tensor
    method of its own. The argument `op` of the storage method that names the kind in its `ops` chooses the others.

    `opgen check` computes what an op claims, on sample numbers of each dtype: its edges; its gradients, in f64, against
    differences of its formula (at a kink, a slope of one side or 0 is right); that the identity of a reduction changes
    no contribution, that `combine` is associative and commutative, that `state` gives the results of `element` and
    `combine`, and that `result` holds what elements contribute. Formats and functions that opgen does not know are left
    to tests.
    """

    name: Annotated[str, Entry("{}.yaml")]
    unsupported: Annotated[
        str, Of((*ENUM_KINDS, ROW, SCAN)), "Why an op lacks the dtypes that it does not have; errors quote it."
    ]
    functors: Annotated[  # the others are found
        tuple[Functor, ...], Key("ops"), Of((*CHOSEN_KINDS, NAMED, ROW, SCAN)), "The ops by name."
    ]
    joined: Annotated[Name, Key("family"), _JOINING, "The file of spec/storage that the methods of the ops join."]
    listed: Annotated[
        tuple[State, ...], Key("states"), Mark.OPTIONAL, Of(("reduce",)), "The states of reductions, by name."
    ]
    path: Path

    def mistakes(self, _: str) -> Mistakes:
        """Note reasons that ops have of their file."""
        for functor in self.functors:
            if functor.unsupported and functor.unsupported == self.unsupported:
                message = f"'unsupported' of op '{functor.name}' is that of its file; remove it"
                yield ("ops", functor.name, "unsupported"), message

    @property
    def family(self) -> str | None:
        """The file of spec/storage that its methods join, where none chooses between its ops."""
        return None if self.name in ENUM_KINDS else self.joined

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The states of reductions, by their names."""
        return {state.name: state for state in self.listed}

    @cached_property
    def by_name(self) -> Mapping[str, Functor]:
        """The functors by their names."""
        return {functor.name: functor for functor in self.functors}

    @property
    def class_name(self) -> str:
        """The enum of the functors that are chosen by an argument: unary -> UnaryOp."""
        return op_class(self.name)

    @property
    def chosen(self) -> tuple[Functor, ...]:
        """The functors that are chosen by an argument."""
        return tuple(functor for functor in self.functors if not functor.is_method)

    @property
    def max_parameters(self) -> int:
        """How many parameters a functor has at most."""
        return max((len(functor.parameters) for functor in self.functors), default=0)

    @property
    def most_operands(self) -> int:
        """How many operands a functor has at most."""
        return max((len(functor.operands) for functor in self.functors), default=0)

    @property
    def max_results(self) -> int:
        """How many results a functor has at most."""
        return max((len(functor.results) for functor in self.functors), default=0) or 1

    @property
    def methods(self) -> tuple[Functor, ...]:
        """The functors that are storage methods of their own."""
        return tuple(functor for functor in self.functors if functor.is_method)


@dataclass(frozen=True)
class Operand:
    """A storage that a method works on."""

    name: Annotated[Name, Entry("operand '{}'")]
    layout: Annotated[str | None, "The parameter that is its layout; without it, all elements side by side."]
    dtypes: Annotated[
        Names,
        "A set of dtypes such as `float`, a list of dtypes and sets, `same` (as the first operand), `op` (as the "
        "functor that `op` chooses) or a set of the formats of spec/formats.yaml: `blocks` (all), or `rounded`.",
    ]
    values: Annotated[
        Values | None,
        "What the elements must be for a call to have a result: `below N`, integers from 0 to below an expression over "
        "the arguments, or `ascending`, `definite` (Hermitian positive definite matrices), `positive`, `small` (up "
        "to 1/4) or `units` (1 and -1). Tests and the self-test make the elements so.",
    ]
    location: Location = field(compare=False)

    @property
    def is_of_blocks(self) -> bool:
        """Whether it holds weights in blocks."""
        return is_format_set(self.dtypes)


@dataclass(frozen=True)
class Check:
    """A check that the dispatch makes before the branch: a function of the emitted package's check module."""

    FORM: ClassVar = Annotated[Call, names_of("check", token=r"^\w+")]
    call: Call
    location: Location = field(compare=False)

    @classmethod
    def decode(cls, cursor: Cursor) -> "Check":
        """The check that a text calls."""
        return cls(cursor.decode(Call), cursor.value.location)


@dataclass(frozen=True)
class Method:
    """A storage method or a device method. The first operand is the one whose dtype the matrix lists."""

    name: Annotated[Name, Entry("method '{}'"), defines("method")]
    signature: Annotated[
        Signature,
        names_of("method", token=r"^\w+"),
        "The name, the parameters and the result: `name(parameter: type, ...) -> type`.",
    ]
    doc: Annotated[str, Mark.PARAGRAPHS, "The docstring of the method."]
    kind: Annotated[
        str | None,
        Key("ops"),
        Of((STORAGE,)),
        names_of("kind"),
        "The file of spec/functors whose ops the argument `op` chooses from.",
    ]
    functor: Annotated[str | None, Mark.LATER]  # of that kind that it is; None where its argument `op` chooses one
    operands: Annotated[
        tuple[Operand, ...],
        Of((STORAGE,)),
        "The storages that the method works on: `self`, and parameters. The matrix lists the dtypes of the first.",
    ]
    dtypes: Annotated[Names | None, Of((DEVICE,)), "The dtypes of the storage that the method makes."]
    unsupported: Annotated[str | None, "Why the method lacks the dtypes that it does not have; errors quote it."]
    results: Annotated[
        tuple[Result, ...],
        Key("result"),
        Of((STORAGE,)),
        Mark.OPTIONAL,
        Mark.ONE_OR_MORE,
        Form(minItems=1),
        "The dtype and the sizes of what it gives, such as `self.dtype[self.shape]`, which is that of a method that "
        "gives one storage and lacks the key (`op.dtype` where `op` chooses). Expressions are those of launches: an "
        "operand has `dtype` and `shape`; a dtype has `compute`, `real` and `complex`, without which a backend lacks "
        "the method. Functions are those of runtime/core/result_shapes.py, and give dims. Of several results each is "
        "one, or null under a condition.",
    ]
    checks: Annotated[
        tuple[Check, ...],
        Mark.OPTIONAL,
        "Calls of functions of runtime/core/check.py or layer_check.py, made before the branch of a backend.",
    ]
    errors: Annotated[
        Mapping[Annotated[str, names_of("error")], Location],
        Mark.OPTIONAL,
        "The errors that backends raise besides those that follow from the checks and the dtypes.",
    ]
    tensor: Annotated[Signature | None, Of((STORAGE,)), "The signature of the tensor method that is this method alone."]
    let: Annotated[
        Mapping[Name, Part],
        Of((STORAGE,)),
        Mark.OPTIONAL,
        "Named parts of `body`, each of which may name those before it.",
    ]
    body: Annotated[
        Part | None,
        Of((STORAGE,)),
        "Of a method that is composed of others: its result, or a tuple of several, over the operands, which are "
        "tensors there, the other arguments and the parts of `let`, in Tensor's methods. It is converted to the dtype "
        "of `result`. Every backend has such a method, and gradients and batches follow from the parts.",
    ]
    is_wide: Annotated[
        bool,
        Key("wide_in_autocast"),
        Of((STORAGE,)),
        "True if the tensor method of a composed method takes floats of 16 bits in f32 in a block of `autocast`, as "
        "norms and losses do.",
    ]
    gradient: Annotated[
        Gradient | None,
        Of((STORAGE,)),
        "How gradients of a method follow that makes something of floats. Ops of spec/functors say their own.",
    ]
    batch: Annotated[
        str | None,
        Of((STORAGE,)),
        "What `vmap` does with a call: `leading`, if dims in front of all layouts are a batch (`dim` and `dims` move "
        "up), as is so for ops of spec/functors; `items`, if the first dim of each layout counts items, of which there "
        "are then more; or a function of runtime/transforms/rules.py as `rules.name`.",
    ]
    unbatched: Annotated[str | None, Of((STORAGE,)), "Why `vmap` refuses the method, and what to do; errors quote it."]
    examples: Annotated[
        tuple[CallExample, ...],
        Key("example"),
        Mark.OPTIONAL,
        "Calls, the smallest first, and last one of more elements than a block of threads has: of operands their "
        "shapes, of parameters their values. Without its shape, an operand that must be given has that of `self`, "
        "and another one is None. Dtypes, layouts, ops and groups follow. Without this key `self` is a vector. Tests "
        "and the self-test make the calls.",
    ]
    owner: Annotated[str, Mark.VARIANT]  # STORAGE or DEVICE
    location: Location = field(compare=False)

    @cached_property
    def is_broken(self) -> bool:
        """Whether its signature or its operands could not be read, which is noted; the rest cannot be checked."""
        lacks_operands = self.owner == STORAGE and not self.operands
        return not self.signature.name or lacks_operands or next(self._operand_mistakes(), None) is not None

    def mistakes(self, what: str) -> Mistakes:
        """Note a signature of another name, and operands that are no parameters."""
        if self.signature.name != self.name:
            yield (None,), f"{what} has the signature of '{self.signature.name}'; give both one name"
        if self.operands and all(operand.name != "self" for operand in self.operands):
            yield (None,), f"{what} has no operand 'self'; add it to 'operands'"
        yield from self._operand_mistakes()

    def _operand_mistakes(self) -> Mistakes:
        parameters = self.signature.arguments
        for operand in self.operands:
            pairs = (("operand", operand.name, ("self", *parameters)), ("layout", operand.layout, parameters))
            for what, name, known in pairs:
                if name is not None and name not in known:
                    message = f"{what} '{name}' is no parameter of '{self.signature.name}'{did_you_mean(name, known)}"
                    yield operand.location, message
            types = [self.signature.type_of(name) for name in (operand.name, operand.layout) if name is not None]
            if len(set(map(is_optional, types))) > 1:
                message = f"only one of '{operand.name}' and its layout '{operand.layout}' may be None; let both or"
                yield operand.location, f"{message} neither"

    @property
    def holds_blocks(self) -> bool:
        """Whether it is a method of weights in blocks."""
        return bool(self.operands) and self.operands[0].is_of_blocks

    @property
    def chooses_op(self) -> bool:
        """Whether its argument `op` is one of the ops of a kind."""
        return self.kind is not None and self.functor is None

    @property
    def custom_class(self) -> str | None:
        """The class that users derive its ops from; None for a method that the backends have themselves."""
        return (self.signature.type_of("op") or None) if self.kind is None else None

    def is_several(self, operand: Operand) -> bool:
        """Whether an operand is any number of storages."""
        return self.signature.type_of(operand.name).startswith("tuple")

    def is_optional(self, operand: str) -> bool:
        """Whether an operand may be None."""
        return is_optional(self.signature.type_of(operand))

    @property
    def single_operands(self) -> tuple[Operand, ...]:
        """The operands that are one storage each, as a call takes them: the storage itself, then as the signature."""
        order = ["self", *self.signature.arguments]
        single = (operand for operand in self.operands if not self.is_several(operand))
        return tuple(sorted(single, key=lambda operand: order.index(operand.name)))

    def call_arguments(self, ops: str = "") -> list[str]:
        """What a call of a branch is given: the op where there is one, the operands, the others, and each of several.

        `ops` is how the branch calls the module of the class Operand, with a dot.
        """
        arguments = []
        if self.kind is not None:
            arguments.append("op" if self.functor is None else f"{METHOD_OP}.{self.functor.upper()}")
        for operand in self.single_operands:
            inner, made = inner_name(operand.name), ".optional" * self.is_optional(operand.name)
            arguments.append(inner if operand.layout is None else f"{ops}Operand{made}({inner}, {operand.layout})")
        if not self.operands:
            arguments.append("inner")
        # The dtype that a functor is given is that of its result, whatever its other arguments are.
        spelled = {"dtype": "result=dtype"} if self.functor is not None else {}
        taken = {"op", *(name for operand in self.operands for name in (operand.name, operand.layout))}
        others = (spelled.get(name, name) for name in self.signature.arguments if name not in taken)
        arguments += sorted(others, key=lambda text: "=" in text)
        several = filter(self.is_several, self.operands)
        return arguments + [f"*{ops}Operand.each({operand.name}, {operand.layout})" for operand in several]


def inner_name(operand: str) -> str:
    """What a branch calls the backend's storage of an operand."""
    return "inner" if operand == "self" else f"{operand}_inner"


@dataclass(frozen=True)
class Family:
    """A file of spec/storage: methods that belong together, and become one module."""

    name: Annotated[str, Entry("{}.yaml")]
    doc: Annotated[str, "The docstring of the module that the methods become."]
    methods: Annotated[tuple[Method, ...], Mark.OPTIONAL, "The storage methods by name, beside those of functors."]
    path: Path

    @property
    def holds_blocks(self) -> bool:
        """Whether its methods are those of weights in blocks."""
        return any(method.holds_blocks for method in self.methods)


@dataclass(frozen=True)
class Device:
    """The methods of a device."""

    doc: Annotated[str, "The docstring of the module."]
    methods: Annotated[tuple[Method, ...], "The device methods by name."]


@dataclass(frozen=True)
class BackendFamily(CellFile):
    """A file of spec/families: how the backends that extend it lower every op, where they do not say otherwise."""

    name: Annotated[str, Entry("family '{}'")]
    package: Annotated[Name, "The package of runtime/backends whose ops the cells call."]
    words: Annotated[
        tuple[Word, ...],
        Key("vocabulary"),
        Mark.OPTIONAL,
        "The words in which the ops of a family of array libraries are written, by `name(parameters)`. A word is a "
        "function of a backend's emitted library.py. Arrays may be immutable: no word changes what it is given. A "
        "word that joins elements keeps the dim, of size 1.",
    ]
    driver: Annotated[
        tuple[Operation, ...],
        Mark.OPTIONAL,
        "What the runtime of a family of GPUs asks of a vendor's driver, by `name(parameters)`. spec/drivers has a "
        "table for each backend of the family, which says by which calls it is done.",
    ]

    @cached_property
    def vocabulary(self) -> Mapping[str, Word]:
        """The words, by their names."""
        return by_name(self.words)

    def mistakes(self, _: str) -> Mistakes:
        """Report words and operations of the driver that stand twice."""
        yield from repetitions("word", self.words)
        yield from repetitions("operation", self.driver)

    # As of a backend: a family extends nothing, and its package is there.
    extends: ClassVar[None] = None
    missing: ClassVar[None] = None

    def __str__(self) -> str:
        return f"family '{self.name}'"


def _is_free(_: Cursor, name: str) -> Iterator[str]:
    if nearest(name, CELL_KEYS) is not None:
        yield f"'{name}' is like a key of cells; give the library another name"


@dataclass(frozen=True)
class Library:
    """A vendor's library."""

    name: Annotated[Name, Entry("library '{}'"), _is_free, defines("library")]
    opener: Annotated[
        str,
        Key("class"),
        Pattern(r"[a-z][\w.]*\.[A-Z]\w*", "module.Class"),
        "The class of the backend's package that opens the library where it is there, as `module.Class`.",
    ]
    dtypes: Annotated[
        Names | None, "The dtypes that the library has; all without this key. For other dtypes its calls are left out."
    ]
    location: Annotated[Location, Place("class")] = field(compare=False)

    @property
    def module(self) -> str:
        """The module of the class that opens it."""
        return self.opener.rpartition(".")[0] or self.opener

    @property
    def class_name(self) -> str:
        """The class that opens it."""
        return self.opener.rpartition(".")[2]


@dataclass(frozen=True)
class Runtime:
    """What runs a backend."""

    package: Annotated[Name | None, "The package of runtime/backends that runs the backend."]
    missing: Annotated[str | None, "Why there is no such package: every branch says so."]

    def mistakes(self, what: str) -> Mistakes:
        """Note that it is there and missing, or neither."""
        if (self.package is None) == (self.missing is None):
            yield (None,), f"{what} must have one key: its 'package', or why it is 'missing'"


@dataclass(frozen=True)
class Backend(CellFile):
    """Everything about one backend."""

    name: Annotated[str, Entry("backend '{}'")]
    doc: Annotated[str, "What the backend is, for the docs."]
    class_prefix: Annotated[
        str, Pattern("[A-Z][A-Za-z0-9]*", "Name"), "What the names of its classes begin with, as `Gpu` in GpuStorage."
    ]
    extends: Annotated[
        str | None,
        names_of("family", "backend"),
        "The family, or the other backend, whose cells it has wherever it does not say otherwise.",
    ]
    runtime: Annotated[Runtime, "What runs the backend: a package, or why there is none."]
    extra: Annotated[Name | None, "The name of the extra that installs what the backend needs."]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL, "What pip installs for this extra."]
    listed: Annotated[
        tuple[str, ...], Key("modules"), Mark.OPTIONAL, "Modules that Python can import where these are installed."
    ]
    libraries: Annotated[
        tuple[Library, ...],
        Mark.OPTIONAL,
        Example("blas: {class: module.Class}"),
        "The vendor's libraries, by the names that cells call them.",
    ]
    array: Annotated[ArrayLibrary | None, "The library that the backend computes with, if its family has a vocabulary."]
    code_objects: Annotated[CodeObjects | None, "What `opgen compile` builds the kernels for, and with what."]
    label: Annotated[
        str,
        _ORDINAL,
        "The name of a device for users, such as `gpu:{ordinal}`; without {ordinal} there is one device.",
    ]
    display: Annotated[str, _ORDINAL, Mark.MAY_BE_EMPTY, "What the display of a tensor ends with, to tell its device."]
    preference: Annotated[int, "Of the backends that are available, Device.default() is of the one with the highest."]
    dlpack: Annotated[int, "The `DLDeviceType` that DLPack gives its devices."]

    @property
    def package(self) -> str | None:
        """The subpackage that runs it; None while there is none."""
        return self.runtime.package

    @property
    def missing(self) -> str | None:
        """Why there is no runtime."""
        return self.runtime.missing if self.package is None else None

    @property
    def modules(self) -> tuple[str, ...]:
        """What can be imported when its dependencies are installed."""
        return self.listed if self.array is None or self.extra is None else tuple(self.array.modules.values())

    def mistakes(self, what: str) -> Mistakes:
        """Note modules in two places, and dependencies without a name."""
        if self.array is not None and self.listed:
            yield "modules", f"{what} names its modules below 'array'; remove 'modules'"
        if self.extra is None and (self.listed or self.missing is not None):
            yield (None,), f"{what} lacks the key 'extra', which names what to install for it; add it"

    def __str__(self) -> str:
        return f"backend '{self.name}'"

    @property
    def is_numbered(self) -> bool:
        """Whether its devices have numbers."""
        return "{ordinal}" in self.label

    @property
    def lacking(self) -> Mapping[str, tuple[str, Location]]:
        """The dtypes that no storage of it has, and why."""
        return self.array.lacking if self.array is not None else {}

    @property
    def refused(self) -> Mapping[str, LackingWord]:
        """The words that its library cannot have."""
        return self.array.refused if self.array is not None else {}


# What has cells, which a backend may extend.
Owner: TypeAlias = Backend | BackendFamily


@dataclass(frozen=True)
class Callable:
    """A function of a backend's ops."""

    parameters: tuple[str, ...]
    required: int  # how many of them have no default
    takes_more: bool  # any number of further arguments
    keywords: Mapping[str, bool]  # those that are given by name alone, and whether they have a default
    returns: str | None = None

    def __str__(self) -> str:
        star = ["*"] if self.keywords else []
        return ", ".join([*self.parameters, *star, *self.keywords])

    def fits(self, arguments: Sequence[str]) -> bool:
        """Whether it can be called with `arguments`, of which some are written `name=value`."""
        named = {name for name, is_named, _ in (text.partition("=") for text in arguments) if is_named}
        count = len(arguments) - len(named)
        rest = self.parameters[count:]
        needed = {
            *self.parameters[count : self.required],
            *(name for name, is_optional in self.keywords.items() if not is_optional),
        }
        return needed <= named <= {*rest, *self.keywords} and (self.takes_more or count <= len(self.parameters))


@dataclass(frozen=True)
class CheckFunction:
    """A function that checks arguments: its module, and the errors that it raises, itself or by what it calls."""

    module: str
    raised: frozenset[str]


FORMAT_SETS: Final[Mapping[str, Function[[Format], bool]]] = {
    BLOCKS: lambda _: True,
    "quantized": lambda each: each.scale is not None,
    "plain": lambda each: each.scale is None,
    "gridless": lambda each: each.scale is not None and not each.has_grid,
    "rounded": lambda each: each.scale is None or each.rounding is not None,
}
"""The sets of block formats, likewise."""


def is_format_set(names: Names) -> bool:
    """Return True if `names` is a set of block formats."""
    return len(names.texts) == 1 and names.texts[0] in FORMAT_SETS


@dataclass(frozen=True)
class Spec:
    """The whole spec."""

    package: Package
    dtypes: tuple[DType, ...]
    primitives: Primitives  # what formulas are made of
    functors: Mapping[str, FunctorKind]
    families: tuple[Family, ...]
    formats: tuple[Format, ...]  # the blocks in which weights are kept
    device_doc: str
    device_methods: tuple[Method, ...]
    backend_families: tuple[BackendFamily, ...]
    backends: tuple[Backend, ...]  # in order of preference, in which branches and the matrix have them
    kernels: tuple[KernelFamily, ...]
    c_libraries: tuple[CLibrary, ...]
    drivers: tuple[DriverTable, ...]  # by which calls the drivers of GPUs do what the runtime asks of them
    field_groups: tuple[FieldGroup, ...]  # fields that several structs of kernels have side by side
    tuples: tuple[TupleType, ...]  # what Python gives to make plans of the host's kernels
    widths: Mapping[str, tuple[str, Location]]  # the C++ types of elements that kernels only move, by name
    constants: tuple[Constant, ...]  # the numbers that kernels and launchers share
    targets: Mapping[str, Sequence[Target]]  # the GPU architectures of each backend
    # What `lower` finds: by backend, by method and op, and by dtype, what the backend does; and the subpackages in
    # which it looks for what it calls.
    lowerings: Mapping[str, Lowerings] = field(default_factory=dict)
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # What the runtime defines: the modules of each subpackage, at any depth, and the functions of its ops, by module.
    own_modules: Mapping[str, Collection[str]] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, Mapping[str, Callable]]] = field(default_factory=dict)
    checks: Mapping[str, CheckFunction] = field(default_factory=dict)
    public: Mapping[str, PublicModule] = field(default_factory=dict)
    # By the module that has them, and the methods that they are ops of.
    launch_ops: Mapping[tuple[str, str], "LaunchOp"] = field(default_factory=dict)
    uses: "Uses | None" = None  # the words that functions of array backends need, where a library lacks some

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The sets of dtypes that have a name."""
        return {name: tuple(dtype.name for dtype in self.dtypes if has(dtype)) for name, has in SETS.items()}

    @cached_property
    def known_dtypes(self) -> str:
        """The groups as one text: what is kept of a spec depends on no more of its dtypes, in most cases."""
        return str(self.groups)

    @cached_property
    def known_elements(self) -> str:
        """What kernels know of dtypes, and the names of ops, as one text."""
        dtypes = [(it.name, it.bytes, it.kind, it.real, it.format, it.multiplicand) for it in self.dtypes]
        return f"{dtypes} {self.functor_names}"

    @cached_property
    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """The groups, and the sets of block formats."""
        formats = {
            name: tuple(item.name.upper() for item in self.formats if has(item)) for name, has in FORMAT_SETS.items()
        }
        return {**self.groups, **formats}

    def resolve(self, names: Names) -> tuple[str, ...]:
        """The dtypes, or the block formats, that `names` means, in the order of the spec."""
        key = names.texts, names.listed
        if key not in self._resolved:
            self._resolved[key] = self._resolve(*key)
        return self._resolved[key]

    @cached_property
    def _resolved(self) -> dict[tuple[tuple[str, ...], bool], tuple[str, ...]]:
        return {}

    def _resolve(self, texts: tuple[str, ...], listed: bool) -> tuple[str, ...]:
        if len(texts) == 1 and texts[0] in FORMAT_SETS:
            return self.sets[texts[0]]
        found: set[str] = set()
        for text in texts:
            found.update(self.groups.get(text, (text,) if listed else ()))
        return tuple(dtype.name for dtype in self.dtypes if dtype.name in found)

    def result_of(self, functor: Functor, dtype: str, other: str = "") -> str:
        """The dtype of an op's result, of operands of a dtype; `other` is the one that callers of the op may name."""
        if functor.result == REAL_RESULT:
            return next(item.real for item in self.dtypes if item.name == dtype) or dtype
        return other if functor.result == ANY_RESULT else functor.result or dtype

    def converts(self, source: str, target: str) -> bool:
        """Whether elements are converted from a dtype to another: no imaginary part is lost but in truth values."""
        kinds = {item.name: item.kind for item in self.dtypes}
        return kinds[source] != "complex" or kinds[target] in ("complex", "bool")

    def chain(self, owner: Owner) -> list[Owner]:
        """A backend or family followed by what it extends, from the nearest to the farthest."""
        known = {each.name: each for each in self.owners}
        owners = [owner]
        while (extended := known.get(owners[-1].extends or "")) is not None and extended not in owners:
            owners.append(extended)
        return owners

    def family_of(self, backend: Backend) -> BackendFamily | None:
        """The family that a backend extends, perhaps by way of others."""
        last = self.chain(backend)[-1]
        return last if isinstance(last, BackendFamily) else None

    def driver_of(self, backend: Backend) -> DriverTable | None:
        """The table of a backend's driver: its own, or that of the nearest backend that it extends."""
        tables = {table.backend: table for table in self.drivers}
        return next((tables[owner.name] for owner in self.chain(backend) if owner.name in tables), None)

    @cached_property
    def op_classes(self) -> tuple[str, ...]:
        """The enums of the functors that are chosen by an argument."""
        return tuple(kind.class_name for kind in self.functors.values() if kind.chosen)

    @cached_property
    def argument_classes(self) -> tuple[str, ...]:
        """The classes that the signatures of storage methods name."""
        types = [parameter.type for method in self.storage_methods() for parameter in method.signature.parameters]
        return tuple(sorted({name for text in types for name in re.findall(r"[A-Z]\w*", text)}))

    def storage_methods(self) -> Iterator[Method]:
        """The storage methods of all families."""
        for family in self.families:
            yield from family.methods

    @property
    def owners(self) -> tuple[Owner, ...]:
        """All that a backend may extend."""
        return (*self.backend_families, *self.backends)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The storage methods, then the device methods."""
        return (*self.storage_methods(), *self.device_methods)

    @cached_property
    def reductions(self) -> tuple[Functor, ...]:
        """The functors that join what all elements contribute."""
        return tuple(it for it in self.every_functor if isinstance(it.reduction, Monoid) and not it.is_scan)

    @cached_property
    def scans(self) -> tuple[Functor, ...]:
        """The functors that join what the elements up to each contribute."""
        return tuple(it for it in self.every_functor if it.is_scan and it.reduction is not None)

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The states of reductions, by their names."""
        return {name: state for kind in self.functors.values() for name, state in kind.states.items()}

    @cached_property
    def every_functor(self) -> tuple[Functor, ...]:
        """The functors of all kinds."""
        return tuple(functor for kind in self.functors.values() for functor in kind.functors)

    @cached_property
    def dtype_names(self) -> tuple[str, ...]:
        """The names of the dtypes."""
        return tuple(dtype.name for dtype in self.dtypes)

    @cached_property
    def cpp_types(self) -> Mapping[str, str]:
        """What C++ calls the elements of each dtype."""
        return {dtype.name: dtype.cpp for dtype in self.dtypes}

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """How many bytes an element of each dtype has."""
        return {dtype.name: dtype.bytes for dtype in self.dtypes}

    @cached_property
    def functor_names(self) -> tuple[str, ...]:
        """The names of the functors of all kinds."""
        return tuple(functor.name for functor in self.every_functor)

    def functor_kind(self, name: str) -> FunctorKind:
        """The functors of one kind."""
        return self.functors[name]

    def ranged(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """What an axis of kernels ranges over that is no op: the members of a set, or those that are listed."""
        return self.sets.get(texts[0], texts) if len(texts) == 1 else texts

    def functors_of(self, family: KernelFamily) -> Sequence[Functor]:
        """The functors that the source of a family has: those of its kinds, and those that its kernels list."""
        axes = [texts for kernel in family.kernels for axis, texts in kernel.over.items() if axis != "op"]
        listed = {text for texts in axes for text in self.ranged(texts)}
        kinds = [self.functors[kind] for kind in family.kinds if kind in self.functors]
        found = {functor.name: functor for kind in kinds for functor in kind.functors}
        found |= {functor.name: functor for functor in self.every_functor if functor.name in listed}
        return tuple(found.values())

    def max_parameters(self, family: KernelFamily) -> int:
        """How many parameters a functor of a family's kernels may have."""
        return max((self.functors[kind].max_parameters for kind in family.kinds), default=0)

    def lowered(self, backend: Backend, method: Method) -> Mapping[tuple[str | None, str | None], Lowering]:
        """What a backend does for a method, by op and dtype."""
        table = self.lowerings[backend.name]
        ops = ((op, table.get((method.name, op), {})) for op in self.ops(method))
        return {(op, dtype): lowering for op, lowerings in ops for dtype, lowering in lowerings.items()}

    def ops(self, method: Method) -> tuple[str | None, ...]:
        """The ops that a method chooses between; (None,) for a method that has none."""
        if method.kind is None or method.functor is not None:
            return (None,)
        kind = self.functors.get(method.kind)
        return tuple(functor.name for functor in kind.chosen) if kind else ()

    def kinds(self, method: Method) -> tuple[str, ...]:
        """All that a storage of a method's may have: dtypes, or block formats."""
        return self.sets[BLOCKS] if method.holds_blocks else self.dtype_names

    def functor(self, method: Method, op: str | None) -> Functor | None:
        """The functor that a method computes with `op`."""
        name = method.functor or op
        kind = self.functors.get(method.kind or "")
        return kind.by_name.get(name) if kind and name else None

    def op_names(self, method: Method, op: str | None) -> Names | None:
        """The dtypes that a method has with `op`, as they are written; None for a device method without a dtype."""
        functor = self.functor(method, op)
        if functor is not None:
            return functor.dtypes
        return method.operands[0].dtypes if method.operands else method.dtypes

    def op_dtypes(self, method: Method, op: str | None) -> tuple[str, ...] | None:
        """The dtypes that a method has with `op`; None for a device method without a dtype."""
        names = self.op_names(method, op)
        return None if names is None else self.resolve(names)
