"""The interface of every backend: a storage and a device. Their ops are functions, which the backend's cells name.

The dispatch has checked devices, dtypes, shapes, argument ranges and that every layout lies inside its storage before
it calls a function of a backend; indexes alone are left to it.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
)
from weakref import WeakValueDictionary

from ...dtype import Array, DType
from ...ggml_dtype import GgmlDType
from ..base.bounded_cache import BoundedCache
from ..base.unpicklable import Unpicklable
from ..core.layout import Layout
from ..program.builder import GivenStorage
from ..program.values import BlocksBuffer, Memory
from .plan import Planner, Plans, kind_of

if TYPE_CHECKING:
    from ..core.conv import ParamsConvolution
    from ..doctor.finding import Finding
    from ..ranks.group import Group
    from .profiler import DeviceProfiler, Listener

Result = TypeVar("Result")

_MAX_NUMBERS: Final = 256


class Part(NamedTuple):
    """Elements that a device reads: `read_into(target, begin)` fills `target` with their bytes from `begin` on.

    Threads may call it at once.
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
class BackendStorage(GivenStorage, Unpicklable):
    """Elements on a device of one backend: `length` of them, flat."""

    __slots__ = ()

    _copy_advice = "copy or pickle the Storage that has it"

    device: "BackendDevice"
    dtype: DType
    length: int

    @abstractmethod
    def to_numpy(self) -> Array:
        """A copy of all elements as a NumPy array of one dim, once the device has finished."""

    def owns_memory(self) -> bool:
        """Return True if no other object can alias this memory."""
        return False

    def share(self) -> None:
        """Mark the storage or its memory as shared: with other calls, another library, a captured graph."""
        return

    @abstractmethod
    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        """A DLPack capsule that shares the elements which `layout` reaches; options are those of `__dlpack__`."""


class BackendBlocks(GivenStorage, Unpicklable):
    """Block-quantized weights in one of GGML's formats, on a device of one backend: `length` of them."""

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
        """The bytes of all blocks as a NumPy array, once the device has finished."""

    def buffer(self, position: int) -> BlocksBuffer:
        """The buffer for the blocks in a program: see `GivenStorage.buffer`."""
        return BlocksBuffer(self.dtype, self.length, Memory(self.size_in_bytes, argument=position))


class HostBlocks(BackendBlocks):
    """Blocks in a flat NumPy array of their bytes."""

    weights: Any = None
    """The weights in f32 as the backend's array, if the decoded weights are cached."""

    def __init__(self, device: "BackendDevice", dtype: GgmlDType, data: Array) -> None:
        """Hold `data`, contiguous u8 of rank 1, without a copy."""
        self.device = device
        self.dtype = dtype
        self.bytes = data
        self.length = data.size // dtype.type_size * dtype.block_size
        self.kind = kind_of(dtype, self.length)


_opened: dict[tuple[type["BackendDevice"], int], Any] = {}
# By their ids, since devices that are equal may be several objects.
_devices: WeakValueDictionary[int, "BackendDevice"] = WeakValueDictionary()
_visitors: list[Callable[["BackendDevice"], None]] = []


@contextmanager
def visiting_devices(visit: Callable[["BackendDevice"], None]) -> Iterator[None]:
    """Call a function with each device that there is, and with those that are created inside the block.

    Where threads make one meanwhile it may be called with that twice.
    """
    _visitors.append(visit)
    try:
        for device in list(_devices.values()):
            visit(device)
        yield
    finally:
        _visitors.remove(visit)


class BackendGraph:
    """The backend's part of `tallow.Graph`: see there."""

    @abstractmethod
    def capture(self) -> AbstractContextManager[None]:
        """Capture what this thread enqueues inside a `with` block."""

    @abstractmethod
    def replay(self) -> None:
        """Enqueue what was captured once more."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Return True if it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


class BackendReplay(Protocol):
    """A recording of the calls in a `with` block, which can be repeated if the block is `complete`."""

    complete: bool

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def replay(self) -> None:
        """Make the calls again, with the same storages."""


class BackendDevice(Planner):
    """A device of one backend. Devices of one backend are equal if they have the same ordinal."""

    __slots__ = ("__dict__", "__weakref__")

    backend: ClassVar[str]
    """The name of the backend, as errors say it."""
    ordinal: int
    numbers: BoundedCache[object, Any]
    """Storages of numbers that tensors met."""
    has_fused_kernels: ClassVar[bool] = False
    """Whether a fused function takes less time than its ops, so that gradients may compute them again."""
    fused_rows: ClassVar[int] = 0
    """Up to this many activation rows, a product with block-quantized weights saves a launch if it quantizes them."""
    prompt_piece: ClassVar[int] = 512
    """How many tokens of a prompt a model reads at once: enough to keep the device busy."""

    @classmethod
    def open(cls, ordinal: int) -> Self:
        """The device numbered `ordinal`, always the same object; BackendUnavailable or InvalidArgument for none."""
        # A plan depends on operands being on one and the same device.
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
    def diagnose(cls) -> "Iterator[Finding]":
        """The requirements of the backend and its options, and whether they are met: for `tallow.doctor`."""

    @property
    def description(self) -> str:
        """The device's description in reports."""
        return repr(self)

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self.plans = Plans()
        self.numbers = BoundedCache(_MAX_NUMBERS)

    def announce(self) -> None:
        """Show the device, which is ready, to those who visit devices."""
        _devices[id(self)] = self
        for visit in tuple(_visitors):
            visit(self)

    def profiler(self, label: str, listener: "Listener") -> "DeviceProfiler":
        """An observer that lets a listener hear of the calls on the device."""
        from .profiler import DeviceProfiler

        return DeviceProfiler(self, label, listener)

    def replay(self) -> "BackendReplay | None":
        """A recorder of calls on the device that repeats them; None where graphs do that, or nothing does."""
        return None

    @property
    def is_capturing(self) -> bool:
        """Whether this thread captures a graph on the device."""
        return False

    def refuse_in_capture(self, _what: str, _advice: str) -> None:
        """CaptureError where this thread captures a graph on the device; `_advice` says what to do instead."""
        return

    @property
    def fused_op(self) -> Sequence[Any]:
        """The op that builds the programs of fused functions, and what it takes in front of function and operands."""
        raise NotImplementedError

    def has_epilogue(
        self, _dtype: DType, _params: "ParamsConvolution", _activation: str | None, _has_residual: bool
    ) -> bool:
        """Return True if a convolution computes such an epilogue in no more time than a kernel of it would take."""
        return True

    def run_async(self, _group: "Group", call: Callable[[], Result]) -> Callable[[], Result]:
        """Run a call of an asynchronous group, whose transfers overlap with other work.

        The returned function gives its result, for which all later work waits. A device that cannot do that
        makes the call at once.
        """
        result = call()
        return lambda: result

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """The device in DLPack's terms; None for the type that the spec states for the backend, and the ordinal."""
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
        """A copy of a storage on another device of the backend, without the host; None if that is impossible."""
        return None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BackendDevice) and self.ordinal == other.ordinal

    def __hash__(self) -> int:
        return hash((type(self), self.ordinal))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ordinal})"
