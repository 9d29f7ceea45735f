"""The kernels for the host, and calls of them."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, Never, TypeAlias

from ....dtype import Array, DType
from ....kernels.host_arguments import Packer
from ...base.error import OutOfMemory
from ...helpers.host_memory import require_room
from ...helpers.threads import get_threads
from ...host import cast
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


class Result(NamedTuple):
    """What a kernel writes: so many elements of a dtype, whose address is at a place among its arguments."""

    place: int
    length: int
    dtype: DType


class Source(NamedTuple):
    """Where the address of an operand is among the arguments, and how many bytes its first element is from there.

    The operand is in the storage `given` of those that the plan is given.
    """

    place: int
    offset: int
    given: int


class Unaliased(NamedTuple):
    """A source, by its number, that is read as it was before a storage is written: copied where both share bytes.

    Read are the bytes from `first` up to `last` of its storage, written those from `begin` up to `end` of the storage
    `written` of those that the plan is given. `copy` gives a storage that is a copy of the source's.
    """

    source: int
    first: int
    last: int
    written: int
    begin: int
    end: int
    copy: Callable[[CpuStorage], CpuStorage]


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
        shared = CpuStorage, get_threads, _large_array, _no_memory, bits_of, *slots
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

    def elementwise(self, name: str) -> int | None:
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
        address: int,
        arguments: Packer,
        packed: bytes,
        storage: CpuStorage,
        results: Result | Sequence[Result],
        sources: Sequence[Source],
        *,
        unaliased: Sequence[Unaliased] = (),
        scratch: Result | None = None,
        numbers: Sequence[int] = (),
        compute: DType | None = DType.F32,
        wrong: tuple[int, Callable[[int], Never]] | None = None,
        kept: object = None,
        products: int = 0,
    ) -> Callable[..., Any]:
        """The plan that calls the kernel at an address: given storages, and other numbers if any, it makes storages.

        The plan gives one storage for a result, a tuple for a sequence of them, and True where that is empty. New
        storages are on the device of `storage`. The arguments of the kernel are `packed` but for the addresses, the
        threads, and the bits of other numbers in `compute`, or these themselves where that is None, each of which has a
        place. `wrong` has the place of the record of an index that is out of range, and what raises that. What is
        `kept` lives as long as the plan. The kernel computes so many `products` of elements, if those take the time.
        """
        is_one = isinstance(results, Result)
        each = [results] if isinstance(results, Result) else results
        is_brief = max([storage.length, products // _PRODUCTS, *(result.length for result in each)]) <= BRIEF
        # Other numbers than these are converted by `bits_of`.
        float_bytes = 0 if compute is None or compute.is_integer else compute.itemsize * (compute.compute is compute)
        call: Callable[..., Any] = self._make_call((
            self._shared, address, packed, arguments.places["threads"], is_brief, not is_one,
            storage.device, compute, float_bytes,
            tuple(map(_described, each)),
            () if scratch is None else (_described(scratch),), tuple(sources), tuple(unaliased),
            1 + max((source.given for source in sources), default=-1), tuple((place,) for place in numbers),
            wrong or (), kept,
        ))  # fmt: skip
        return call

    def address(self, family: str, name: str) -> int | None:
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


def _address_of(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _described(result: Result) -> tuple[object, ...]:
    place, length, dtype = result
    require_room((length,), dtype)
    nbytes = length * dtype.itemsize
    return place, nbytes, length, dtype, kind_of(dtype, length), nbytes >= buffer_pool.LARGE


def _large_array(length: int, dtype: DType) -> Array:
    try:
        return buffer_pool.empty(length, dtype.numpy)
    except MemoryError:
        _no_memory(length, dtype)


def _no_memory(length: int, dtype: DType) -> Never:
    raise OutOfMemory("cpu", length * dtype.itemsize)


def bits_of(number: float, dtype: DType) -> int:
    """The bits of a number in a compute dtype."""
    # The sign tells 0.0 from -0.0, which are equal.
    return _cached_bits(number, math.copysign(1, number), dtype)


@lru_cache(maxsize=1 << 12, typed=True)
def _cached_bits(number: float, _sign: float, dtype: DType) -> int:
    return int.from_bytes(cast.scalar(number, dtype).tobytes(), "little")
