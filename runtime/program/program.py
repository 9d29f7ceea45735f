"""A program: its steps, how long its memory is needed, and how it is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from .values import (
    Address,
    BlocksBuffer,
    Buffer,
    CallNumber,
    Constant,
    DrawPart,
    ErrorRecord,
    KernelArguments,
    Memory,
    Number,
    Parameter,
    Scalar,
)


class Allocate(NamedTuple):
    """Allocate memory."""

    memory: Memory


class Launch(NamedTuple):
    """Launch a kernel of a family on `blocks` blocks, with the fields of its struct.

    `shared_bytes` is the shared memory that the launch asks for beyond what the kernel declares. `work` is how many
    elements an elementwise kernel computes in the time of the launch, where these are more than it makes.
    """

    family: str
    kernel: str
    blocks: Number
    arguments: KernelArguments
    shared_bytes: int = 0
    work: Number = 0


class LibraryCall(NamedTuple):
    """Call a function of a vendor's library, which gets plain numbers for values.

    Where it has a fallback, the call may refuse: it returns False and has written nothing. In the first run the
    dispatch then goes on to the next cell. A later run does what the fallback builds: an op with all of its operands,
    which are arguments of the program, but for `build`.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    fallback: partial[Any] | None = None


class Copy(NamedTuple):
    """Copy bytes within the device; the regions do not overlap."""

    target: Address
    source: Address
    nbytes: Number


class Fill(NamedTuple):
    """Set every byte to a number below 256."""

    target: Address
    byte: int
    nbytes: Number


class ExpectError(NamedTuple):
    """Say that an earlier launch may have noted an index that is out of range."""


class HostCall(NamedTuple):
    """Call a function of the host, which gets storages for buffers and numbers for parameters.

    It may be the result of its program: what it returns. Where other steps need the storage that it returns, that has
    a buffer.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = {}
    result: Buffer | None = None


Step: TypeAlias = Allocate | Launch | LibraryCall | Copy | Fill | ExpectError | HostCall


def accessed(step: Step) -> list[Memory]:
    """The memory that a step reads or writes."""
    # Patterns of classes would take longer, and most steps are launches.
    if isinstance(step, Launch):
        return [value.memory for _, value in step.arguments.values if isinstance(value, Address)]
    memory: list[Memory] = []
    if isinstance(step, LibraryCall | HostCall):
        _collect(step.arguments, memory)
        if isinstance(step, HostCall):
            _collect(tuple(step.options.values()), memory)
            if step.result is not None:
                memory.append(step.result.memory)
    elif isinstance(step, Copy):
        memory += step.target.memory, step.source.memory
    elif isinstance(step, Fill):
        memory.append(step.target.memory)
    return memory


def _collect(part: object, memory: list[Memory]) -> None:
    if isinstance(part, Address | Buffer | BlocksBuffer):
        memory.append(part.memory)
    elif isinstance(part, tuple):
        for each in part:
            _collect(each, memory)


Argument: TypeAlias = Buffer | BlocksBuffer | Parameter
Results: TypeAlias = Buffer | Sequence[Buffer] | HostCall | None
"""The results of a program: storages of buffers, or the value that a function of the host returns."""


class Program(NamedTuple):
    """The steps of a call of an op, the same for all calls with its key.

    A run gets a storage for each buffer among the arguments, then the numbers. It returns a storage for the buffer
    that is the result, or a tuple of storages.
    """

    name: str
    arguments: tuple[Argument, ...]
    steps: tuple[Step, ...]
    result: Results
    released: tuple[tuple[Memory, ...], ...] = ()
    """For each step, the allocated memory that no later step and no result needs."""
    disjoint: tuple[tuple[Memory, Memory], ...] = ()
    """Foreign memory of arguments that the steps take to be disjoint. Runs where they overlap need another program."""
    buffers: tuple[Buffer, ...] = ()
    """The result, or the results, that are buffers."""

    @property
    def is_host_call(self) -> bool:
        """Whether the program is a call of a function of the host, and nothing else."""
        return len(self.steps) == 1 and isinstance(self.result, HostCall)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(program: Program) -> list[str]:
    names = _Names()
    arguments = ", ".join(names.argument(argument) for argument in program.arguments)
    lines = [f"{program.name}({arguments}):"]
    for step, released in zip(program.steps, program.released, strict=True):
        lines.append(f"    {'return ' if step is program.result else ''}{names.step(step)}")
        lines += [f"    free {names.memory(memory)}" for memory in released]
    if results := program.buffers:
        lines.append(f"    return {', '.join(map(names.text, results))}")
    return lines


class _Names:
    """How a printed program calls its values."""

    def __init__(self) -> None:
        self._memory: dict[Memory, str] = {}

    def memory(self, memory: Memory) -> str:
        if isinstance(memory, Constant):
            return repr(memory)
        if memory.argument is not None:
            return f"x{memory.argument}"
        return self._memory.setdefault(memory, f"m{len(self._memory)}")

    def argument(self, argument: Argument) -> str:
        if isinstance(argument, Parameter):
            return repr(argument)
        number = ", a number" if argument.number is not None else ""
        return f"{self.memory(argument.memory)}: {argument.dtype}[{argument.length}]{number}"

    def step(self, step: Step) -> str:
        match step:
            case Allocate(memory):
                return f"{self.memory(memory)} = allocate {self.text(memory.size)} bytes"
            case Launch(family, kernel, blocks, arguments):
                values = ", ".join(self.text(value) for _, value in arguments.values)
                return f"launch {family}/{kernel} on {self.text(blocks)} blocks ({values})"
            case LibraryCall(function, arguments, fallback):
                otherwise = "" if fallback is None else f", else {name_of(fallback)}"
                return f"call {name_of(function)}({', '.join(map(self.text, arguments))}){otherwise}"
            case Copy(target, source, nbytes):
                return f"copy {self.text(nbytes)} bytes from {self.text(source)} to {self.text(target)}"
            case Fill(target, byte, nbytes):
                return f"fill {self.text(nbytes)} bytes at {self.text(target)} with {byte}"
            case ExpectError():
                return "expect an index error"
            case HostCall(function, arguments, _, result):
                returned = "" if result is None else f"{self.text(result)} = "
                return f"{returned}host {name_of(function)}({', '.join(map(self.text, arguments))})"

    def text(self, value: object) -> str:
        match value:
            case Address(memory=memory, offset=offset):
                return f"{self.memory(memory)} + {offset}" if offset else self.memory(memory)
            case Memory():
                return self.memory(value)
            case Buffer():
                return f"{self.memory(value.memory)}: {value.dtype}[{self.text(value.count)}]"
            case BlocksBuffer():
                return f"{self.memory(value.memory)}: {value.dtype}[{value.length}]"
            case Scalar(source=source, function=function):
                text = self.text(source) if isinstance(source, Scalar | Parameter) else f"bits of x{source}"
                return text if function is None else f"{name_of(function)}({text})"
            case ErrorRecord():
                return "error record"
            case CallNumber():
                return "call number"
            case DrawPart(draw=draw, name=name):
                return f"{name} of {self.text(draw.blocks)} random blocks"
            case tuple():
                return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        return name_of(value) if callable(value) else str(value)


def name_of(function: object) -> str:
    """The name of a function, or of the one that it is part of."""
    named = getattr(function, "func", function)
    return getattr(named, "__qualname__", type(named).__name__).replace("<locals>.", "")
