"""A caching allocator: memory that a storage gives back serves the next one, without a call to the driver."""

import os
import threading
from collections import defaultdict
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from ..error import InvalidArgument, OutOfMemory
from . import fork
from .error import DriverError

# Sizes are rounded up to these steps, so that blocks of nearly one size serve each other: 512 bytes for small
# blocks, and an eighth of the power of two below for larger ones, which wastes at most one part in eight.
_SMALLEST: Final = 512
_STEPS_PER_DOUBLING: Final = 8
# What the cache may hold of the device's memory where the environment does not say.
_CACHED_SHARE: Final = 0.5
_LIMIT_VARIABLE: Final = "TALLOW_MEMORY_CACHE"


class Memory(Protocol):
    """The part of a driver that an allocator needs."""

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` of new memory; OutOfMemory where there is not enough."""

    def free(self, address: int) -> None:
        """Give memory back, once the device has done what it was given. DriverError where it stays allocated."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""


class AllocatorStatistics(NamedTuple):
    """Bytes of one device that storages hold, that the cache holds, and the most that storages held at once."""

    allocated: int
    cached: int
    peak: int


@lru_cache(maxsize=4096)
def rounded_size(nbytes: int) -> int:
    """The size of the block that serves a request of `nbytes` > 0."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = max(_SMALLEST, (1 << (nbytes - 1).bit_length()) // (2 * _STEPS_PER_DOUBLING))
    return -(-nbytes // step) * step


def cache_limit(total: int) -> int:
    """How many bytes the cache may hold: $TALLOW_MEMORY_CACHE, or half of the device's memory."""
    text = os.environ.get(_LIMIT_VARIABLE)
    if text is None:
        return int(total * _CACHED_SHARE)
    if not text.isdecimal():
        raise InvalidArgument(_LIMIT_VARIABLE, f"'{text}' is no number of bytes; write one such as {1 << 30}, or 0")
    return int(text)


class CachingAllocator:
    """Blocks of device memory for storages, of one device and one stream.

    A block that was released is handed out again at once: whatever still reads or writes it was enqueued earlier in
    the same stream. The cache holds at most `limit` bytes; what is released beyond that goes back to the driver, and
    stays in the cache where the driver refuses it. With a limit of 0 nothing is kept, and so every allocation has the
    exact size that was asked for.
    """

    def __init__(self, memory: Memory, limit: int | None = None) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._limit = cache_limit(memory.memory_info()[1]) if limit is None else limit
        # Blocks whose storages are gone. Finalisers only append here, since they may run while the lock is held.
        self._released: list[tuple[int, int]] = []
        self._allocated = 0
        self._cached = 0
        self._peak = 0

    def allocate(self, nbytes: int) -> tuple[int, int]:
        """The address and the size of a block of at least `nbytes` bytes, to be released once; (0, 0) for no bytes.

        Raises OutOfMemory when the memory does not suffice with the cache emptied; what was allocated before stays
        usable.
        """
        if fork.lost:
            fork.require_own()
        if nbytes == 0:
            return 0, 0
        size = rounded_size(nbytes) if self._limit else nbytes
        with self._lock:
            if self._released:
                self._collect()
            blocks = self._free[size]
            if blocks:
                address = blocks.pop()
                self._cached -= size
            else:
                address = self._from_driver(size)
            self._allocated += size
            if self._allocated > self._peak:
                self._peak = self._allocated
        return address, size

    def release(self, address: int, size: int) -> None:
        """Take back a block that `allocate` gave. Never waits, so that finalisers of any thread may call it."""
        self._released.append((address, size))

    def empty_cache(self) -> None:
        """Give all cached memory back to the driver. Raises DriverError where it refuses some, which stays cached."""
        fork.require_own()
        with self._lock:
            self._collect()
            refusal = self._empty()
        if refusal is not None:
            raise refusal

    def statistics(self) -> AllocatorStatistics:
        """What is held now, in blocks as large as they are."""
        fork.require_own()
        with self._lock:
            self._collect()
            return AllocatorStatistics(self._allocated, self._cached, self._peak)

    def _from_driver(self, size: int) -> int:
        try:
            return self._memory.allocate(size)
        except OutOfMemory:
            self._empty()
            return self._memory.allocate(size)

    def _collect(self) -> None:
        while self._released:
            address, size = self._released.pop()
            self._allocated -= size
            if self._cached + size <= self._limit or self._give_back(address) is not None:
                self._keep(address, size)

    def _keep(self, address: int, size: int) -> None:
        self._free[size].append(address)
        self._cached += size

    def _give_back(self, address: int) -> DriverError | None:
        """Why the driver does not take a block back; whoever asks for memory meanwhile has nothing to do with it."""
        try:
            self._memory.free(address)
        except DriverError as refusal:
            return refusal
        return None

    def _empty(self) -> DriverError | None:
        """Give back what is cached; the first refusal."""
        refused: list[tuple[int, int, DriverError]] = []
        for size, blocks in self._free.items():
            while blocks:
                address = blocks.pop()
                self._cached -= size
                refusal = self._give_back(address)
                if refusal is not None:
                    refused.append((address, size, refusal))
        self._free.clear()
        for address, size, _ in refused:
            self._keep(address, size)
        return refused[0][2] if refused else None
