"""Calls of all ranks of a group by RCCL, through hip-python's bindings of ROCm's systems."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.libraries.collectives import Collectives, Functions
from ..result import value_of

if TYPE_CHECKING:
    from ...gpu_backend.memory.allocator import CachingAllocator
    from ..driver import Driver

_ADVICE: Final = "set NCCL_DEBUG=WARN to see why; each rank needs a GPU of its own"


class Rccl(Collectives):
    """The communicators of RCCL on a device."""

    needs = "librccl.so of ROCm and the module rocm.bindings.rccl: pip install rocm-bindings-systems"

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:  # noqa: ARG003 - memory of its own
        """RCCL on the stream of a driver; None where its binding or the library is missing."""
        try:
            from rocm.bindings import rccl
        except ImportError:
            return None
        return cls(rccl, driver) if rccl.has_symbol("ncclCommInitRank") else None

    def __init__(self, library: Any, driver: Driver) -> None:
        self._library = library
        functions = Functions(*[self._checked(_name(name)) for name in Functions._fields])
        super().__init__(driver, functions, library.ncclDataType_t, library.ncclRedOp_t)

    def _checked(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> Any:
            return value_of(name, function(*arguments), _ADVICE)

        return call

    def _new_id(self) -> bytes:
        shared = self._checked("ncclGetUniqueId")()
        return ctypes.string_at(int(shared), shared.c_sizeof())

    def _join(self, size: int, shared: bytes, rank: int) -> Any:
        own = self._library.ncclUniqueId.allocate()
        ctypes.memmove(int(own), shared, own.c_sizeof())
        return self._checked("ncclCommInitRank")(size, own, rank)


def _name(name: str) -> str:
    """NCCL's name of a function: all_reduce is ncclAllReduce."""
    return f"nccl{name.title().replace('_', '')}"
