"""Building programs: calls of ops from the dispatch, and the builder to which an op appends its steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter, mul
from typing import Any, ClassVar, Concatenate, Final, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar, overload

from ...dtype import Array, DType
from ..base.error import OutOfMemory
from ..core.shape import Shape
from ..core.tensor_type import TensorType
from .program import (
    Allocate,
    Argument,
    Copy,
    ExpectError,
    Fill,
    HostCall,
    Launch,
    LibraryCall,
    Program,
    Results,
    Step,
    accessed,
)
from .values import (
    Address,
    BlocksBuffer,
    Buffer,
    CallNumber,
    Constant,
    Count,
    Draw,
    ErrorRecord,
    KernelArguments,
    Memory,
    Number,
    Operand,
    Parameter,
    Size,
    computed,
)

P = ParamSpec("P")
Built = TypeVar("Built")


class Facts(NamedTuple):
    """The facts of a device on which an op may depend."""

    label: str
    """The device as errors name it."""
    multiprocessors: int
    wave_size: int
    counters: int
    """The address of counters that are 0 between launches, by which the blocks of one find the last of them."""
    has_kernels: Callable[[str], bool]
    """Whether the device has the kernels of a family: some targets lack the instructions."""
    concurrent_blocks: int = 1
    """How many blocks of one launch can wait for each other."""
    shared_bytes: int = 0
    """The shared memory that a block may have."""
    library: Any = None
    """The words of the library of arrays that computes, and its own name of the device."""
    handle: Any = None

    @property
    def few_elements(self) -> int:
        """The number of elements up to which threads take one or a few each, to keep the device busy."""
        return self.multiprocessors * _FEW


# Makes a step or a program of a tuple of its fields, in half of the time of the class's own `__new__`.
_new: Final = tuple.__new__
# The elements for each multiprocessor that stay in caches.
_FEW: Final = 1024
# Fields of kernels that count elements and bytes take no more.
_MAX_BYTES: Final = (1 << 63) - 1
# Their bytes are no more in any dtype.
_MAX_ELEMENTS: Final = 1 << 58
_NO_OPTIONS: Final[Mapping[str, Any]] = {}
_memory_of: Final = attrgetter("memory")
# Classes of arguments that are no operands; others are added when they are met.
_WITHOUT_STORAGES: Final[set[type]] = {Shape}
NO_FACTS: Final = Facts("cpu", 1, 1, 0, lambda _: False)
"""The facts of a device that ops need to know nothing of."""


class ProgramBuilder:
    """The program of one call, while its op appends steps to it."""

    def __init__(
        self, facts: Facts, overlapping: frozenset[tuple[int, int]] = frozenset(), count: Count | None = None
    ) -> None:
        """Build for a device. Foreign memory of the arguments at these pairs of positions overlaps.

        A dynamic program has the number of elements as a parameter.
        """
        self.facts = facts
        self._overlapping = overlapping
        self._count = None if count is None else Size(count)
        self._steps: list[Step] = []
        self._allocated: list[Memory] = []
        self._returned: list[Memory] = []
        self._apart: dict[tuple[Memory, Memory], None] = {}

    def count(self, elements: int) -> Number:
        """The number of elements of the call; a value in a dynamic program."""
        return elements if self._count is None else self._count

    def empty(self, dtype: DType, length: Number) -> Buffer:
        """A new buffer, not initialised."""
        if type(length) is int and length < _MAX_ELEMENTS:
            # Most often, and `allocate` need not check the bytes.
            memory = Memory(length * dtype.itemsize)
            self._allocated.append(memory)
            return Buffer(dtype, length, memory)
        return Buffer(dtype, length, self.allocate(computed(mul, length, dtype.itemsize)))

    @overload
    def output(self, result: TensorType) -> Buffer: ...

    @overload
    def output(self, result: TensorType | None) -> Buffer | None: ...

    def output(self, result: TensorType | None) -> Buffer | None:
        """A new buffer for a result, not initialised; None where there is no such result."""
        return None if result is None else self.empty(result.dtype, result.elem_count)

    def allocate(self, nbytes: Number) -> Memory:
        """New memory, not initialised. Raises OutOfMemory for more bytes than an address counts."""
        if type(nbytes) is int and nbytes > _MAX_BYTES:
            raise OutOfMemory(self.facts.label, nbytes)
        memory = Memory(nbytes)
        self._allocated.append(memory)
        return memory

    def constant(self, array: Array) -> Buffer:
        """A constant buffer with the elements of an array of rank 1."""
        return Buffer(DType.from_numpy(array.dtype), array.size, Constant(array))

    def launch(
        self,
        family: str,
        kernel: str,
        blocks: Number,
        arguments: KernelArguments,
        shared_bytes: int = 0,
        *,
        work: Number = 0,
    ) -> None:
        """Launch a kernel; no blocks launch nothing. See Launch."""
        if blocks:
            self._steps.append(_new(Launch, (family, kernel, blocks, arguments, shared_bytes, work)))

    def call(self, function: Callable[..., Any], *arguments: Any, fallback: partial[Any] | None = None) -> None:
        """Call a function of a library: see LibraryCall."""
        self._steps.append(LibraryCall(function, arguments, fallback))

    def append(self, call: LibraryCall | None, fallback: partial[Any] | None = None) -> bool:
        """Append the call that a library describes, if any; False where there is none, since the library refuses.

        A call that may refuse too has a fallback: see LibraryCall.
        """
        if call is not None:
            self._steps.append(call if fallback is None else call._replace(fallback=fallback))
        return call is not None

    def copy(self, target: Address, source: Address, nbytes: Number) -> None:
        """Copy bytes within the device; the regions do not overlap."""
        if nbytes:
            self._steps.append(_new(Copy, (target, source, nbytes)))

    def fill(self, target: Address, byte: int, nbytes: Number) -> None:
        """Set every byte to a number below 256."""
        if nbytes:
            self._steps.append(_new(Fill, (target, byte, nbytes)))

    def zero(self, buffer: Buffer | BlocksBuffer | Memory) -> None:
        """Set every byte of a buffer to 0."""
        nbytes = computed(mul, buffer.count, buffer.dtype.itemsize) if isinstance(buffer, Buffer) else buffer.nbytes
        self.fill(buffer.address, 0, nbytes)

    def host(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> HostCall:
        """Call a function of the host, which gets storages for buffers."""
        step = HostCall(function, arguments, options)
        self._steps.append(step)
        return step

    def add_op(self, op: Callable[..., Any], *arguments: Any, **options: Any) -> Results:
        """Append the steps of an op: those that it builds, or the call of a function of an array library."""
        return op(self, *arguments, **options) if builds(op) else self.host(op, *arguments, **options)

    def buffer_of(self, result: Buffer | HostCall, dtype: DType, length: int) -> Buffer:
        """The buffer of the result of the last op, with `length` elements of `dtype`."""
        if isinstance(result, Buffer):
            return result
        buffer = Buffer(dtype, length, Memory(length * dtype.itemsize))
        assert self._steps[-1] is result, "only the last step is known to be this one"
        self._steps[-1] = result._replace(result=buffer)
        self._returned.append(buffer.memory)
        return buffer

    def attempt(self, op: Callable[..., Any], *arguments: Any) -> Results:
        """Append the steps of an op that may leave the call to another one; then there are none of it."""
        count = len(self._steps)
        result = self.add_op(op, *arguments)
        if result is None:
            del self._steps[count:]
        return result

    def draw(self, blocks: Number) -> Draw:
        """Blocks of the device's random stream."""
        return Draw(blocks)

    @property
    def error_record(self) -> ErrorRecord:
        """The record in which kernels note an index that is out of range."""
        return ErrorRecord()

    def call_number(self) -> CallNumber:
        """A number that no call has had."""
        return CallNumber()

    def expect_error(self) -> None:
        """Say that an earlier launch may have noted an index that is out of range."""
        self._steps.append(ExpectError())

    @staticmethod
    def are_same(one: Operand, other: Operand) -> bool:
        """Whether operands are the same elements of one storage."""
        return one.storage.memory.is_same(other.storage.memory) and one.layout == other.layout

    def shares_memory(self, one: Operand, other: Operand) -> bool:
        """Whether an element of one operand may be an element of the other."""
        first, second = one.storage.memory, other.storage.memory
        if first.is_same(second):
            begins = [operand.address.offset for operand in (one, other)]
            ends = [operand.layout.end * operand.itemsize for operand in (one, other)]
            return begins[0] < ends[1] and begins[1] < ends[0]
        if not (first.is_foreign and second.is_foreign):
            return False
        if self._overlap(first, second):
            return True
        self._apart[first, second] = None
        return False

    def _overlap(self, first: Memory, second: Memory) -> bool:
        assert first.argument is not None and second.argument is not None
        return tuple(sorted((first.argument, second.argument))) in self._overlapping

    def program(self, name: str, arguments: Sequence[Argument], result: Results) -> Program:
        """The program of all steps."""
        if isinstance(result, Buffer):
            buffers: tuple[Buffer, ...] = (result,)
        elif result is None or isinstance(result, HostCall):
            buffers = ()
        else:
            buffers = result = tuple(result)
        steps, released = lifetimes(self._steps, self._allocated, self._returned, buffers)
        return _new(Program, (name, tuple(arguments), steps, result, released, tuple(self._apart), buffers))


