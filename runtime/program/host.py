"""Runs programs that call functions of the host, with functions that are written for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...dtype import Array
from .code import define
from .program import Allocate, HostCall, Program, Step
from .values import BlocksBuffer, Buffer, Constant, Memory, Parameter

Translate: TypeAlias = Callable[[Exception], Exception]
"""Returns the error to raise instead of one of a library's; that may be the same one."""


class Translating:
    """Errors that are raised inside of a `with` block become those of tallow."""

    __slots__ = ("_translate",)

    def __init__(self, translate: Translate) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            other = self._translate(error)
            if other is not error:
                raise other from error


class HostCompiler:
    """Writes the text of the function that runs a program."""

    def __init__(
        self,
        program: Program,
        translate: Translate,
        storage_of: Callable[[Array], Any],
        mark: Callable[[], None] | None = None,
    ) -> None:
        """`storage_of` makes the storage of an array. The function calls `mark` in front of each step."""
        self._program = program
        self._storage_of_array = storage_of
        self._mark = mark
        self._count = itertools.count()
        self._names: dict[str, Any] = {"translate": translate}
        self._lines: list[str] = []
        self._storages: dict[Memory, str] = {}
        """The names of the storages that are there."""
        for position, argument in enumerate(program.arguments):
            if not isinstance(argument, Parameter):
                self._storages[argument.memory] = f"x{position}"

    def function(self) -> Callable[..., Any]:
        """The function of storages and numbers that runs the program."""
        program = self._program
        for step, released in zip(program.steps, program.released, strict=True):
            # Memory is allocated by what uses it first.
            if isinstance(step, Allocate):
                continue
            if self._mark is not None:
                self._lines.append(f"{self._constant(self._mark)}()")
            self._step(step, released)
            if step is not program.steps[-1]:
                self._lines += [f"del {self._storages.pop(each)}" for each in released if each in self._storages]
        if not isinstance(program.result, HostCall):
            self._lines.append(f"return {self._result()}")
        # Not every function has a name.
        name = program.name if program.name.isidentifier() else "run"
        body = "".join(f"\n        {line}" for line in self._lines)
        text = f"""def {name}({", ".join(self._parameters())}):
    try:{body}
    except Exception as error:
        other = translate(error)
        if other is error:
            raise
        raise other from error
"""
        return define(text, program.name, self._names)

    def _parameters(self) -> list[str]:
        return [f"x{position}" for position in range(len(self._program.arguments))]

    def _result(self) -> str:
        results = self._program.buffers
        if not results:
            return "True"
        names = [self._storage(buffer) for buffer in results]
        return names[0] if isinstance(self._program.result, Buffer) else f"({', '.join(names)},)"

    def _step(self, step: Step, _released: Sequence[Memory]) -> None:
        """Write a step, after which memory is released."""
        if not isinstance(step, HostCall):
            raise TypeError(f"the host has no {type(step).__name__}")
        options = [f"{name}={self._text(value)}" for name, value in step.options.items()]
        call = f"{self._constant(step.function)}({', '.join([*map(self._text, step.arguments), *options])})"
        if step.result is not None:
            call = f"{self._name(step.result.memory)} = {call}"
        self._lines.append(f"return {call}" if step is self._program.result else call)

    def _text(self, value: Any) -> str:
        """The expression of an argument."""
        # Patterns of classes would take longer.
        if isinstance(value, Buffer | BlocksBuffer):
            return self._storage(value)
        if isinstance(value, Parameter):
            return f"x{value.position}"
        if isinstance(value, tuple) and not {Buffer, BlocksBuffer}.isdisjoint(map(type, value)):
            parts = "".join([f"{self._text(part)}, " for part in value])
            # A named tuple's own function, in Python, takes longer.
            return f"{self._constant(tuple.__new__)}({self._constant(type(value))}, ({parts}))"
        return self._constant(value)

    def _storage(self, buffer: Buffer | BlocksBuffer) -> str:
        """The name of the storage of a buffer."""
        return self._storage_of(buffer.memory)

    def _storage_of(self, memory: Memory) -> str:
        name = self._storages.get(memory)
        if name is None:
            assert isinstance(memory, Constant), "functions of the host return what later ones get"
            name = self._storages[memory] = self._constant(self._storage_of_array(memory.array))
        return name

    def _name(self, memory: Memory) -> str:
        name = self._storages[memory] = f"m{next(self._count)}"
        return name

    def _constant(self, value: object) -> str:
        name = f"c{next(self._count)}"
        self._names[name] = value
        return name
