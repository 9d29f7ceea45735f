"""Decompositions by cuSOLVER, those of several matrices also by cuBLAS, through nvmath-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from .....dtype import DType
from ...gpu_backend.driver.device import destroy_handle
from ...gpu_backend.driver.resource import release_with
from ...gpu_backend.libraries.solver import SolverLibrary
from .binding import Binding, load_optional
from .cublas import KINDS

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "tallow needs cuSOLVER 11.7 or later, of the CUDA that cuda-python is for, and some free device memory"


class CuSolver(SolverLibrary):
    """A handle of cuSOLVER, and one of cuBLAS."""

    needs = "libcusolver and the module nvmath: pip install nvmath-python 'cuda-toolkit[cusolver]==13.*'"
    # cublasFillMode_t, cublasOperation_t and cusolverEigMode_t, which nvmath-python takes as numbers.
    lower, upper, transposed, vectors = 0, 1, 1, (0, 1)
    kinds, finds_many = KINDS, True

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """CuSOLVER on the stream of a driver; None where nvmath-python or the library is missing."""
        cusolver = load_optional("nvmath.bindings", "cusolver", "get_property", 0)
        blas = load_optional("nvmath.bindings", "cublas", "get_cudart_version")
        if cusolver is None or blas is None:
            return None
        from nvmath.bindings import cusolverDn

        return cls(cusolverDn, cusolver.cuSOLVERError, blas, driver, allocator)

    def __init__(
        self, library: Any, refusal: type[Exception], blas: Any, driver: GpuDriver, allocator: CachingAllocator
    ) -> None:
        super().__init__(driver, allocator)
        self._solver = Binding("cusolver", library, refusal, _ADVICE)
        self._blas = Binding("cublas", blas, blas.cuBLASError, _ADVICE)
        device, stream = driver.device, int(driver.queue.own_handle)
        with device.activated():
            self._handle, self._blas_handle = self._solver.call("create"), self._blas.call("create")
            for binding, handle in ((self._solver, self._handle), (self._blas, self._blas_handle)):
                release_with(self, destroy_handle, binding.module.destroy, device, handle)
                binding.call("set_stream", handle, stream)
            self._params, self._jacobi = self._solver.call("create_params"), self._solver.call("create_gesvdj_info")
            release_with(self, destroy_handle, library.destroy_params, device, self._params)
            release_with(self, destroy_handle, library.destroy_gesvdj_info, device, self._jacobi)

    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        return self._solver.call(_named(letter, function), self._handle, *arguments)

    def _call_blas(self, letter: str, function: str, *arguments: Any) -> None:
        self._blas.call(_named(letter, function), self._blas_handle, *arguments)

    def _work_bytes(self, dtype: DType, size: int) -> int:
        return size * dtype.itemsize


def _named(letter: str, function: str) -> str:
    """How nvmath-python names a function."""
    return letter.lower() + function.replace("Batched", "_batched").replace("bufferSize", "buffer_size")
