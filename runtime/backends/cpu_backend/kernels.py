"""The kernels for the host, and calls of them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Final, Never, TypeAlias

import numpy as np

from ....dtype import Array, DType
from ....kernels.host_arguments import CallItems, SharedItems
from ...base.error import OutOfMemory
from ...helpers.threads import get_threads
from ..numbers import bits_of
from . import host_libraries
from .storage import CpuStorage

# The most bytes of released memory that are cached: of the machine's memory one part in eight, between these bounds. A
# step of training releases all that its backward needed, and the next one needs it again.
_MIN_CACHED, _MAX_CACHED = 1 << 28, 1 << 32

Kernel: TypeAlias = Callable[[bytes], None]
"""Calls a kernel with the packed bytes of its struct."""


class HostKernels:
    """Kernels in libraries. Calls of them leave the GIL."""

    def __init__(self, libraries: host_libraries.Libraries) -> None:
        self._libraries = libraries
        self._addresses: dict[tuple[str, str], int] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}
        python = ctypes.PyDLL(None, handle=libraries[host_libraries.POOL]._handle)
        self._make_call = python.make_call
        self._make_call.argtypes = (ctypes.py_object,)
        self._make_call.restype = ctypes.py_object
        python.make_shared.argtypes = (ctypes.py_object, ctypes.c_size_t)
        python.make_shared.restype = ctypes.c_void_p
        slots = [getattr(CpuStorage, name) for name in ("device", "dtype", "length", "kind", "_memory", "_address")]
        shared = SharedItems(CpuStorage, get_threads, _no_memory, bits_of, "address", *slots)
        self.shared: Final[int] = python.make_shared(shared, object.__basicsize__)
        """The state that all calls share."""
        self._allocate = python.allocate_memory
        self._allocate.argtypes = (ctypes.c_size_t,)
        self._allocate.restype = ctypes.py_object
        self.cache_at_most = python.cache_at_most
        """Cache no more bytes of released memory from now on than these, and return the limit until now."""
        self.cache_at_most.argtypes = (ctypes.c_size_t,)
        self.cache_at_most.restype = ctypes.c_size_t
        self.cache_at_most(_max_cached())

    @classmethod
    @cache
    def open(cls) -> HostKernels | None:
        """Those for this machine, which may have to be compiled; None where NumPy does everything."""
        # Threads that come at once wait for the first one.
        with _opening:
            return cls._open_once()

    @classmethod
    @cache
    def _open_once(cls) -> HostKernels | None:
        libraries = host_libraries.find()
        return None if libraries is None else cls(libraries)

    def has(self, family: str, name: str) -> bool:
        """Whether a family has a kernel, or another function, of this name."""
        return (family, name) in self._addresses or hasattr(self._libraries[family], name)

    @cached_property
    def has_tiles(self) -> bool:
        """Whether this machine multiplies tiles of bf16: see pair_product.hpp."""
        return self.has("host_product", "has_pairs") and bool(self._libraries["host_product"].has_pairs() & 1)

    def address(self, family: str, name: str) -> int:
        """The address of a kernel, or of another function, of a family."""
        key = family, name
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = ctypes.cast(self._libraries[family][name], ctypes.c_void_p).value or 0
        return address

    def kernel(self, family: str, name: str) -> Kernel:
        """A kernel of a family, to be called at once."""
        key = family, name
        kernel = self._kernels.get(key)
        if kernel is None:
            function: Any = self._libraries[family][name]
            function.argtypes = (ctypes.c_char_p,)
            function.restype = None
            kernel = self._kernels[key] = function
        return kernel

    def use_openmp_of(self, library: ctypes.CDLL) -> None:
        """Have the threads of the OpenMP runtime that a library came with do the parts of kernels, if there is one."""
        if hasattr(library, "GOMP_parallel"):
            functions = library.GOMP_parallel, library.omp_get_thread_num
            self._libraries[host_libraries.POOL].use_openmp(*functions)

    def empty(self, length: int, dtype: DType) -> Array:
        """An uninitialised array, in memory as results have it. MemoryError where memory is exhausted."""
        return np.frombuffer(self._allocate(length * dtype.itemsize), dtype.numpy)

    def call(self, items: CallItems) -> Callable[..., Any]:
        """A function of storages and numbers that calls a kernel: see call.hpp."""
        call: Callable[..., Any] = self._make_call(items)
        return call


def address_of_array(array: Array) -> int:
    """The address of an array's memory."""
    address: int = array.__array_interface__["data"][0]
    return address


_opening = threading.Lock()


def _forget() -> None:
    # A thread of the parent may have had it when the process was forked.
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _max_cached() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _MIN_CACHED
    return min(max(memory // 8, _MIN_CACHED), _MAX_CACHED)


def _no_memory(length: int, dtype: DType) -> Never:
    raise OutOfMemory("cpu", length * dtype.itemsize)
