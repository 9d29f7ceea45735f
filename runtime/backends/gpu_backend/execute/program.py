"""Plans of a GPU, which run programs: step by step the first time, then as compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .....dtype import DType
from ....program.builder import OpCall, program_of_fallback
from ....program.dynamic import with_count
from ....program.program import (
    Allocate,
    Argument,
    Copy,
    ExpectError,
    Fill,
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
)
from ...plan import Key, Plan
from ..driver.grid import MAX_BLOCKS
from ..memory.storage import GpuStorage
from .compiler import compiled

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
    if program is None:
        return None
    # Only other overlaps of foreign memory make another program of the call.
    return _OverlapPlan(device, key, program, call) if program.disjoint else GpuPlan(device, key, program)


def sized_plans_of(device: GpuBase, call: OpCall, *, may_refuse: bool) -> GpuSizedPlans | None:
    """The plans of the dynamic program of a call: see `Planner.sized_plans_of`."""
    program = call.program(device.facts, may_refuse=may_refuse)
    return None if program is None else GpuSizedPlans(device, program)


class GpuPlan:
    """A plan that runs the program of a call step by step, and has it compiled when the call comes again.

    The compiled function replaces it then: most calls that come twice come again. Calls that come once, of which
    some applications make many, are not worth compiling.
    """

    __slots__ = ("_function", "_key", "_program", "_was_run", "device")

    def __init__(self, device: GpuBase, key: Key, program: Program) -> None:
        self.device = device
        self._key = key
        self._program = program
        self._was_run = False
        self._function: Plan | None = None

    def __call__(self, *operands: Any) -> Results:
        """Run the program with storages and then numbers."""
        if not self._was_run:
            self._was_run = True
            return self._run(operands)
        if self._function is None:
            self._function = self._compiled()
            if self._key is not None:
                self.device.plans.store(self._key, self._function)
        result: Results = self._function(*operands)
        return result

    def _run(self, operands: Sequence[Any]) -> Results:
        """Run the program the first time."""
        return Run(self.device, self._program, operands).run()

    def _compiled(self) -> Plan:
        """The function that replaces the plan."""
        return _compiled(self.device, self._program)


class _OverlapPlan(GpuPlan):
    """The plan of a call whose program is another one where foreign memory of its operands overlaps."""

    __slots__ = ("_call",)

    def __init__(self, device: GpuBase, key: Key, program: Program, call: OpCall) -> None:
        super().__init__(device, key, program)
        self._call = call

    def _run(self, operands: Sequence[Any]) -> Results:
        return self._run_overlapping(*operands) if overlapping(self._program, operands) else super()._run(operands)

    def _run_overlapping(self, *operands: Any) -> Results:
        """Run the program for operands whose foreign memory overlaps, which is built for each call."""
        other = self._call.program(self.device.facts, overlapping(self._program, operands))
        assert other is not None, "the op has taken this call before"
        return Run(self.device, other, operands).run()

    def _compiled(self) -> Plan:
        return _compiled(self.device, self._program, self._run_overlapping)


class GpuSizedPlans:
    """Gives the plans of a dynamic program.

    A first call runs the dynamic program, which is compiled when a second number of elements comes.
    """

    __slots__ = ("_device", "_program", "_run")

    def __init__(self, device: GpuBase, program: Program) -> None:
        self._device = device
        self._program = program
        self._run: Plan = self._run_first

    @property
    def name(self) -> str:
        """The name of the op."""
        return self._program.name

    def __call__(self, key: Key, count: int, operands: Sequence[Any]) -> tuple[Results, Plan]:
        """Make a first call of `count` elements, and return its result and the plan of those that come again."""
        return self._run(*operands, count), _SizedPlan(self._device, key, self._program, count)

    def _run_first(self, *operands: Any) -> Results:
        self._run = self._run_second
        return Run(self._device, with_count(self._program, operands[-1]), operands).run()

    def _run_second(self, *operands: Any) -> Results:
        self._run = run = _compiled(self._device, self._program)
        result: Results = run(*operands)
        return result


class _SizedPlan(GpuPlan):
    """The plan of calls with `count` elements, of which there was one: compiles a program for them."""

    __slots__ = ("_count",)

    def __init__(self, device: GpuBase, key: Key, program: Program, count: int) -> None:
        super().__init__(device, key, program)
        self._was_run = True
        self._count = count

    def _compiled(self) -> Plan:
        return _compiled(self.device, with_count(self._program, self._count))


def _compiled(device: GpuBase, program: Program, otherwise: Plan | None = None) -> Plan:
    return compiled(device, program, partial(_run_fallback, device, program.arguments), otherwise)


def _run_fallback(
    device: GpuBase, arguments: Sequence[Argument], fallback: partial[BuiltResults], *operands: Any
) -> Results:
    """Run what a fallback builds for the arguments of a program."""
    return Run(device, program_of_fallback(device.facts, arguments, fallback), operands).run()


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
            if type(field) is Address:
                memory = field.memory
                allocation = self._memory[memory] if memory.argument is None else self._operands[memory.argument].memory
                fields[position] = allocation.address + field.offset
            else:
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
        device, memory = self._device, buffer.memory
        allocation = self._memory[memory] if memory.argument is None else self._operands[memory.argument].memory
        storage: GpuStorage = device.storage_class(device, buffer.dtype, buffer.count, allocation)
        return storage


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
