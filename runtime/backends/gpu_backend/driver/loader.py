"""Uploads that overlap the host's work: threads fill pinned memory, and streams of their own copy it to the device.

Where copying to the device is faster than a thread reads, as on every bus since PCIe 4, several threads fill at once.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from ....base.error import DeviceMismatch, InvalidArgument
from ....core import argument
from ....helpers.closing import Closing
from . import fork
from .buffer import DeviceBuffer, HostBuffer, host_memory
from .device import Device
from .error import Closed
from .resource import Resource
from .stream import Event, Stream, settled

STREAMS: Final = 4
"""How many streams a loader has."""
SLOT_BYTES: Final = 5 << 20
"""The bytes of one piece of pinned memory. Enqueuing smaller copies takes the host longer than the device needs."""
THREADS: Final = 12
"""How many threads fill pinned memory at most."""
SLOTS: Final = THREADS
"""The number of pieces of pinned memory: while the device takes that of one thread, others fill theirs."""

# Copies begin at multiples of this in pinned memory.
_ALIGNMENT: Final = 256

Fill: TypeAlias = Callable[[memoryview, int], object]
"""Fills memory with the bytes of a source from an offset on. Threads call it at the same time."""


class Upload(NamedTuple):
    """Device memory at `address`, and what fills it."""

    address: int
    nbytes: int
    fill: Fill


class _Piece(NamedTuple):
    """A part of an upload that goes through one slot: its offset there, in the source and on the device."""

    start: int
    nbytes: int
    offset: int
    address: int
    fill: Fill


class _Slot(Resource):
    """A piece of pinned memory, the event after the copies from it, and what is known of those."""

    __slots__ = ("_buffer", "event", "memory", "nbytes", "start", "stream")

    def __init__(self, buffer: HostBuffer, event: Event) -> None:
        self._buffer = buffer
        self.memory: memoryview = buffer.array().data
        self.start = buffer.address
        self.event = event
        # What the last copies were: bytes, in a stream.
        self.stream = self.nbytes = 0
        self._own(_give_back, buffer, event)

    def close(self) -> None:
        # Whoever shows the memory keeps it.
        self.memory = memoryview(b"")
        super().close()


class AsyncLoader(Closing):
    """Copies host memory to a device through pinned memory, in four streams of its own.

    A call returns when all bytes were read: the memory that was handed over may then change or go away, while copies
    from the loader's pinned memory may still be in progress. `synchronize()` waits for them all; work of other streams
    is ordered after them by an event, as `other.wait(loader.stream(i).record())`, and work that they shall wait for
    as `loader.stream(i).wait(event)`. Pinned memory, at most 60 MiB, is allocated as needed and released by
    `close()`. Threads may share a loader: their calls take turns.
    """

    closed_error: ClassVar[type[Closed]] = Closed
    """The error of a use after `close()`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # Released in order where one of them cannot be created.
        with contextlib.ExitStack() as created:
            self._streams: list[Stream] = []
            for _ in range(STREAMS):
                self._streams.append(Stream(self.device))
                created.callback(self._streams[-1].close)
            created.pop_all()
        self.closed = False
        # Callbacks, such as `progress`, may load something themselves.
        self._lock = threading.RLock()
        # Slots that no thread fills, the one that was used longest ago first, and how many there are in all.
        self._slots: deque[_Slot] = deque()
        self._made = 0
        self._taking = threading.Lock()

    def stream(self, index: int) -> Stream:
        """One of the loader's streams, from 0 to 3; InvalidArgument for another index."""
        return self._streams[self._index("stream", index)]

    def upload_to_buffer(self, buffer: DeviceBuffer, data: Any, stream_index: int) -> None:
        """Copy all bytes of a C-contiguous buffer or NumPy array to the start of a device buffer, in one stream.

        Raises what `upload_to_buffer_offset` raises.
        """
        self._upload_to("upload_to_buffer", buffer, 0, data, stream_index)

    def upload_to_buffer_offset(self, buffer: DeviceBuffer, offset: int, data: Any, stream_index: int) -> None:
        """Copy all bytes of a C-contiguous buffer or NumPy array to a device buffer from `offset` on, in one stream.

        Raises InvalidArgument for an index that no stream has, data that is no such memory, or bytes outside of the
        buffer, and DeviceMismatch for a buffer of another device, all before anything is enqueued; Closed after
        `close()`, and DriverError where the vendor's driver refuses.
        """
        self._upload_to("upload_to_buffer_offset", buffer, offset, data, stream_index)

    def upload_auto(self, buffer: DeviceBuffer, data: Any, offset: int = 0) -> int:
        """Copy as `upload_to_buffer_offset` does, in the stream with the fewest bytes left to copy; its index."""
        return self._upload_to("upload_auto", buffer, offset, data, None)

    def outstanding(self, index: int) -> int:
        """The bytes that one of the streams has yet to copy, in pieces that count until they are done."""
        index = self._index("outstanding", index)
        return self._outstanding()[index]

    def upload_all(
        self, uploads: Iterable[Upload], queue: Stream, progress: Callable[[int], object] | None = None
    ) -> None:
        """Copy to memory that belongs to a stream of the device: its later work sees the memory filled.

        The copies wait for what is in the stream already. `progress` is called in this thread, with the bytes read so
        far.
        """
        self.require_open()
        chunks = list(_chunks(uploads))
        with self._lock:
            self.require_open()
            streams = self._streams[: len(chunks)]
            if streams:
                begin = queue.record()
                for stream in streams:
                    stream.wait(begin)
            with contextlib.ExitStack() as ends:
                # Also after an error, since the memory may serve again once its owner has let it go.
                for stream in streams:
                    ends.callback(_order, stream, queue)
                self._stage(chunks, range(len(streams)), progress)

    def synchronize(self) -> None:
        """Wait until all copies are done; their errors come up here."""
        self.require_open()
        for stream in self._streams:
            stream.synchronize()

    def close(self) -> None:
        """Wait for all copies, then give the streams and the pinned memory back; a second call does nothing.

        Raises `DriverError` when the driver refuses; the next call tries what is left.
        """
        if fork.lost:
            return
        with self._lock:
            self.closed = True
            with contextlib.ExitStack() as cleanup:
                for stream in self._streams:
                    cleanup.callback(stream.close)
                for slot in self._slots:
                    cleanup.callback(slot.close)
            self._slots.clear()

    def _upload_to(self, method: str, buffer: DeviceBuffer, offset: int, data: Any, stream_index: int | None) -> int:
        self.require_open()
        operation = self._name(method)
        if stream_index is not None:
            stream_index = self._index(method, stream_index)
        if not isinstance(buffer, DeviceBuffer):
            raise argument.wrong_type(operation, "buffer", buffer, "DeviceBuffer")
        host = host_memory(operation, data, writable=False)
        if buffer.device != self.device:
            raise DeviceMismatch(operation, (self.device.label, buffer.device.label))
        offset = argument.integer(operation, "offset", offset)
        buffer.region(operation, offset, host.nbytes)
        chunks = list(_chunks([Upload(buffer.address + offset, host.nbytes, _reader(host))]))
        with self._lock:
            self.require_open()
            if stream_index is None:
                outstanding = self._outstanding()
                stream_index = outstanding.index(min(outstanding))
            self._stage(chunks, [stream_index], None)
        return stream_index

    def _index(self, method: str, index: int) -> int:
        self.require_open()
        operation = self._name(method)
        index = argument.integer(operation, "a stream's index", index)
        if not 0 <= index < STREAMS:
            raise InvalidArgument(operation, f"no stream has index {index}; use one from 0 to {STREAMS - 1}")
        return index

    def _outstanding(self) -> list[int]:
        counts = [0] * STREAMS
        for slot in list(self._slots):
            if slot.nbytes and not slot.event.query():
                counts[slot.stream] += slot.nbytes
        return counts

    def _stage(
        self, chunks: list[list[_Piece]], streams: Sequence[int], progress: Callable[[int], object] | None
    ) -> None:
        """Read all chunks, and enqueue their copies in the streams, round robin."""
        left = deque((chunk, streams[number % len(streams)]) for number, chunk in enumerate(chunks))
        if len(chunks) < 2:
            for chunk, stream in left:
                slot = self._take()
                try:
                    self._copy(chunk, stream, slot)
                finally:
                    self._slots.append(slot)
                if progress is not None:
                    progress(_size(chunk))
            return
        results: SimpleQueue[int | BaseException] = SimpleQueue()

        def work() -> None:
            slots: list[_Slot] = []
            try:
                for number in itertools.count():
                    chunk, stream = left.popleft()
                    if number < SLOTS // THREADS:
                        slots.append(self._take())
                    self._copy(chunk, stream, slots[number % len(slots)])
                    results.put(_size(chunk))
            except IndexError:  # there is nothing left
                pass
            except BaseException as error:  # for the thread that called
                results.put(error)
            finally:
                self._slots.extend(slots)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(chunks)))]
        started = []
        done = 0
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
            for _ in chunks:
                result = results.get()
                if isinstance(result, BaseException):
                    raise result
                done += result
                if progress is not None:
                    progress(done)
        finally:
            # No thread reads on when this returns.
            left.clear()
            for thread in started:
                thread.join()

    def _copy(self, chunk: list[_Piece], stream_index: int, slot: _Slot) -> None:
        """Fill a slot, once nothing copies from it any more, and enqueue the copies from it."""
        slot.event.synchronize()
        for piece in chunk:
            piece.fill(slot.memory[piece.start : piece.start + piece.nbytes], piece.offset)
        stream = self._streams[stream_index]
        slot.stream, slot.nbytes = stream_index, _size(chunk)
        copies = [(piece.address, slot.start + piece.start, piece.nbytes) for piece in chunk]
        with settled(stream):
            stream.upload(copies, slot.event)

    def _take(self) -> _Slot:
        """A slot that no thread has: one that nothing copies from, or a new one while there are few."""
        with self._taking:
            if self._slots and (self._made >= SLOTS or self._slots[0].event.query()):
                return self._slots.popleft()
            self._made += 1
        try:
            return _Slot(HostBuffer(self.device, SLOT_BYTES), self._streams[0].new_event(blocking=True))
        except BaseException:
            with self._taking:
                self._made -= 1
            raise

    def require_open(self) -> None:
        if self.closed or fork.lost:
            fork.require_own()
            raise self.closed_error(repr(self))

    def _name(self, method: str) -> str:
        return f"{type(self).__name__}.{method}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device.label}>"


