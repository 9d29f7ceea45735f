"""Calls of all ranks of a group by NCCL, through nccl4py."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.libraries.collectives import Collectives, Functions
from .binding import Binding, load_optional

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "set NCCL_DEBUG=WARN to see why; each rank needs a GPU of its own"


class Nccl(Collectives):
    """The communicators of NCCL on a device."""

    needs = "libnccl and the module nccl: pip install nccl4py nvidia-nccl-cu13"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:  # noqa: ARG003 - memory of its own
        """NCCL on the stream of a driver; None where nccl4py or the library is missing."""
        library = load_optional("nccl.bindings", "nccl", "get_version")
        return None if library is None else cls(library, driver)

    def __init__(self, library: Any, driver: GpuDriver) -> None:
        self._binding = Binding("nccl", library, library.NCCLError, _ADVICE)
        functions = Functions(*[partial(self._binding.call, name) for name in Functions._fields])
        super().__init__(driver, functions, int, int)

    def _new_id(self) -> bytes:
        return bytes(self._binding.call("get_unique_id"))

    def _join(self, size: int, shared: bytes, rank: int) -> Any:
        own = self._binding.module.UniqueId.from_buffer(shared)
        return self._binding.call("comm_init_rank", size, own, rank)
