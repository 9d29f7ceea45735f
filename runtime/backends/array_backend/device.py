"""The devices of backends on array libraries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ....dtype import Array, DType
from ....ggml_dtype import GgmlDType
from ...base.error import BackendUnavailable, InvalidArgument, InvalidIndex, TallowError
from ...core.layout import Layout
from ...core.random import RandomState
from ...doctor.finding import Finding, modules, reason
from ...program.builder import NO_FACTS, OpCall
from ...program.dynamic import with_count
from ...program.host import HostCompiler
from ...program.program import Program
from ..backend import Part
from ..plan import Key, Plan, SizedPlans, sized_call
from . import strided, transfer
from .library_device import LibraryDevice

if TYPE_CHECKING:
    from .blocks import QArrayStorage
    from .storage import ArrayStorage

# So many indexes may be out of range before the first one is looked for.
_MAX_NOTES: Final = 64


class _Notes(threading.local):
    """The notes of one thread: the op, its size, the first wrong index, their number, and that index."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int, Any, int, Any]] = []
        self.error: InvalidIndex | None = None


class ArrayDevice(LibraryDevice):
    """A device of an array library."""

    modules: ClassVar[tuple[str, ...]]
    """The modules of Python without which there is no library."""
    requires: ClassVar[tuple[str, ...]] = ()
    """The requirements that install them."""
    storage_class: ClassVar[type[ArrayStorage]]
    blocks_class: ClassVar[type[QArrayStorage]]

    @classmethod
    def device_count(cls) -> int:
        """How many devices the library finds."""
        with cls.translating():
            return int(cls.library.device_count())

    @classmethod
    def diagnose(cls) -> Iterator[Finding]:
        yield from modules(cls.modules, cls.requires)
        try:
            names = cls._names()
        except TallowError as error:
            yield Finding("library", False, reason(error))
            return
        if names:
            yield Finding("devices", True, ", ".join(names))
        else:
            yield Finding("devices", False, "the library finds none on this machine")
        if flushed := cls.library.FLUSHED:
            names = [dtype.value for dtype in flushed]
            yield Finding("subnormal numbers", True, f"may be taken for zero: {', '.join(names)}")

    @classmethod
    def _names(cls) -> list[str]:
        with cls.translating():
            library = cls.library
            return [library.device_name(library.device_handle(number)) for number in range(library.device_count())]

    def __init__(self, ordinal: int = 0) -> None:
        count = self.device_count()
        if not 0 <= ordinal < count:
            if count == 0:
                raise BackendUnavailable(self.backend, "its library finds no device; use Device.cpu()")
            raise InvalidArgument("device", f"{self.backend} has {count} devices, and no number {ordinal}")
        super().__init__(ordinal)
        self.handle = self.library.device_handle(ordinal)
        self.facts = NO_FACTS._replace(label=self.backend, library=self.library, handle=self.handle)
        transfer.refuse_unheld(self.library, self.handle)
        self.random = RandomState()
        self._notes = _Notes()
        self.announce()

    @property
    def fused_op(self) -> Sequence[Any]:
        from .ops.fused import FusedOps, fused

        return fused, FusedOps()

    def plan_of(self, _key: Key, call: OpCall, *, may_refuse: bool) -> Plan | None:
        with self.translating():
            program = call.program(self.facts, may_refuse=may_refuse)
        return None if program is None else self.compiled(program)

    def sized_plans_of(self, call: OpCall, *, may_refuse: bool) -> SizedPlans | None:
        with self.translating():
            program = call.program(self.facts, may_refuse=may_refuse)
        return None if program is None else self.sized(program)

    def sized(self, program: Program) -> SizedPlans:
        """Return what gives the plans of a dynamic program."""
        return partial(sized_call, lambda count: self.compiled(with_count(program, count)))

    def compiled(self, program: Program, mark: Callable[[], None] | None = None) -> Plan:
        """Return the function that runs a program; it calls `mark` before each step if there are several."""
        return HostCompiler(program, self.translated, self.storage, mark).function()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # A `with` block would take longer.
        try:
            return function(self, *arguments)
        except Exception as error:
            other = self.translated(error)
            if other is error:
                raise
            raise other from error

    @property
    def description(self) -> str:
        return str(self.library.device_name(self.handle))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ordinal}: {self.description})"

    def note(self, op: str, indexes: Any, is_wrong: Any, size: int) -> None:
        """Note the first of the indexes that is wrong, if any is."""
        library, count = self.library, strided.size(indexes)
        every = library.arange(count, self.handle)
        positions = library.where(library.reshape(is_wrong, (-1,)), every, library.constant(count, every))
        first = library.min(positions, 0)
        last = library.minimum(first, library.constant(count - 1, first))
        waiting = self._notes.waiting
        waiting.append((op, size, first, count, library.take(library.reshape(indexes, (-1,)), last, 0)))
        if len(waiting) > _MAX_NOTES:
            self._look()

    def raise_errors(self) -> None:
        """Raise the first InvalidIndex among the calls of this thread."""
        self._look()
        error, self._notes.error = self._notes.error, None
        if error is not None:
            raise error

    def _look(self) -> None:
        notes = self._notes
        for op, size, position, count, index in notes.waiting if notes.error is None else ():
            if int(self.library.to_numpy(position).item()) < count:
                notes.error = InvalidIndex(op, int(self.library.to_numpy(index).item()), size)
                break
        notes.waiting = []

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's name of the memory that the library's arrays are in."""
        kind, ordinal = self.library.arange(1, self.handle).__dlpack_device__()
        return int(kind), int(ordinal)

    def storage(self, array: Array) -> ArrayStorage:
        """A storage with a copy of a NumPy array's elements."""
        dtype = DType.from_numpy(array.dtype)
        with self.translating():
            return self.storage_class(self, dtype, transfer.from_numpy(self.library, array, dtype, self.handle))

    def storage_owned(self, array: Array) -> ArrayStorage:
        """Return a storage of the elements of a NumPy array that has no other owner."""
        return self.storage(array)

    def blocks_in(self, storage: Any, dtype: GgmlDType) -> QArrayStorage:
        return self.blocks_class(self, dtype, storage.to_numpy())

    def load(self, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> Sequence[ArrayStorage]:
        """Storages of parts, read through the memory of the host."""
        storages, done = [], 0
        for part in parts:
            with self.translating():
                content = bytearray(part.nbytes)
                part.read_into(memoryview(content), 0)
                data = transfer.from_bytes(self.library, content, part.dtype, self.handle)
                storages.append(self.storage_class(self, part.dtype, data))
            done += part.nbytes
            if progress is not None:
                progress(done)
        return storages

    def from_dlpack(self, source: Any) -> tuple[ArrayStorage, Layout]:
        with self.translating():
            array = self.library.from_dlpack(source, self.handle)
            flat = self.library.reshape(array, (-1,))
        return self.storage_class(self, self.dtype_of(array), flat), Layout.contiguous(tuple(array.shape))

    def dtype_of(self, array: Any) -> DType:
        """The dtype of an array of the library. Raises InvalidArgument for one that is not ours."""
        lacking = self.library.LACKING
        own = {dtype: name for dtype, name in self.library.DTYPES.items() if dtype not in lacking}
        dtype = next((dtype for dtype, name in own.items() if name == array.dtype), None)
        if dtype is None:
            raise InvalidArgument("from_dlpack", f"no dtype for {array.dtype}; convert the tensor first")
        return dtype
