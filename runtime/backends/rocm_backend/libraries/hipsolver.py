"""Decompositions by hipSOLVER, those of several matrices also by hipBLAS. Both hand them to rocSOLVER."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from .....dtype import DType
from ...gpu_backend.driver.device import destroy_handle
from ...gpu_backend.driver.resource import release_with
from ...gpu_backend.libraries.solver import LETTERS, SolverLibrary
from ..result import Functions, load_optional
from .rocblas import KINDS

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "tallow needs hipSOLVER of the ROCm that is installed, and some free device memory"
_REQUIRED: Final = (
    *("hipsolverDnCreate", "hipsolverDnDestroy", "hipsolverDnSetStream", "hipsolverDnCreateGesvdjInfo"),
    *(
        f"hipsolverDn{letter}{name}"
        for letter in LETTERS.values()
        for name in ("potrf", "getrf", "geqrf", "gesvdj", "potrfBatched", "gesvdjBatched")
    ),
)
_REQUIRED_OF_BLAS: Final = (
    *("hipblasCreate", "hipblasDestroy", "hipblasSetStream"),
    *(f"hipblas{letter}{name}Batched" for letter in LETTERS.values() for name in ("getrf", "getrs", "geqrf")),
)


class HipSolver(SolverLibrary):
    """A handle of hipSOLVER, and one of hipBLAS."""

    needs = "libhipsolver.so and libhipblas.so of ROCm, and hip-python[libraries]"
    parts = ("rocsolver",)

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """HipSOLVER on the stream of a driver; None where its binding, a library or a function of it is missing."""
        solver = load_optional("rocm.bindings", "hipsolver", _REQUIRED)
        blas = load_optional("rocm.bindings", "hipblas", _REQUIRED_OF_BLAS)
        return None if solver is None or blas is None else cls(solver, blas, driver, allocator)

    def __init__(self, library: Any, blas: Any, driver: GpuDriver, allocator: CachingAllocator) -> None:
        super().__init__(driver, allocator)
        fills, modes = library.hipsolverFillMode_t, library.hipsolverEigMode_t
        self.lower, self.upper = fills.HIPBLAS_FILL_MODE_LOWER, fills.HIPBLAS_FILL_MODE_UPPER
        self.transposed = library.hipsolverOperation_t.HIPBLAS_OP_T
        self.vectors = modes.HIPSOLVER_EIG_MODE_NOVECTOR, modes.HIPSOLVER_EIG_MODE_VECTOR
        self.kinds = KINDS
        # A function of newer libraries.
        self.finds_many = library.has_symbol("hipsolverDnXsyevBatched")
        self._solver = Functions("hipsolverDn", library, _ADVICE)
        self._blas = Functions("hipblas", blas, _ADVICE)
        device, stream = driver.device, driver.queue.own_handle
        with device.activated():
            self._handle = self._solver.call("Create")
            release_with(self, destroy_handle, partial(self._solver.call, "Destroy"), device, self._handle)
            self._blas_handle = self._blas.call("Create")
            release_with(self, destroy_handle, partial(self._blas.call, "Destroy"), device, self._blas_handle)
            self._solver.call("SetStream", self._handle, stream)
            self._blas.call("SetStream", self._blas_handle, stream)
            self._jacobi = self._solver.call("CreateGesvdjInfo")
            release_with(self, destroy_handle, partial(self._solver.call, "DestroyGesvdjInfo"), device, self._jacobi)
            if self.finds_many:
                self._params = self._solver.call("CreateParams")
                release_with(self, destroy_handle, partial(self._solver.call, "DestroyParams"), device, self._params)

    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        return self._solver.call(f"{letter}{function}", self._handle, *arguments)

    def _call_blas(self, letter: str, function: str, *arguments: Any) -> None:
        self._blas.call(f"{letter}{function}", self._blas_handle, *arguments)

    def _work_bytes(self, dtype: DType, size: int) -> int:  # noqa: ARG002 - rocSOLVER counts bytes
        return size
