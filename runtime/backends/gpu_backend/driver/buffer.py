"""Memory of a device and pinned memory of the host. All sizes and offsets are in bytes."""

from __future__ import annotations

import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import DTypeLike

from .....dtype import Array
from ....base.error import DeviceMismatch, InvalidArgument, OutOfMemory
from ....helpers.closing import Closing
from . import fork
from .device import Device
from .error import Closed
from .resource import Resource
from .stream import Direction, Event, Stream, keep_until_done, release_finished

# The vendors count bytes in 64 bits.
_TOO_MANY_BYTES: Final = 1 << 64


class Allocation(Resource):
    """One piece of memory, released when its last user is gone or its owner is closed."""

    __slots__ = ("address",)

    def __init__(self, address: int, release: Callable[..., None], *arguments: Any) -> None:
        self.address = address
        self._own(release, *arguments)


class _Memory(Closing, ABC):
    """The base of buffers on the device and on the host."""

    __slots__ = ("__weakref__", "_allocation", "device", "nbytes")

    closed_error: ClassVar[type[Closed]] = Closed
    """The error of a use after `close()`."""

    _allocation: Allocation | None

    def __init__(self, device: Device, nbytes: int) -> None:
        if nbytes < 0:
            raise InvalidArgument(type(self).__name__, f"a size is 0 or more, not {nbytes}")
        if nbytes >= _TOO_MANY_BYTES:
            raise OutOfMemory(device.label, nbytes)
        self.device = device
        self.nbytes = nbytes
        if nbytes:
            with device.activated():
                address = self._allocate(device, nbytes)
                self._allocation = Allocation(address, self._free, device, address)
        else:
            self._allocation = Allocation(0, _keep)

    @staticmethod
    @abstractmethod
    def _allocate(device: Device, nbytes: int) -> int:
        """The address of `nbytes` > 0 of new memory of the device, which is the current one."""

    @staticmethod
    @abstractmethod
    def _free(device: Device, address: int) -> None:
        """Give memory back."""

    @property
    def closed(self) -> bool:
        """Whether the memory was released."""
        return self._allocation is None or self._allocation.closed

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""

    def _open(self) -> Allocation:
        if self._allocation is None or self._allocation.closed:
            fork.require_own()
            raise self.closed_error(repr(self))
        return self._allocation

    def _name(self, method: str) -> str:
        return f"{type(self).__name__}.{method}"

    def require_open(self) -> None:
        """Raise `Closed` where the memory was released."""
        self._open()


class HostBuffer(_Memory):
    """Pinned memory of the host, which a device copies from and to while the host does something else.

    It is page-locked and so never swapped out: have little of it. `array()` shows it to NumPy. The bytes are not
    initialised. What the vendor refuses, for want of memory too, is a `DriverError`.
    """

    __slots__ = ("_shown",)

    def __init__(self, device: Device, nbytes: int) -> None:
        """Allocate `nbytes` bytes through a device; every other device can use them too."""
        super().__init__(device, nbytes)
        self._shown: weakref.ref[_Shown] | None = None

    @staticmethod
    def _allocate(device: Device, nbytes: int) -> int:
        return int(device.calls.allocate_host(nbytes, f"{nbytes} pinned bytes for {device.label}"))

    @staticmethod
    def _free(device: Device, address: int) -> None:
        device.call_in_context(device.calls.free_host, address)

    @property
    def address(self) -> int:
        """The address of the first byte (0 for an empty allocation)."""
        return self._open().address

    def array(self, dtype: DTypeLike = np.uint8) -> Array:
        """The memory as a NumPy array of one dim, which shares it; `nbytes` must be a multiple of the item's size."""
        allocation = self._open()
        shown = self._shown() if self._shown else None
        if shown is None:
            shown = _Shown(allocation, self.nbytes)
            self._shown = weakref.ref(shown)
        item = np.dtype(dtype)
        if item.hasobject or not item.itemsize or self.nbytes % item.itemsize:
            reason = f"{self.nbytes} bytes are no multiple of items of dtype {item}; choose another dtype or size"
            raise InvalidArgument(self._name("array"), reason)
        return np.asarray(shown).view(item)

    def close(self) -> None:
        """Give the memory back, or leave that to the last array that shows it; nothing happens to what is closed.

        Work that was enqueued with the memory must be done, but for copies with `wait=False`, which keep it.
        """
        release_finished()
        if self._allocation is not None and (self._shown is None or self._shown() is None):
            self._allocation.close()
        self._allocation = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.nbytes} bytes for {self.device.label}>"


