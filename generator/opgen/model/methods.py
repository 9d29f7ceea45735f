"""Storage methods and device methods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

from opgen.decoder import Cursor, Diagnostics
from opgen.formats import is_format_set
from opgen.model.examples import Example as CallExample
from opgen.model.examples import Values
from opgen.model.gradients import Gradient
from opgen.model.kinds import METHOD_OP
from opgen.model.results import Result
from opgen.names import Names
from opgen.notes import Entry, Form, Key, Mark, Name, Of, defines, names_of
from opgen.parts import Part
from opgen.problem import Location, did_you_mean
from opgen.signature import Call, Signature, is_optional

# The variants of methods.
STORAGE, DEVICE = "storage", "device"


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
        """Whether it holds block-quantized weights."""
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
        "Calls of functions of runtime/core/check.py or layer_check.py, before the branch of a backend. A "
        "method that returns nothing writes to `self`, and to each operand whose layout `no_repeats` checks.",
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
        "shapes, of parameters their values. Without a shape, a required operand has that of `self`, and an optional "
        "one is None. Dtypes, layouts, ops and groups follow. Without this key `self` is a vector. Tests and the "
        "self-test make the calls.",
    ]
    owner: Annotated[str, Mark.VARIANT]  # STORAGE or DEVICE
    location: Location = field(compare=False)

    @cached_property
    def is_broken(self) -> bool:
        """Whether its signature or its operands are invalid, which is reported, so that nothing else can be checked."""
        lacks_operands = self.owner == STORAGE and not self.operands
        return not self.signature.name or lacks_operands or next(self._operand_diagnostics(), None) is not None

    def diagnostics(self, what: str) -> Diagnostics:
        """Note a signature of another name, and operands that are no parameters."""
        if self.signature.name != self.name:
            yield (None,), f"{what} has the signature of '{self.signature.name}'; give both one name"
        if self.operands and all(operand.name != "self" for operand in self.operands):
            yield (None,), f"{what} has no operand 'self'; add it to 'operands'"
        yield from self._operand_diagnostics()

    def _operand_diagnostics(self) -> Diagnostics:
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
        """Whether it is a method of block-quantized weights."""
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
        """Return the arguments of a call in a branch: the op, the operands, the others, and lists of storages.

        `ops` is how the branch calls the module of the class Operand, with a dot.
        """
        arguments = []
        if self.kind is not None:
            arguments.append("op" if self.functor is None else f"{METHOD_OP}.{self.functor.upper()}")
        for operand in self.single_operands:
            inner, maker = inner_name(operand.name), ".optional" * self.is_optional(operand.name)
            arguments.append(inner if operand.layout is None else f"{ops}Operand{maker}({inner}, {operand.layout})")
        if not self.operands:
            arguments.append("inner")
        # The argument `dtype` of a functor is that of its result, whatever its other arguments are.
        spelled = {"dtype": "result=dtype"} if self.functor is not None else {}
        taken = {"op", *(name for operand in self.operands for name in (operand.name, operand.layout))}
        others = (spelled.get(name, name) for name in self.signature.arguments if name not in taken)
        arguments += sorted(others, key=lambda text: "=" in text)
        several = filter(self.is_several, self.operands)
        return arguments + [f"*{ops}Operand.each({operand.name}, {operand.layout})" for operand in several]


def inner_name(operand: str) -> str:
    """Return the name of an operand's backend storage in a branch."""
    return "inner" if operand == "self" else f"{operand}_inner"


@dataclass(frozen=True)
class Family:
    """A file of spec/storage: methods that belong together, and become one module."""

    name: Annotated[str, Entry("{}.yaml")]
    doc: Annotated[str, "The docstring of the module that the methods become."]
    methods: Annotated[tuple[Method, ...], Mark.OPTIONAL, "The storage methods by name, besides those of functors."]
    path: Path

    @property
    def holds_blocks(self) -> bool:
        """Whether its methods are those of block-quantized weights."""
        return any(method.holds_blocks for method in self.methods)


@dataclass(frozen=True)
class Device:
    """The methods of a device."""

    doc: Annotated[str, "The docstring of the module."]
    methods: Annotated[tuple[Method, ...], "The device methods by name."]
