"""The ops that opgen emits from launches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from opgen.kernels import Kernel, KernelFamily
from opgen.model.callables import Callable
from opgen.model.methods import Method
from opgen.problem import Location
from opgen.terms import BUILDER


class Part(NamedTuple):
    """A name with its value in an emitted op."""

    name: str
    text: str
    location: Location


class Step(NamedTuple):
    """A launch: its kernel and its blocks in Python."""

    kernel: str
    blocks: str


HOST_MODULE: Final = "host_launches"
"""The module of the emitted ops on the host, as cells call it."""
DEVICE_MODULE: Final = "launches"
"""The module of the emitted ops on devices."""
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Launched:
    """The steps that an op appends for one launch."""

    struct: str
    kernels: tuple[Kernel, ...]  # the patterns of those that it launches
    locals: tuple[Part, ...]
    packer: str  # the function that packs the struct
    fields: tuple[Part, ...]
    parts: str  # the launches, where there may be several
    steps: tuple[Step, ...]
    options: str  # of the step that launches
    condition_of_error: str | None  # under which the kernel may note an index, as `if x: `; None if never

    @property
    def notes_error(self) -> bool:
        """Whether the kernel may note an index that is out of range."""
        return self.condition_of_error is not None

    @property
    def indent(self) -> str:
        """The indentation of a launch: deeper in a loop over several."""
        return " " * (8 if self.parts else 4)

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions that need its local names."""
        steps = (text for step in self.steps for text in step)
        return (*(field.text for field in self.fields), self.parts, *steps, self.options, self.condition_of_error or "")


@dataclass(frozen=True)
class LaunchOp:
    """An op that opgen makes of launches, as the template writes it in Python."""

    method: Method
    family: KernelFamily
    location: Location
    arguments: tuple[str, ...]  # after the builder and the library
    parameters: str  # all with their types
    kernel: str  # on the host, where its condition asks for it
    first: tuple[Part, ...]  # what the condition needs
    condition: str  # of the launch, on the host
    outputs: tuple[Part, ...]
    unless: str  # where nothing is launched, on a device
    instead: str
    zeroed: tuple[Part, ...]  # the buffers that are set to 0, each with a condition
    launched: tuple[Launched, ...]
    returns: str
    results: str
    has_optional: bool  # some of the results may be null
    calls: frozenset[tuple[str, str]]  # of functions of modules

    @property
    def is_dynamic(self) -> bool:
        """Whether a program serves any number of elements."""
        return any(f"{BUILDER}.count(" in each.text for each in self.outputs)

    @property
    def module(self) -> str:
        """The module that has it."""
        return module_of(self.family)

    @property
    def name(self) -> str:
        """The name in cells."""
        return f"{self.module}.{self.method.name}"

    @property
    def returned(self) -> str:
        """The expression that the op returns; empty if it returns nothing."""
        if self.has_optional:
            return f"tuple([buffer for buffer in ({self.results}) if buffer is not None])"
        return self.results

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The patterns of the kernels that it launches."""
        return tuple(kernel for launched in self.launched for kernel in launched.kernels)

    @property
    def struct(self) -> str:
        """The structs that it packs."""
        return ", ".join(launched.struct for launched in self.launched)

    def pruned(self) -> "LaunchOp":
        """Return the op without names that nothing reads."""
        words: set[str] = set()
        launched: list[Launched] = []
        for each in reversed(self.launched):
            words.update(word for text in each.texts for word in _WORD.findall(text))
            launched.append(replace(each, locals=_needed(each.locals, words)))
        texts = (self.kernel, self.condition, self.unless, self.instead, *(part.text for part in self.outputs))
        words.update(word for text in texts for word in _WORD.findall(text))
        return replace(self, first=_needed(self.first, words), launched=tuple(reversed(launched)))

    @property
    def doc(self) -> str:
        """Its docstring."""
        return f"Launch a kernel of {self.family.name}{'; None where the next call takes it' * self.family.host}."

    @property
    def callable(self) -> Callable:
        """How cells may call it."""
        names = (BUILDER, *["kernels"] * self.family.host, *self.arguments)
        return Callable(names, len(names), False, {})


def module_of(family: KernelFamily) -> str:
    """The module of the ops that launch the kernels of a family."""
    return HOST_MODULE if family.host else DEVICE_MODULE


def _needed(parts: Sequence[Part], words: set[str]) -> tuple[Part, ...]:
    """The parts whose names are among the words that later ones read, to which it adds those that these read."""
    needed: list[Part] = []
    for part in reversed(parts):
        if not words.isdisjoint(_WORD.findall(part.name)):
            needed.append(part)
            words.update(_WORD.findall(part.text))
    return tuple(reversed(needed))
