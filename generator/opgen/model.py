"""Stage 2: the spec as frozen classes. What one file says by itself is checked here, what holds between files later."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from opgen.arrays import ArrayLibrary, Word
from opgen.cells import CELL_KEYS, CellFile, Lowerings
from opgen.decoder import (
    Choice,
    Entry,
    Example,
    Key,
    Mark,
    Mistakes,
    Name,
    Of,
    Pattern,
    Place,
    Placeholders,
    Range,
    Rule,
    Spot,
    Using,
    is_name,
    number_mend,
)
from opgen.edges import Edge
from opgen.formats import Format
from opgen.formula import Formula, Primitives
from opgen.gradients import Gradient
from opgen.kernels import Constant, FieldGroup, KernelFamily, TupleType
from opgen.libraries import CLibrary
from opgen.names import Names
from opgen.problem import Location, did_you_mean, nearest
from opgen.signature import Call, Signature, is_optional
from opgen.toolchains import CodeObjects

# What the expressions of each kind of functors call their operands; a reduction's combine has a y too. The functors of
# such a kind may be chosen by an argument, which is of an enum.
CHOSEN_KINDS = {"unary": ("x",), "binary": ("x", "y"), "cmp": ("x", "y"), "reduce": ("x",)}
# The others name their operands themselves.
NAMED = "ternary"
# Those that are found: the gradients of the ops of another kind.
GRADIENT_KINDS = {"unary_gradient": "unary", "binary_gradient": "binary"}
_CHOSEN_AND_GRADIENTS = (*CHOSEN_KINDS, *GRADIENT_KINDS)
FUNCTOR_KINDS = (*CHOSEN_KINDS, NAMED, *GRADIENT_KINDS)
# The result of a functor whose dtype is an argument.
ANY_RESULT = "any"
# Identities that are no numbers: of the dtype of the elements.
BOUNDS = ("highest", "lowest")
# The dtypes of an operand that holds weights in blocks: the formats.
BLOCKS = "blocks"
# The enum of the functors that are storage methods of their own.
METHOD_OP = "MethodOp"
# The size of the largest elements.
MOST_BYTES = 8
# The variants of methods.
STORAGE, DEVICE = "storage", "device"
# What pip takes, as far as a package's own version and the Python that it needs go.
_VERSION = r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"
_PYTHON = r"(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?(, ?(~=|[=!<>]=|<|>) ?\d+(\.\d+)*(\.\*)?)*"
_MODULE = re.compile(r"\w+(?:/\w+)*")
# The names that the functions of a functor give to what is no operand or parameter of it.
_TAKEN_NAMES = ("self", "x", "y", "op", "inner", "layout", "other", "other_layout", "dtype", "np", "numerics",
                "gradient", "output")  # fmt: skip
# Identities of floats besides finite numbers.
_INFINITIES = ("inf", "-inf")
# As many have the functors that name them: the cells that compute them take no more.
_NAMED_OPERANDS = 3
_NAMED = Of((NAMED,))
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
class Package:
    """What spec/package.yaml says of the emitted package."""

    CALLED: ClassVar = "the package"
    name: Name
    version: Annotated[str, Pattern(_VERSION, "1.0.2")]
    summary: str
    python: Annotated[str, Pattern(_PYTHON, ">=3.11")]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL]
    extras: Annotated[Mapping[Name, tuple[str, ...]], Mark.OPTIONAL, "what parts need that not everybody uses"]
    max_rank: Annotated[int, Range(1, 64, "the most dims of a NumPy array")]
    public: Annotated[Mapping[str, tuple[str, Location]], Mark.OPTIONAL,
                      "modules that users import, and those of the runtime behind them"]  # fmt: skip
    location: Annotated[Location, Place("name")]

    def mistakes(self, _: str) -> Mistakes:
        """Note what is no module."""
        for name, (home, place) in self.public.items():
            for text in (name, home):
                if text and not _MODULE.fullmatch(text):
                    yield place, f"'{text}' is no module; write its path, like 'files/gguf'"


@dataclass(frozen=True)
class PublicModule:
    """A module that users import: what a module of the runtime has for them."""

    name: str  # as a path
    home: str  # below runtime/, without an ending
    doc: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class DType:
    """An element type."""

    name: Annotated[Name, Entry("dtype '{}'")]
    doc: str
    kind: Annotated[str, Choice(("unsigned", "signed", "float"))]
    bytes: Annotated[int, Choice((1, 2, 4, 8)), "of one element"]
    numpy: Annotated[str, "module.name of its NumPy type"]
    cpp: Annotated[str, "its C++ type in kernels"]
    compute: Annotated[str, "the dtype in which arithmetic on it is done, before one rounding back"]
    safetensors: Annotated[str, "its name in that format"]
    dlpack: Annotated[tuple[int, ...] | None, Mark.NULL, "type code and bits; null where consumers have no such type"]
    may_index: Annotated[bool, Place("index_mark")]
    index_mark: Annotated[int | None, Mark.NULL, Mark.OPTIONAL, "of a dtype that may index: what names no row"]
    location: Location

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest number of an integer dtype."""
        least = -(1 << 8 * self.bytes - 1) if self.kind == "signed" else 0
        return least, least + (1 << 8 * self.bytes) - 1

    def holds(self, number: float) -> bool:
        """Whether a number is one of an integer dtype."""
        least, most = self.bounds
        return math.isfinite(number) and number == int(number) and least <= number <= most

    def mistakes(self, what: str) -> Mistakes:
        """Note an index that is no integer, and a mark that is none of its values."""
        if self.dlpack is not None and len(self.dlpack) != 2:
            yield "dlpack", f"'dlpack' of {what} must be [type code, bits] or null"
        least, most = self.bounds
        if self.may_index and self.kind == "float":
            yield "index_mark", f"{what} is no integer, so that it cannot index; remove 'index_mark'"
        elif self.may_index and self.index_mark is None and self.bytes == MOST_BYTES:
            # Kernels see indexes in so many bytes, and a mark that is no index where there is none.
            yield "index_mark", f"'index_mark' of {what} must be a number, as it has {MOST_BYTES} bytes"
        elif self.index_mark is not None and not least <= self.index_mark <= most:
            yield "index_mark", f"'index_mark' of {what} must be from {least} to {most}, not {self.index_mark}"


