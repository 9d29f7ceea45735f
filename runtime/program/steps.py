"""The steps of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from .argument_struct import PackedArguments
from .values import Address, BlocksBuffer, Buffer, Memory


class Allocate(NamedTuple):
    """Allocate memory."""

    memory: Memory


class Launch(NamedTuple):
    """Launch a kernel of a family on so many blocks, with the packed fields of its struct.

    `shared_bytes` is the shared memory that the launch asks for beyond what the kernel declares.
    """

    family: str
    kernel: str
    blocks: int
    arguments: PackedArguments
    shared_bytes: int = 0


class LibraryCall(NamedTuple):
    """Call a function of a vendor's library, which gets plain numbers in the place of values.

    Where the call may refuse, it returns False and has written nothing; then the program has done nothing either.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    may_refuse: bool = False


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

    A function of an array library returns the storages that are the results of the program.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = {}


Step: TypeAlias = Allocate | Launch | LibraryCall | Copy | Fill | ExpectError | HostCall


def memories(part: object) -> Iterator[Memory]:
    """The memory that a step, or a part of one, reads or writes."""
    if isinstance(part, Memory):
        yield part
    elif isinstance(part, Address | Buffer | BlocksBuffer):
        yield part.memory
    elif isinstance(part, PackedArguments):
        for _, value in part.values:
            yield from memories(value)
    elif isinstance(part, tuple | list):
        for each in part:
            yield from memories(each)
