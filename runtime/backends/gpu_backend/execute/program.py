"""Runs programs on a GPU: step by step the first time, then as a Python function that is compiled for the program."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .....dtype import DType
from ....program.builder import OpCall, program_of_fallback
from ....program.code import define
from ....program.dynamic import with_count
from ....program.program import (
    Allocate,
    Argument,
    Copy,
    ExpectError,
    Fill,
    HostCall,
    Launch,
    LibraryCall,
    Program,
    Step,
)
from ....program.program import Results as BuiltResults
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
from ...plan import Key, Plan, kind_of
from ..driver.grid import MAX_BLOCKS
from ..memory.storage import GpuStorage

if TYPE_CHECKING:
    from ..gpu_base import GpuBase, Reserved

Results: TypeAlias = GpuStorage | tuple[GpuStorage, ...] | bool | None
"""Storages, or True where the steps write to memory of the arguments alone. None where a library refuses."""

Watch: TypeAlias = Callable[[Step, Callable[[], Any]], Any]
"""Takes a step by calling a function, and returns what that returns."""

_CONSTANTS: Final = frozenset((bool, float, int, str, type(None), DType))
"""Classes of arguments that are the same in all runs."""


def plan_of(device: GpuBase, key: Key, call: OpCall, *, may_refuse: bool) -> GpuPlan | None:
    """The plan of a call on a GPU: see `Planner.plan_of`."""
    program = call.program(device.facts, may_refuse=may_refuse)
    return None if program is None else GpuPlan(device, key, call, program)


def dynamic_plan_of(device: GpuBase, call: OpCall) -> GpuDynamicPlan:
    """Return the plan of the dynamic program of a call: see `Planner.dynamic_plan_of`."""
    program = call.program(device.facts)
    assert program is not None, "dynamic ops take all calls"
    return GpuDynamicPlan(device, program)


class GpuDynamicPlan:
    """Runs a dynamic program, which is compiled when a second number of elements comes."""

    __slots__ = ("_device", "_program", "run")

    def __init__(self, device: GpuBase, program: Program) -> None:
        self._device = device
        self._program = program
        self.run: Plan = self._run_first

    @property
    def name(self) -> str:
        """The name of the op."""
        return self._program.name

    def plan(self, key: Key, count: int) -> GpuSizedPlan:
        """The plan of later calls with a key and so many elements."""
        return GpuSizedPlan(self._device, key, self._program, count)

    def _run_first(self, *operands: Any) -> Results:
        self.run = self._run_second
        return Run(self._device, with_count(self._program, operands[-1]), operands).run()

    def _run_second(self, *operands: Any) -> Results:
        self.run = run = compiled(self._device, self._program)
        result: Results = run(*operands)
        return result


class GpuSizedPlan:
    """A plan that runs a dynamic program with one number of elements, for which it compiles a function.

    The function replaces it then.
    """

    __slots__ = ("_count", "_device", "_function", "_key", "_program")

    def __init__(self, device: GpuBase, key: Key, program: Program, count: int) -> None:
        self._device = device
        self._key = key
        self._program = program
        self._count = count
        self._function: Plan | None = None

    def __call__(self, *operands: Any) -> Results:
        """Run the program with storages and then numbers."""
        if self._function is None:
            self._function = compiled(self._device, with_count(self._program, self._count))
            if self._key is not None:
                self._device.plans.remember(self._key, self._function)
        result: Results = self._function(*operands)
        return result


class GpuPlan:
    """A plan that runs the program of a call step by step, and compiles it when the call comes again.

    The compiled function replaces it then: most calls that come twice come again. Calls that come once, of which
    some applications make many, are not worth compiling.
    """

    __slots__ = ("_call", "_device", "_function", "_key", "_program", "_was_run")

    def __init__(self, device: GpuBase, key: Key, call: OpCall, program: Program) -> None:
        self._device = device
        self._key = key
        # Only other overlaps of foreign memory make another program of the call.
        self._call = call if program.apart else None
        self._program = program
        self._was_run = False
        self._function: Plan | None = None

    def __call__(self, *operands: Any) -> Results:
        """Run the program with storages and then numbers."""
        if not self._was_run:
            self._was_run = True
            if self._program.apart and overlapping(self._program, operands):
                return self._run_overlapping(*operands)
            return Run(self._device, self._program, operands).run()
        if self._function is None:
            self._function = compiled(self._device, self._program, self._run_overlapping)
            if self._key is not None:
                self._device.plans.remember(self._key, self._function)
        result: Results = self._function(*operands)
        return result

    def _run_overlapping(self, *operands: Any) -> Results:
        """Run the program for operands whose foreign memory overlaps, which is built for each call."""
        assert self._call is not None, "memory of the arguments is foreign"
        program = self._call.program(self._device.facts, overlapping(self._program, operands))
        assert program is not None, "the op has taken this call before"
        return Run(self._device, program, operands).run()


class Run:
    """One run of a program: what its values are."""

    __slots__ = ("_device", "_known", "_memory", "_operands", "_program", "_watch", "refused")

    def __init__(self, device: GpuBase, program: Program, operands: Sequence[Any], watch: Watch | None = None) -> None:
        """Prepare a run with operands. `watch` takes each step that gives the device something to do."""
        self._watch = watch
        self._device = device
        self._operands = operands
        self._program = program
        self._memory: dict[Memory, Any] = {}
        self._known: dict[CallNumber | Draw, Any] = {}
        self.refused: LibraryCall | None = None
        """The step whose library has refused, which is the last one then."""

    def run(self) -> Results:
        """Take all steps and return the results."""
        device, program, memory = self._device, self._program, self._memory
        try:
            step: Any
            for step, released in zip(program.steps, program.released, strict=True):
                # Patterns of classes would take longer.
                kind = type(step)
                if kind is Allocate:
                    allocated = step.memory
                    memory[allocated] = device.slice_class(device.allocator, allocated.size)
                elif kind is Launch:
                    family, kernel, blocks, arguments, shared_bytes, _ = step
                    enqueue = device.kernels.function(family, kernel, arguments.struct.size, shared_bytes)
                    blocks, packed = blocks if blocks < MAX_BLOCKS else MAX_BLOCKS, self._packed(arguments)
                    if self._watch is None:
                        enqueue(blocks, packed)
                    else:
                        self._watch(step, partial(enqueue, blocks, packed))
                elif kind is LibraryCall:
                    if self._take(step, step.function, *self._plain(step.arguments)) is False:
                        self.refused = step
                        return None
                elif kind is ExpectError:
                    device.index_errors.expect()
                elif kind is Copy:
                    target, source = self._number(step.target), self._number(step.source)
                    self._take(step, device.driver.copy, target, source, step.nbytes)
                elif kind is Fill:
                    self._take(step, device.driver.fill_bytes, self._number(step.target), step.byte, step.nbytes)
                else:
                    self._take(step, step.function, *self._plain(step.arguments), **step.options)
                for each in released:
                    del memory[each]
        except BaseException:
            for value, known in self._known.items():
                if type(value) is Draw:
                    known.cancel()
            raise
        if type(program.result) is Buffer:
            return self._new(program.result)
        return tuple(map(self._new, program.buffers)) or True

    def _take(self, step: Step, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Take a step that gives the device something to do: call a function with what the run knows."""
        if self._watch is None:
            return function(*arguments, **options)
        return self._watch(step, partial(function, *arguments, **options))

    def _plain(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Values as functions take them: numbers, and the storages of buffers."""
        # Most are the same in all runs.
        if _CONSTANTS.issuperset(map(type, values)):
            return values
        parts = list(values)
        for position, value in enumerate(values):
            if type(value) in _CONSTANTS:
                continue
            if isinstance(value, Value):
                parts[position] = self._number(value)
            elif isinstance(value, tuple):
                parts[position] = self._plain(value)
            elif isinstance(value, Buffer | BlocksBuffer):
                parts[position] = self._storage(value)
            elif isinstance(value, Parameter):
                parts[position] = self._operands[value.position]
        # In half of the time of the class's own `__new__`.
        return tuple.__new__(type(values), parts)

    def _packed(self, arguments: KernelArguments) -> bytes:
        """As `KernelArguments.packed`, in one loop: most of what a run does is to pack structs."""
        fields, struct = [*arguments.fields], arguments.struct
        for position, field in struct.values(arguments.fields):
            kind = type(field)
            if kind is Address:
                memory = field.memory
                allocation = self._memory[memory] if memory.argument is None else self._operands[memory.argument].memory
                fields[position] = allocation.address + field.offset
            elif kind is not int:
                fields[position] = self._number(field)
        return struct.pack(*fields)

    def _number(self, value: Any) -> Any:
        kind = type(value)
        if kind is Address:
            return self._allocation(value.memory).address + value.offset
        if kind is Scalar:
            source, function = value.source, value.function
            if isinstance(source, Parameter):
                number = self._operands[source.position]
            elif isinstance(source, Scalar):
                number = self._number(source)
            else:
                number = self._operands[source].bits
            return number if function is None else function(number, *value.constants)
        if kind is DrawPart:
            draw = value.draw
            reserved: Reserved | None = self._known.get(draw)
            if reserved is None:
                reserved = self._known[draw] = self._device.reserve(draw.blocks)
            return getattr(reserved, value.name)
        if kind is ErrorRecord:
            return self._device.index_errors.address
        if kind is CallNumber:
            number = self._known.get(value)
            if number is None:
                # Each read of it returns another one.
                number = self._known[value] = self._device.index_errors.next_call()
            return number
        raise TypeError(f"a run on a GPU has no {kind.__name__}")

    def _allocation(self, memory: Memory) -> Any:
        return self._memory[memory] if memory.argument is None else self._operands[memory.argument].memory

    def _storage(self, buffer: Buffer | BlocksBuffer) -> Any:
        """The storage of a buffer: that of an argument, else a new one."""
        argument = buffer.memory.argument
        if argument is not None and buffer is self._program.arguments[argument]:
            return self._operands[argument]
        return self._new(buffer)

    def _new(self, buffer: Any) -> GpuStorage:
        device, allocation = self._device, self._allocation(buffer.memory)
        storage: GpuStorage = device.storage_class(device, buffer.dtype, buffer.count, allocation)
        return storage


def compiled(device: GpuBase, program: Program, otherwise: Plan | None = None) -> Plan:
    """A function that runs a program, whose kernels were launched before.

    `otherwise` runs it where foreign memory that its steps take to be disjoint overlaps.
    """
    return _Compiler(device, program, otherwise).function()


class _Compiler:
    """Writes the text of the function that runs a program."""

    def __init__(self, device: GpuBase, program: Program, otherwise: Plan | None) -> None:
        self._device = device
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
        for pair in program.apart:
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
                    run = self._constant(partial(_run_fallback, self._device, self._program.arguments, fallback))
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


def overlapping(program: Program, operands: Sequence[Any]) -> frozenset[tuple[int, int]]:
    """The positions of the pairs of operands whose foreign memory overlaps."""
    foreign = [
        (position, operands[position].memory)
        for position, argument in enumerate(program.arguments)
        if not isinstance(argument, Parameter) and argument.memory.is_foreign
    ]
    return frozenset(
        (first, second)
        for (first, one), (second, other) in combinations(foreign, 2)
        if one.address < other.address + other.nbytes and other.address < one.address + one.nbytes
    )


def _has_values(parts: tuple[Any, ...]) -> bool:
    return any(
        isinstance(part, Value | Buffer | BlocksBuffer | Parameter) or (isinstance(part, tuple) and _has_values(part))
        for part in parts
    )


@lru_cache(maxsize=1024)
def _packer(form: str) -> Callable[..., bytes]:
    return struct.Struct(form).pack


def _run_fallback(
    device: GpuBase, arguments: Sequence[Argument], fallback: partial[BuiltResults], *operands: Any
) -> Results:
    """Run what a fallback builds for the arguments of a program."""
    return Run(device, program_of_fallback(device.facts, arguments, fallback), operands).run()