@dataclass(frozen=True)
class DTypes:
    """The file spec/dtypes.yaml."""

    dtypes: tuple[DType, ...]


@dataclass(frozen=True)
class StatePart:
    """One number of a state."""

    name: Annotated[Name, Entry("part '{}'")]
    element: Annotated[Formula, "what an element x begins"]
    combine: Annotated[Formula, "what two states x and y join to, over their parts and the state's named parts"]


@dataclass(frozen=True)
class State:
    """What kernels know of some elements of a reduction, where that is several numbers."""

    name: Annotated[Name, Entry("state '{}'")]
    doc: str
    let: Annotated[Mapping[Name, Formula], Mark.OPTIONAL, "of what two join to, each over those before it"]
    parts: tuple[StatePart, ...]
    result: Annotated[Formula, "what the contributions come to, over the parts"]
    location: Location = field(compare=False)


def _identity(spot: Spot) -> str:
    content = spot.value.content
    is_number = isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)
    if is_number or str(content) in (*BOUNDS, *_INFINITIES):
        return str(content)
    message = f"{spot.what} must be a number, 'inf', '-inf', 'highest' or 'lowest'"
    spot.no_value(message + number_mend(spot.value))
    return "0"


@dataclass(frozen=True)
class Monoid:
    """How a reduction joins what its elements contribute."""

    identity: Annotated[str, Using(_identity), "a number or `inf` or `-inf`, or `highest` or `lowest` of the dtype"]
    element: Annotated[Formula | None, "what an element contributes; itself where it is not written"]
    combine: Formula
    accumulate: Annotated[str | None, "the dtype in which NumPy joins floats, for the compute dtype"]
    finish: Annotated[Formula | None, "what is made of all contributions; themselves where it is not written"]
    state: Annotated[str | None, "what a contribution is in kernels where it is more than a number"]
    identity_location: Annotated[Location, Place("identity")] = field(compare=False)

    def mistakes(self, what: str) -> Mistakes:
        """Note a state that does not begin with 0."""
        if self.state is not None and self.identity != "0":
            yield "identity", f"'identity' of {what} must be 0, as the numbers of a state are"

    @property
    def number(self) -> float:
        """Its identity, where that is a number."""
        # A float would round a large integer.
        return int(self.identity) if self.identity.lstrip("-").isdecimal() else float(self.identity or 0)


