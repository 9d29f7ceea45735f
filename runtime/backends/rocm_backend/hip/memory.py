"""Device memory and pinned memory of the host. All sizes and offsets are in bytes."""

from __future__ import annotations

import ctypes
import functools
from typing import ClassVar, Final

from ....base.error import DeviceMismatch, InvalidArgument
from ...gpu_backend.driver.buffer import DeviceBuffer, HostBuffer
from .device import HipDevice
from .error import HipClosed, check, hip
from .stream import HipStream

# hipDeviceMallocFinegrained, for which the binding has no name, and hipIpcMemLazyEnablePeerAccess.
_FINE_GRAINED: Final = 1
_LAZY_PEER_ACCESS: Final = 1


class HipHostBuffer(HostBuffer[HipDevice]):
    """Pinned memory, by hipHostMalloc: see `HostBuffer`. A use after `close()` raises `HipClosed`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed

    @staticmethod
    def _allocate(device: HipDevice, nbytes: int) -> int:
        made = hip.hipHostMalloc(nbytes, hip.hipHostMallocDefault)
        return int(check("hipHostMalloc", made, f"{nbytes} pinned bytes for {device.label}"))

    @staticmethod
    def _free(_device: HipDevice, address: int) -> None:
        check("hipHostFree", hip.hipHostFree(address))


class HipBuffer(DeviceBuffer[HipDevice, HipStream]):
    """Device memory, by hipMalloc: see `DeviceBuffer`. A use after `close()` raises `HipClosed`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed

    @staticmethod
    def _allocate(device: HipDevice, nbytes: int) -> int:
        return int(check("hipMalloc", hip.hipMalloc(nbytes), f"{nbytes} bytes on {device.label}"))

    @staticmethod
    def _free(_device: HipDevice, address: int) -> None:
        check("hipFree", hip.hipFree(address))

    @staticmethod
    def _null_stream(device: HipDevice) -> HipStream:
        return _null_stream(device)

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
        operation = self._name("copy_2d_from")
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
        source.region(operation, source_offset, source_size)
        self.region(operation, offset, size)
        target, origin = self.address + offset, source.address + source_offset
        if not size:
            return
        distance = target - origin
        take_turns = pitch == source_pitch and width <= distance % pitch <= pitch - width
        if -size < distance < source_size and not take_turns:
            raise InvalidArgument(operation, "rows here and there overlap; copy through a third buffer")
        region = target, pitch, origin, source_pitch, width, height
        copied = self._queue(operation, stream).call(
            hip.hipMemcpy2DAsync, *region, hip.hipMemcpyKind.hipMemcpyDeviceToDevice
        )
        check("hipMemcpy2DAsync", copied, f"{height} rows of {width} bytes within {self.device.label}")


@functools.cache
def _null_stream(device: HipDevice) -> HipStream:
    return HipStream.null(device)


class HipSharedBuffer(HipBuffer):
    """Fine-grained device memory, by hipExtMallocWithFlags: other devices see what a kernel writes while it runs."""

    __slots__ = ()

    @staticmethod
    def _allocate(device: HipDevice, nbytes: int) -> int:
        made = hip.hipExtMallocWithFlags(nbytes, _FINE_GRAINED)
        return int(check("hipExtMallocWithFlags", made, f"{nbytes} bytes on {device.label}"))


def shared_handle(device: HipDevice, address: int) -> bytes:
    """What another process on this host finds the memory of a `HipSharedBuffer` by."""
    with device.activated():
        handle = check("hipIpcGetMemHandle", hip.hipIpcGetMemHandle(address), device.label)
    return ctypes.string_at(int(handle), handle.c_sizeof())


def open_shared(device: HipDevice, handle: bytes) -> int:
    """The address here of memory of another process and another device."""
    found = hip.hipIpcMemHandle_st.allocate()
    ctypes.memmove(int(found), handle, found.c_sizeof())
    with device.activated():
        return int(check("hipIpcOpenMemHandle", hip.hipIpcOpenMemHandle(found, _LAZY_PEER_ACCESS), device.label))


def close_shared(device: HipDevice, address: int) -> None:
    """Let go of memory of another process."""
    with device.activated():
        check("hipIpcCloseMemHandle", hip.hipIpcCloseMemHandle(address), device.label)
