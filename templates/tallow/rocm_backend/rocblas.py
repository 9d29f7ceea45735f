"""Matrix products by hipBLAS, which hands them to rocBLAS."""

from __future__ import annotations

import threading
from typing import Any, Final

from ..dtype import DType
from .error import LibraryError
from .gemm import StridedBatchedGemm
from .hip import HipDevice, HipStream
from .hip.error import hip
from .hip.resource import HipResource
from .matrices import Matrices

_ADVICE: Final = "tallow needs hipBLAS 3 (ROCm 7) or later, with a rocBLAS that knows this GPU"
_REQUIRED: Final = ("hipblasCreate", "hipblasDestroy", "hipblasGemmStridedBatchedEx", "hipblasSetStream")


def open_blas(device: HipDevice, stream: HipStream) -> RocBlas | None:
    """hipBLAS on a stream; None where its binding, the library or a function of it is missing."""
    try:
        from hip import hipblas
    except ImportError:
        return None
    if not all(hipblas.has_symbol(name) for name in _REQUIRED):
        return None
    return RocBlas(hipblas, device, stream)


class RocBlas(HipResource):
    """A handle of hipBLAS, of one device and stream: see `libraries.Blas`. Raises LibraryError."""

    def __init__(self, library: Any, device: HipDevice, stream: HipStream) -> None:
        self._library = library
        self._device = device
        # A handle serves one thread at a time.
        self._lock = threading.Lock()
        with device.activated():
            self._handle = _check("hipblasCreate", library.hipblasCreate())
            self._own(_destroy, library, self._handle)
            _check("hipblasSetStream", library.hipblasSetStream(self._handle, stream.handle))
            # The same bits on every run; a library without the function has no atomics to turn off.
            if library.has_symbol("hipblasSetAtomicsMode"):
                mode = library.hipblasAtomicsMode_t.HIPBLAS_ATOMICS_NOT_ALLOWED
                _check("hipblasSetAtomicsMode", library.hipblasSetAtomicsMode(self._handle, mode))
        kinds, computes, operations = hip.hipDataType, library.hipblasComputeType_t, library.hipblasOperation_t
        self._gemm = StridedBatchedGemm(
            kinds={
                DType.BF16: kinds.HIP_R_16BF,
                DType.F16: kinds.HIP_R_16F,
                DType.F32: kinds.HIP_R_32F,
                DType.F64: kinds.HIP_R_64F,
            },
            sums={DType.F32: computes.HIPBLAS_COMPUTE_32F, DType.F64: computes.HIPBLAS_COMPUTE_64F},
            operations=(operations.HIPBLAS_OP_N, operations.HIPBLAS_OP_T),
            algorithm=library.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT,
        )

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that are multiplied."""
        return self._gemm.dtypes

    def multiply(
        self, dtype: DType, bmnk: tuple[int, int, int, int], lhs: Matrices, rhs: Matrices, result: int
    ) -> None:
        """Enqueue the products of b matrices (m, k) with b matrices (k, n), k > 0, contiguous at `result`."""
        arguments = self._gemm.arguments(dtype, bmnk, lhs, rhs, result)
        self.require_open()
        with self._lock, self._device.activated():
            status = self._library.hipblasGemmStridedBatchedEx(self._handle, *arguments)
        _check("hipblasGemmStridedBatchedEx", status)

    def __repr__(self) -> str:
        return f"<RocBlas on {self._device.label}>"


def _destroy(library: Any, handle: Any) -> None:
    _check("hipblasDestroy", library.hipblasDestroy(handle))


def _check(call: str, result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status:
        raise LibraryError(call, status.name, _ADVICE)
    return values[0] if values else None