@dataclass(frozen=True)
class Position:
    """A reduction whose result is where another one finds its element."""

    of: Annotated[str, Key("position"), "the other reduction"]


def _free(noun: str) -> Rule:
    """A rule for the name of an operand or a parameter."""

    def flaws(spot: Spot, text: str) -> Iterator[str]:
        if text in _TAKEN_NAMES:
            yield f"'{text}' cannot be {noun} of {spot.owner}, the name is taken; choose another one"

    return flaws


def _are_as_many(spot: Spot, names: tuple[str, ...]) -> Iterator[str]:
    count = len({*names})
    mend = "; compute it in two ops, or write a storage method with kernels of its own"
    if count != _NAMED_OPERANDS:
        yield f"{spot.what} must be {_NAMED_OPERANDS} names, not {count}{mend if count > _NAMED_OPERANDS else ''}"


@dataclass(frozen=True)
class Functor:
    """What one op computes of each element, or of all elements that it reduces."""

    name: Annotated[Name, Entry("op '{}'")]
    kind: Annotated[str, Mark.VARIANT]
    named: Annotated[tuple[Annotated[Name, _free("an operand")], ...], Key("operands"), _NAMED, _are_as_many,
                     "as the expressions call them"]  # fmt: skip
    condition: Annotated[Names | None, _NAMED,
                         "the dtypes of the first operand, where it only chooses between the others"]  # fmt: skip
    result: Annotated[str | None, "the dtype of the result, for that of the operands; `any` for that of an argument"]
    parameters: Annotated[Mapping[Annotated[Name, _free("a parameter")], Annotated[float | None, Mark.NULL]],
                          Mark.OPTIONAL, Example("slope: 0.01"), Of(("unary", "binary", "reduce", NAMED)),
                          "numbers besides the operands, and their defaults, or null"]  # fmt: skip
    let: Annotated[Mapping[Name, Formula], Mark.OPTIONAL, "named parts of the formula and of the gradients"]
    written: Annotated[Formula, Key("formula"), Of(("unary", "binary", "cmp", NAMED))]
    gradients: Annotated[Mapping[Name, Formula], Key("gradient"), Mark.OPTIONAL,
                         "of operands, where it is not what follows from the formula"]  # fmt: skip
    doc: str
    dtypes: Names
    note: Annotated[str | None, "what else callers should know"]
    edges: Annotated[tuple[Edge, ...], Mark.OPTIONAL, Example("silu(-inf): -0.0"), "where it is easily wrong"]
    reduction: Annotated[Position | Monoid | None, Of(("reduce",)), Mark.INLINE]  # in place of the formula
    unsupported: Annotated[str, _NAMED, Mark.OPTIONAL, "why it has not the dtypes that it lacks"]
    tensor: Annotated[bool | None, "false where no tensor method is this op alone"]
    location: Location

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands, as the expressions call them."""
        return CHOSEN_KINDS.get(self.kind, tuple(filter(is_name, self.named)))

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient of another op, which opgen has found."""
        return self.kind in GRADIENT_KINDS

    @cached_property
    def formula(self) -> Formula | None:
        """What it computes of each element; None of a reduction."""
        return None if self.reduction is not None else self.written.with_parts(self.let)

    @cached_property
    def gradient(self) -> Mapping[str, Formula]:
        """The gradients of operands, where they are not what follows from the formula."""
        return {operand: formula.with_parts(self.let) for operand, formula in self.gradients.items()}

    @property
    def is_method(self) -> bool:
        """Whether it is a storage method of its own; the others are chosen by an argument `op`."""
        return self.kind not in _CHOSEN_AND_GRADIENTS or bool(self.parameters) or self.result == ANY_RESULT

    @property
    def has_front(self) -> bool:
        """Whether the tensor method is this op alone."""
        return self.tensor is not False

    def mistakes(self, what: str) -> Mistakes:
        """Note parameters that calls could not give, edges that are no calls of it, and a dtype that it cannot have."""
        defaults = list(self.parameters.values())
        for position, name in enumerate(self.parameters):
            if name in self.named:
                message = f"'{name}' cannot be a parameter of {what}, the name is taken; choose another one"
                yield ("parameters", name, None), message
            if defaults[position] is None and any(default is not None for default in defaults[:position]):
                message = f"parameter '{name}' without a default follows one with a default; move it before that one"
                yield ("parameters", name, None), message
        if self.is_method and not self.has_front and any(default is not None for default in defaults):
            message = f"{what} has a default of a parameter, but no tensor method that takes it; write null"
            yield "parameters", message
        if self.condition is not None and self.result is not None:
            yield ("result", None), f"{what} has the dtype of what it chooses; remove 'result'"
        parameters = None if self.reduction is not None else self.parameters
        for edge in self.edges:
            if edge.functor and (message := edge.flaw(self.name, self.operands, parameters) or ""):
                yield edge.location, message

    @property
    def summary(self) -> str:
        """All that the docs say of it."""
        return "; ".join(filter(None, [self.doc, self.note, ", ".join(map(str, self.edges))]))


