"""Plans: what a call gives a device, recorded to be given again with other memory.

A recorder stands for a device while a function of `ops` runs, and stand-ins for its operands. The function allocates,
launches kernels and calls libraries as ever; the recorder hands everything on, and writes down a function of Python
that does the same. What differs from run to run are variables: see `variable`. All else is decided by what plans are
found by: the op, and the kinds and the layouts of the operands.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from .....dtype import Array, DType
from ....kernels.argument_struct import Number, PackedArguments, Parameter, Recorded, RecordedAddress
from ...plan import Call, Key, Plan, kind_of
from ..driver.error import LibraryError
from ..driver.grid import MOST_BLOCKS
from ..libraries.library import Library
from ..memory.quantized import QGpuStorage
from ..memory.slice import Slice
from ..memory.storage import GpuStorage

if TYPE_CHECKING:
    from ..device import GpuDevice

Result: TypeAlias = GpuStorage | tuple[GpuStorage, ...] | None
"""What a function of `ops` makes."""


class PlanToRecord:
    """The plan of a call until it is recorded, when it is made the second time: most that come twice come again."""

    def __init__(self, device: GpuDevice, key: Key, call: Call) -> None:
        self._device = device
        self._key = key
        self._call = call
        self._is_repeated = False

    def __call__(self, *operands: Any) -> Result:
        if not self._is_repeated:
            self._is_repeated = True
            first: Result = self._call(*operands)
            return first
        return self.record(*operands)

    def record(self, *operands: Any) -> Result:
        """Make the call, and keep the plan that does it again without the function."""
        recorder = Recorder(self._device)
        try:
            parts = [_RecordedCalls(recorder, part) if isinstance(part, Library) else part for part in self._call.parts]
            result = self._call.made_of(parts, map(recorder.stand_in, operands))
            plan = recorder.plan(result, self._call)
            # What is not the same each time is worked out each time.
            self._device.plans.keep(self._key, self._call if plan is None else plan)
            return recorder.real(result)
        finally:
            recorder.close()


class _Memory:
    """Memory while a call is recorded."""

    def __init__(self, recorder: Recorder, real: Any, name: str) -> None:
        self.real = real
        self.name = name
        self.nbytes: int = real.nbytes
        self._recorder = recorder

    @property
    def address(self) -> RecordedAddress:
        """Where its first byte is."""
        return RecordedAddress.of(self.real.address, self.name)

    def __del__(self) -> None:
        self._recorder.forget(self.name)


class _Number(GpuStorage):
    """Stands for a storage that is a number."""

    def __init__(self, recorder: Recorder, real: GpuStorage, number: Number) -> None:
        self.device = recorder  # type: ignore[assignment]
        self.dtype = real.dtype
        self.length = real.length
        self.number = number
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name != "memory":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        # From now on it is one in memory, of which there is another plan.
        self.number.changed()  # type: ignore[union-attr]
        return self._real.memory


class Recorder:
    """Stands for a device while one call is recorded."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        self.driver = _RecordedCalls(self, device.driver)
        self.kernels = _Kernels(self)
        self.index_errors = _IndexErrors(self)
        self.counters = device.counters
        self._count = itertools.count()
        self._is_lasting = True
        self._is_done = False
        self._is_foreign = False
        self._parameters: list[str] = []
        self._operands: list[tuple[str, Any]] = []
        # How a run names the memory of an operand, by the name of its address.
        self._operand_memory: dict[str, str] = {}
        self._allocated: set[str] = set()
        # What a run begins with, what it does then, and what names mean in it.
        self._first: dict[str, None] = {}
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "Slice": device.slice_class,
            "allocator": device.allocator,
            "index_errors": device.index_errors,
        }

    def empty(self, dtype: DType, count: int) -> GpuStorage:
        """A storage, not initialised."""
        return self.held(dtype, count, self.allocate(count * dtype.itemsize))

    def allocate(self, nbytes: int) -> _Memory:
        """Memory, not initialised, in each run."""
        name = self.new_name("m")
        self._allocated.add(name)
        self.note(f"{name}_memory = Slice(allocator, {self.constant(nbytes)})")
        self.note(f"{name} = {name}_memory.address")
        return _Memory(self, self._device.allocate(nbytes), name)

    def stand_in(self, argument: GpuStorage | QGpuStorage | float) -> Any:
        """What a function is given in the place of a storage or of a number."""
        name = f"x{len(self._parameters)}"
        self._parameters.append(name)
        if not isinstance(argument, GpuStorage | QGpuStorage):
            return Parameter(self, argument, name)
        if isinstance(argument, GpuStorage) and argument.number is not None:
            return _Number(self, argument, self.variable(argument.number, f"{name}_number", f"{name}.bits"))
        self._is_foreign |= not isinstance(argument.memory, Slice)
        self._operands.append((f"{name}_memory", argument.memory))
        self._operand_memory[f"{name}_memory"] = f"{name}.memory"
        self._first[f"{name}_memory = {name}.memory.address"] = None
        memory: Any = _Memory(self, argument.memory, f"{name}_memory")
        if isinstance(argument, GpuStorage):
            return self.held(argument.dtype, argument.length, memory)
        blocks = type(argument)(argument.device, argument.dtype, argument.length, memory)
        blocks.device = self  # type: ignore[assignment]
        return blocks

    def read(self, array: Array, address: int) -> None:
        """Fill an array, which may hold other numbers the next time."""
        self.changed()
        self._device.read(array, int(address))

    def write(self, address: int, array: Array) -> None:
        """Fill memory from an array, which may hold other numbers the next time."""
        self.changed()
        self._device.write(int(address), array)

    def held(self, dtype: DType, count: int, memory: Any) -> GpuStorage:
        """A storage of memory that is there."""
        storage = self._device.storage_class(self._device, dtype, count, memory)
        storage.device = self  # type: ignore[assignment]
        return storage

    def variable(self, value: int, name: str, expression: str) -> Number:
        """A number that each run finds by an expression."""
        self._first[f"{name} = {expression}"] = None
        return Number.made(self, value, name)

    def changed(self) -> None:
        """Say that another run may do something else, so that there is no plan."""
        self._is_lasting = False

    def note(self, line: str) -> None:
        """Write down what a run does next."""
        if not self._is_done:
            self._lines.append(line)

    def forget(self, name: str) -> None:
        """Write down that memory is given back, if it is that of a run: what is given back early is used again."""
        if name in self._allocated:
            self.note(f"del {name}_memory")

    def constant(self, value: object) -> str:
        """The name of what is the same in all runs."""
        name = self.new_name("c")
        self._names[name] = value
        return name

    def new_name(self, kind: str) -> str:
        """A name that nothing has."""
        return f"{kind}{next(self._count)}"

    def text(self, value: object) -> str:
        """How a run says a value, which may be a variable or have some in it."""
        if isinstance(value, RecordedAddress) and value.offset:
            return f"{value.name} + {self.constant(value.offset)}"
        if isinstance(value, Recorded):
            return value.name
        if isinstance(value, PackedArguments):
            return self._packed(value)
        if isinstance(value, tuple) and any(isinstance(part, Recorded) for part in value):
            made = "" if type(value) is tuple else self.constant(type(value))
            return f"{made}({', '.join(map(self.text, value))})"
        return self.constant(value)

    def _packed(self, packed: PackedArguments) -> str:
        form, values = packed.parts()
        return f"{self.constant(_packer(form))}({', '.join(map(self.text, values))})"

    def real(self, result: Result) -> Result:
        """The result of the call that was recorded."""
        if result is None:
            return None
        return tuple(map(self._real, result)) if isinstance(result, tuple) else self._real(result)

    def _real(self, result: GpuStorage) -> GpuStorage:
        memory = result.memory
        if isinstance(memory, _Memory):
            memory = memory.real
        return self._device.storage_class(self._device, result.dtype, result.length, memory)

    def plan(self, result: Result, call: Call) -> Plan | None:
        """A function that does all this again; None where it would not be the same. It may leave it to the `call`."""
        if isinstance(result, tuple):
            self.note(f"return {', '.join(map(self._made, result))},")
        elif result is not None:
            self.note(f"return {self._made(result)}")
        elif self._is_foreign:
            self._leave_shared_memory_to(call)
        self._is_done = True
        if not self._is_lasting:
            return None
        body = "".join(f"\n    {line}" for line in (*self._first, *self._lines) or ("pass",))
        return FunctionType(_code(f"def run({', '.join(self._parameters)}):{body}"), self._names)

    def close(self) -> None:
        """Let go of what knows the recorder: else memory of operands stays allocated until garbage is collected."""
        del self.driver, self.kernels, self.index_errors
        self._operands.clear()

    def _made(self, result: GpuStorage) -> str:
        """The name of a result, which each run makes."""
        memory: str = getattr(result.memory, "name", "")
        if memory in self._allocated:
            held = f"{memory}_memory"
        elif memory in self._operand_memory:
            held = self._operand_memory[memory]
        else:
            self.changed()
            held = ""
        fields = {
            "device": self._device,
            "dtype": result.dtype,
            "length": result.length,
            "kind": kind_of(result.dtype, result.length),
        }
        name = self.new_name("r")
        self._names |= {"new": object.__new__, "Storage": self._device.storage_class}
        self.note(f"{name} = new(Storage)")
        for field, value in fields.items():
            self.note(f"{name}.{field} = {self.constant(value)}")
        self.note(f"{name}.memory = {held}")
        return name

    def _leave_shared_memory_to(self, call: Call) -> None:
        """Have a run ask whether operands share memory, where that is not known of memory of other libraries."""
        for (one, memory), (other, other_memory) in combinations(self._operands, 2):
            if memory.address < other_memory.address + other_memory.nbytes and (
                other_memory.address < memory.address + memory.nbytes
            ):
                self.changed()
            meets = f"{one} < {other} + {self.constant(other_memory.nbytes)}"
            met = f"{other} < {one} + {self.constant(memory.nbytes)}"
            done = f"{self.constant(call)}({', '.join(self._parameters)})"
            self._first[f"if {meets} and {met}: return {done}"] = None


