"""What every backend provides: a storage and a device. What it does with them are functions, which its cells name.

The dispatch has checked devices, dtypes, shapes, argument ranges and that every layout lies inside its storage before
it calls a function of a backend; indexes alone are left to it.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, Self, TypeVar

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache
from ..base.unpicklable import Unpicklable
from ..core.layout import Layout
from .plan import MOST_PLANS, Call, Key, Plan, Planned, kind_of

if TYPE_CHECKING:
    from ..doctor.finding import Finding
    from ..graph.traced import Program
    from ..ranks.group import Group

Result = TypeVar("Result")

_MOST_NUMBERS: Final = 256


class Part(NamedTuple):
    """Elements that a device reads: `read_into(target, begin)` fills `target` with their bytes from `begin` on.

    Several threads may call it at once.
    """

    dtype: DType
    length: int
    read_into: Callable[[memoryview, int], None]

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.length * self.dtype.itemsize


# No class here is an ABC: the metaclass would make each pattern of a dispatch that fails several times slower. A type
# checker finds the methods that a backend's own class lacks, because it is final.
class BackendStorage(Planned, Unpicklable):
    """Elements on a device of one backend: `length` of them, flat."""

    __slots__ = ()

    _copy_advice = "copy or pickle the Storage that has it"

    device: "BackendDevice"
    dtype: DType
    length: int

    @abstractmethod
    def to_numpy(self) -> Array:
        """A copy of all elements as a NumPy array of one dim, once the device has done what it was given."""

    def owns_memory(self) -> bool:
        """Return True if it is known that nobody else has the memory of the elements."""
        return False

    def share(self) -> None:
        """Say that somebody else has the storage or its memory: other calls, another library, a captured graph."""
        return

    @abstractmethod
    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        """A DLPack capsule that shares the elements which `layout` reaches; options are those of `__dlpack__`."""


class BackendBlocks(Planned, Unpicklable):
    """Weights in blocks of GGML's formats, on a device of one backend: `length` of them."""

    _copy_advice = "copy or pickle the QStorage that has it"

    device: "BackendDevice"
    dtype: GgmlDType
    length: int

    @property
    def block_size(self) -> int:
        """How many weights share a block."""
        return self.dtype.block_size

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all blocks."""
        return self.length // self.dtype.block_size * self.dtype.type_size

    @property
    @abstractmethod
    def data(self) -> Array:
        """The bytes of all blocks as a NumPy array, once the device has done what it was given."""


class HostBlocks(BackendBlocks):
    """Blocks in a flat NumPy array of their bytes."""

    weights: Any = None
    """The weights in f32 as the backend has arrays, where they were decoded to be kept."""

    def __init__(self, device: "BackendDevice", dtype: GgmlDType, data: Array) -> None:
        """Hold `data`, contiguous u8 of rank 1, without a copy."""
        self.device = device
        self.dtype = dtype
        self.bytes = data
        self.length = data.size // dtype.type_size * dtype.block_size
        self.kind = kind_of(dtype, self.length)


_opened: dict[tuple[type["BackendDevice"], int], Any] = {}


class BackendGraph:
    """What `tallow.Graph` stands on: see there."""

    @abstractmethod
    def capture(self) -> AbstractContextManager[None]:
        """Capture what this thread enqueues inside a `with` block."""

    @abstractmethod
    def replay(self) -> None:
        """Enqueue what was captured once more."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it was given back."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


class BackendReplay(Protocol):
    """Calls that are made inside of a `with` block, and are made again if the block was `whole`."""

    whole: bool

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def replay(self) -> None:
        """Make the calls again, with the same storages."""