@dataclass(frozen=True)
class FunctorKind:
    """A file of spec/functors: ops with the same operands.

    Those that are no storage methods of their own are chosen by the argument `op` of the storage method that names the
    kind in its `ops`.
    """

    name: Annotated[str, Entry("{}.yaml")]
    unsupported: Annotated[str, Of(_CHOSEN_AND_GRADIENTS), "why an op has not the dtypes that it lacks"]
    functors: Annotated[tuple[Functor, ...], Key("ops"), Of((*CHOSEN_KINDS, NAMED))]  # the others are found
    joined: Annotated[Name, Key("family"), _NAMED, "the file of spec/storage that its methods join"]
    listed: Annotated[tuple[State, ...], Key("states"), Mark.OPTIONAL, Of(("reduce",))]
    path: Path

    @property
    def family(self) -> str | None:
        """The file of spec/storage that its methods join, where none chooses between its ops."""
        return None if self.name in _CHOSEN_AND_GRADIENTS else self.joined

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The states of reductions, by their names."""
        return {state.name: state for state in self.listed}

    @property
    def class_name(self) -> str:
        """The enum of the functors that are chosen by an argument: unary -> UnaryOp."""
        return op_class(self.name)

    def member(self, functor: Functor) -> str:
        """The member of an enum that one of its functors is."""
        return f"{METHOD_OP if functor.is_method else self.class_name}.{functor.name.upper()}"

    @property
    def chosen(self) -> tuple[Functor, ...]:
        """The functors that are chosen by an argument."""
        return tuple(functor for functor in self.functors if not functor.is_method)

    @property
    def most_parameters(self) -> int:
        """How many parameters a functor has at most."""
        return max((len(functor.parameters) for functor in self.functors), default=0)

    @property
    def most_operands(self) -> int:
        """How many operands a functor has at most."""
        return max((len(functor.operands) for functor in self.functors), default=0)

    @property
    def methods(self) -> tuple[Functor, ...]:
        """The functors that are storage methods of their own."""
        return tuple(functor for functor in self.functors if functor.is_method)


@dataclass(frozen=True)
class Operand:
    """A storage that a method works on."""

    name: Annotated[Name, Entry("operand '{}'"), "`self` or a parameter"]
    layout: Annotated[str | None, "the parameter that is its layout"]
    dtypes: Annotated[Names, "or `same` (as the first operand's), or `op` (the functor's)"]
    location: Location

    @property
    def is_of_blocks(self) -> bool:
        """Whether it holds weights in blocks."""
        return self.dtypes.texts == (BLOCKS,)


@dataclass(frozen=True)
class Check:
    """A check that the dispatch makes before the branch: a function of the emitted package's check module."""

    call: Call
    location: Location

    @classmethod
    def decode(cls, spot: Spot) -> "Check":
        """The check that a text calls."""
        return cls(spot.decode(Call), spot.value.location)


