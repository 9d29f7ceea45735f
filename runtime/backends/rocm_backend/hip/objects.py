"""Objects that own handles of HIP: streams, events, graphs, buffers. Their use after `close()` raises `HipClosed`."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Self

from ....base.error import DeviceMismatch, InvalidArgument
from ...gpu_backend.driver.buffer import DeviceBuffer, HostBuffer
from ...gpu_backend.driver.device import Device
from ...gpu_backend.driver.graph import Graph
from ...gpu_backend.driver.stream import Event, Stream
from .error import HipClosed, check, hip


class HipEvent(Event):
    """A mark in a stream: see `Event`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed


class HipGraph(Graph):
    """The work that a stream captured: see `HipStream.end_capture`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed


class HipPriorities(NamedTuple):
    """The range of stream priorities of a device; lower numbers go first."""

    least: int
    greatest: int


class HipStream(Stream):
    """A queue of work on a device.

    `priority` is in `HipStream.priorities(device)`, by default 0. A stream runs concurrently with the device's null
    stream unless `blocking` makes the two wait for each other. Leaving a `with` block waits for the stream and closes
    it.
    """

    __slots__ = ("priority",)

    closed_error: ClassVar = HipClosed
    event_class: ClassVar = HipEvent
    graph_class: ClassVar = HipGraph

    def __init__(self, device: Device, *, priority: int = 0, blocking: bool = False) -> None:
        least, greatest = HipStream.priorities(device)
        if not greatest <= priority <= least:
            reason = f"priority {priority} is out of range; use one from {greatest} (first) to {least} (last)"
            raise InvalidArgument("HipStream", reason)
        self.priority = priority
        flags = 0 if blocking else hip.hipStreamNonBlocking
        with device.activated():
            created = hip.hipStreamCreateWithPriority(flags, priority)
            self._hold(device, check("hipStreamCreateWithPriority", created, device.label))

    @classmethod
    def wrap(cls, device: Device, address: int) -> Self:
        """Wrap a stream of the device that other code created: see `Stream.wrap`."""
        stream = super().wrap(device, address)
        stream.priority = 0
        return stream

    @staticmethod
    def priorities(device: Device) -> HipPriorities:
        """The priorities that streams of the device can have."""
        with device.activated():
            bounds = check("hipDeviceGetStreamPriorityRange", hip.hipDeviceGetStreamPriorityRange(), device.label)
        return HipPriorities(*bounds)


class HipHostBuffer(HostBuffer):
    """Pinned memory, by hipHostMalloc: see `HostBuffer`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed


class HipBuffer(DeviceBuffer):
    """Device memory, by hipMalloc: see `DeviceBuffer`."""

    __slots__ = ()

    closed_error: ClassVar = HipClosed

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
        """Copy `height` rows of `width` bytes, whose pitch is `source_pitch` there and `pitch` here.

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
        queue = self._queue(operation, stream)
        with queue.in_context():
            kind = hip.hipMemcpyKind.hipMemcpyDeviceToDevice
            copied = hip.hipMemcpy2DAsync(*region, kind, queue.handle)
        check("hipMemcpy2DAsync", copied, f"{height} rows of {width} bytes within {self.device.label}")