def lifetimes(
    steps: Sequence[Step], allocated: Sequence[Memory], returned: Sequence[Memory], results: Sequence[Buffer]
) -> tuple[tuple[Step, ...], tuple[tuple[Memory, ...], ...]]:
    """The steps with the allocations of memory, and for each one the memory that is released after it.

    Memory is allocated in front of the first step that uses it and released after the last; what nothing uses is not
    allocated. `returned` is memory that functions of the host return.
    """
    every = {*allocated, *returned}
    scratch = every.difference(map(_memory_of, results))
    if not scratch:
        # Most often. All results exist at the end, whenever they are allocated.
        ordered = [*[_new(Allocate, (it,)) for it in allocated], *steps]
        return tuple(ordered), ((),) * len(ordered)
    first: dict[Memory, int] = {}
    last: dict[Memory, int] = {}
    for number, step in enumerate(steps):
        for memory in every.intersection(accessed(step)):
            first.setdefault(memory, number)
            last[memory] = number
    begins: list[list[Step]] = [[] for _ in range(len(steps) + 1)]
    ends: list[list[Memory]] = [[] for _ in steps]
    for memory in allocated:
        if memory in last or memory not in scratch:
            begins[first.get(memory, -1)].append(_new(Allocate, (memory,)))
    for memory in (*allocated, *returned):
        if memory in last and memory in scratch:
            ends[last[memory]].append(memory)
    ordered = []
    released: list[tuple[Memory, ...]] = []
    for begun, step, ended in zip(begins, steps, ends, strict=False):
        ordered += *begun, step
        released += *[()] * len(begun), tuple(ended)
    return (*ordered, *begins[-1]), (*released, *[()] * len(begins[-1]))


