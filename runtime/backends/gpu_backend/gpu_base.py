"""The interface of a GPU that its storages, programs and graphs use; `device.GpuDevice` is the full class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from ....dtype import Array
from ...core.layout import Layout
from ...core.random import RandomState
from ...program.values import NULL
from ..backend import BackendDevice
from .driver import capture, slow_path
from .memory.allocator import Slice

if TYPE_CHECKING:
    from .driver.gpu_driver import GpuDriver
    from .execute.index_errors import IndexErrors
    from .execute.kernels import Kernels
    from .libraries.library import Library
    from .memory.allocator import CachingAllocator

Opened = TypeVar("Opened", bound="Library")


class Reserved(NamedTuple):
    """Blocks of a random stream, for one run: see `values.Draw`."""

    state: int
    seed: int
    block: int
    blocks: int
    stream: RandomState

    def cancel(self) -> None:
        """Take them back, since the run failed."""
        self.stream.cancel((self.seed, self.block), self.blocks)


class GpuBase(BackendDevice):
    """A GPU: its driver, its memory, its kernels and its libraries."""

    modules: ClassVar[tuple[str, ...]]
    """The modules of Python without which there is no runtime."""
    requires: ClassVar[tuple[str, ...]]
    """The packages that contain them."""
    dlpack: ClassVar[int]
    """The DLDeviceType of DLPack."""
    storage_class: ClassVar[type[Any]]
    """The class of its storages, which is above this one."""
    slice_class: ClassVar[type[Slice]]
    libraries: ClassVar[tuple[Callable[[Any, CachingAllocator], Any], ...]]
    """By the name of a library that cells call, the function that opens it, for `library`."""
    driver: GpuDriver
    allocator: CachingAllocator
    kernels: Kernels
    index_errors: IndexErrors
    counters: int
    random: RandomState

    @staticmethod
    @abstractmethod
    def runtime_version() -> str:
        """The version of the vendor's runtime; BackendUnavailable where there is none."""

    @staticmethod
    @abstractmethod
    def library_classes() -> dict[str, type[Library]]:
        """The class of each library, by the name of the attribute that has it where it is there."""

    @staticmethod
    @abstractmethod
    def open_driver(ordinal: int) -> GpuDriver:
        """Open the vendor's driver on a device; BackendUnavailable where its package is missing."""

    @abstractmethod
    def library(self, open_library: Callable[[GpuDriver, CachingAllocator], Opened | None]) -> Opened | None:
        """The library that `open_library` opens, once for each device; None where there is none."""

    @abstractmethod
    def export(self, storage: Any, layout: Layout, stream: int | None, *, copy: bool) -> object:
        """A DLPack capsule with the elements that `layout` reaches: see `dlpack.export`."""

    def reserve(self, blocks: int) -> Reserved:
        """Reserve blocks of the random stream: that of the device, or of this thread's capture."""
        captured = capture.of(self.driver) if slow_path.required else None
        stream = self.random if captured is None else captured.random
        seed, block = stream.reserve(blocks)
        return Reserved(NULL if captured is None else captured.state_address(), seed, block, blocks, stream)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call an op without a plan."""
        return self.planned(None, 0, function, arguments, {})

    def allocate(self, nbytes: int) -> Slice:
        """Memory, not initialised, freed when it is deleted. Raises OutOfMemory."""
        return self.slice_class(self.allocator, nbytes)

    def read(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory, then raise what was recorded of this thread (InvalidIndex)."""
        self.driver.copy_to_host(array, address)
        self.index_errors.check()

    def write(self, address: int, array: Array) -> None:
        """Fill device memory from a contiguous array."""
        self.driver.copy_to_device(address, array)
