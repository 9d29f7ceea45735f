"""What every backend provides: a storage and a device. What it does with them are functions, which its cells name.

The dispatch has checked devices, dtypes, shapes, argument ranges and that every layout lies inside its storage before
it calls a function of a backend; indexes alone are left to it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self

from .dtype import Array, DType
from .layout import Layout


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
class BackendStorage:
    """Elements on a device of one backend: `length` of them, flat."""

    device: "BackendDevice"
    dtype: DType
    length: int

    @abstractmethod
    def to_numpy(self) -> Array:
        """A copy of all elements as a NumPy array of one dim, once the device has done what it was given."""

    @abstractmethod
    def to_dlpack(self, layout: Layout, **options: Any) -> Any:
        """A DLPack capsule that shares the elements which `layout` reaches; options are those of `__dlpack__`."""


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


class BackendDevice:
    """A device of one backend. Devices of one backend are equal if they have the same ordinal."""

    ordinal: int

    @classmethod
    def open(cls, ordinal: int) -> Self:
        """The device numbered `ordinal`; BackendUnavailable or InvalidArgument where there is none."""
        return cls(ordinal)

    @classmethod
    @abstractmethod
    def is_available(cls) -> bool:
        """Whether the first device can be opened."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal

    @abstractmethod
    def from_dlpack(self, source: Any) -> tuple[BackendStorage, Layout]:
        """The elements of another library's tensor on this device, shared where possible. Booleans become u8."""

    @abstractmethod
    def load(self, parts: Sequence[Part], progress: Callable[[int], object] | None = None) -> Sequence[BackendStorage]:
        """New storages of parts, all allocated before the first one is read. Raises OutOfMemory.

        `progress` is called with the bytes that were read so far.
        """

    def copy_of(self, _storage: BackendStorage) -> BackendStorage | None:
        """A copy of what is on another device of the backend, made without the host; None where there is no way."""
        return None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, BackendDevice) and self.ordinal == other.ordinal

    def __hash__(self) -> int:
        return hash((type(self), self.ordinal))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ordinal})"
