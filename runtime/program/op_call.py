"""Calls of ops as the dispatch makes them, and the programs that are built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .builder import Facts, ProgramBuilder
from .program import Argument, Program
from .steps import HostCall
from .values import BlocksBuffer, Buffer, Parameter


class GivenStorage:
    """A storage: what a run of a program is given."""

    __slots__ = ()

    kind: int
    """A number for the dtype, the length, and what the backend tells apart besides: programs serve storages of a kind."""


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
        self._function = function
        self._options = options
        self._arguments: list[Argument] = []
        owners: dict[int, int] = {}

        def part_of(part: Any) -> Any:
            if isinstance(part, GivenStorage):
                position = len(self._arguments)
                buffer = buffer_of(part, position)
                # Keys tell whether operands are one storage only where that matters.
                buffer.memory.owner = owners.setdefault(id(part), position)
                self._arguments.append(buffer)
                return buffer
            if isinstance(part, tuple) and part and isinstance(part[0], GivenStorage):
                kind: Any = type(part)
                return kind(part_of(part[0]), *part[1:])
            return part

        count = len(arguments) - numbers
        self._parts = [part_of(part) for part in arguments[:count]]
        for _ in range(numbers):
            parameter = Parameter(len(self._arguments))
            self._arguments.append(parameter)
            self._parts.append(parameter)

    def program(
        self, facts: Facts, overlapping: frozenset[tuple[int, int]] = frozenset(), *, may_refuse: bool = False
    ) -> Program | None:
        """The program of the call on a device; None where the op leaves the call to another one."""
        function, arguments = self._function, tuple(self._arguments)
        if not builds(function):
            step = HostCall(function, tuple(self._parts), self._options)
            return Program(function.__name__, arguments, (step,), None)
        build = ProgramBuilder(facts, overlapping)
        result = function(build, *self._parts, **self._options)
        if result is None and may_refuse:
            return None
        return build.program(function.__name__, arguments, result)


def builds(function: Any) -> bool:
    """Whether an op builds a program."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_varnames[:1] == ("build",)


def operands_of(arguments: Sequence[Any], numbers: int) -> list[Any]:
    """What a run is given of the arguments of a call: the storages, also those of operands, and then the numbers."""
    count = len(arguments) - numbers
    found = [part[0] if isinstance(part, tuple) and part else part for part in arguments[:count]]
    return [*[part for part in found if isinstance(part, GivenStorage)], *arguments[count:]]
