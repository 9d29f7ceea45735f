"""Memory for the elements of results: a large result takes that of one that was released, whose pages are there."""

from __future__ import annotations

from itertools import cycle
from typing import Any, Final

import numpy as np

from ....dtype import Array
from ...helpers.size_class import size_class

LARGE: Final = 1 << 22
"""NumPy returns allocations of this size to the system, which clears new pages: that takes as long as an exp."""
# Fewer bytes are not worth the effort.
_SMALL: Final = 1 << 16
# Vectors that begin with a line of the cache, of so many bytes, take one of them. Memory begins at a number of lines
# from a page: processors wait where what is read and what is written are at the same place in their pages.
_LINE, _PAGE = 64, 4096
_places: Final = cycle(range(0, _PAGE, 9 * _LINE))
# The most bytes that are kept.
_MOST: Final = 1 << 28


class Released:
    """Pieces of memory that nothing uses, at most so many bytes in all, the oldest first.

    Releasing may happen anywhere, in the middle of these methods too, so there is no lock: what they do with the dict
    are single steps.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._memory: dict[int, Array] = {}

    def take(self, nbytes: int) -> Array | None:
        """Memory of so many bytes, if there is any: what was released last may still be in the cache."""
        for key, memory in reversed(self._memory.copy().items()):
            if memory.nbytes == nbytes and self._memory.pop(key, None) is not None:
                return memory
        return None

    def put(self, memory: Array) -> None:
        """Keep memory, and let go of the oldest where this is too much."""
        self._memory[id(memory)] = memory
        held = self._memory.copy()
        excess = sum(each.nbytes for each in held.values()) - self._most
        for key, each in held.items():
            if excess <= 0:
                return
            self._memory.pop(key, None)
            excess -= each.nbytes

    def clear(self) -> None:
        """Let go of everything."""
        self._memory.clear()


_released: Final = Released(_MOST)


class _Block:
    """What arrays on a piece of memory stand on: when the last of them is gone, the memory is kept for another."""

    __slots__ = ("__array_interface__", "_memory", "_released")

    def __init__(self, memory: Array, nbytes: int) -> None:
        self.__array_interface__: Final = memory[:nbytes].__array_interface__
        self._memory = memory
        # When Python ends, the globals are gone.
        self._released = _released

    def __del__(self) -> None:
        self._released.put(self._memory)


def empty(count: int, dtype: Any) -> Array:
    """An array of shape (count,) and a dtype of NumPy, not initialised. MemoryError where there is no room."""
    dtype = np.dtype(dtype)
    nbytes = count * dtype.itemsize
    if nbytes < _SMALL:
        return np.empty(count, dtype)
    if nbytes < LARGE:
        return _from(np.empty(nbytes + _LINE, np.uint8), _LINE, 0, nbytes).view(dtype)
    size = size_class(nbytes)
    memory = _released.take(size)
    if memory is None:
        try:
            memory = _from(np.empty(size + 2 * _PAGE, np.uint8), _PAGE, next(_places), size)
        except MemoryError:
            _released.clear()
            return np.empty(count, dtype)
    return np.asarray(_Block(memory, nbytes)).view(dtype)


def _from(memory: Array, step: int, place: int, size: int) -> Array:
    """So many bytes of memory, from a place behind the next multiple of a step of addresses on."""
    begin = -memory.ctypes.data % step + place
    return memory[begin : begin + size]