Op: TypeAlias = Callable[Concatenate[ProgramBuilder, P], Built]
"""An op of a backend, which builds the program of a call with arguments `P`."""


# Python creates a tuple of the names at each access.
@lru_cache(maxsize=4096)
def builds(function: Any) -> bool:
    """Whether an op builds a program."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_varnames[:1] == ("build",)


def program_of_fallback(facts: Facts, arguments: Sequence[Argument], fallback: partial[Any]) -> Program:
    """The program of a fallback, which replaces one with these arguments whose library refuses: see LibraryCall."""
    build = ProgramBuilder(facts)
    return build.program(fallback.func.__name__, arguments, fallback(build))


class GivenStorage:
    """A storage: an operand of a run of a program."""

    __slots__ = ()

    NUMBER: ClassVar[int] = -1
    """The form of a storage that is a number, which kernels can take along."""
    kind: int
    """A number that identifies the dtype, the length and the form of the memory."""

    @property
    def dynamic_form(self) -> int | None:
        """The form of the memory, if dynamic programs serve it."""
        return None

    @abstractmethod
    def buffer(self, position: int) -> Buffer | BlocksBuffer:
        """The buffer for the storage in a program that takes it as the argument at a position."""


class OpCall:
    """A call of an op, without its storages and numbers: all that decides what its program is.

    An op whose first parameter is `build` appends steps to a program. Any other op is a function of an array library,
    which becomes the one step of its program.
    """

    __slots__ = ("_count", "_function", "_options", "arguments", "begin_ns", "parts")

    _function: Callable[..., Any]
    _options: Mapping[str, Any]
    arguments: Sequence[Argument]
    """The arguments of the program: a buffer for each storage, and then the numbers."""
    begin_ns: int
    """The time of the call, for profilers: after it the plan is built."""
    parts: Sequence[Any]
    """The arguments of the op, with a buffer for each storage and a parameter for each number."""

    def __init__(
        self,
        function: Callable[..., Any],
        parts: Sequence[Any],
        options: Mapping[str, Any] = _NO_OPTIONS,
        arguments: Sequence[Argument] = (),
    ) -> None:
        self._function = function
        self._options = options
        self._count: Count | None = None
        self.arguments = arguments
        self.parts = parts

    @classmethod
    def of(
        cls, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], numbers: int
    ) -> tuple[Self, list[Any]]:
        """The call `function(*arguments, **options)`, whose last arguments are `numbers` numbers, and its operands.

        The operands are what a run takes: the storages, also those in tuples, and then the numbers.
        """
        parts = [*arguments]
        program_arguments: list[Argument] = []
        operands: list[Any] = []
        first_number = len(parts) - numbers
        for position, part in enumerate(arguments[:first_number]):
            kind = type(part)
            if kind in _WITHOUT_STORAGES:
                continue
            is_tuple = kind is Operand or isinstance(part, tuple)
            operand = part[0] if is_tuple and part else part
            if isinstance(operand, GivenStorage):
                buffer = operand.buffer(len(operands))
                # Keys contain whether operands are one storage only where that matters.
                if operand in operands:
                    buffer.memory.owner = operands.index(operand)
                if kind is Operand:
                    parts[position] = _new(Operand, (buffer, part[1]))
                else:
                    parts[position] = _new(kind, (buffer, *part[1:])) if is_tuple else buffer
                program_arguments.append(buffer)
                operands.append(operand)
            elif not is_tuple:
                _WITHOUT_STORAGES.add(kind)
        if numbers:
            parameters = [Parameter(position) for position in range(len(operands), len(operands) + numbers)]
            parts[first_number:] = parameters
            program_arguments += parameters
            operands += arguments[first_number:]
        return cls(function, parts, options, program_arguments), operands

    def dynamic(self) -> Self:
        """The call of any number of elements, which is one more argument."""
        self._count = Count(len(self.arguments))
        self.arguments = *self.arguments, self._count
        return self

    def program(
        self, facts: Facts, overlapping: frozenset[tuple[int, int]] = frozenset(), *, may_refuse: bool = False
    ) -> Program | None:
        """The program of the call on a device; None where the op leaves the call to another one."""
        build, function = ProgramBuilder(facts, overlapping, self._count), self._function
        if builds(function):
            result = function(build, *self.parts, **self._options)
        else:
            result = build.host(function, *self.parts, **self._options)
        if result is None and may_refuse:
            return None
        return build.program(function.__name__, self.arguments, result)

    @property
    def name(self) -> str:
        """The name of the op."""
        name: str = self._function.__name__
        return name
