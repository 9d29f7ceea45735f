"""The records of calls that profilers collect, and the observer that collects them on a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from time import perf_counter_ns
from typing import Any, Final, Protocol

from ..program.builder import Facts, GivenStorage, OpCall
from ..program.program import (
    Allocate,
    Copy,
    ExpectError,
    Fill,
    HostCall,
    Launch,
    LibraryCall,
    Program,
    Step,
    accessed,
    name_of,
)
from ..program.values import BlocksBuffer, Buffer, Memory, known
from .plan import Key, Plan


@dataclass(slots=True)
class LaunchRecord:
    """Work that a call gave a device: the launch of a kernel, the call of a library, a copy."""

    name: str
    """The kernel with its family, as in "unary/exp_f32_contiguous", or the function that was called."""
    kind: str
    """"kernel", "library", "copy", "fill" or "host", which is a function of Python or NumPy."""
    nbytes: int
    """The bytes of the memory that is read and written, each counted once."""
    grid: int | None = None
    """How many blocks a kernel was launched on."""
    start_ns: int | None = None
    """When it began, by `time.perf_counter_ns`; None where that is not known, as in the capture of a graph."""
    duration_ns: int | None = None


@dataclass(slots=True)
class AllocationRecord:
    """Memory that a call allocated on its device."""

    nbytes: int
    start_ns: int


@dataclass(slots=True)
class CallRecord:
    """A call on a device."""

    name: str
    """The method, and its op or dtype: "binary_impl add"."""
    operands: tuple[str, ...]
    """The shape and the dtype of each operand, and its strides where it is not contiguous: "(2, 3) f32"."""
    device: str
    """The label of the device."""
    is_planned: bool
    """Whether there was a plan for the call."""
    has_stream: bool = False
    """Whether the device works asynchronously, in the order of a stream."""
    is_captured: bool = False
    """Whether the call went into a graph, and was not done yet."""
    thread: int = field(default_factory=threading.get_ident)
    """The id of the calling thread."""
    line: str = ""
    """The file and the line of the user's code that called."""
    plan_ns: int = 0
    """How long the host took to make the plan of a call that had none, before it began."""
    start_ns: int = 0
    """When the call began, by `time.perf_counter_ns`."""
    duration_ns: int = 0
    """How long the host took. A GPU may begin later, and end later."""
    launches: list[LaunchRecord] = field(default_factory=list)
    allocations: list[AllocationRecord] = field(default_factory=list)
    error: str | None = None
    """The class of the exception that it raised."""

    @property
    def title(self) -> str:
        """The name and the operands, as in "binary_impl add (2, 3) f32, (3,) f32"."""
        return " ".join([self.name, ", ".join(self.operands)]).rstrip()

    @property
    def device_ns(self) -> int:
        """How long its launches took together, as far as that is known."""
        return sum([launch.duration_ns or 0 for launch in self.launches])


class Listener(Protocol):
    """Something that is notified of calls on devices."""

    @property
    def waits(self) -> bool:
        """Whether the times of launches must be known when a call ends."""

    def begin(self, call: CallRecord) -> None:
        """Note that a call begins."""

    def end(self, call: CallRecord, allocated: int | None) -> None:
        """Note that a call has ended, and how many bytes of the device's memory are in use then, where known."""


