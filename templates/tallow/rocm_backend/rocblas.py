"""Matrix products by hipBLAS, which hands them to rocBLAS."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from ..dtype import DType
from .error import LibraryError
from .hip import HipDevice, HipStream
from .hip.error import hip
from .hip.resource import HipResource
from .matrices import LARGEST_COUNT, Matrices

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
        kinds, computes = hip.hipDataType, library.hipblasComputeType_t
        in_f32 = (computes.HIPBLAS_COMPUTE_32F, ctypes.c_float(1), ctypes.c_float(0))
        in_f64 = (computes.HIPBLAS_COMPUTE_64F, ctypes.c_double(1), ctypes.c_double(0))
        self._modes = {
            DType.BF16: (kinds.HIP_R_16BF, *in_f32),
            DType.F16: (kinds.HIP_R_16F, *in_f32),
            DType.F32: (kinds.HIP_R_32F, *in_f32),
            DType.F64: (kinds.HIP_R_64F, *in_f64),
        }
        operations = library.hipblasOperation_t
        self._operations = (operations.HIPBLAS_OP_N, operations.HIPBLAS_OP_T)
        self._algorithm = library.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes that are multiplied."""
        return frozenset(self._modes)

    def multiply(
        self, dtype: DType, bmnk: tuple[int, int, int, int], lhs: Matrices, rhs: Matrices, result: int
    ) -> None:
        """Enqueue the products of b matrices (m, k) with b matrices (k, n), k > 0, contiguous at `result`."""
        b, m, n, k = bmnk
        # One matrix on the right for all on the left, which follow each other as their rows do: one large product.
        if rhs.step == 0 and not lhs.transposed and lhs.step == m * lhs.leading and b * m <= LARGEST_COUNT:
            b, m = 1, b * m
        kind, compute, one, zero = self._modes[dtype]
        self.require_open()
        # Columns first, the operands are transposed already, so the product is that of the transposes, swapped.
        with self._lock, self._device.activated():
            status = self._library.hipblasGemmStridedBatchedEx(
                self._handle,
                self._operations[rhs.transposed],
                self._operations[lhs.transposed],
                n,
                m,
                k,
                ctypes.addressof(one),
                rhs.address,
                kind,
                rhs.leading,
                rhs.step,
                lhs.address,
                kind,
                lhs.leading,
                lhs.step,
                ctypes.addressof(zero),
                result,
                kind,
                n,
                m * n,
                b,
                compute,
                self._algorithm,
            )
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