def _plain(value: Any) -> Any:
    """A value without variables, which not everything takes for numbers."""
    if isinstance(value, Recorded):
        return int(value)
    if isinstance(value, tuple) and any(isinstance(part, Recorded) for part in value):
        parts = [_plain(part) for part in value]
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value


class _RecordedCalls:
    """A driver or a library, whose calls are recorded."""

    def __init__(self, recorder: Recorder, real: object) -> None:
        self._recorder = recorder
        self._real = real

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value

        def record(*arguments: object) -> Any:
            recorder, real = self._recorder, self._real
            function, known = real.step(name, arguments) if isinstance(real, Library) else (value, arguments)
            result = function(*map(_plain, known))
            call = f"{recorder.constant(function)}({', '.join(map(recorder.text, known))})"
            if result is False:
                recorder.changed()
            elif result is True:
                call = f"if not {call}: {recorder.constant(_refuse)}({recorder.constant(name)})"
            recorder.note(call)
            return result

        return record


class _Kernels:
    """The kernels of a device."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.has = recorder._device.kernels.has

    def launch(self, family: str, name: str, blocks: int, arguments: bytes, shared_bytes: int = 0) -> None:
        """Launch a kernel."""
        recorder = self._recorder
        kernels = recorder._device.kernels
        kernels.launch(family, name, blocks, arguments, shared_bytes)
        if blocks:
            launch, most = map(recorder.constant, (kernels.function(name), min(blocks, MOST_BLOCKS)))
            recorder.note(f"{launch}({most}, {recorder.text(arguments)})")


class _IndexErrors:
    """Where indexes out of range are recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._real = recorder._device.index_errors

    @property
    def address(self) -> Number:
        """The record of the thread that runs the plan."""
        return self._recorder.variable(self._real.address, "errors", "index_errors.address")

    def next_call(self) -> Number:
        """A number that no call has had."""
        recorder = self._recorder
        return recorder.variable(self._real.next_call(), recorder.new_name("call"), "index_errors.next_call()")

    def expect(self) -> None:
        """Say that the record may be written."""
        self._real.expect()
        self._recorder.note("index_errors.expect()")


@lru_cache(maxsize=1024)
def _packer(form: str) -> Callable[..., bytes]:
    return struct.Struct(form).pack


# Calls of one kind differ in their constants alone.
@lru_cache(maxsize=1024)
def _code(text: str) -> CodeType:
    return next(part for part in compile(text, "<plan>", "exec").co_consts if isinstance(part, CodeType))


def _refuse(name: str) -> NoReturn:
    raise LibraryError(name, "it refuses what it took before", "free some device memory")
