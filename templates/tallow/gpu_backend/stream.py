"""Streams and events as the objects of every vendor have them, and what copies under way need kept."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from enum import Enum, auto
from typing import Any, Protocol

from .error import DriverError


class Direction(Enum):
    """From where to where bytes are copied."""

    TO_DEVICE = auto()
    TO_HOST = auto()
    WITHIN_DEVICE = auto()

    def between(self, label: str) -> str:
        """What errors say of a copy on the device that has this label."""
        return f"{_ROUTES[self]} {label}"


_ROUTES = {
    Direction.TO_DEVICE: "from the host to",
    Direction.TO_HOST: "to the host from",
    Direction.WITHIN_DEVICE: "within",
}


class Event(Protocol):
    """A mark in a stream."""

    def record(self, stream: Any) -> Any:
        """Mark the point that a stream has reached."""

    def query(self) -> bool:
        """Whether the mark has been passed."""

    def synchronize(self) -> None:
        """Wait on the host until the mark has been passed."""

    def close(self) -> None:
        """Give the event back."""


class Stream(Protocol):
    """A queue of work on a device."""

    device: Any

    @property
    def address(self) -> int:
        """The vendor's handle as a number."""

    def copy(self, target: Any, origin: Any, nbytes: int, direction: Direction) -> None:
        """Enqueue a copy; either end is an address, or a buffer on the host."""

    def fill(self, address: int, value: int, count: int, itemsize: int = 1) -> None:
        """Enqueue the setting of `count` items to an unsigned number of 1, 2 or 4 bytes."""

    def copy_between(self, target: int, target_device: Any, origin: int, origin_device: Any, nbytes: int) -> None:
        """Enqueue a copy from one device to another."""

    def record(self, event: Any = None) -> Any:
        """Record an event here, by default a new one, and return it."""

    def wait(self, event: Any) -> None:
        """Let what is enqueued from now on wait for an event."""

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued is done."""

    def close(self) -> None:
        """Give the stream back."""


_under_way: dict[tuple[object, int], deque[tuple[Event, object]]] = {}
_lock = threading.RLock()


def keep_until_done(stream: Stream, device: object, memory: object) -> None:
    """Keep memory alive until a stream has done what it was given so far.

    Nobody waits for that: what is done is let go when the next memory is kept.
    """
    with _lock:
        for key, kept in list(_under_way.items()):
            while kept and _is_done(kept[0][0]):
                kept.popleft()
            if not kept:
                del _under_way[key]
        _under_way.setdefault((device, stream.address), deque()).append((stream.record(), memory))


def _is_done(event: Event) -> bool:
    # A device that is lost copies nothing any more.
    with contextlib.suppress(DriverError):
        return event.query()
    return True
