"""Runs programs on the CPU: a launch as a call that is made in C, several steps as a function that is written for them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....dtype import Array, DType
from ....kernels.host_arguments import (
    CallItems,
    NumberItems,
    ResultItems,
    SourceItems,
    UnaliasedItems,
    WrongIndexItems,
)
from ...core.layout import Layout
from ...helpers.host_memory import out_of_memory, require_room
from ...program.builder import ProgramBuilder
from ...program.code import define
from ...program.host import host_plan
from ...program.program import Argument, Program, results_of
from ...program.steps import Allocate, Fill, HostCall, Launch, LibraryCall, Step
from ...program.values import Address, BlocksBuffer, Buffer, Draw, DrawPart, Memory, Parameter, Scalar, Value
from ..plan import Plan, kind_of
from . import buffer_pool
from .storage import CpuStorage
from .values import Function, IndexRecord, Snapshot, Table, Threads, bits_of

if TYPE_CHECKING:
    from .device import CpuDevice

BRIEF: Final = 1 << 14
"""Other threads of Python wait while a kernel works on no more elements."""


def compiled(device: CpuDevice, program: Program) -> Plan:
    """A function of storages and numbers that runs a program."""
    if program.is_host_call:
        # NumPy warns of nothing that is part of the meaning, such as 1 / 0.
        quiet: Plan = np.errstate(all="ignore")(host_plan(program, device.translated))
        return quiet
    return _Compiler(device, program).plan()


class _Compiler:
    """Writes the text of the function that runs a program."""

    def __init__(self, device: CpuDevice, program: Program) -> None:
        self._device = device
        self._program = program
        self._count = itertools.count()
        self._names: dict[str, Any] = {"out_of_memory": out_of_memory}
        self._lines: list[str] = []
        self._draws: dict[Draw, str] = {}
        self._results = results_of(program.result)
        # How storages of allocated memory are made, and the names of those that are there.
        self._buffers: dict[Memory, Buffer] = {buffer.memory: buffer for buffer in self._results}
        self._storages: dict[Memory, str] = {}
        self._given: list[Memory] = []
        for position, argument in enumerate(program.arguments):
            if not isinstance(argument, Parameter):
                self._storages[argument.memory] = f"x{position}"
                self._given.append(argument.memory)

    def plan(self) -> Plan:
        program = self._program
        steps = [
            (step, released)
            for step, released in zip(program.steps, program.released, strict=True)
            if not isinstance(step, Allocate)
        ]
        if len(steps) == 1 and isinstance(steps[0][0], Launch):
            call = self._only_call(*steps[0])
            if call is not None:
                return call
        for step, _ in steps:
            if isinstance(step, HostCall | LibraryCall):
                self._note_buffers(step.arguments)
        for step, released in steps:
            self._step(step, released)
        if not isinstance(program.result, HostCall):
            self._lines.append(f"return {self._result()}")
        lines = self._lines
        for draw, name in self._draws.items():
            blocks, random = self._constant(draw.blocks), self._constant(self._device.random)
            lines = [
                f"{name} = {random}.reserve({blocks})",
                "try:",
                *[f"    {line}" for line in lines],
                f"except BaseException: {random}.cancel({name}, {blocks}); raise",
            ]
        body = "".join(f"\n        {line}" for line in lines)
        parameters = ", ".join(f"x{position}" for position in range(len(program.arguments)))
        text = (
            f"def {program.name}({parameters}):\n    try:{body}\n"
            "    except MemoryError as error: raise out_of_memory(error) from None\n"
        )
        return define(text, program.name, self._names)

    def _result(self) -> str:
        result = self._program.result
        if not self._results:
            return "True"
        names = [self._storage(buffer) for buffer in self._results]
        return names[0] if isinstance(result, Buffer) else f"({', '.join(names)},)"

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
                    operands = ", ".join(f"x{position}" for position in range(len(self._program.arguments)))
                    call = f"if {call} is False: return {run}({operands})"
                self._lines.append(call)
            case HostCall(function, arguments, options):
                named = [f"{name}={self._constant(value)}" for name, value in options.items()]
                quiet = self._constant(np.errstate(all="ignore")(function))
                call = f"{quiet}({', '.join([*map(self._text, arguments), *named])})"
                self._lines.append(f"return {call}" if step is self._program.result else call)
            case Fill(target, byte, nbytes):
                offset, name = target.offset, self._storage_of(target.memory)
                self._lines.append(f"{self._constant(_fill)}({name}, {offset}, {byte}, {nbytes})")
            case _:
                raise TypeError(f"the CPU has no {type(step).__name__}")
        if step is not self._program.steps[-1]:
            self._lines += [f"del {self._storages.pop(each)}" for each in released if each in self._storages]

    def _launch(self, step: Launch, released: Sequence[Memory]) -> None:
        stored: list[Memory] = []
        new: dict[Memory, list[int]] = {}
        for _, value in step.arguments.values:
            if isinstance(value, Address):
                if value.memory in self._storages:
                    stored.append(value.memory)
                else:
                    new.setdefault(value.memory, []).append(value.offset)
        made, scratch = list[Memory](), list[Memory]()
        for memory, offsets in new.items():
            if offsets != [0]:
                # Calls make what they write as a whole.
                self._storage_of(memory)
                stored.append(memory)
            elif memory in released and not scratch:
                scratch.append(memory)
            else:
                made.append(memory)
        stored = list(dict.fromkeys(stored))
        call, numbers = self._call(step, stored, made, scratch, as_tuple=len(made) > 1)
        operands = ", ".join([*(self._storages[memory] for memory in stored), *map(self._text, numbers)])
        text = f"{self._constant(call)}({operands})"
        if made:
            names = [self._name(memory) for memory in made]
            text = f"{', '.join(names)} = {text}"
        self._lines.append(text)

    def _only_call(self, step: Launch, released: Sequence[Memory]) -> Plan | None:
        """The call of the only step, where it takes what the program is given and makes what that returns."""
        made = [buffer.memory for buffer in self._results]
        used = [value for _, value in step.arguments.values if isinstance(value, Address)]
        new = [value for value in used if value.memory.argument is None]
        numbers = [value for _, value in step.arguments.values if isinstance(value, Scalar | DrawPart)]
        parameters = [argument for argument in self._program.arguments if isinstance(argument, Parameter)]
        if (
            len(new) != len(made) + len(released)
            or len(released) > 1
            or any(value.offset for value in new)
            or {value.memory for value in new} != {*made, *released}
            or [number.source for number in numbers if isinstance(number, Scalar)] != parameters
            or len(numbers) != len(parameters)
        ):
            return None
        as_tuple = not isinstance(self._program.result, Buffer)
        call, given = self._call(step, self._given, made, released, as_tuple=as_tuple)
        # Other numbers are computed in front of the call.
        return call if given == parameters else None

    def _call(
        self,
        step: Launch,
        stored: Sequence[Memory],
        made: Sequence[Memory],
        scratch: Sequence[Memory],
        *,
        as_tuple: bool,
    ) -> tuple[Plan, list[Any]]:
        """The call of a kernel with such storages, and the numbers that it is given then."""
        device = self._device
        kernels = device.kernels
        assert kernels is not None, "launches are those of kernels"
        packed = bytearray(step.arguments.template)
        given = {memory: position for position, memory in enumerate(stored)}
        places: dict[Memory, int] = {}
        sources: list[SourceItems] = []
        unaliased: list[UnaliasedItems] = []
        numbers: list[tuple[int, Value]] = []
        wrong: list[WrongIndexItems] = []
        kept: list[Array] = []
        threads = 0
        for place, value in step.arguments.values:
            match value:
                case Address(memory=memory, offset=offset):
                    if memory not in given:
                        places[memory] = place
                        continue
                    if isinstance(value, Snapshot):
                        unaliased.append(_unaliased(value, len(sources), given))
                    sources.append(SourceItems(place, offset, given[memory]))
                case Threads():
                    threads = place
                    _put(packed, place, 1, 4)
                case Function(family=family, name=name):
                    _put(packed, place, kernels.address(family, name))
                case Table(array=array):
                    kept.append(array)
                    _put(packed, place, array.__array_interface__["data"][0])
                case IndexRecord(fail=fail):
                    wrong.append(WrongIndexItems(place, fail))
                case _:
                    numbers.append((place, value))
        compute, operands = _numbers([value for _, value in numbers])
        results = [_items(places[memory], self._buffer(memory)) for memory in made]
        sizes = [step.work, *(result.length for result in results)]
        call = kernels.call(CallItems(
            shared=kernels.shared, kernel=kernels.address(step.family, step.kernel), arguments=bytes(packed),
            threads_place=threads, is_brief=max(sizes) <= BRIEF, makes_tuple=as_tuple, device=device, compute=compute,
            # Other numbers than these are converted by `bits_of`.
            compute_bytes=0 if compute is None or not compute.is_float or compute.compute is not compute else compute.itemsize,
            results=tuple(results), scratch=tuple([_items(places[memory], self._buffer(memory)) for memory in scratch]),
            sources=tuple(sources), unaliased=tuple(unaliased), stored=len(stored),
            numbers=tuple([NumberItems(place) for place, _ in numbers]), wrong=tuple(wrong), kept=kept,
        ))  # fmt: skip
        return call, operands

    def _text(self, value: Any) -> str:
        """The expression of an argument."""
        match value:
            case Buffer() | BlocksBuffer():
                return self._storage(value)
            case Parameter(position=position):
                return f"x{position}"
            case Address(memory=memory, offset=offset):
                name = f"{self._storage_of(memory)}.address"
                return f"{name} + {offset}" if offset else name
            case Scalar(source=Parameter() as source, function=function, constants=constants):
                arguments = [self._text(source), *map(self._constant, constants)]
                return arguments[0] if function is None else f"{self._constant(function)}({', '.join(arguments)})"
            case DrawPart(draw=draw, name=name):
                drawn = self._draws.setdefault(draw, f"draw{len(self._draws)}")
                return f"{drawn}[{('seed', 'block').index(name)}]"
            case tuple() if any(isinstance(part, Buffer | BlocksBuffer) for part in value):
                return f"{self._constant(type(value))}({', '.join(map(self._text, value))})"
        return self._constant(value)

    def _storage(self, buffer: Buffer | BlocksBuffer) -> str:
        """The name of the storage of a buffer."""
        name, own = self._storage_of(buffer.memory), self._buffers.get(buffer.memory, buffer)
        assert own.dtype is buffer.dtype and own.length == buffer.length, "storages on the CPU have one dtype"
        return name

    def _storage_of(self, memory: Memory) -> str:
        """The name of the storage of memory, which may have to be made first."""
        name = self._storages.get(memory)
        if name is None:
            buffer = self._buffer(memory)
            require_room((buffer.length,), buffer.dtype)
            name = self._name(memory)
            self._lines.append(f"{name} = {self._constant(partial(_new, self._device, buffer.dtype, buffer.length))}()")
        return name

    def _name(self, memory: Memory) -> str:
        name = self._storages[memory] = f"m{next(self._count)}"
        return name

    def _buffer(self, memory: Memory) -> Buffer:
        return self._buffers.get(memory) or Buffer(DType.U8, memory.nbytes, memory)

    def _constant(self, value: object) -> str:
        name = f"c{next(self._count)}"
        self._names[name] = value
        return name


class _Fallback:
    """What runs the fallback of a program, which is built when a library first refuses."""

    def __init__(self, device: CpuDevice, arguments: Sequence[Argument], op: partial[Any]) -> None:
        self._device = device
        self._arguments = arguments
        self._op = op
        self._plan: Plan | None = None

    def __call__(self, *operands: Any) -> Any:
        plan = self._plan
        if plan is None:
            build, op = ProgramBuilder(self._device.facts), self._op
            result = build.add_op(op.func, *op.args, **op.keywords)
            program = build.program(op.func.__name__, self._arguments, result)
            plan = self._plan = compiled(self._device, program)
        return plan(*operands)


def _put(packed: bytearray, place: int, number: int, size: int = 8) -> None:
    packed[place : place + size] = number.to_bytes(size, "little")


def _numbers(values: Sequence[Value]) -> tuple[DType | None, list[Any]]:
    """The compute dtype of numbers and their parameters; None and numbers where a call is given bits."""
    dtypes = {value.constants for value in values if isinstance(value, Scalar) and value.function is bits_of}
    if len(dtypes) == 1 and all(isinstance(value, Scalar) and value.function is bits_of for value in values):
        return dtypes.pop()[0], [value.source for value in values if isinstance(value, Scalar)]
    return None, list(values)


def _items(place: int, buffer: Buffer) -> ResultItems:
    dtype, length, nbytes = buffer.dtype, buffer.length, buffer.nbytes
    require_room((length,), dtype)
    return ResultItems(place, nbytes, length, dtype, kind_of(dtype, length), nbytes >= buffer_pool.LARGE)


def _unaliased(snapshot: Snapshot, number: int, given: dict[Memory, int]) -> UnaliasedItems:
    source, target = snapshot.source, snapshot.target
    return UnaliasedItems(
        source=number, first=source.layout.start_offset * source.itemsize, last=source.layout.end * source.itemsize,
        written=given[target.storage.memory], begin=target.layout.start_offset * target.itemsize,
        end=target.layout.end * target.itemsize, copy=partial(_copied, layout=source.layout),
    )  # fmt: skip


def _copied(storage: CpuStorage, layout: Layout) -> CpuStorage:
    """A copy of what a layout reaches, seen as a storage in which it is at the same place."""
    try:
        data = np.empty(layout.end, storage.dtype.numpy)
    except MemoryError as error:
        raise out_of_memory(error) from None
    data[layout.start_offset :] = storage.data[layout.start_offset : layout.end]
    return CpuStorage(storage.device, storage.dtype, data)


def _new(device: CpuDevice, dtype: DType, length: int) -> CpuStorage:
    return CpuStorage(device, dtype, buffer_pool.empty(length, dtype.numpy))


def _fill(storage: CpuStorage, offset: int, byte: int, nbytes: int) -> None:
    storage.data.view(np.uint8)[offset : offset + nbytes] = byte
