"""Calls of all ranks of a group by RCCL, through hip-python's bindings of ROCm's systems."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.libraries import collectives
from ..result import Functions, load_optional

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "set NCCL_DEBUG=WARN to see why; each rank needs a GPU of its own"


class Rccl(collectives.Collectives):
    """The communicators of RCCL on a device."""

    needs = "librccl.so of ROCm and the module rocm.bindings.rccl: pip install rocm-bindings-systems"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:  # noqa: ARG003 - memory of its own
        """RCCL on the stream of a driver; None where its binding or the library is missing."""
        library = load_optional("rocm.bindings", "rccl", ["ncclCommInitRank"])
        return None if library is None else cls(library, driver)

    def __init__(self, library: Any, driver: GpuDriver) -> None:
        binding = self._binding = Functions("nccl", library, _ADVICE)
        # NCCL's name of all_reduce is ncclAllReduce.
        names = [name.title().replace("_", "") for name in collectives.Functions._fields]
        functions = collectives.Functions(*[partial(binding.call, name) for name in names])
        super().__init__(driver, functions, library.ncclDataType_t, library.ncclRedOp_t)

    def _new_id(self) -> bytes:
        shared = self._binding.call("GetUniqueId")
        return ctypes.string_at(int(shared), shared.c_sizeof())

    def _join(self, size: int, shared: bytes, rank: int) -> Any:
        own = self._binding.library.ncclUniqueId.allocate()
        ctypes.memmove(int(own), shared, own.c_sizeof())
        return self._binding.call("CommInitRank", size, own, rank)
