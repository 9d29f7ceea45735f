"""A caching allocator: memory that a storage gives back serves the next one, without a call to the driver."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Protocol, cast

from ....base.bounded_cache import BoundedCache
from ....base.error import InvalidArgument, OutOfMemory
from ....helpers.size_class import size_class
from ....program.values import NULL
from ..driver import capture, fork, slow_path
from ..driver.error import DriverError

# All blocks are multiples of it.
_SMALLEST: Final = 512
# What the cache may hold of the device's memory where the environment does not say.
_CACHED_SHARE: Final = 0.5
_LIMIT_VARIABLE: Final = "TALLOW_MEMORY_CACHE"
# So many requests are known by their bytes.
_MAX_KNOWN: Final = 4096


class Memory(Protocol):
    """The part of a driver that an allocator needs."""

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` of new memory; OutOfMemory where there is not enough."""

    def free(self, address: int) -> None:
        """Free memory, once the device has done its work so far. DriverError if it stays allocated."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and bytes in all."""


class AllocatorStatistics(NamedTuple):
    """Bytes of one device that storages and graphs own, that the cache holds, and the maximum of the former."""

    allocated: int
    cached: int
    peak: int


def cache_limit(total: int) -> int:
    """How many bytes the cache may hold: $TALLOW_MEMORY_CACHE, or half of the device's memory."""
    text = os.environ.get(_LIMIT_VARIABLE)
    if text is None:
        return int(total * _CACHED_SHARE)
    if not text.isdecimal():
        raise InvalidArgument(_LIMIT_VARIABLE, f"'{text}' is no number of bytes; write one such as {1 << 30}, or 0")
    return int(text)


