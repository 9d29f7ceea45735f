"""Decompositions by cuSOLVER, through nvmath-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from ....dtype import DType
from ..gpu_backend.error import LibraryError
from ..gpu_backend.release import release_with
from ..gpu_backend.solver import SolverLibrary
from .context import destroy_handle

if TYPE_CHECKING:
    from ..gpu_backend.allocator import CachingAllocator
    from .driver import Driver

_ADVICE: Final = "tallow needs cuSOLVER 11 or later, of the CUDA that cuda-python is for, and some free device memory"


class CuSolver(SolverLibrary):
    """A handle of cuSOLVER."""

    needs = "libcusolver and the module nvmath: pip install 'tallow[cuda]'"
    # cublasFillMode_t, cublasOperation_t and cusolverEigMode_t, which nvmath-python takes as numbers.
    lower, upper, transposed, vectors = 0, 1, 1, (0, 1)

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:
        """CuSOLVER on the stream of a driver; None where nvmath-python or the library is missing."""
        try:
            from nvmath.bindings import cusolver, cusolverDn

            cusolver.get_property(0)
        # nvmath-python raises a RuntimeError where it does not find the library, or a function of it.
        except (ImportError, RuntimeError):
            return None
        return cls(cusolverDn, cusolver.cuSOLVERError, driver, allocator)

    def __init__(self, library: Any, refusal: type[Exception], driver: Driver, allocator: CachingAllocator) -> None:
        super().__init__(driver, allocator)
        self._library = library
        self._refusal = refusal
        with driver.device.activated():
            self._handle = self._checked("create")
            release_with(self, destroy_handle, library, driver.device, self._handle)
            self._checked("set_stream", self._handle, int(driver.queue.own_handle))

    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        name = f"{letter.lower()}{function.replace('bufferSize', 'buffer_size')}"
        return self._checked(name, self._handle, *arguments)

    def _work_bytes(self, dtype: DType, size: int) -> int:
        return size * dtype.itemsize

    def _checked(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, name)(*arguments)
        except self._refusal as error:
            raise LibraryError(f"cusolver {name}", str(error), _ADVICE) from error
