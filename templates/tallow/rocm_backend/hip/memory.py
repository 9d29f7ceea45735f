"""Device memory: allocations, views of them, and every copy that touches them. All sizes and offsets are in bytes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Final, Self

from ...error import DeviceMismatch, InvalidArgument, OutOfMemory
from ...gpu_backend import fork
from .device import HipDevice
from .error import HipClosed, check, hip
from .resource import HipResource
from .stream import DEVICE_TO_HOST, HOST_TO_DEVICE, WITHIN_DEVICE, HipStream

# HIP counts bytes in 64 bits.
_TOO_MANY_BYTES: Final = 1 << 64


class _Allocation(HipResource):
    """One piece of device memory, given back when its last user is gone or its owner is closed."""

    __slots__ = ("address",)

    def __init__(self, address: int, release: Callable[..., None], *arguments: Any) -> None:
        self.address = address
        self._own(release, *arguments)


class HipBuffer:
    """Device memory: an allocation of its own, or a view of another buffer's.

    A view keeps the allocation alive after its owner is collected; closing the owner closes its views too. Copies and
    fills are enqueued in `stream`, by default the device's null stream; only those to and from the host wait for it.
    Offsets and sizes that reach outside a buffer raise `InvalidArgument` before anything is enqueued.
    """

    __slots__ = ("__weakref__", "_allocation", "_offset", "device", "is_view", "nbytes")

    _allocation: _Allocation | None

    def __init__(self, device: HipDevice, nbytes: int) -> None:
        """Allocate `nbytes` uninitialised bytes.

        `HipError` with `out_of_memory` when the device has no room, `OutOfMemory` when no device could have it.
        """
        if nbytes < 0:
            raise InvalidArgument("HipBuffer", f"a size is 0 or more, not {nbytes}")
        if nbytes >= _TOO_MANY_BYTES:
            raise OutOfMemory(device.label, nbytes)
        address = 0
        if nbytes:
            with device.activated():
                address = int(check("hipMalloc", hip.hipMalloc(nbytes), f"{nbytes} bytes on {device.label}"))
        self._set(device, nbytes, _Allocation(address, _free if address else _keep, address), 0, is_view=False)

    @classmethod
    def wrap(
        cls, device: HipDevice, address: int, nbytes: int, release: Callable[..., None], *arguments: Any
    ) -> HipBuffer:
        """Take over memory allocated elsewhere; `release(*arguments)` gives it back and is called exactly once."""
        buffer = cls.__new__(cls)
        buffer._set(device, nbytes, _Allocation(address, release, *arguments), 0, is_view=False)
        return buffer

    def _set(self, device: HipDevice, nbytes: int, allocation: _Allocation, offset: int, *, is_view: bool) -> None:
        self.device = device
        self.nbytes = nbytes
        self.is_view = is_view
        self._allocation = allocation
        self._offset = offset

    def view(self, offset: int = 0, nbytes: int | None = None) -> HipBuffer:
        """A part of this memory, by default everything from `offset` on."""
        nbytes = self._region("HipBuffer.view", offset, nbytes)
        view = HipBuffer.__new__(HipBuffer)
        view._set(self.device, nbytes, self._open(), self._offset + offset, is_view=True)
        return view

    @property
    def address(self) -> int:
        """The device address of the first byte (0 for an empty allocation); `HipClosed` after `close()`."""
        return self._open().address + self._offset

    @property
    def closed(self) -> bool:
        """Whether this buffer, or the owner that it is a view of, was closed."""
        return self._allocation is None or self._allocation.closed

    def close(self) -> None:
        """Free the memory, or stop viewing it; nothing happens when it is closed already.

        Freeing waits for the device. Raises `HipError` when an earlier kernel failed; the memory is then still there.
        """
        if self._allocation is not None and not self.is_view:
            self._allocation.close()
        self._allocation = None

    def copy_from_host(self, source: Any, *, offset: int = 0, stream: HipStream | None = None) -> None:
        """Copy all bytes of a C-contiguous buffer or NumPy array to `offset`; returns when they are there."""
        operation = "HipBuffer.copy_from_host"
        host = _host(operation, source, writable=False)
        self._region(operation, offset, host.nbytes)
        target = self.address + offset
        if host.nbytes:
            queue = self._stream(operation, stream)
            queue.copy(target, host, host.nbytes, HOST_TO_DEVICE)
            queue.synchronize()

    def copy_to_host(self, destination: Any, *, offset: int = 0, stream: HipStream | None = None) -> None:
        """Fill a writable C-contiguous buffer or NumPy array with what is at `offset`; returns when it is full."""
        operation = "HipBuffer.copy_to_host"
        host = _host(operation, destination, writable=True)
        self._region(operation, offset, host.nbytes)
        origin = self.address + offset
        if host.nbytes:
            queue = self._stream(operation, stream)
            queue.copy(host, origin, host.nbytes, DEVICE_TO_HOST)
            queue.synchronize()

    def to_bytes(self, *, offset: int = 0, nbytes: int | None = None, stream: HipStream | None = None) -> bytearray:
        """The bytes of a region, by default everything from `offset` on, in host memory."""
        host = bytearray(self._region("HipBuffer.to_bytes", offset, nbytes))
        self.copy_to_host(host, offset=offset, stream=stream)
        return host

    def copy_from(
        self,
        source: HipBuffer,
        *,
        offset: int = 0,
        source_offset: int = 0,
        nbytes: int | None = None,
        stream: HipStream | None = None,
    ) -> None:
        """Copy a region of `source`, by default everything from `source_offset` on, to `offset`.

        The regions must not overlap (`InvalidArgument`). `source` may be on another device; then what still writes to
        it there must be waited for first, and `stream` is one of this buffer's device.
        """
        operation = "HipBuffer.copy_from"
        nbytes = source._region(operation, source_offset, nbytes)
        self._region(operation, offset, nbytes)
        target, origin = self.address + offset, source.address + source_offset
        if not nbytes:
            return
        queue = self._stream(operation, stream)
        if source.device == self.device:
            if abs(target - origin) < nbytes:
                raise InvalidArgument(operation, "the two regions overlap; copy through a third buffer")
            queue.copy(target, origin, nbytes, WITHIN_DEVICE)
        else:
            devices = self.device.ordinal, source.device.ordinal
            copied = queue.call(hip.hipMemcpyPeerAsync, target, devices[0], origin, devices[1], nbytes)
            check("hipMemcpyPeerAsync", copied, f"{nbytes} bytes from {source.device.label} to {self.device.label}")

    def copy_2d_from(
        self,
        source: HipBuffer,
        *,
        width: int,
        height: int,
        pitch: int,
        source_pitch: int,
        offset: int = 0,
        source_offset: int = 0,
        stream: HipStream | None = None,
    ) -> None:
        """Copy `height` rows of `width` bytes, which start `source_pitch` apart there and `pitch` apart here.

        Rows there and here may take turns where both pitches are one; otherwise the regions that they span must not
        overlap (`InvalidArgument`). `DeviceMismatch` when `source` is on another device.
        """
        operation = "HipBuffer.copy_2d_from"
        if source.device != self.device:
            raise DeviceMismatch(operation, (self.device.label, source.device.label))
        if min(width, height) < 0:
            raise InvalidArgument(operation, f"{height} rows of {width} bytes; neither may be negative")
        if height > 1 and width > min(pitch, source_pitch):
            reason = f"rows of {width} bytes need pitches of {width} or more, not {pitch} and {source_pitch}"
            raise InvalidArgument(operation, reason)
        # The pitch of one row is of no matter, but HIP looks at it.
        pitch, source_pitch = max(pitch, width), max(source_pitch, width)
        size, source_size = ((height - 1) * step + width if width and height else 0 for step in (pitch, source_pitch))
        source._region(operation, source_offset, source_size)
        self._region(operation, offset, size)
        target, origin = self.address + offset, source.address + source_offset
        if not size:
            return
        distance = target - origin
        take_turns = pitch == source_pitch and width <= distance % pitch <= pitch - width
        if -size < distance < source_size and not take_turns:
            raise InvalidArgument(operation, "rows here and there overlap; copy through a third buffer")
        region = target, pitch, origin, source_pitch, width, height
        copied = self._stream(operation, stream).call(hip.hipMemcpy2DAsync, *region, WITHIN_DEVICE)
        check("hipMemcpy2DAsync", copied, f"{height} rows of {width} bytes within {self.device.label}")

    def fill(
        self,
        value: int = 0,
        *,
        itemsize: int = 1,
        offset: int = 0,
        nbytes: int | None = None,
        stream: HipStream | None = None,
    ) -> None:
        """Fill a region, by default everything from `offset` on, with an unsigned number of 1, 2 or 4 bytes.

        The address of the region and its size must be multiples of `itemsize`.
        """
        operation = "HipBuffer.fill"
        if itemsize not in (1, 2, 4):
            raise InvalidArgument(operation, f"an item has 1, 2 or 4 bytes, not {itemsize}")
        try:
            number = operator.index(value)
        except TypeError:
            number = -1
        if not 0 <= number < 1 << 8 * itemsize:
            raise InvalidArgument(operation, f"{value!r} is not an unsigned number of {itemsize} bytes")
        nbytes = self._region(operation, offset, nbytes)
        address = self.address + offset
        if nbytes % itemsize or address % itemsize:
            reason = f"offset {offset} and size {nbytes} must place whole, aligned items of {itemsize} bytes"
            raise InvalidArgument(operation, reason)
        if nbytes:
            self._stream(operation, stream).fill(address, number, nbytes // itemsize, itemsize)

    def _open(self) -> _Allocation:
        if self._allocation is None or self._allocation.closed:
            fork.require_own()
            raise HipClosed(repr(self))
        return self._allocation

    def _region(self, operation: str, offset: int, nbytes: int | None) -> int:
        """Check a region and return its size."""
        size = self.nbytes - offset if nbytes is None else nbytes
        if offset < 0 or size < 0 or offset + size > self.nbytes:
            reason = f"{size} bytes at offset {offset} reach outside a buffer of {self.nbytes} bytes"
            raise InvalidArgument(operation, reason)
        return size

    def _stream(self, operation: str, stream: HipStream | None) -> HipStream:
        if stream is None:
            return _null_stream(self.device)
        if stream.device != self.device:
            raise DeviceMismatch(operation, (self.device.label, stream.device.label))
        return stream

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HipBuffer{' view' if self.is_view else ''} of {self.nbytes} bytes on {self.device.label}>"


@functools.cache
def _null_stream(device: HipDevice) -> HipStream:
    return HipStream.null(device)


def _host(operation: str, memory: Any, *, writable: bool) -> memoryview:
    """The host memory of a buffer or array, checked."""
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


def _free(address: int) -> None:
    check("hipFree", hip.hipFree(address))


def _keep(_address: int) -> None:
    """An empty allocation has nothing to free."""
