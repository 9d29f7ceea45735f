"""What the backend needs of a device: memory, code, launches and the one stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from ..dtype import Array
from ..error import OutOfMemory
from .error import DriverError
from .launch import Launcher
from .stream import Direction, Event, Stream, settled

if TYPE_CHECKING:
    from .buffer import DeviceBuffer
    from .loader import Loader
    from .run_time_compiler import RunTimeCompiler

Function: TypeAlias = Callable[[int, bytes], None]
"""What enqueues a kernel: called with a number of blocks and the packed bytes of the kernel's one struct."""

LoadedModule = TypeVar("LoadedModule")


class GpuDriver(ABC, Generic[LoadedModule]):
    """One device and a stream on it. Addresses are plain numbers, sizes are bytes.

    The stream runs beside the default stream of the device: neither waits for the other by itself. Raises
    BackendUnavailable where there is no runtime or no device, InvalidArgument for an ordinal that no device has, and
    DriverError from every call that the vendor's driver refuses.
    """

    device: Any
    """The vendor's object for the device."""
    label: str
    """The device as errors name it: the backend and the ordinal."""
    name: str
    """What its makers call it."""
    target: str
    """What code objects for it are built for, such as "sm_90"."""
    wave_size: int
    """The threads that run in step."""
    multiprocessors: int
    queue: Stream[Any]
    """The stream."""
    stream: int
    """The vendor's handle of the stream, for libraries that share memory with tallow."""
    compiler: RunTimeCompiler
    """What compiles kernels that no code object of the package has."""

    def __init__(self) -> None:
        self._buffers: dict[int, DeviceBuffer[Any, Any]] = {}
        # Events that nothing uses at the moment.
        self._events: list[Event] = []

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` > 0 of new memory; OutOfMemory where there is not enough."""
        try:
            buffer = self._new_buffer(nbytes)
        except OverflowError as error:  # more bytes than the vendor's driver can count
            raise OutOfMemory(self.label, nbytes) from error
        except DriverError as error:
            if error.out_of_memory:
                raise OutOfMemory(self.label, nbytes) from error
            raise
        address = buffer.address
        self._buffers[address] = buffer
        return address

    @abstractmethod
    def _new_buffer(self, nbytes: int) -> DeviceBuffer[Any, Any]:
        """New memory."""

    def free(self, address: int) -> None:
        """Give memory back, once the device has done what it was given."""
        self._buffers[address].close()
        del self._buffers[address]

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""
        free, total = self.device.memory()
        return free, total

    def copy_to_device(self, address: int, array: Array) -> None:
        """Copy a contiguous array to device memory; returns when the array may change again."""
        if array.nbytes:
            self.queue.copy(address, _address_of(array), array.nbytes, Direction.TO_DEVICE)
        self.synchronize()

    def copy_to_host(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory; returns when it is full."""
        if array.nbytes:
            self.queue.copy(_address_of(array), address, array.nbytes, Direction.TO_HOST)
        self.synchronize()

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        """Enqueue a copy within the device; the regions do not overlap."""
        if nbytes:
            self.queue.copy(target, origin, nbytes, Direction.WITHIN_DEVICE)

    def send(self, address: int, receiver: Self, target: int, nbytes: int) -> None:
        """Enqueue a copy to the memory of another device, given by its driver.

        It waits for what either device was given before; what both are given from now on waits for it.
        """
        if nbytes:
            receiver._order(receiver.queue, self.queue)
            self.queue.copy_between(target, receiver.device, address, self.device, nbytes)
            with settled(self.queue):
                self._order(self.queue, receiver.queue)

    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to `value`, from 0 to 255."""
        if nbytes:
            self.queue.fill(address, value, nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to 0."""
        self.fill_bytes(address, 0, nbytes)

    def compile_options(self, options: Sequence[str] = ()) -> tuple[str, ...]:
        """What `compile` tells the compiler, with options of a user's."""
        return self.compiler.with_options(self.target, options)

    @property
    def compiler_version(self) -> str:
        """The version of the compiler; BackendUnavailable where there is none."""
        return self.compiler.version

    def compile(self, source: str, name: str, headers: dict[str, str], options: Sequence[str] = ()) -> bytes:
        """The code object of a source for this device; `headers` are texts by the name that sources include.

        Raises CompilationFailed, or BackendUnavailable where there is no compiler.
        """
        return self.compiler.compile(source, name, headers, self.target, options)

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
    def launcher(self, module: LoadedModule, name: str) -> Launcher:
        """What launches a kernel of any parameters; InvalidKernel where the module does not have it."""

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; errors of kernels come up here."""
        self.queue.synchronize()

    def synchronize_device(self) -> None:
        """Wait until the device is done with everything that anybody gave it."""
        self.device.synchronize()

    def wait_for(self, stream: int) -> None:
        """Let what is enqueued from now on wait for what is in another stream of the device, given by its handle.

        0 is the default stream; the device waits, and the host does not.
        """
        if stream != self.stream:
            self._order(self._stream_at(stream), self.queue)

    def let_wait(self, stream: int) -> None:
        """Let what another stream of the device is given from now on wait for what is enqueued here: see `wait_for`."""
        if stream != self.stream:
            self._order(self.queue, self._stream_at(stream))

    def _order(self, first: Stream[Any], second: Stream[Any]) -> None:
        """Let what the second stream is given from now on wait for what is in the first, a stream of this device."""
        # Garbage collection may bring a finaliser here while this thread is here already, which a lock would stop for
        # ever, and which must not mark an event again that is yet to be waited for. Taking one is a single step.
        try:
            event = self._events.pop()
        except IndexError:
            event = first.new_event()
        try:
            event.record(first)
            second.wait(event)
        finally:
            self._events.append(event)

    @abstractmethod
    def _stream_at(self, address: int) -> Stream[Any]:
        """The stream of the device that has a handle."""

    @abstractmethod
    def open_loader(self) -> Loader[Any, Any]:
        """What streams host memory to the device."""


def _address_of(array: Array) -> int:
    interface: dict[str, Any] = array.__array_interface__
    address: int = interface["data"][0]
    return address
