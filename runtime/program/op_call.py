"""Calls of ops as the dispatch makes them, and the programs that are built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from .builder import Facts, ProgramBuilder
from .program import Argument, Program
from .values import BlocksBuffer, Buffer, Parameter


class GivenStorage:
    """A storage: what a run of a program is given."""

    __slots__ = ()

    kind: int
    """A number for the dtype, the length, and what the backend tells apart besides."""


class OpCall:
    """A call of an op, without its storages and numbers: all that decides what its program is.

    An op whose first parameter is `build` appends steps to a program. Any other op is a function of an array library,
    which becomes the one step of its program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        numbers: int,
        buffer_of: Callable[[Any, int], Buffer | BlocksBuffer],
    ) -> None:
        """Describe `function(*arguments, **options)`, whose last arguments are so many numbers.

        `buffer_of` gives the buffer for a storage that is the argument of the program at a position.
        """
        self.begin_ns = perf_counter_ns()
        """When the call was made, for profilers: what follows is the making of its plan."""
        self._function = function
        self._options = options
        self.arguments: list[Argument] = []
        """The arguments of the program: a buffer for each storage, and then the numbers."""
        self.parts = parts = list(arguments)
        """The arguments of the op, with buffers in the place of storages and parameters in that of numbers."""
        owners: dict[int, int] = {}
        position = 0
        for place, part in enumerate(arguments[: len(arguments) - numbers]):
            is_operand = isinstance(part, tuple) and len(part) > 0
            storage = part[0] if is_operand else part
            if isinstance(storage, GivenStorage):
                buffer = buffer_of(storage, position)
                # Keys tell whether operands are one storage only where that matters.
                buffer.memory.owner = owners.setdefault(id(storage), position)
                parts[place] = type(part)(buffer, *part[1:]) if is_operand else buffer
                self.arguments.append(buffer)
                position += 1
        for place in range(len(arguments) - numbers, len(arguments)):
            parts[place] = Parameter(position)
            self.arguments.append(parts[place])
            position += 1

    def program(
        self, facts: Facts, overlapping: frozenset[tuple[int, int]] = frozenset(), *, may_refuse: bool = False
    ) -> Program | None:
        """The program of the call on a device; None where the op leaves the call to another one."""
        build = ProgramBuilder(facts, overlapping)
        result = build.add_op(self._function, *self.parts, **self._options)
        if result is None and may_refuse:
            return None
        return build.program(self.name, self.arguments, result)

    @property
    def name(self) -> str:
        """The name of the op."""
        name: str = self._function.__name__
        return name


def operands_of(arguments: Sequence[Any], numbers: int) -> list[Any]:
    """What a run is given of the arguments of a call: the storages, also those of operands, and then the numbers."""
    count = len(arguments) - numbers
    found = [part[0] if isinstance(part, tuple) and part else part for part in arguments[:count]]
    return [*[part for part in found if isinstance(part, GivenStorage)], *arguments[count:]]