@dataclass(frozen=True)
class Method:
    """A storage method or a device method. The first operand is the one whose dtype the matrix lists."""

    name: Annotated[Name, Entry("method '{}'")]
    signature: Signature
    doc: Annotated[str, Mark.PARAGRAPHS]
    kind: Annotated[str | None, Key("ops"), Of((STORAGE,)), "the functor kind that its op is of"]
    functor: Annotated[str | None, Mark.LATER]  # of that kind that it is; None where its argument `op` chooses one
    operands: Annotated[tuple[Operand, ...], Of((STORAGE,))]
    dtypes: Annotated[Names | None, Of((DEVICE,)), "of the storage that it makes"]
    unsupported: Annotated[str | None, "why it has not the dtypes that it lacks"]
    checks: Annotated[tuple[Check, ...], Mark.OPTIONAL]
    errors: Annotated[Mapping[str, Location], Mark.OPTIONAL, "what backends raise besides what follows from all else"]
    tensor: Annotated[Signature | None, Of((STORAGE,)), "the tensor method that is this method alone"]
    gradient: Annotated[Gradient | None, Of((STORAGE,)), "of all that makes something of floats; ops say their own"]
    owner: Annotated[str, Mark.VARIANT]  # STORAGE or DEVICE
    location: Location

    @property
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
    doc: str
    methods: tuple[Method, ...]
    path: Path

    @property
    def holds_blocks(self) -> bool:
        """Whether its methods are those of weights in blocks."""
        return any(method.holds_blocks for method in self.methods)


@dataclass(frozen=True)
class Device:
    """The file spec/device.yaml."""

    doc: str
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class BackendFamily(CellFile):
    """A file of spec/families: how the backends that extend it lower every op, where they do not say otherwise."""

    name: Annotated[str, Entry("family '{}'")]
    package: Annotated[Name, "the subpackage whose ops it calls"]
    words: Annotated[tuple[Word, ...], Key("vocabulary"), Mark.OPTIONAL,
                     "what its ops are written in, where each of its backends is an array library"]  # fmt: skip

    @cached_property
    def vocabulary(self) -> Mapping[str, Word]:
        """The words, by their names."""
        words: dict[str, Word] = {}
        for word in self.words:
            if word.is_call:
                words.setdefault(word.name, word)
        return words

    def mistakes(self, _: str) -> Mistakes:
        """Note a word that stands twice."""
        for word in self.words:
            first = self.vocabulary.get(word.name, word)
            if word.is_call and word is not first:
                yield word.location, f"word '{word.name}' stands twice, first at line {first.location.line}; keep one"

    # As of a backend: a family extends nothing, and its package is there.
    extends: ClassVar[None] = None
    missing: ClassVar[None] = None

    def __str__(self) -> str:
        return f"family '{self.name}'"


def _is_free(_: Spot, name: str) -> Iterator[str]:
    if nearest(name, CELL_KEYS) is not None:
        yield f"'{name}' is like a key of cells; give the library another name"


@dataclass(frozen=True)
class Library:
    """A vendor's library: the class of the backend's package that opens it, and the dtypes that it has."""

    name: Annotated[Name, Entry("library '{}'"), _is_free]
    opener: Annotated[str, Key("class"), Pattern(r"[a-z]\w*\.[A-Z]\w*", "module.Class")]
    dtypes: Annotated[Names | None, "all where it is not written"]
    location: Annotated[Location, Place("class")]

    @property
    def module(self) -> str:
        """The module of the class that opens it."""
        return self.opener.partition(".")[0]

    @property
    def class_name(self) -> str:
        """The class that opens it."""
        return self.opener.partition(".")[2]


@dataclass(frozen=True)
class Runtime:
    """What runs a backend."""

    package: Annotated[Name | None, "the subpackage"]
    missing: Annotated[str | None, "why there is none"]

    def mistakes(self, what: str) -> Mistakes:
        """Note that it is there and missing, or neither."""
        if (self.package is None) == (self.missing is None):
            yield (None,), f"{what} must have one key: its 'package', or why it is 'missing'"


@dataclass(frozen=True)
class Backend(CellFile):
    """Everything about one backend."""

    name: Annotated[str, Entry("backend '{}'")]
    doc: str
    class_prefix: Annotated[str, Pattern("[A-Z][A-Za-z0-9]*", "Name")]
    extends: Annotated[str | None, "a family or another backend"]
    runtime: Runtime
    extra: Annotated[Name | None, "the optional dependencies that it needs"]
    requires: Annotated[tuple[str, ...], Mark.OPTIONAL, "what pip installs for this extra"]
    listed: Annotated[tuple[str, ...], Key("modules"), Mark.OPTIONAL, "importable when these are installed"]
    libraries: Annotated[tuple[Library, ...], Mark.OPTIONAL, Example("blas: {class: module.Class}")]
    array: Annotated[ArrayLibrary | None, "what it computes with, where its family has a vocabulary"]
    code_objects: Annotated[CodeObjects | None, "what its kernels are compiled for ahead of time"]
    label: Annotated[str, _ORDINAL]
    display: Annotated[str, _ORDINAL, Mark.MAY_BE_EMPTY]
    preference: Annotated[int, "the highest available is Device.default()"]
    dlpack: Annotated[int, "the DLDeviceType of its devices"]

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