class DeviceProfiler:
    """An observer that records what the calls on a device do."""

    has_stream = False
    """Whether the device works asynchronously, in the order of a stream."""

    def __init__(self, device: Any, label: str, listener: Listener) -> None:
        """Report the calls on a device with this label to a listener."""
        self._device = device
        self.label = label
        self.listener = listener

    def observed(self, key: Key, call: OpCall, plan: Plan, is_known: bool) -> Plan:
        """Return a plan that records its runs: see `plan.Observer`."""
        # The first run has it, of whichever thread.
        plan_times = iter([] if is_known else [perf_counter_ns() - call.begin_ns])
        name, operands = name_of_call(key, call), tuple(_operands(call.parts))
        run = self._measured(call, plan, is_known)

        def measure(*arguments: Any) -> Any:
            plan_ns = next(plan_times, None)
            record = CallRecord(name, operands, self.label, plan_ns is None, self.has_stream, plan_ns=plan_ns or 0)
            with Span(self, record):
                return run(record, arguments)

        return measure

    def _measured(self, call: OpCall, plan: Plan, _is_known: bool) -> Callable[[CallRecord, Sequence[Any]], Any]:
        """Return a function that runs a plan and records its launches."""
        program = program_of(call, self._device.facts)
        work = Work(call, program, self.kernel_name)
        steps = [step for step in program.steps if does_work(step)]
        # Programs of several steps are compiled again, to time each step.
        marked = self._device.compiled(program, mark) if len(steps) > 1 else plan
        sizes = [step.memory.nbytes for step in program.steps if isinstance(step, Allocate)]
        sizes += [step.result.nbytes for step in steps if isinstance(step, HostCall) and step.result is not None]

        def run(record: CallRecord, arguments: Sequence[Any]) -> Any:
            record.allocations += [AllocationRecord(nbytes, record.start_ns) for nbytes in sizes]
            outer = getattr(_marks, "times", None)
            _marks.times = times = list[int]()
            if marked is plan:
                mark()
            try:
                result = marked(*arguments)
            finally:
                _marks.times = outer
                times.append(perf_counter_ns())
                for step, start, end in zip(steps, times, times[1:], strict=False):
                    record.launches.append(work.record(step, start, end - start))
            if program.is_host_call:
                _note_results(record, result)
            return result

        return run

    def kernel_name(self, launch: Launch) -> str:
        """Name a kernel for people."""
        return name_of_kernel(launch)

    def allocated(self) -> int | None:
        """Return the bytes of the device's memory that are in use, or None if they are not counted."""
        return None

    def settle(self, *, blocking: bool) -> None:
        """Wait for the device and fill in the times of its launches; if `blocking`, wait for captures to end first."""

    def close(self) -> None:
        """Stop observing."""


class Span:
    """Times a call, and notifies the listener when it begins and ends."""

    def __init__(self, profiler: DeviceProfiler, record: CallRecord) -> None:
        self._profiler = profiler
        self._record = record

    def __enter__(self) -> None:
        self._profiler.listener.begin(self._record)
        self._record.start_ns = perf_counter_ns()

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        record, profiler = self._record, self._profiler
        record.duration_ns = perf_counter_ns() - record.start_ns
        record.error = None if kind is None else kind.__name__
        if profiler.listener.waits:
            profiler.settle(blocking=False)
        profiler.listener.end(record, profiler.allocated())


class Work:
    """Describes the steps of a program for people."""

    def __init__(self, call: OpCall, program: Program, kernel_name: Callable[[Launch], str] | None = None) -> None:
        self._kernel_name = kernel_name or name_of_kernel
        self._reached = _reached(call)
        self._parts = {id(step): self._describe(step) for step in program.steps if does_work(step)}
        # Keeps the steps alive, whose ids are keys.
        self._program = program

    def record(self, step: Step, start_ns: int | None = None, duration_ns: int | None = None) -> LaunchRecord:
        """Return a record of a step that does work."""
        return LaunchRecord(*self._parts[id(step)], start_ns, duration_ns)

    def _describe(self, step: Step) -> tuple[str, str, int, int | None]:
        match step:
            case Launch(blocks=blocks):
                return self._kernel_name(step), "kernel", self._count(accessed(step)), known(blocks)
            case LibraryCall(function):
                return _name_of_method(function), "library", self._count(accessed(step)), None
            case Copy(_, _, nbytes):
                return "copy", "copy", 2 * known(nbytes), None
            case Fill(_, _, nbytes):
                return "fill", "fill", known(nbytes), None
            case HostCall(function):
                return name_of(function), "host", self._count(accessed(step)), None
        raise TypeError(f"{type(step).__name__} does no work")

    def _count(self, memory: Iterable[Memory]) -> int:
        """Count the bytes that a step reaches of some memory."""
        sizes = {_owner(each): self._reached.get(_owner(each), each.nbytes) for each in memory}
        return sum(sizes.values())


