"""The backend's interface to a device: memory, code, launches and the one stream."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from .....dtype import Array
from ....base.error import OutOfMemory
from . import capture, slow_path
from .buffer import DeviceBuffer, HostBuffer, SharedBuffer
from .device import Calls, Device, version_of
from .error import DriverError
from .graph import Graph
from .module import Module
from .protocols import Region
from .run_time_compiler import RunTimeCompiler
from .stream import Direction, Event, Stream, settled
from .target import target_of

if TYPE_CHECKING:
    from ....doctor.finding import Finding
    from .loader import AsyncLoader

# Of a handle by which processes share memory.
_HANDLE_BYTES: Final = 64


class GpuDriver:
    """One device and a stream on it. Addresses are plain numbers, sizes are bytes.

    `calls` is the module of a driver's calls: see `device`. The stream is concurrent with the device's default stream:
    neither waits for the other by itself. Raises BackendUnavailable where there is no driver or no device,
    InvalidArgument for an ordinal that no device has, and DriverError from every call that the vendor's driver refuses.
    """

    def __init__(self, calls: Calls, ordinal: int) -> None:
        self._buffers: dict[int, DeviceBuffer] = {}
        # Events that nothing uses at the moment.
        self._events: list[Event] = []
        self.capturing = threading.Lock()
        """Held for as long as a graph is captured."""
        self._capture_stream: Stream | None = None
        self.recorded: weakref.WeakSet[Graph] = weakref.WeakSet()
        """Graphs that were recorded and are not collected."""
        device = self.device = Device(calls, ordinal)
        self.queue = Stream(device)
        """The stream."""
        self.label = device.label
        """The device as errors name it: the backend and the ordinal."""
        self.name: str = device.fact("device_name")
        """The name that its vendor gives it."""
        reported: str = device.fact("target")
        self.facts = target_of(calls.compiler.TARGETS, reported, int(device.fact("wave_size")))
        """The facts of its architecture."""
        self.target = self.facts.name if reported == self.facts.reported else reported
        """The target of code objects for it, such as "sm_90a"."""
        self.multiprocessors = int(device.fact("multiprocessors"))
        self.concurrent_blocks = self.multiprocessors if device.fact("is_cooperative") else 1
        """How many blocks of one launch surely run at the same time, so that they can wait for each other."""
        self.compiler = RunTimeCompiler(calls.compiler, partial(version_of, calls), self.facts.wave_size)
        """The compiler of kernels that no code object of the package has."""
        self.opens_in_captures: bool = calls.OPENS_IN_CAPTURES
        """Whether libraries can be opened while a thread captures: what that calls may wait for the device."""
        self.runtime_libraries: tuple[str, ...] = calls.RUNTIME_LIBRARIES
        """The names of the libraries that make up the vendor's runtime, without lib and ending."""

    def diagnose(self) -> Iterator[Finding]:
        """Yield what the vendor's system says of the device, for `tallow.doctor`."""
        diagnose = self.device.calls.diagnose
        return iter(()) if diagnose is None else iter(diagnose(self.target))

    @property
    def stream(self) -> int:
        """The vendor's handle of the stream, or of this thread's capture, for libraries that share memory."""
        return self.queue.address

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` > 0 of new memory; OutOfMemory where there is not enough."""
        return self._kept(DeviceBuffer, nbytes)

    def _kept(self, kind: type[DeviceBuffer], nbytes: int) -> int:
        try:
            buffer = kind(self.device, nbytes)
        except OverflowError as error:  # more bytes than the vendor's driver can count
            raise OutOfMemory(self.label, nbytes) from error
        except DriverError as error:
            if error.out_of_memory:
                raise OutOfMemory(self.label, nbytes) from error
            raise
        address = buffer.address
        self._buffers[address] = buffer
        return address

    def allocate_shared(self, nbytes: int) -> int:
        """Allocate memory that other devices may read and write while kernels run."""
        return self._kept(SharedBuffer, nbytes)

    def host_buffer(self, nbytes: int) -> HostBuffer:
        """Pinned memory of the host, which kernels read at the address that it has here."""
        return HostBuffer(self.device, nbytes)

    def shared_handle(self, address: int) -> bytes:
        """Return the handle by which another process on this host opens memory that was allocated for sharing."""
        calls = self.device.calls
        handle = self.device.call(calls.export, address)
        return ctypes.string_at(calls.handle_address(handle), _HANDLE_BYTES)

    def open_shared(self, handle: bytes) -> int:
        """The address here of memory of another process and another device, until `close_shared`."""
        calls = self.device.calls
        shared = calls.new_handle()
        ctypes.memmove(calls.handle_address(shared), handle, _HANDLE_BYTES)
        return int(self.device.call(calls.open_shared, shared))

    def close_shared(self, address: int) -> None:
        """Let go of memory of another process, which that must not free before."""
        self.device.call(self.device.calls.close_shared, address)

    def free(self, address: int) -> None:
        """Free memory once the device has done the work that it has."""
        self._buffers[address].close()
        del self._buffers[address]

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""
        return self.device.memory()

    def holds(self, address: int) -> bool:
        """Whether an address is in memory of the device, whoever allocated that; the driver knows."""
        return self.device.holds(address)

    def copy_to_device(self, address: int, array: Array) -> None:
        """Copy a contiguous array to device memory; returns when the array may change again."""
        if slow_path.required:
            capture.refuse(self, "a copy from the host", "make the tensor before, and change it with copy_")
            copy = partial(self._copy_to_device, address, array)
            capture.tracked(self, copy, "copy from the host", "copy", nbytes=array.nbytes)
        else:
            self._copy_to_device(address, array)

    def _copy_to_device(self, address: int, array: Array) -> None:
        if array.nbytes:
            self.queue.copy(address, _address_of(array), array.nbytes, Direction.TO_DEVICE)
        self.queue.synchronize()

    def copy_to_host(self, array: Array, address: int) -> None:
        """Fill a contiguous array from device memory; returns when it is full."""
        if slow_path.required:
            capture.refuse(self, "a read to the host", "read after the capture, following a replay")
            copy = partial(self._copy_to_host, array, address)
            capture.tracked(self, copy, "copy to the host", "copy", nbytes=array.nbytes)
        else:
            self._copy_to_host(array, address)

    def _copy_to_host(self, array: Array, address: int) -> None:
        if array.nbytes:
            self.queue.copy(_address_of(array), address, array.nbytes, Direction.TO_HOST)
        self.queue.synchronize()

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        """Enqueue a copy within the device; the regions do not overlap."""
        if nbytes:
            self.queue.copy(target, origin, nbytes, Direction.WITHIN_DEVICE)

    def send(self, address: int, receiver: Self, target: int, nbytes: int) -> None:
        """Enqueue a copy to the memory of another device, whose driver is `receiver`.

        It waits for the earlier work of both devices; the later work of both waits for it.
        """
        if slow_path.required:
            for driver in (self, receiver):
                capture.refuse(driver, "a copy between devices", "copy before the capture, or after it")
        if nbytes:
            receiver.order(receiver.queue, self.queue)
            self.queue.copy_between(target, receiver.device, address, self.device, nbytes)
            with settled(self.queue):
                self.order(self.queue, receiver.queue)

    def fill_bytes(self, address: int, value: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to `value`, from 0 to 255."""
        if nbytes:
            self.queue.fill(address, value, nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        """Enqueue the setting of every byte to 0."""
        self.fill_bytes(address, 0, nbytes)

    def compile_options(self, options: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the options that `compile` passes to the compiler, with a user's."""
        return self.compiler.with_options(self.target, options)

    @property
    def package_options(self) -> tuple[str, ...]:
        """Further options for kernels of the package; BackendUnavailable where there is no compiler."""
        return self.compiler.package_options

    @property
    def compiler_version(self) -> str:
        """The version of the compiler; BackendUnavailable where there is none."""
        return self.compiler.version

    def compile(self, source: str, name: str, headers: dict[str, str], options: Sequence[str] = ()) -> bytes:
        """The code object of a source for this device; `headers` are texts by the name that sources include.

        Raises CompilationFailed, or BackendUnavailable where there is no compiler.
        """
        return self.compiler.compile(source, name, headers, self.target, options)

    def load(self, code: bytes, name: str) -> Module:
        """Load a code object; `name` is how errors call it. Raises InvalidArgument where it is cut short."""
        return Module(self.device, code, name)

    def synchronize(self) -> None:
        """Wait until everything enqueued is done; errors of kernels come up here."""
        if slow_path.required:
            self._refuse_waiting()
            capture.tracked(self, self.queue.synchronize, "synchronize", None)
        else:
            self.queue.synchronize()

    def synchronize_device(self) -> None:
        """Wait until the device is done with everything that anybody gave it, and for the end of a capture."""
        if slow_path.required:
            self._refuse_waiting()
        with self.capturing:
            self.device.synchronize()

    def _refuse_waiting(self) -> None:
        capture.refuse(self, "waiting for the device", "wait after the capture, following a replay")

    def wait_for(self, stream: int) -> None:
        """Let work enqueued from now on wait for another stream of the device, by its handle.

        0 is the default stream; the device waits, and the host does not.
        """
        if slow_path.required:
            self.refuse_sharing()
        if stream != self.stream:
            self.order(self._stream_at(stream), self.queue)

    def let_wait(self, stream: int) -> None:
        """Let later work of another stream of the device wait for what is enqueued here: see `wait_for`."""
        if slow_path.required:
            self.refuse_sharing()
        if stream != self.stream:
            self.order(self.queue, self._stream_at(stream))

    def refuse_sharing(self) -> None:
        """CaptureError where this thread captures: what other streams do is no part of its graph."""
        capture.refuse(self, "sharing with another library", "share the tensor before the capture, or after it")

    @contextlib.contextmanager
    def captured(self, pool: object, state: Region) -> Iterator[tuple[capture.Capture, Callable[[], Graph]]]:
        """Record what this thread gives the device inside, with memory of a pool: the capture, and what ends it.

        `state` is memory for what kernels read and write at each replay.

        Other threads that capture wait for the lock. Without the call that ends it, the capture is discarded.
        """
        try:
            with self.capturing:
                stream = self._capture_stream or self.new_stream()
                # One whose capture fails is not used again.
                self._capture_stream = None
                captured = capture.Capture(self, stream, pool, state)
                recorded: list[Graph] = []

                def finish() -> Graph:
                    recorded.append(stream.end_capture())
                    self.recorded.add(recorded[0])
                    return recorded[0]

                stream.begin_capture()
                try:
                    with captured.under_way():
                        yield captured, finish
                finally:
                    if recorded:
                        self._capture_stream = stream
                    else:
                        # Where that fails too, closing the stream ends its capture.
                        with contextlib.suppress(DriverError):
                            stream.abandon_capture()
                    capture.end(captured)
        finally:
            capture.catch_up()

    def new_stream(self) -> Stream:
        """Another stream of the device."""
        return Stream(self.device)

    def order(self, first: Stream, second: Stream) -> None:
        """Let later work of the second stream wait for what is in the first, a stream of this device."""
        # Garbage collection may run a finaliser here while this thread is here already, which a lock would stop for
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

    def _stream_at(self, address: int) -> Stream:
        """The stream of the device that has a handle."""
        return self.queue if address == self.stream else Stream.wrap(self.device, address)

    def open_loader(self) -> AsyncLoader:
        """Return a loader that streams host memory to the device."""
        # Few programs load files, and threads and pinned memory take a while to import.
        from .loader import AsyncLoader

        return AsyncLoader(self.device)


def _address_of(array: Array) -> int:
    interface: dict[str, Any] = array.__array_interface__
    address: int = interface["data"][0]
    return address
