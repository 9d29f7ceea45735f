"""The kernels for the host, and calls of them."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, Never, Self, TypeAlias, cast

from ....dtype import Array, DType
from ....kernels.host_arguments import (
    CallItems,
    NumberItems,
    ResultItems,
    SharedItems,
    SourceItems,
    UnaliasedItems,
    WrongIndexItems,
)
from ...base.error import OutOfMemory
from ...helpers.host_memory import require_room
from ...helpers.threads import get_threads
from ...host.cast import scalar
from ...program.argument_struct import PackedArguments
from ...program.values import Address
from ...program.values import Value as Variable
from ..plan import kind_of
from . import buffer_pool, host_libraries
from .storage import CpuStorage

Kernel: TypeAlias = Callable[[bytes], None]
"""What calls a kernel with the packed bytes of its struct."""

_ELEMENTWISE: Final = host_libraries.POOL
BRIEF: Final = 1 << 14
"""Other threads of Python wait while a kernel works on no more elements."""
# The products that take as long as an element of other kernels.
_PRODUCTS: Final = 8


class Threads(Variable, int):
    """How many threads may work."""

    code = "I"


class Number(Variable, int):
    """The bits of the next number that the plan is given; its value are those where it is given none."""


class _Place(Address):
    """What a plan finds the address of."""

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)


class Result(_Place):
    """What a kernel writes: so many elements of a dtype."""

    def __init__(self, length: int, dtype: DType) -> None:
        self.length, self.dtype = length, dtype


class Scratch(Result):
    """Memory that a kernel uses while it works."""


class Source(_Place):
    """An operand, whose first element is `offset` bytes behind the beginning of its storage.

    That is the one with the number `given` of those that the plan is given.
    """

    def __init__(self, given: int, offset: int, unaliased: UnaliasedItems | None = None) -> None:
        self.given, self.offset, self.unaliased = given, offset, unaliased


class WrongIndex(_Place):
    """The record of an index that is out of range, and what raises that."""

    def __init__(self, tell: Callable[[int], Never]) -> None:
        self.tell = tell


THREADS: Final = Threads(1)


class HostKernels:
    """Kernels in libraries. Calls of them leave the GIL."""

    def __init__(self, libraries: dict[str, ctypes.CDLL]) -> None:
        self._libraries = libraries
        self._kernels: dict[tuple[str, str], Kernel | None] = {}
        self.map_operands: Final = _address_of(libraries[_ELEMENTWISE].map_operands)
        self.run_parts: Final = _address_of(libraries[_ELEMENTWISE].run_parts)
        python = ctypes.PyDLL(None, handle=libraries[_ELEMENTWISE]._handle)
        self._make_call = python.make_call
        self._make_call.argtypes = (ctypes.py_object,)
        self._make_call.restype = ctypes.py_object
        python.make_shared.argtypes = (ctypes.py_object, ctypes.c_size_t)
        python.make_shared.restype = ctypes.c_void_p
        slots = [getattr(CpuStorage, name) for name in ("device", "dtype", "length", "kind", "_memory", "_address")]
        shared = SharedItems(CpuStorage, get_threads, _large_array, _no_memory, bits_of, "address", *slots)
        self._shared: int = python.make_shared(shared, object.__basicsize__)

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

    def elementwise(self, name: str) -> Address | None:
        """The address of an elementwise kernel; None where there is none of this name."""
        return self.address(_ELEMENTWISE, name)

    def kernel(self, family: str, name: str) -> Kernel | None:
        """A kernel of a family; None where there is none of this name."""
        key = family, name
        if key not in self._kernels:
            is_there = hasattr(self._libraries[family], name)
            self._kernels[key] = self._kernel(family, name) if is_there else None
        return self._kernels[key]

    def call(
        self,
        address: Address,
        packed: bytes,
        storage: CpuStorage,
        *,
        as_tuple: bool = False,
        compute: DType | None = DType.F32,
        kept: object = None,
        products: int = 0,
    ) -> Callable[..., Any]:
        """The plan that calls the kernel at an address: given storages, and other numbers if any, it makes storages.

        The arguments of the kernel are `packed`, where the addresses, the threads and other numbers are variables. The
        plan gives one storage, or a tuple of them, or True where the kernel has no result. New storages are on the
        device of `storage`. The bits of numbers are those in `compute`, or these themselves where that is None. What is
        `kept` lives as long as the plan. The kernel computes so many `products` of elements, if those take the time.
        """
        assert isinstance(packed, PackedArguments)
        found: dict[type, list[tuple[int, Any]]] = defaultdict(list)
        for place, variable in packed.variables:
            found[type(variable)].append((place, variable))
        results, sources = found[Result], found[Source]
        sizes = [storage.length, products // _PRODUCTS, *(result.length for _, result in results)]
        # Other numbers than these are converted by `bits_of`.
        float_bytes = 0 if compute is None or not compute.is_float else compute.itemsize * (compute.compute is compute)
        copied = enumerate(source.unaliased for _, source in sources)
        call: Callable[..., Any] = self._make_call(CallItems(
            shared=self._shared, kernel=address, arguments=bytes(packed), threads_place=found[Threads][0][0],
            is_brief=max(sizes) <= BRIEF, makes_tuple=as_tuple, device=storage.device, compute=compute,
            compute_bytes=float_bytes, results=tuple(itertools.starmap(_items, results)),
            scratch=tuple(itertools.starmap(_items, found[Scratch])),
            sources=tuple(SourceItems(place, source.offset, source.given) for place, source in sources),
            unaliased=tuple(items._replace(source=number) for number, items in copied if items is not None),
            stored=1 + max((source.given for _, source in sources), default=-1),
            numbers=tuple(NumberItems(place) for place, _ in found[Number]),
            wrong=tuple(WrongIndexItems(place, wrong.tell) for place, wrong in found[WrongIndex]), kept=kept,
        ))  # fmt: skip
        return call

    def address(self, family: str, name: str) -> Address | None:
        """Where a kernel, or another function, of a family is; None where there is none of this name."""
        library = self._libraries[family]
        return _address_of(library[name]) if hasattr(library, name) else None

    def _kernel(self, family: str, name: str) -> Kernel:
        function = self._libraries[family][name]
        function.argtypes = (ctypes.c_char_p,)
        function.restype = None
        return function


_opening = threading.Lock()


def _forget() -> None:
    # A thread of the parent may have had it when the process was forked.
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _address_of(function: Any) -> Address:
    return cast("Address", ctypes.cast(function, ctypes.c_void_p).value)


def table(array: Array | None) -> Address:
    """Where an array is that a kernel reads."""
    return cast("Address", 0 if array is None else array.__array_interface__["data"][0])


def _items(place: int, result: Result) -> ResultItems:
    length, dtype = result.length, result.dtype
    require_room((length,), dtype)
    nbytes = length * dtype.itemsize
    return ResultItems(place, nbytes, length, dtype, kind_of(dtype, length), nbytes >= buffer_pool.LARGE)


def _large_array(length: int, dtype: DType) -> Array:
    try:
        return buffer_pool.empty(length, dtype.numpy)
    except MemoryError:
        _no_memory(length, dtype)


def _no_memory(length: int, dtype: DType) -> Never:
    raise OutOfMemory("cpu", length * dtype.itemsize)


def bits_of(number: complex, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    if isinstance(number, complex):
        return _bits(number, dtype)
    # The sign tells 0.0 from -0.0, which are equal.
    return _cached_bits(number, math.copysign(1, number), dtype)


@lru_cache(maxsize=1 << 12, typed=True)
def _cached_bits(number: float, _sign: float, dtype: DType) -> int:
    return _bits(number, dtype)


def _bits(number: complex, dtype: DType) -> int:
    return int.from_bytes(scalar(number, dtype).tobytes(), "little")