def name_of_kernel(launch: Launch) -> str:
    """The family and the name of a kernel."""
    return f"{launch.family}/{launch.kernel}"


def _name_of_method(function: Any) -> str:
    """The class of a library, and the method that is called."""
    method = getattr(function, "func", function)
    owner = getattr(method, "__self__", None)
    return name_of(method) if owner is None else f"{type(owner).__name__}.{method.__name__.lstrip('_')}"


def does_work(step: Step) -> bool:
    """Return True if a step gives the device something to do."""
    return not isinstance(step, Allocate | ExpectError)


def program_of(call: OpCall, facts: Facts) -> Program:
    """Build the program of a call that has a plan."""
    program = call.program(facts)
    assert program is not None, "the op has taken this call before"
    return program


def name_of_call(key: Key, call: OpCall) -> str:
    """The method of a call, and its op or dtype."""
    while isinstance(key, tuple) and key and isinstance(key[0], tuple):
        key = key[0]
    if not isinstance(key, tuple):
        return getattr(key, "name", call.name)
    method = key[0] if isinstance(key[0], str) else call.name
    return " ".join([method, *[str(part.value) for part in key[1:] if isinstance(part, Enum)]])


_marks: Final = threading.local()


def mark() -> None:
    """Note that the run of this thread begins a step."""
    _marks.times.append(perf_counter_ns())


def _note_results(record: CallRecord, result: Any) -> None:
    """Note the memory of what a function of the host has returned, of which its program says nothing."""
    for storage in result if isinstance(result, tuple | list) else (result,):
        if isinstance(storage, GivenStorage):
            nbytes = _bytes_of(storage)
            record.launches[-1].nbytes += nbytes
            record.allocations.append(AllocationRecord(nbytes, record.start_ns))


def _bytes_of(storage: Any) -> int:
    # Block-quantized weights have no items.
    return int(storage.size_in_bytes if hasattr(storage, "size_in_bytes") else storage.length * storage.dtype.itemsize)


def _operands(parts: Iterable[Any]) -> Iterable[str]:
    for part in parts:
        buffer, layout = _of_operand(part)
        if buffer is None:
            continue
        if layout is None:
            yield f"({buffer.length},) {buffer.dtype.value}"
        else:
            strides = "" if layout.is_contiguous else f" strides {layout.strides}"
            yield f"{tuple(layout.shape)} {buffer.dtype.value}{strides}"


def _of_operand(part: Any) -> tuple[Buffer | BlocksBuffer | None, Any]:
    """The buffer of an argument of an op, and the layout, if it has these."""
    buffer = part[0] if isinstance(part, tuple) and part else part
    return (buffer, getattr(part, "layout", None)) if isinstance(buffer, Buffer | BlocksBuffer) else (None, None)


def _reached(call: OpCall) -> dict[object, int]:
    """How many bytes the layouts of a call's operands reach of their memory."""
    layouts: dict[object, dict[Any, int]] = {}
    most: dict[object, int] = {}
    for part in call.parts:
        buffer, layout = _of_operand(part)
        if buffer is not None:
            owner = _owner(buffer.memory)
            most[owner] = buffer.nbytes
            nbytes = buffer.nbytes
            if isinstance(buffer, Buffer) and layout is not None:
                sizes = zip(layout.shape, layout.strides, strict=True)
                nbytes = prod([size for size, stride in sizes if stride]) * buffer.dtype.itemsize
            layouts.setdefault(owner, {})[layout] = nbytes
    return {owner: min(most[owner], sum(sizes.values())) for owner, sizes in layouts.items()}


def _owner(memory: Memory) -> object:
    """A key that is equal for all memory of the same storage."""
    return memory if memory.owner is None else memory.owner
