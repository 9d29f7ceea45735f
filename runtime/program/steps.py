"""The steps of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from .argument_struct import PackedArguments
from .values import Address, BlocksBuffer, Buffer, Memory


class Allocate(NamedTuple):
    """Allocate memory."""

    memory: Memory


class Launch(NamedTuple):
    """Launch a kernel of a family on so many blocks, with the packed fields of its struct.

    `shared_bytes` is the shared memory that the launch asks for beyond what the kernel declares. `work` is how many
    elements an elementwise kernel computes in the time of the launch, where these are more than it makes.
    """

    family: str
    kernel: str
    blocks: int
    arguments: PackedArguments
    shared_bytes: int = 0
    work: int = 0


class LibraryCall(NamedTuple):
    """Call a function of a vendor's library, which gets plain numbers in the place of values.

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
    nbytes: int


class Fill(NamedTuple):
    """Set every byte to a number below 256."""

    target: Address
    byte: int
    nbytes: int


class ExpectError(NamedTuple):
    """Say that an earlier launch may have noted an index that is out of range."""


class HostCall(NamedTuple):
    """Call a function of the host with storages in the place of buffers, and with the numbers of parameters.

    It may be the result of its program: the storages that it returns.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = {}


Step: TypeAlias = Allocate | Launch | LibraryCall | Copy | Fill | ExpectError | HostCall


def accessed(step: Step) -> list[Memory]:
    """The memory that a step reads or writes."""
    # Patterns of classes would take longer, and most steps are launches.
    if isinstance(step, Launch):
        return [value.memory for _, value in step.arguments.values if isinstance(value, Address)]
    found: list[Memory] = []
    if isinstance(step, LibraryCall | HostCall):
        _collect(step.arguments, found)
    elif isinstance(step, Copy):
        found += step.target.memory, step.source.memory
    elif isinstance(step, Fill):
        found.append(step.target.memory)
    return found


def _collect(part: object, found: list[Memory]) -> None:
    if isinstance(part, Address | Buffer | BlocksBuffer):
        found.append(part.memory)
    elif isinstance(part, tuple):
        for each in part:
            _collect(each, found)
