"""Matrix products by hipBLAS, which hands them to rocBLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from hip import hip

from .....dtype import DType
from ...gpu_backend.driver.resource import Resource
from ...gpu_backend.libraries.gemm import GemmConstants, GemmLibrary
from ..result import Functions, load_optional, value_of

if TYPE_CHECKING:
    from ...gpu_backend.driver.device import Device
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.driver.stream import Stream
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "tallow needs hipBLAS 3 (ROCm 7) or later, with a rocBLAS that knows this GPU"
_REQUIRED: Final = ("hipblasCreate", "hipblasDestroy", "hipblasGemmStridedBatchedEx", "hipblasSetStream")

KINDS: Final = DType.known(
    {
        "bf16": hip.hipDataType.HIP_R_16BF,
        "f16": hip.hipDataType.HIP_R_16F,
        "f32": hip.hipDataType.HIP_R_32F,
        "f64": hip.hipDataType.HIP_R_64F,
        "complex64": hip.hipDataType.HIP_C_32F,
        "complex128": hip.hipDataType.HIP_C_64F,
    }
)


class RocBlas(GemmLibrary, Resource):
    """A handle of hipBLAS."""

    needs = "libhipblas.so of ROCm 7 or later, and hip-python[libraries]"
    parts = ("rocblas",)

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:  # noqa: ARG003 - memory of its own
        """HipBLAS on the stream of a driver; None where its binding, the library or a function of it is missing."""
        library = load_optional("hip", "hipblas", _REQUIRED)
        return None if library is None else cls(library, driver.device, driver.queue)

    def __init__(self, library: Any, device: Device, stream: Stream) -> None:
        computes, operations = library.hipblasComputeType_t, library.hipblasOperation_t
        constants = GemmConstants(
            kinds=KINDS,
            sums={DType.F32: computes.HIPBLAS_COMPUTE_32F, DType.F64: computes.HIPBLAS_COMPUTE_64F},
            operations=(operations.HIPBLAS_OP_N, operations.HIPBLAS_OP_T),
            algorithm=library.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT,
        )
        super().__init__(device, stream, constants)
        self._functions = Functions("hipblas", library, _ADVICE)
        self._gemm = library.hipblasGemmStridedBatchedEx
        with device.activated():
            self._handle = self._functions.call("Create")
            self._own(self._functions.call, "Destroy", self._handle)
            self._set_stream(stream.handle)
            # The same bits on every run; a library without the function has no atomics to turn off.
            if library.has_symbol("hipblasSetAtomicsMode"):
                mode = library.hipblasAtomicsMode_t.HIPBLAS_ATOMICS_NOT_ALLOWED
                self._functions.call("SetAtomicsMode", self._handle, mode)

    def _set_stream(self, stream: Any) -> None:
        self._functions.call("SetStream", self._handle, stream)

    def _enqueue(self, arguments: tuple[Any, ...]) -> None:
        self.require_open()
        value_of("hipblasGemmStridedBatchedEx", self._gemm(self._handle, *arguments), _ADVICE)
