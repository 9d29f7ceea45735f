"""Runs programs on the CPU: a launch by a call in C, several steps by a function compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self

import numpy as np

from ....dtype import Array, DType
from ...core.random import RandomState
from ...program.builder import program_of_fallback
from ...program.host import HostCompiler
from ...program.program import Allocate, Argument, Fill, HostCall, Launch, LibraryCall, Program, Step
from ...program.values import (
    Address,
    BlocksBuffer,
    Buffer,
    Constant,
    Count,
    Draw,
    DrawPart,
    Memory,
    Parameter,
    Scalar,
    Value,
    sized_number,
)
from ..plan import Plan, SizedPlans, sized_call
from .host_device import HostDevice
from .kernel_call import KernelCall
from .storage import CpuStorage


def compiled(device: HostDevice, program: Program, mark: Callable[[], None] | None = None) -> Plan:
    """A function of storages and numbers that runs a program. In front of each of several steps it calls `mark`."""
    call = _OnlyCall.of(device, program)
    if call is not None:
        return call.plan()
    plan = _Compiler(device, program, mark).plan()
    # NumPy warns of nothing that is part of the meaning, such as 1 / 0.
    return np.errstate(all="ignore")(plan) if any(type(step) is HostCall for step in program.steps) else plan


def sized(device: HostDevice, program: Program) -> SizedPlans | None:
    """Return what gives the plans of a dynamic program, if these are calls of its only launch."""
    call = _OnlyCall.of(device, program)
    return None if call is None else partial(sized_call, call.plan)


_memory_of: Final = attrgetter("memory")
_ALLOCATES: Final = frozenset((Allocate,))


class _OnlyCall(NamedTuple):
    """The only launch of a program, as a call that takes its operands and returns its results."""

    device: HostDevice
    call: KernelCall
    results: tuple[Buffer, ...]
    scratch: list[Buffer]
    makes_tuple: bool
    draws: Iterable[Draw]

    @classmethod
    def of(cls, device: HostDevice, program: Program) -> Self | None:
        """The call of a program; None where more than the call is to be done."""
        steps = program.steps
        if not steps or type(steps[-1]) is not Launch or not _ALLOCATES.issuperset(map(type, steps[:-1])):
            return None
        positions: dict[Memory, int] = {}
        parameters: list[Any] = []
        for argument in program.arguments:
            if not isinstance(argument, Parameter):
                positions[argument.memory] = len(positions)
            elif type(argument) is not Count:
                parameters.append(argument)
        call = KernelCall(device, steps[-1], positions)
        results, released = program.buffers, program.released[-1]
        new, outputs = call.new, [*map(_memory_of, results), *released]
        if ([*new] != outputs and (len(new) != len(outputs) or new.keys() != set(outputs))) or call.divided:
            return None
        scratch: list[Buffer] = []
        if released:
            if len(released) > 1:
                return None
            scratch = [_scratch(released[0])]
        draws: dict[Draw, None] = {}
        if call.numbers:
            draws = {number.draw: None for number in call.numbers if type(number) is DrawPart}
            for draw in draws:
                parameters += draw.seed, draw.block
        # Other numbers are computed in front of the call.
        if call.taken != parameters:
            return None
        return tuple.__new__(cls, (device, call, results, scratch, type(program.result) is not Buffer, draws))

    def plan(self, count: int = 0) -> Plan:
        """The plan; of a dynamic program, that of calls with `count` elements."""
        plan = self.call.plan(self.results, self.scratch, self.makes_tuple, count)
        return _drawing(self.device, plan, self.draws, count) if self.draws else plan


def _drawing(device: HostDevice, plan: Plan, draws: Iterable[Draw], count: int = 0) -> Plan:
    """A plan that draws what a plan takes after its operands: the seed and the first block of each draw."""
    for draw in draws:
        plan = _draw(plan, device.random, sized_number(draw.blocks, count))
    return plan


def _draw(plan: Plan, random: RandomState, blocks: int) -> Plan:
    def run(*operands: Any) -> Any:
        reserved = random.reserve(blocks)
        try:
            return plan(*operands, *reserved)
        except BaseException:
            random.cancel(reserved, blocks)
            raise

    return run


def _scratch(memory: Memory) -> Buffer:
    return Buffer(DType.U8, memory.nbytes, memory)


class _Compiler(HostCompiler):
    """Writes the text of the function that runs a program."""

    def __init__(self, device: HostDevice, program: Program, mark: Callable[[], None] | None) -> None:
        super().__init__(program, device.translated, partial(_stored, device), mark)
        self._device = device
        self._draws: dict[Draw, tuple[str, str]] = {}
        # How storages of allocated memory are created.
        self._buffers: dict[Memory, Buffer] = {buffer.memory: buffer for buffer in program.buffers}

    def plan(self) -> Plan:
        if len(self._program.steps) > 1:
            for step in self._program.steps:
                if isinstance(step, (HostCall, LibraryCall)):
                    self._note_buffers(step.arguments)
        return _drawing(self._device, self.function(), self._draws)

    def _parameters(self) -> list[str]:
        # The last draw is the first one whose blocks are appended.
        return [*super()._parameters(), *[name for numbers in reversed(self._draws.values()) for name in numbers]]

    def _note_buffers(self, parts: Sequence[Any]) -> None:
        """Note the buffers that functions of the host see memory as."""
        for part in parts:
            if isinstance(part, Buffer):
                self._buffers.setdefault(part.memory, part)
            elif isinstance(part, tuple):
                self._note_buffers(part)

    def _step(self, step: Step, released: Sequence[Memory]) -> None:
        match step:
            case Launch():
                self._launch(step, released)
            case LibraryCall(function, arguments, fallback):
                call = f"{self._constant(function)}({', '.join(map(self._text, arguments))})"
                if fallback is not None:
                    run = self._constant(_Fallback(self._device, self._program.arguments, fallback))
                    call = f"if {call} is False: return {run}({', '.join(super()._parameters())})"
                self._lines.append(call)
            case Fill(target, byte, nbytes):
                offset, name = target.offset, self._storage_of(target.memory)
                self._lines.append(f"{self._constant(_fill)}({name}, {offset}, {byte}, {nbytes})")
            case _:
                super()._step(step, released)

    def _launch(self, step: Launch, released: Sequence[Memory]) -> None:
        call = KernelCall(self._device, step, {}, self._storages)
        if call.divided:
            for memory in call.divided:
                self._storage_of(memory)
            call = KernelCall(self._device, step, {}, self._storages)
        scratch = [memory for memory in call.new if memory in released][:1]
        outputs = [memory for memory in call.new if memory not in scratch]
        plan = call.plan(list(map(self._buffer, outputs)), list(map(_scratch, scratch)), len(outputs) > 1)
        operands = [*(self._storages[memory] for memory in call.positions), *map(self._text, call.taken)]
        text = f"{self._constant(plan)}({', '.join(operands)})"
        if outputs:
            text = f"{', '.join(map(self._name, outputs))} = {text}"
        self._lines.append(text)

    def _text(self, value: Any) -> str:
        if not isinstance(value, Value):
            return super()._text(value)
        match value:
            case Address(memory=memory, offset=offset):
                name = f"{self._storage_of(memory)}.address"
                return f"{name} + {offset}" if offset else name
            case Scalar(source=Parameter() as source, function=function, constants=constants):
                arguments = [self._text(source), *map(self._constant, constants)]
                return arguments[0] if function is None else f"{self._constant(function)}({', '.join(arguments)})"
            case DrawPart(draw=draw, name=name):
                count = len(self._draws)
                seed, block = self._draws.setdefault(draw, (f"seed{count}", f"block{count}"))
                return seed if name == "seed" else block
        return super()._text(value)

    def _storage(self, buffer: Buffer | BlocksBuffer) -> str:
        name, own = self._storage_of(buffer.memory), self._buffers.get(buffer.memory, buffer)
        assert own.dtype is buffer.dtype and own.length == buffer.length, "storages on the CPU have one dtype"
        return name

    def _storage_of(self, memory: Memory) -> str:
        """Return the name of the storage of memory, which may have to be created first."""
        if memory not in self._storages and not isinstance(memory, Constant):
            buffer = self._buffer(memory)
            new = self._constant(partial(_new, self._device, buffer.dtype, buffer.length))
            self._lines.append(f"{self._name(memory)} = {new}()")
        return super()._storage_of(memory)

    def _buffer(self, memory: Memory) -> Buffer:
        return self._buffers.get(memory) or _scratch(memory)


class _Fallback:
    """Run the fallback of a program, which is built when a library first refuses."""

    def __init__(self, device: HostDevice, arguments: Sequence[Argument], op: partial[Any]) -> None:
        self._device = device
        self._arguments = arguments
        self._op = op
        self._plan: Plan | None = None

    def __call__(self, *operands: Any) -> Any:
        plan = self._plan
        if plan is None:
            program = program_of_fallback(self._device.facts, self._arguments, self._op)
            plan = self._plan = compiled(self._device, program)
        return plan(*operands)


def _stored(device: HostDevice, array: Array) -> CpuStorage:
    return CpuStorage(device, DType.from_numpy(array.dtype), array)


def _new(device: HostDevice, dtype: DType, length: int) -> CpuStorage:
    return CpuStorage(device, dtype, device.empty(length, dtype), is_known=True)


def _fill(storage: CpuStorage, offset: int, byte: int, nbytes: int) -> None:
    storage.data.view(np.uint8)[offset : offset + nbytes] = byte