class Blocks:
    """The blocks of one size that are free, by their addresses."""

    __slots__ = ("free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []


class Pool(ABC):
    """Blocks for slices: see `Slice`, which takes one and puts it back without a lock.

    Taking from a list and putting into it are single steps, and so are sums without a call in them: CPython switches
    threads and collects garbage between calls only.
    """

    def __init__(self) -> None:
        self.by_request: BoundedCache[int, Blocks] = BoundedCache(_MAX_KNOWN)
        """By the requested bytes, for recent requests."""
        self.allocated = 0
        """The bytes of blocks that slices have."""
        self.peak = 0
        self.needs_attention = False
        """Whether `attended` has something to do before the next block is taken."""
        # All there are: slices know theirs, so that none may go.
        self._by_size: dict[int, Blocks] = {}
        self._lock = threading.Lock()

    def attended(self) -> Pool:
        """The pool to take a block from, once what is rare is seen to."""
        return self

    def note(self, size: int) -> None:
        """Count a block that was handed out."""
        self.allocated += size
        if self.allocated > self.peak:
            self.peak = self.allocated

    def more(self, nbytes: int) -> tuple[Blocks, int]:
        """The blocks that serve a request, and one of them, new where none is free."""
        size = self._size(nbytes)
        blocks = self.by_request.put(nbytes, self.blocks_of(size))
        if size == 0:
            return blocks, NULL
        with self._lock:
            try:
                return blocks, blocks.free.pop()
            except IndexError:
                return blocks, self._new_block(size)

    def blocks_of(self, size: int) -> Blocks:
        """Those of a size."""
        return self._by_size.setdefault(size, Blocks(size))

    def _size(self, nbytes: int) -> int:
        return size_class(nbytes, _SMALLEST)

    @abstractmethod
    def _new_block(self, size: int) -> int:
        """The address of a new block."""


class Slice:
    """`nbytes` bytes of device memory at `address`, returned to the allocator when the slice is deleted.

    Raises OutOfMemory when the memory does not suffice with the cache emptied; what was allocated before stays usable.
    """

    __slots__ = ("_blocks", "address", "nbytes", "pool")

    address: int
    _blocks: Blocks
    pool: Pool

    def __init__(self, pool: Pool, nbytes: int) -> None:
        if slow_path.required or pool.needs_attention:
            pool = pool.attended()
        try:
            blocks = pool.by_request[nbytes]
            self.address = blocks.free.pop()
        except (KeyError, IndexError):
            blocks, self.address = pool.more(nbytes)
        self.pool = pool
        self.nbytes = nbytes
        self._blocks = blocks
        pool.allocated = allocated = pool.allocated + blocks.size
        if allocated > pool.peak:
            pool.peak = allocated

    def __del__(self) -> None:
        # A finaliser of weakref would cost as much as a launch. This one only notes the block, which is right at any
        # time and in any thread, at the end of the interpreter too.
        try:
            blocks = self._blocks
        except AttributeError:  # there was no memory
            return
        blocks.free.append(self.address)
        self.pool.allocated -= blocks.size


class CachingAllocator(Pool):
    """Blocks of device memory for storages, of one device and one stream.

    A block that was released is handed out again at once: whatever still reads or writes it was enqueued earlier in
    the same stream. The cache holds at most `limit` bytes; what is released beyond that goes back to the driver when
    the next block is requested, and stays in the cache where the driver refuses it. With a limit of 0 nothing is
    cached, and so every allocation has exactly the requested size.
    """

    def __init__(self, memory: Memory, limit: int | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._limit = cache_limit(memory.memory_info()[1]) if limit is None else limit
        # Bytes of the driver's.
        self._held = 0
        # Pools that were closed while slices had blocks of theirs.
        self._closed: list[PrivatePool] = []

    def attended(self) -> Pool:
        fork.require_own()
        captured = capture.of(self._memory)
        if captured is not None:
            return cast("Pool", captured.pool)
        if self.needs_attention:
            with self._lock:
                self._trim()
        return self

    def empty_cache(self) -> None:
        """Give all cached memory back to the driver. Raises DriverError where it refuses some, which stays cached."""
        fork.require_own()
        with self._lock:
            refusal = self._give_back(self._held)
        if refusal is not None:
            raise refusal

    def statistics(self) -> AllocatorStatistics:
        """The bytes that are allocated and cached now, by the sizes of blocks, and the peak."""
        fork.require_own()
        with self._lock:
            self._trim()
            cached = sum([blocks.size * len(blocks.free) for blocks in self._by_size.values()])
            return AllocatorStatistics(self.allocated, cached, self.peak)

    def lend(self, size: int) -> int:
        """A block for a private pool."""
        with self._lock:
            try:
                address = self.blocks_of(size).free.pop()
            except IndexError:
                address = self._new_block(size)
        self.note(size)
        return address

    def take_over(self, pool: PrivatePool, blocks: Blocks) -> None:
        """Have the blocks of one size of a pool that is closed; those that slices have come when these end.

        Never waits, so that finalisers may call it.
        """
        free, blocks.free = blocks.free, self.blocks_of(blocks.size).free
        blocks.free += free
        if pool not in self._closed:
            self._closed.append(pool)

    def _size(self, nbytes: int) -> int:
        return size_class(nbytes, _SMALLEST) if self._limit else nbytes

    def _new_block(self, size: int) -> int:
        try:
            address = self._memory.allocate(size)
        except OutOfMemory:
            self._give_back(self._held)
            address = self._memory.allocate(size)
        self._held += size
        self.needs_attention = self._held > self._limit
        return address

    def _trim(self) -> None:
        """Give back what is cached beyond the limit."""
        for pool in list(self._closed):
            ended = pool.lent - pool.allocated
            pool.lent -= ended
            self.allocated -= ended
            if not pool.lent:
                self._closed.remove(pool)
        excess = self._held - self.allocated - self._limit
        if excess > 0:
            self._give_back(excess)

    def _give_back(self, nbytes: int) -> DriverError | None:
        """Free at least `nbytes` bytes, or all there are; return the first refusal of the driver."""
        first: DriverError | None = None
        for blocks in list(self._by_size.values()):
            refused: list[int] = []
            while nbytes > 0 and blocks.size and blocks.free:
                try:
                    address = blocks.free.pop()
                except IndexError:  # another thread has taken it
                    break
                try:
                    self._memory.free(address)
                except DriverError as refusal:
                    # Whoever asks for memory meanwhile has nothing to do with it.
                    # Without the frames, which would keep the slice alive.
                    first = first or refusal.with_traceback(None)
                    refused.append(address)
                else:
                    self._held -= blocks.size
                    nbytes -= blocks.size
            blocks.free += refused
        self.needs_attention = self._held > self._limit
        return first


class PrivatePool(Pool):
    """Blocks that serve one graph: no slice of anybody else's has one before the pool is closed.

    When it is closed its free blocks go back to the allocator, and each of the others does when its slice ends.
    """

    def __init__(self, allocator: CachingAllocator) -> None:
        super().__init__()
        self._allocator = allocator
        self.lent = 0
        """The bytes that the allocator counts as this pool's."""

    def close(self) -> None:
        """Give back what is free, now and later. Never waits, so that finalisers may call it."""
        for blocks in self._by_size.values():
            self._allocator.take_over(self, blocks)

    def _size(self, nbytes: int) -> int:
        return self._allocator._size(nbytes)

    def _new_block(self, size: int) -> int:
        address = self._allocator.lend(size)
        self.lent += size
        return address
