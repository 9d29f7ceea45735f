"""What the backend needs of a device: memory, code, launches and the one stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ..dtype import Array
from ..error import OutOfMemory
from .error import DriverError

if TYPE_CHECKING:
    from .run_time_compiler import RunTimeCompiler

Function: TypeAlias = Callable[[int, bytes], None]
"""What enqueues a kernel: called with a number of blocks and the packed bytes of the kernel's one struct."""

LoadedModule = TypeVar("LoadedModule")


class Direction(Enum):
    """From where to where bytes are copied."""

    TO_DEVICE = auto()
    TO_HOST = auto()
    WITHIN_DEVICE = auto()


class GpuDriver(ABC, Generic[LoadedModule]):
    """One device and a stream on it. Addresses are plain numbers, sizes are bytes.

    The stream runs beside the default stream of the device: neither waits for the other by itself. Raises
    BackendUnavailable where there is no runtime or no device, InvalidArgument for an ordinal that no device has, and
    DriverError from every call that the vendor's driver refuses.
    """

    label: str
    """The device as errors name it: the backend and the ordinal."""
    name: str
    """What its makers call it."""
    target: str
    """What code objects for it are built for, such as "sm_90"."""
    wave_size: int
    """The threads that run in step."""
    multiprocessors: int
    stream: int
    """The vendor's handle of the stream, for libraries that share memory with tallow."""
    compiler: RunTimeCompiler
    """What compiles kernels that no code object of the package has."""

    def __init__(self) -> None:
        # Events that nothing uses at the moment.
        self._events: list[Any] = []

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` > 0 of new memory; OutOfMemory where there is not enough."""
        try:
            return self._allocate(nbytes)
        except OverflowError as error:  # more bytes than the vendor's driver can count
            raise OutOfMemory(self.label, nbytes) from error
        except DriverError as error:
            if error.out_of_memory:
                raise OutOfMemory(self.label, nbytes) from error
            raise

    @abstractmethod
    def _allocate(self, nbytes: int) -> int:
        """The address of new memory."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give memory back, once the device has done what it was given."""

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""

    def copy_to_device(self, address: int, array: Array) -> None:
        """Copy a contiguous array to device memory; returns when the array may change again."""
        if array.nbytes:
            self._copy(address, _address_of(array), array.nbytes, Direction.TO_DEVICE)
        self.synchronize()

    def copy_to_host(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory; returns when it is full."""
        if array.nbytes:
            self._copy(_address_of(array), address, array.nbytes, Direction.TO_HOST)
        self.synchronize()

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        """Enqueue a copy within the device; the regions do not overlap."""
        if nbytes:
            self._copy(target, origin, nbytes, Direction.WITHIN_DEVICE)

    @abstractmethod
    def _copy(self, target: int, origin: int, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy of `nbytes` > 0."""

    @abstractmethod
    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to `value`, from 0 to 255."""

    def zero(self, address: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to 0."""
        self.fill_bytes(address, 0, nbytes)

    @property
    def compile_options(self) -> tuple[str, ...]:
        """What `compile` tells the compiler."""
        return self.compiler.options(self.target)

    @property
    def compiler_version(self) -> str:
        """The version of the compiler; BackendUnavailable where there is none."""
        return self.compiler.version

    def compile(self, source: str, name: str, headers: dict[str, str]) -> bytes:
        """The code object of a source for this device; `headers` are texts by the name that sources include.

        Raises CompilationFailed, or BackendUnavailable where there is no compiler.
        """
        return self.compiler.compile(source, name, headers, self.target)

    @abstractmethod
    def load(self, code: bytes, name: str) -> LoadedModule:
        """Load a code object; `name` is how errors call it. Raises InvalidArgument where it is cut short."""

    @abstractmethod
    def function(self, module: LoadedModule, name: str, block: int, argument_size: int) -> Function:
        """What enqueues a kernel in blocks of `block` threads, whose struct has `argument_size` bytes.

        Raises InvalidKernel where the module does not have it. What is returned raises InvalidArgument for a struct of
        another size.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything enqueued is done; errors of kernels come up here."""

    @abstractmethod
    def synchronize_device(self) -> None:
        """Wait until the device is done with everything that anybody gave it."""

    def wait_for(self, stream: int) -> None:
        """Let what is enqueued from now on wait for what is in another stream of the device, given by its handle.

        0 is the default stream; the device waits, and the host does not.
        """
        if stream != self.stream:
            self._order(stream, self.stream)

    def let_wait(self, stream: int) -> None:
        """Let what another stream of the device is given from now on wait for what is enqueued here: see `wait_for`."""
        if stream != self.stream:
            self._order(self.stream, stream)

    def _order(self, first: int, second: int) -> None:
        """Let what the second stream is given from now on wait for what is in the first."""
        # Garbage collection may bring a finaliser here while this thread is here already, which a lock would stop for
        # ever, and which must not mark an event again that is yet to be waited for. Taking one is a single step.
        try:
            event = self._events.pop()
        except IndexError:
            event = self._new_event()
        try:
            self._order_by(event, first, second)
        finally:
            self._events.append(event)

    @abstractmethod
    def _new_event(self) -> Any:
        """An event of the device, for the order among streams."""

    @abstractmethod
    def _order_by(self, event: Any, first: int, second: int) -> None:
        """Mark the event in the first stream and let the second one wait for it; then it can be used again."""


def _address_of(array: Array) -> int:
    interface: dict[str, Any] = array.__array_interface__
    address: int = interface["data"][0]
    return address