class BackendDevice:
    """A device of one backend. Devices of one backend are equal if they have the same ordinal."""

    # Every call reads `plans`, and a slot takes less time than an item of a dict.
    __slots__ = ("__dict__", "__weakref__", "plans")

    backend: ClassVar[str]
    """The name of the backend, as errors say it."""
    ordinal: int
    plans: BoundedCache[object, Plan]
    """How calls are done on the device, by all that decides it: see `planned`."""
    numbers: BoundedCache[object, Any]
    """Storages of numbers that tensors met."""
    composes: ClassVar[bool] = False
    """Whether programs are computed by kernels that are composed of their ops; else the ops are called one by one."""
    joined_rows: ClassVar[int] = 0
    """Of how many rows of x a product with weights in blocks saves a launch where it makes them itself."""
    prompt_piece: ClassVar[int] = 512
    """How many tokens of a prompt a model reads at once: enough to keep the device busy."""

    @classmethod
    def open(cls, ordinal: int) -> Self:
        """The device numbered `ordinal`, always the same object; BackendUnavailable or InvalidArgument for none."""
        # A plan is found where operands are on one and the same device.
        device: Self | None = _opened.get((cls, ordinal))
        if device is None:
            device = _opened.setdefault((cls, ordinal), cls(ordinal))
        return device

    @classmethod
    @abstractmethod
    def device_count(cls) -> int:
        """How many devices can be opened; 0 where packages, the runtime or devices are missing."""

    @classmethod
    def is_available(cls) -> bool:
        """Whether the first device can be opened."""
        return cls.device_count() > 0

    @classmethod
    @abstractmethod
    def examine(cls) -> "Iterator[Finding]":
        """What the backend needs or can use, and whether that is here: for `tallow.doctor`."""

    @property
    def description(self) -> str:
        """What the device is, for reports."""
        return repr(self)

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self.plans = BoundedCache(MOST_PLANS)
        self.numbers = BoundedCache(_MOST_NUMBERS)

    def planned(
        self,
        key: Key,
        numbers: int,
        function: Callable[..., Result],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        *,
        may_refuse: bool = False,
    ) -> Result:
        """Call `function` with its arguments, the last of which are so many numbers, and return its result.

        How that is done is kept as the plan of the key, if there is one. The dispatch gives a plan other storages and
        numbers. A function that may refuse returns None or False if it does, and then has no plan: the dispatch goes on
        to another function, whose plan has the same key.
        """
        if isinstance(key, Exception):
            raise key
        if key is None:
            return self.unplanned(function, arguments, options)
        call = Call(numbers, function, arguments, options)
        plan = self.plan_of(key, call)
        result: Result = plan(*call.operands(arguments))
        if not may_refuse or (result is not None and result is not False):
            self.plans.keep(key, plan)
        return result

    def unplanned(
        self, function: Callable[..., Result], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Result:
        """What `function` makes of its arguments, in a call that leaves no plan."""
        return function(*arguments, **options)

    def plan_of(self, _key: Key, call: Call) -> Plan:
        """The plan of a call that is made for the first time."""
        return call.quicker or call

    def replay(self) -> "BackendReplay | None":
        """What notes calls on the device to make them again; None where graphs are what does, or nothing."""
        return None

    def refuse_in_capture(self, _what: str, _advice: str) -> None:
        """CaptureError where this thread captures a graph on the device; `_advice` says what to do instead."""
        return

    def fused(
        self, program: "Program", _storages: Sequence[Any], _numbers: Sequence[float]
    ) -> Sequence[BackendStorage]:
        """The results of a program, computed together, on a device that `composes`."""
        raise NotImplementedError(program.name)

    def beside(self, _group: "Group", call: Callable[[], Result]) -> Callable[[], Result]:
        """Make a call of a group that is beside another, whose elements go on their way while other work is done.

        What is returned gives its result, for which all that is done from then on waits. A device that cannot do that
        makes the call at once.
        """
        made = call()
        return lambda: made

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """What DLPack calls the device; None for the type that the spec gives the backend, and the ordinal."""
        return None

    @abstractmethod
    def from_dlpack(self, source: Any) -> tuple[BackendStorage, Layout]:
        """The elements of another library's tensor on this device, shared where possible."""

    @abstractmethod
    def load(self, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> Sequence[BackendStorage]:
        """New storages of parts, all allocated before the first one is read. Raises OutOfMemory.

        `progress` is called with the bytes that were read so far.
        """

    @abstractmethod
    def blocks_in(self, storage: Any, dtype: GgmlDType) -> BackendBlocks:
        """The blocks that a storage of u8 holds, without a copy."""

    def copy_of(self, _storage: BackendStorage) -> BackendStorage | None:
        """A copy of what is on another device of the backend, made without the host; None where there is no way."""
        return None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BackendDevice) and self.ordinal == other.ordinal

    def __hash__(self) -> int:
        return hash((type(self), self.ordinal))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ordinal})"