def _chunks(uploads: Iterable[Upload]) -> Iterator[list[_Piece]]:
    """Yield what goes through a slot at a time: a part of a large upload, or several small ones."""
    chunk: list[_Piece] = []
    start = 0
    for upload in uploads:
        offset = 0
        while offset < upload.nbytes:
            if start >= SLOT_BYTES:
                yield chunk
                chunk, start = [], 0
            nbytes = min(SLOT_BYTES - start, upload.nbytes - offset)
            chunk.append(_Piece(start, nbytes, offset, upload.address + offset, upload.fill))
            start = -(-(start + nbytes) // _ALIGNMENT) * _ALIGNMENT
            offset += nbytes
    if chunk:
        yield chunk


def _size(chunk: list[_Piece]) -> int:
    return sum(piece.nbytes for piece in chunk)


def _reader(host: memoryview) -> Fill:
    """Return a function that copies from host memory. NumPy lets other threads run meanwhile."""
    if not host.nbytes:
        return lambda _target, _offset: None
    source = np.frombuffer(host, np.uint8)

    def fill(target: memoryview, offset: int) -> None:
        np.copyto(np.frombuffer(target, np.uint8), source[offset : offset + target.nbytes])

    return fill


def _order(first: Stream, second: Stream) -> None:
    """Let the second stream wait for the first one."""
    with settled(first):
        second.wait(first.record())


def _give_back(buffer: HostBuffer, event: Event) -> None:
    event.synchronize()
    buffer.close()
    event.close()
