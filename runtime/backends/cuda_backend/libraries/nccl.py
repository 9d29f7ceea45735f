"""Calls of all ranks of a group by NCCL, through nccl4py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.driver.error import LibraryError
from ...gpu_backend.libraries.collectives import Collectives, Functions

if TYPE_CHECKING:
    from ...gpu_backend.memory.allocator import CachingAllocator
    from ..driver import Driver

_ADVICE: Final = "set NCCL_DEBUG=WARN to see why; each rank needs a GPU of its own"


class Nccl(Collectives):
    """The communicators of NCCL on a device."""

    needs = "libnccl and the module nccl: pip install nccl4py nvidia-nccl-cu13"

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:  # noqa: ARG003 - memory of its own
        """NCCL on the stream of a driver; None where nccl4py or the library is missing."""
        try:
            from nccl.bindings import nccl

            nccl.get_version()
        # nccl4py raises a RuntimeError where it does not find the library.
        except (ImportError, RuntimeError):
            return None
        return cls(nccl, driver)

    def __init__(self, library: Any, driver: Driver) -> None:
        self._library = library
        super().__init__(driver, Functions(*[self._checked(name) for name in Functions._fields]), int, int)

    def _checked(self, name: str) -> Callable[..., Any]:
        function, error_class = getattr(self._library, name), self._library.NCCLError

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except error_class as error:
                raise LibraryError(f"nccl {name}", str(error), _ADVICE) from error

        return call

    def _new_id(self) -> bytes:
        return bytes(self._checked("get_unique_id")())

    def _join(self, size: int, shared: bytes, rank: int) -> Any:
        return self._checked("comm_init_rank")(size, self._library.UniqueId.from_buffer(shared), rank)
