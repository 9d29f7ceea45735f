"""Memory of a storage on the device."""

from ..allocator import CachingAllocator


class Slice:
    """`nbytes` bytes of device memory at `address`, given back to the allocator when nobody holds the slice."""

    __slots__ = ("_allocator", "_size", "address", "nbytes")

    def __init__(self, allocator: CachingAllocator, nbytes: int) -> None:
        self._size = 0
        self._allocator = allocator
        self.address, self._size = allocator.allocate(nbytes)
        self.nbytes = nbytes

    def __del__(self) -> None:
        # A finaliser of weakref would cost as much as a launch. This one only notes the block, which is right at any
        # time and in any thread, at the end of the interpreter too.
        if self._size:
            self._allocator.release(self.address, self._size)
