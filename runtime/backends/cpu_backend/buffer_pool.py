"""Memory for the elements of results: a large result takes that of one that was released, whose pages are there."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from itertools import cycle
from typing import Any, Final

import numpy as np

from ....dtype import Array
from ...helpers.size_class import size_class

LARGE: Final = 1 << 19
"""Memory of at least this size is cached. The C library returns it to the system, which clears it on reuse.

A network of many layers frees more than the C library keeps, also where no result has a megabyte.
"""
# Fewer bytes are not worth the effort.
_SMALL: Final = 1 << 16
# Vectors that begin with a line of the cache, of this many bytes, take one of them. Memory begins at a number of lines
# from a page: processors stall where reads and writes are at the same offset in their pages.
_LINE, _PAGE = 64, 4096
_places: Final = cycle(range(0, _PAGE, 9 * _LINE))
# The most bytes that are cached: of the machine's memory one part in eight, between these bounds. A step of training
# frees all that its backward needed, and the next one wants it again.
_FEWEST_KEPT, _MAX_KEPT = 1 << 28, 1 << 32
# Memory of up to this many bytes may be in the cache, and serves smaller results too as long as only a few pieces were
# released after it.
_CACHED: Final = 1 << 22


class Released:
    """Unused pieces of memory, of limited size in all, the oldest first.

    Releasing may happen anywhere, in the middle of these methods too, so there is no lock: what they do with a dict, a
    list or the sum, which contains no call, are single steps for the interpreter.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Not a global: when Python ends, these are gone before the last memory is released.
        self._max_newest, self._looked_at = 64, 8
        self._held = 0
        self._memory: dict[int, Array] = {}
        # The keys of the memory of each size, the newest last.
        self._keys: defaultdict[int, list[int]] = defaultdict(list)
        # The keys of the memory that was released last, the newest last.
        self._newest: list[int] = []

    def take(self, nbytes: int) -> Array | None:
        """Return memory of `nbytes` or some more, if there is any: what was released last may still be in the cache."""
        if nbytes <= _CACHED:
            for key in reversed(self._newest[-self._looked_at :]):
                memory = self._memory.get(key)
                if memory is not None and nbytes <= memory.nbytes <= _CACHED:
                    self._forget(key, memory.nbytes)
                    memory = self._pop(key, nbytes, _CACHED)
                    if memory is not None:
                        return memory
        keys = self._keys[nbytes]
        while keys:
            try:
                key = keys.pop()
            except IndexError:
                return None
            memory = self._pop(key, nbytes, nbytes)
            if memory is not None:
                return memory
        return None

    def _pop(self, key: int, least: int, most: int) -> Array | None:
        memory = self._memory.pop(key, None)
        if memory is None:
            return None
        self._held -= memory.nbytes
        if least <= memory.nbytes <= most:
            return memory
        # Its key was that of a piece which another thread released meanwhile.
        self.put(memory)
        return None

    def _forget(self, key: int, nbytes: int) -> None:
        keys = self._keys[nbytes]
        # Most often it is the newest one.
        if keys and keys[-1] == key:
            keys.pop()
        elif key in keys:
            with suppress(ValueError):
                keys.remove(key)

    def put(self, memory: Array) -> None:
        """Cache memory, and release the oldest where this is too much."""
        key, nbytes = id(memory), memory.nbytes
        self._memory[key] = memory
        self._keys[nbytes].append(key)
        self._newest.append(key)
        if len(self._newest) > self._max_newest:
            del self._newest[: -self._looked_at]
        self._held += nbytes
        if self._held > self._most:
            self._let_go()

    def _let_go(self) -> None:
        for key, memory in self._memory.copy().items():
            if self._held <= self._most:
                return
            nbytes = memory.nbytes
            if self._memory.pop(key, None) is not None:
                self._held -= nbytes
                self._forget(key, nbytes)

    def clear(self) -> None:
        """Let go of everything."""
        while self._memory:
            with suppress(KeyError):
                _, memory = self._memory.popitem()
                nbytes = memory.nbytes
                self._held -= nbytes
        self._keys.clear()


def _max_kept() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _FEWEST_KEPT
    return min(max(memory // 8, _FEWEST_KEPT), _MAX_KEPT)


_released: Final = Released(_max_kept())


class _Block:
    """The base object of arrays on a piece of memory: after the last of them, the memory is cached for another."""

    __slots__ = ("__array_interface__", "_memory", "_released")

    def __init__(self, memory: Array, nbytes: int) -> None:
        self.__array_interface__: Final = memory.__array_interface__ | {"shape": (nbytes,)}
        self._memory = memory
        # When Python ends, the globals are gone.
        self._released = _released

    def __del__(self) -> None:
        self._released.put(self._memory)


def empty(count: int, dtype: Any) -> Array:
    """Return an uninitialised array of shape (count,) and a NumPy dtype. MemoryError where memory is exhausted."""
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
    """Return `size` bytes of memory, at an offset from the next address that is a multiple of `step`."""
    begin = -memory.ctypes.data % step + place
    return memory[begin : begin + size]
