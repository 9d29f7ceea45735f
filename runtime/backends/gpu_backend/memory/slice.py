"""Memory of a storage on the device."""

from ..driver import slow_path
from .allocator import Blocks, Pool


class Slice:
    """`nbytes` bytes of device memory at `address`, given back to the allocator when nobody holds the slice.

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
