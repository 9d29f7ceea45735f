"""Programs compiled for a GPU: Python functions, whose text is written for them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ....program.code import define
from ....program.program import Allocate, Copy, ExpectError, Fill, HostCall, Launch, LibraryCall, Program
from ....program.values import (
    Address,
    BlocksBuffer,
    Buffer,
    CallNumber,
    Draw,
    DrawPart,
    ErrorRecord,
    KernelArguments,
    Memory,
    Parameter,
    Scalar,
    Value,
    computed,
)
from ...plan import Plan, kind_of
from ..driver.grid import MAX_BLOCKS

if TYPE_CHECKING:
    from ..gpu_base import GpuBase


def compiled(device: GpuBase, program: Program, run_fallback: Plan, otherwise: Plan | None) -> Plan:
    """A function that runs a program, whose kernels were launched before.

    `run_fallback` runs the fallback of a step, which it gets in front of the operands. `otherwise` runs the program
    where foreign memory that its steps take to be disjoint overlaps.
    """
    return _Compiler(device, program, run_fallback, otherwise).function()


class _Compiler:
    """Writes the text of the function that runs a program."""

    def __init__(self, device: GpuBase, program: Program, run_fallback: Plan, otherwise: Plan | None) -> None:
        self._device = device
        self._run_fallback = run_fallback
        self._program = program
        self._otherwise = otherwise
        self._count = itertools.count()
        self._memory: dict[Memory, str] = {}
        self._values: dict[Value, str] = {}
        self._draws: dict[Draw, str] = {}
        # What the function begins with, in this order, and what it does then.
        self._first: dict[str, None] = {}
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "Slice": device.slice_class,
            "Storage": device.storage_class,
            "allocator": device.allocator,
            "index_errors": device.index_errors,
            "reserve": device.reserve,
        }

    def function(self) -> Plan:
        program = self._program
        for pair in program.disjoint:
            self._require_apart(*pair)
        for step, released in zip(program.steps, program.released, strict=True):
            self._step(step)
            self._lines += [f"del {self._memory.pop(memory)}_memory" for memory in released]
        results = list(map(self._new, program.buffers))
        returned = ", ".join(results) if isinstance(program.result, Buffer) else f"({', '.join(results)},)"
        self._lines.append(f"return {returned if results else True}")
        lines = self._lines
        if self._draws:
            cancelled = "; ".join(f"{name}.cancel()" for name in self._draws.values())
            lines = ["try:", *[f"    {line}" for line in lines], f"except BaseException: {cancelled}; raise"]
        body = "".join(f"\n    {line}" for line in (*self._first, *lines))
        text = f"def {program.name}({', '.join(self._parameters())}):{body}\n"
        return define(text, program.name, self._names)

    def _parameters(self) -> list[str]:
        return [f"x{position}" for position in range(len(self._program.arguments))]

    def _step(self, step: Any) -> None:
        match step:
            case Allocate(memory):
                name = self._memory[memory] = f"m{next(self._count)}"
                self._lines.append(f"{name}_memory = Slice(allocator, {self._text(memory.size)})")
                self._lines.append(f"{name} = {name}_memory.address")
            case Launch(family, kernel, blocks, arguments, shared_bytes):
                # The first run may have launched others, where memory of its operands overlapped.
                function = self._device.kernels.function(family, kernel, arguments.struct.size, shared_bytes)
                launch = self._constant(function)
                count = self._text(computed(min, blocks, MAX_BLOCKS))
                self._lines.append(f"{launch}({count}, {self._packed(arguments)})")
            case LibraryCall(function, arguments, fallback):
                call = self._call(function, arguments)
                if fallback is not None:
                    # What lacks memory most often: the fallback gets that of the program.
                    release = "".join(f"del {name}_memory; " for name in self._memory.values())
                    run = self._constant(partial(self._run_fallback, fallback))
                    call = f"if {call} is False: {release}return {run}({', '.join(self._parameters())})"
                self._lines.append(call)
            case Copy(target, source, nbytes):
                self._lines.append(self._call(self._device.driver.copy, (target, source, nbytes)))
            case Fill(target, byte, nbytes):
                self._lines.append(self._call(self._device.driver.fill_bytes, (target, byte, nbytes)))
            case ExpectError():
                self._lines.append("index_errors.expect()")
            case HostCall(function, arguments, options):
                self._lines.append(self._call(function, arguments, **options))

    def _call(self, function: Callable[..., Any], arguments: Sequence[Any], /, **options: Any) -> str:
        named = [f"{name}={self._constant(value)}" for name, value in options.items()]
        return f"{self._constant(function)}({', '.join([*map(self._text, arguments), *named])})"

    def _packed(self, arguments: KernelArguments) -> str:
        form, fields = arguments.parts()
        return f"{self._constant(_packer(form))}({', '.join(map(self._text, fields))})"

    def _text(self, value: Any) -> str:
        """The expression of a value, or of a tuple that has some in it."""
        match value:
            case Buffer() | BlocksBuffer():
                return self._storage(value)
            case Parameter():
                return f"x{value.position}"
            case Address(memory=memory, offset=offset):
                name = self._base(memory)
                return f"{name} + {self._constant(offset)}" if offset else name
            case Value():
                return self._value(value)
            case tuple() if _has_values(value):
                kind_name = "" if type(value) is tuple else self._constant(type(value))
                comma = "," if not kind_name and len(value) == 1 else ""
                return f"{kind_name}({', '.join(map(self._text, value))}{comma})"
        return self._constant(value)

    def _base(self, memory: Memory) -> str:
        """The name of the address of memory."""
        if memory.argument is None:
            return self._memory[memory]
        name = f"x{memory.argument}_memory"
        self._first[f"{name} = x{memory.argument}.memory.address"] = None
        return name

    def _value(self, value: Value) -> str:
        name = self._values.get(value)
        if name is None:
            match value:
                case ErrorRecord():
                    name = "errors"
                    expression = "index_errors.address"
                case CallNumber():
                    name = f"call{next(self._count)}"
                    expression = "index_errors.next_call()"
                case DrawPart(draw=draw, name=part):
                    if draw not in self._draws:
                        self._draws[draw] = f"draw{next(self._count)}"
                        self._first[f"{self._draws[draw]} = reserve({self._text(draw.blocks)})"] = None
                    name = f"{self._draws[draw]}_{part}"
                    expression = f"{self._draws[draw]}.{part}"
                case Scalar(source=source, function=function, constants=constants):
                    name = f"n{next(self._count)}"
                    expression = self._source(source)
                    if function is not None:
                        expression = (
                            f"{self._constant(function)}({', '.join([expression, *map(self._constant, constants)])})"
                        )
                case _:
                    raise TypeError(f"a run on a GPU has no {type(value).__name__}")
            self._first[f"{name} = {expression}"] = None
            self._values[value] = name
        return name

    def _source(self, source: Parameter | int | Scalar) -> str:
        if isinstance(source, Scalar):
            return self._value(source)
        return f"x{source.position}" if isinstance(source, Parameter) else f"x{source}.bits"

    def _storage(self, buffer: Buffer | BlocksBuffer) -> str:
        """The name of the storage of a buffer: that of an argument, else a new one."""
        argument = buffer.memory.argument
        if argument is not None and buffer is self._program.arguments[argument]:
            return f"x{argument}"
        return self._new(buffer)

    def _new(self, buffer: Any) -> str:
        """The name of a new storage of a buffer."""
        memory = buffer.memory
        owner = f"{self._memory[memory]}_memory" if memory.argument is None else f"x{memory.argument}.memory"
        skew = 1 + memory.skew if memory.is_foreign else 0
        dtype, length = self._constant(buffer.dtype), self._text(buffer.count)
        if isinstance(buffer.count, int):
            kind = self._constant(kind_of(buffer.dtype, buffer.count, skew))
        else:
            kind = f"{self._constant(kind_of)}({dtype}, {length}, {skew})"
        fields = {"device": self._constant(self._device), "dtype": dtype, "length": length, "kind": kind}
        name = f"r{next(self._count)}"
        self._lines.append(f"{name} = new(Storage)")
        self._lines += [f"{name}.{field} = {value}" for field, value in fields.items()]
        self._lines.append(f"{name}.memory = {owner}")
        return name

    def _require_apart(self, one: Memory, other: Memory) -> None:
        """Leave operands whose memory overlaps to another plan."""
        first, second = self._base(one), self._base(other)
        ends = [f"{name} + {self._constant(memory.nbytes)}" for name, memory in ((first, one), (second, other))]
        otherwise = f"{self._constant(self._otherwise)}({', '.join(self._parameters())})"
        self._first[f"if {first} < {ends[1]} and {second} < {ends[0]}: return {otherwise}"] = None

    def _constant(self, value: object) -> str:
        """The name of what is the same in all runs."""
        name = f"c{next(self._count)}"
        self._names[name] = value
        return name


def _has_values(parts: tuple[Any, ...]) -> bool:
    return any(
        isinstance(part, Value | Buffer | BlocksBuffer | Parameter) or (isinstance(part, tuple) and _has_values(part))
        for part in parts
    )


@lru_cache(maxsize=1024)
def _packer(form: str) -> Callable[..., bytes]:
    return struct.Struct(form).pack
