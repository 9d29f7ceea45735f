"""Programs that ops build for storages which exist on no device, and runs of programs on NumPy memory."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Final, NamedTuple

import numpy as np
from tallow import DType, GgmlDType
from tallow.dtype import Array
from tallow.runtime.backends.plan import Key, Plan
from tallow.runtime.core.layout import Layout
from tallow.runtime.core.shape import Shape
from tallow.runtime.program.builder import Facts, GivenStorage, OpCall, ProgramBuilder
from tallow.runtime.program.program import (
    Allocate,
    Copy,
    ExpectError,
    Fill,
    HostCall,
    Launch,
    LibraryCall,
    Program,
    Step,
)
from tallow.runtime.program.values import (
    Address,
    BlocksBuffer,
    Buffer,
    CallNumber,
    Constant,
    DrawPart,
    ErrorRecord,
    KernelArguments,
    Memory,
    Operand,
    Parameter,
    Scalar,
    Value,
)

# Steps move no more bytes than these: those of large programs are of no interest.
_MOST_BYTES: Final = 1 << 20
FACTS: Final = Facts(
    label="gpu:0", multiprocessors=4, wave_size=32, counters=128, has_kernels=lambda _: True, shared_bytes=1 << 16
)
LARGE: Final = FACTS._replace(multiprocessors=132)
"""A device with room for more blocks."""


class Stored(GivenStorage):
    """A storage of any size without elements; foreign where it has a skew, and may be a number."""

    def __init__(
        self, dtype: DType | GgmlDType, length: int, *, skew: int | None = None, is_number: bool = False
    ) -> None:
        self.dtype = dtype
        self.length = length
        self.skew = skew
        self.is_number = is_number

    def buffer(self, position: int) -> Buffer | BlocksBuffer:
        """Return its buffer in a program."""
        if isinstance(self.dtype, GgmlDType):
            nbytes = self.length // self.dtype.block_size * self.dtype.type_size
            return BlocksBuffer(self.dtype, self.length, Memory(nbytes, argument=position))
        nbytes = self.length * self.dtype.itemsize
        memory = Memory(nbytes, argument=position, skew=self.skew or 0, is_foreign=self.skew is not None)
        return Buffer(self.dtype, self.length, memory, Scalar(position) if self.is_number else None)


def layout(shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> Layout:
    if strides is None:
        return Layout.contiguous(tuple(shape), offset)
    return Layout(Shape(shape), strides, offset)


def at(storage: Any, *arguments: Any) -> Operand:
    """The operand of a storage and the arguments of `layout`."""
    return Operand(storage, layout(*arguments))


def call_of(op: Callable[..., Any], *arguments: Any, numbers: int = 0, **options: Any) -> OpCall:
    """A call of an op with operands of `Stored`."""
    return OpCall.of(op, arguments, options, numbers)[0]


def built(
    op: Callable[..., Any], *arguments: Any, facts: Facts = FACTS, may_refuse: bool = False, **options: Any
) -> Program:
    """The program of a call of an op."""
    program = call_of(op, *arguments, **options).program(facts, may_refuse=may_refuse)
    assert program is not None, "the op leaves the call to another one"
    return program


def kernels(program: Program) -> list[str]:
    """The names of the kernels that a program launches, in order."""
    return [step.kernel for step in launches(program)]


def grids(program: Program) -> list[tuple[str, int]]:
    """The kernels that a program launches, and on how many blocks."""
    return [(step.kernel, step.blocks) for step in launches(program)]


def launches(program: Program) -> list[Launch]:
    return [step for step in program.steps if isinstance(step, Launch)]


def expected_errors(program: Program) -> int:
    """How many times a program says that an index may be out of range."""
    return sum(isinstance(step, ExpectError) for step in program.steps)


class Launched(NamedTuple):
    """A launch as a kernel gets it."""

    kernel: str
    blocks: int
    packed: bytes


class Called(NamedTuple):
    """A call of a function of a library or of the host."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Run:
    """A run of a program on NumPy memory, which notes launches and calls instead of making them.

    An assertion fails where a step reaches bytes outside of memory, or memory before it is allocated or after it is
    released; where memory is allocated twice, or is released before or after its last use; where a result is released,
    is memory of an argument, or no step writes it.
    """

    def __init__(self, program: Program, numbers: Sequence[Any] = ()) -> None:
        self.launches: list[Launched] = []
        self.copies: list[tuple[int, int, int]] = []
        self.fills: list[tuple[int, int, int]] = []
        self.calls: list[Called] = []
        self._numbers = numbers
        self._program = program
        self._live: set[Memory | int] = set()
        self._bytes: dict[Memory | int, Array] = {}
        self._begins: dict[Memory | int, int] = {}
        self._values: dict[Value, int] = {}
        self._call_numbers = itertools.count(1)
        storages = [each for each in program.arguments if not isinstance(each, Parameter)]
        for each in storages:
            self._add(each.memory)
        self.arguments = [self._begins[self._key(each.memory)] for each in storages]
        """The addresses of the storages that are given."""
        used = set[Memory | int]()
        for step, released in zip(program.steps, program.released, strict=True):
            self._touched: set[Memory | int] = set()
            self._take(step)
            used |= self._touched
            for memory in released:
                assert memory in self._touched, "memory is released by a step that does not use it"
                self._live.remove(memory)
        self._touched = set()
        results = [result.memory for result in program.buffers]
        self.results = [self.address(memory.address) for memory in results]
        """The addresses of the storages that are returned."""
        assert all(memory.argument is None for memory in results), "a result is memory of an argument"
        owned = {self._key(memory) for memory in results if memory.argument is None}
        allocated = {key for key in self._live if isinstance(key, Memory) and not isinstance(key, Constant)}
        assert allocated == owned, "memory is neither released nor a result"
        assert all(memory in used or not memory.nbytes for memory in owned), "no step writes a result"

    def address(self, address: Address) -> int:
        """The number of an address, which is in live memory, or at the end of it."""
        key = self._key(address.memory)
        if isinstance(address.memory, Constant):
            self._add(address.memory)
        self._touched.add(key)
        assert key in self._live, "a step uses memory that is not allocated, or is released"
        assert 0 <= address.offset <= address.memory.nbytes, "an address is outside of its memory"
        return self._begins[key] + address.offset

    def bytes_at(self, address: Address, nbytes: int) -> Array:
        """So many bytes from an address on."""
        key = self._key(address.memory)
        if key not in self._bytes:
            self._bytes[key] = np.zeros(address.memory.nbytes, np.uint8)
        return self._bytes[key][address.offset : address.offset + nbytes]

    @staticmethod
    def _key(memory: Memory) -> Memory | int:
        return memory if memory.owner is None else memory.owner

    def _add(self, memory: Memory) -> None:
        key = self._key(memory)
        if key not in self._begins:
            # Farther from each other than any memory is large.
            self._begins[key] = (1 + len(self._begins) << 44) + memory.skew
            self._live.add(key)

    def _take(self, step: Step) -> None:
        match step:
            case Allocate(memory):
                assert memory not in self._begins, "memory is allocated twice"
                self._add(memory)
            case Launch(_, kernel, blocks, arguments):
                assert blocks > 0
                self.launches.append(Launched(kernel, blocks, self._packed(arguments)))
            case LibraryCall(function, arguments) | HostCall(function, arguments):
                self.calls.append(Called(function, tuple(map(self._plain, arguments))))
                if isinstance(step, HostCall) and step.result is not None:
                    assert step.result.memory not in self._begins, "memory is returned twice"
                    self._add(step.result.memory)
                    self.address(step.result.address)
            case Copy(target, source, nbytes):
                to, from_ = self._span(target, nbytes), self._span(source, nbytes)
                assert abs(to - from_) >= nbytes, "a copy overlaps itself"
                self.copies.append((to, from_, nbytes))
                if nbytes <= _MOST_BYTES:
                    self.bytes_at(target, nbytes)[:] = self.bytes_at(source, nbytes)
            case Fill(target, byte, nbytes):
                self.fills.append((self._span(target, nbytes), byte, nbytes))
                if nbytes <= _MOST_BYTES:
                    self.bytes_at(target, nbytes)[:] = byte

    def _span(self, address: Address, nbytes: int) -> int:
        assert nbytes > 0
        self.address(address + nbytes)
        return self.address(address)

    def _packed(self, arguments: KernelArguments) -> bytes:
        packed = arguments.packed(self._number)
        form, fields = arguments.parts()
        parts = [self._number(field) if isinstance(field, Value) else field for field in fields]
        assert struct.pack(form, *parts) == packed, "a struct is packed in two ways"
        return packed

    def _plain(self, value: Any) -> Any:
        match value:
            case Buffer() | BlocksBuffer():
                return self.address(value.address)
            case Parameter():
                return self._parameter(value)
            case Value():
                return self._number(value)
            case tuple():
                parts = [self._plain(part) for part in value]
                if any(new is not old for new, old in zip(parts, value, strict=True)):
                    return tuple(parts) if type(value) is tuple else type(value)(*parts)
            case list() | dict():
                values = [part for part in value if isinstance(part, Buffer | BlocksBuffer | Parameter | Value)]
                assert not values, "runs find values in tuples alone"
        return value

    def _parameter(self, parameter: Parameter) -> Any:
        storages = sum(not isinstance(argument, Parameter) for argument in self._program.arguments)
        return self._numbers[parameter.position - storages]

    def _number(self, value: Value) -> int:
        if isinstance(value, Address):
            return self.address(value)
        if value not in self._values:
            self._values[value] = self._find(value)
        return self._values[value]

    def _find(self, value: Value) -> int:
        match value:
            case Scalar(source=source, function=function, constants=constants):
                if isinstance(source, Parameter):
                    inputs = self._parameter(source)
                else:
                    # Any bits, of a storage that is a number.
                    inputs = self._number(source) if isinstance(source, Scalar) else 0
                return inputs if function is None else function(inputs, *constants)
            case ErrorRecord():
                return 64
            case CallNumber():
                return next(self._call_numbers)
            case DrawPart(name=name):
                return {"state": 0, "seed": 5, "block": 7}[name]
        # Of a backend's own.
        return 1