class _Shown:
    """An object that NumPy takes for an array; it owns the memory for as long as there is such an array."""

    __slots__ = ("__array_interface__", "__weakref__", "_allocation")

    def __init__(self, allocation: Allocation, nbytes: int) -> None:
        self._allocation = allocation
        self.__array_interface__ = {
            "version": 3,
            "data": (allocation.address, False),
            "typestr": "|u1",
            "shape": (nbytes,),
        }


class DeviceBuffer(_Memory):
    """Device memory: an allocation of its own, or a view of another buffer's.

    A view keeps the allocation alive after its owner is collected; closing the owner closes its views too. Copies and
    fills are enqueued in `stream`, by default the device's default stream; only those to and from the host wait for it.
    Offsets and sizes that reach outside a buffer raise `InvalidArgument` before anything is enqueued.
    """

    __slots__ = ("_offset", "is_view")

    def __init__(self, device: Device, nbytes: int) -> None:
        """Allocate `nbytes` uninitialised bytes.

        `DriverError` with `out_of_memory` when the device has too little memory, `OutOfMemory` when no device could
        have it.
        """
        super().__init__(device, nbytes)
        self.is_view = False
        self._offset = 0

    @classmethod
    def wrap(cls, device: Device, address: int, nbytes: int, release: Callable[..., None], *arguments: Any) -> Self:
        """Take over memory allocated elsewhere; `release(*arguments)` gives it back and is called exactly once."""
        return cls._of(device, nbytes, Allocation(address, release, *arguments), 0, is_view=False)

    @classmethod
    def _of(cls, device: Device, nbytes: int, allocation: Allocation, offset: int, *, is_view: bool) -> Self:
        buffer = cls.__new__(cls)
        buffer.device = device
        buffer.nbytes = nbytes
        buffer.is_view = is_view
        buffer._allocation = allocation
        buffer._offset = offset
        return buffer

    @staticmethod
    def _allocate(device: Device, nbytes: int) -> int:
        return int(device.calls.allocate(nbytes, f"{nbytes} bytes on {device.label}"))

    @staticmethod
    def _free(device: Device, address: int) -> None:
        device.call_in_context(device.calls.free, address)

    def view(self, offset: int = 0, nbytes: int | None = None) -> Self:
        """A part of this memory, by default everything from `offset` on."""
        nbytes = self.region(self._name("view"), offset, nbytes)
        return self._of(self.device, nbytes, self._open(), self._offset + offset, is_view=True)

    @property
    def address(self) -> int:
        """The device address of the first byte (0 for an empty allocation); `Closed` after `close()`."""
        return self._open().address + self._offset

    def close(self) -> None:
        """Free the memory, or stop viewing it; nothing happens when it is closed already.

        Freeing waits for the device. Raises `DriverError` when an earlier kernel failed; the memory is then not freed.
        """
        if self._allocation is not None and not self.is_view:
            self._allocation.close()
        self._allocation = None

    def copy_from_host(self, source: Any, *, offset: int = 0, stream: Stream | None = None, wait: bool = True) -> Any:
        """Copy all bytes of a C-contiguous buffer, NumPy array or `HostBuffer` to `offset`.

        Returns when they are there. With `wait=False` the copy is enqueued and the event after it returned; until that
        has passed, the source stays alive and must not change. Only a copy from pinned memory runs concurrently with
        the host: other memory the driver stages first, so that the call takes about as long as reading it.
        """
        operation = self._name("copy_from_host")
        host = host_memory(operation, source, writable=False)
        self.region(operation, offset, host.nbytes)
        target = self.address + offset
        return self._exchange(operation, target, host, host, Direction.TO_DEVICE, stream, wait)

    def copy_to_host(
        self, destination: Any, *, offset: int = 0, stream: Stream | None = None, wait: bool = True
    ) -> Any:
        """Fill a writable C-contiguous buffer, NumPy array or `HostBuffer` with what is at `offset`.

        Returns when it is full. With `wait=False` the copy is enqueued and the event after it returned; until that has
        passed, the destination stays alive and has no defined content. A copy to memory that is not pinned may be
        done only when the call returns.
        """
        operation = self._name("copy_to_host")
        host = host_memory(operation, destination, writable=True)
        self.region(operation, offset, host.nbytes)
        origin = self.address + offset
        return self._exchange(operation, host, origin, host, Direction.TO_HOST, stream, wait)

    def _exchange(
        self,
        operation: str,
        target: Any,
        origin: Any,
        host: memoryview,
        direction: Direction,
        stream: Stream | None,
        wait: bool,
    ) -> Event | None:
        if wait and not host.nbytes:
            return None
        queue = self._queue(operation, stream)
        if host.nbytes:
            queue.copy(target, origin, host.nbytes, direction)
        if wait:
            queue.synchronize()
            return None
        keep_until_done(queue, host)
        event: Event = queue.record()
        return event

    def to_bytes(self, *, offset: int = 0, nbytes: int | None = None, stream: Stream | None = None) -> bytearray:
        """The bytes of a region, by default everything from `offset` on, in host memory."""
        host = bytearray(self.region(self._name("to_bytes"), offset, nbytes))
        self.copy_to_host(host, offset=offset, stream=stream)
        return host

    def copy_from(
        self,
        source: Self,
        *,
        offset: int = 0,
        source_offset: int = 0,
        nbytes: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Copy a region of `source`, by default everything from `source_offset` on, to `offset`.

        The regions must not overlap (`InvalidArgument`). `source` may be on another device; then what still writes to
        it there must be waited for first, and `stream` is one of this buffer's device.
        """
        operation = self._name("copy_from")
        nbytes = source.region(operation, source_offset, nbytes)
        self.region(operation, offset, nbytes)
        target, origin = self.address + offset, source.address + source_offset
        if not nbytes:
            return
        queue = self._queue(operation, stream)
        if source.device == self.device:
            if abs(target - origin) < nbytes:
                raise InvalidArgument(operation, "the two regions overlap; copy through a third buffer")
            queue.copy(target, origin, nbytes, Direction.WITHIN_DEVICE)
        else:
            queue.copy_between(target, self.device, origin, source.device, nbytes)

    def fill(
        self,
        value: int = 0,
        *,
        itemsize: int = 1,
        offset: int = 0,
        nbytes: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Fill a region, by default everything from `offset` on, with an unsigned number of 1, 2 or 4 bytes.

        The address of the region and its size must be multiples of `itemsize`.
        """
        operation = self._name("fill")
        if itemsize not in (1, 2, 4):
            raise InvalidArgument(operation, f"an item has 1, 2 or 4 bytes, not {itemsize}")
        try:
            number = operator.index(value)
        except TypeError:
            number = -1
        if not 0 <= number < 1 << 8 * itemsize:
            raise InvalidArgument(operation, f"{value!r} is not an unsigned number of {itemsize} bytes")
        nbytes = self.region(operation, offset, nbytes)
        address = self.address + offset
        if nbytes % itemsize or address % itemsize:
            reason = f"offset {offset} and size {nbytes} must place complete, aligned items of {itemsize} bytes"
            raise InvalidArgument(operation, reason)
        if nbytes:
            self._queue(operation, stream).fill(address, number, nbytes // itemsize, itemsize)

    def region(self, operation: str, offset: int, nbytes: int | None) -> int:
        """Check a region, by default everything from `offset` on, and return its size."""
        size = self.nbytes - offset if nbytes is None else nbytes
        if offset < 0 or size < 0 or offset + size > self.nbytes:
            reason = f"{size} bytes at offset {offset} reach outside a buffer of {self.nbytes} bytes"
            raise InvalidArgument(operation, reason)
        return size

    def _queue(self, operation: str, stream: Stream | None) -> Stream:
        if stream is None:
            return Stream.null(self.device)
        if stream.device != self.device:
            raise DeviceMismatch(operation, (self.device.label, stream.device.label))
        return stream

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name}{' view' if self.is_view else ''} of {self.nbytes} bytes on {self.device.label}>"


class SharedBuffer(DeviceBuffer):
    """Device memory of which other devices see what a kernel writes while it runs."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: Device, nbytes: int) -> int:
        allocate = device.calls.allocate_shared or device.calls.allocate
        return int(allocate(nbytes, f"{nbytes} bytes on {device.label}"))


def host_memory(operation: str, memory: Any, *, writable: bool) -> memoryview:
    """The host memory of a buffer or array, checked."""
    if isinstance(memory, HostBuffer):
        memory = memory.array()
    try:
        # NumPy exports no buffer of a dtype that isn't its own (bfloat16 of ml_dtypes), but one of plain bytes.
        view = memoryview(memory.view(f"V{memory.itemsize}") if hasattr(memory, "__array_interface__") else memory)
    except (TypeError, ValueError, BufferError) as error:
        reason = f"{type(memory).__name__} is no host memory ({error}); use a buffer or a NumPy array"
        raise InvalidArgument(operation, reason) from error
    if not view.c_contiguous:
        raise InvalidArgument(operation, "the host memory must be C-contiguous; copy it to a contiguous array first")
    if writable and view.readonly:
        raise InvalidArgument(operation, "the host memory is read-only; use a writable buffer")
    return view


def _keep() -> None:
    """An empty allocation has nothing to free."""