# What has cells, which a backend may extend.
Owner: TypeAlias = Backend | BackendFamily


@dataclass(frozen=True)
class Callable:
    """A function of a backend's ops."""

    parameters: tuple[str, ...]
    required: int  # how many of them have no default
    takes_more: bool  # any number of further arguments
    keywords: Mapping[str, bool]  # those that are given by name alone, and whether they have a default

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
    field_groups: tuple[FieldGroup, ...]  # fields that several structs of kernels have side by side
    tuples: tuple[TupleType, ...]  # what Python gives to make plans of the host's kernels
    widths: Mapping[str, tuple[str, Location]]  # the C++ types of elements that kernels only move, by name
    constants: tuple[Constant, ...]  # the numbers that kernels and launchers share
    # What `lower` finds: by backend, by method and op, and by dtype, what the backend does; and the subpackages in
    # which it looks for what it calls.
    lowerings: Mapping[str, Lowerings] = field(default_factory=dict)
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # What the runtime defines: the modules of each subpackage, and the functions of its ops, by module.
    own_modules: Mapping[str, Collection[str]] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, Mapping[str, Callable]]] = field(default_factory=dict)
    raised: Mapping[str, Collection[str]] = field(default_factory=dict)  # by each check
    public: Mapping[str, PublicModule] = field(default_factory=dict)

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The sets of dtypes that have a name."""
        sets = {
            "all": self.dtypes,
            "integer": [dtype for dtype in self.dtypes if dtype.kind in ("unsigned", "signed")],
            "float": [dtype for dtype in self.dtypes if dtype.kind == "float"],
            "wide": [dtype for dtype in self.dtypes if dtype.bytes == MOST_BYTES],
            "index": [dtype for dtype in self.dtypes if dtype.may_index],
        }
        return {name: tuple(dtype.name for dtype in members) for name, members in sets.items()}

    @cached_property
    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """The groups, and the block formats."""
        return {**self.groups, BLOCKS: tuple(item.name.upper() for item in self.formats)}

    def resolve(self, names: Names) -> tuple[str, ...]:
        """The dtypes, or the block formats, that `names` means, in the order of the spec."""
        if names.texts == (BLOCKS,):
            return self.sets[BLOCKS]
        found: set[str] = set()
        for text in names.texts:
            found.update((text,) if names.listed else self.groups.get(text, ()))
        return tuple(dtype.name for dtype in self.dtypes if dtype.name in found)

    def family_of(self, backend: Backend) -> BackendFamily | None:
        """The family that a backend extends, perhaps by way of others."""
        known = {other.name: other for other in self.backends}
        name, seen = backend.extends, {backend.name}
        while name in known and name not in seen:
            seen.add(name)
            name = known[name].extends
        return next((family for family in self.backend_families if family.name == name), None)

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

    @property
    def every_functor(self) -> tuple[Functor, ...]:
        """The functors of all kinds."""
        return tuple(functor for kind in self.functors.values() for functor in kind.functors)

    def ops(self, method: Method) -> tuple[str | None, ...]:
        """The ops that a method chooses between; (None,) for a method that has none."""
        if method.kind is None or method.functor is not None:
            return (None,)
        kind = self.functors.get(method.kind)
        return tuple(functor.name for functor in kind.chosen) if kind else ()

    def kinds(self, method: Method) -> tuple[str, ...]:
        """All that a storage of a method's may have: dtypes, or block formats."""
        if method.holds_blocks:
            return self.resolve(method.operands[0].dtypes)
        return tuple(dtype.name for dtype in self.dtypes)

    def functor(self, method: Method, op: str | None) -> Functor | None:
        """The functor that a method computes with `op`."""
        name = method.functor or op
        kind = self.functors.get(method.kind or "")
        return next((functor for functor in kind.functors if functor.name == name), None) if kind and name else None

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