class Observer:
    """Notes the programs of calls on a device, and the calls themselves."""

    def __init__(self, facts: Facts = FACTS) -> None:
        self._facts = facts
        self.calls: list[OpCall] = []
        self.programs: list[Program] = []

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """The plan as it is."""
        self.calls.append(call)
        program = call.program(self._facts)
        assert program is not None
        self.programs.append(program)
        return plan


def checked(call: OpCall, facts: Facts) -> Program:
    """The program of a call, which is well formed, is printed, and is the same when it is built again."""
    program, again = call.program(facts), call.program(facts)
    assert program is not None and again is not None
    Run(program, [1] * sum(isinstance(argument, Parameter) for argument in program.arguments))
    assert all(memory.is_foreign for pair in program.disjoint for memory in pair)
    assert described(program) == described(again), "a program is built in two ways"
    assert str(program) == str(again), "a program is printed in two ways"
    for fallback in fallbacks(program):
        build = ProgramBuilder(facts)
        result = build.add_op(fallback.func, *fallback.args, **fallback.keywords)
        # No other op comes after it.
        assert result is not None
        Run(build.program("fallback", program.arguments, result))
    return program


def fallbacks(program: Program) -> list[partial[Any]]:
    """The fallbacks of calls that libraries refuse."""
    calls = [step for step in program.steps if isinstance(step, LibraryCall)]
    return [step.fallback for step in calls if step.fallback is not None]


def described(program: Program) -> list[Any]:
    """A program in numbers, names and bytes, which can be compared."""
    numbers: dict[object, int] = {}

    def plain(part: Any) -> Any:
        match part:
            case Address(memory=memory, offset=offset):
                return plain(memory), offset
            case Memory(nbytes=nbytes, argument=argument, owner=owner, skew=skew, is_foreign=is_foreign):
                return numbers.setdefault(part, len(numbers)), nbytes, argument, owner, skew, is_foreign
            case Buffer() | BlocksBuffer():
                return part.dtype, part.length, plain(part.memory), plain(part.number)
            case Scalar(source=source, function=function, constants=constants):
                return plain(source), function, constants
            case DrawPart(draw=draw, name=name):
                return numbers.setdefault(draw, len(numbers)), draw.blocks, name
            case ErrorRecord() | CallNumber():
                return type(part), numbers.setdefault(part, len(numbers))
            case Parameter(position=position):
                return position
            case KernelArguments(struct=form, fields=fields):
                return form.format, plain(fields)
            case Value():
                # Of a backend's own.
                return type(part), [plain(getattr(part, name)) for name in type(part).__slots__]
            case np.ndarray():
                return part.tobytes()
            case tuple() | list():
                return [plain(each) for each in part]
            case partial(func=function, args=arguments, keywords=options):
                return plain(function), plain(arguments), plain(options)
            case FunctionType(__code__=code):
                # A function inside of an op is another one each time.
                return code
            case dict():
                return {name: plain(each) for name, each in part.items()}
        return part

    return [
        (type(part), plain(part)) for part in (*program.arguments, *program.steps, program.result, program.disjoint)
    ]
