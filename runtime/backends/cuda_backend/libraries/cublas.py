"""Matrix products by cuBLAS, through nvmath-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from .....dtype import DType
from ...gpu_backend.driver.device import Device, destroy_handle
from ...gpu_backend.driver.resource import release_with
from ...gpu_backend.libraries.gemm import GemmConstants, GemmLibrary
from ...gpu_backend.memory.allocator import Slice
from .binding import Binding, load_optional

if TYPE_CHECKING:
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.driver.stream import Stream
    from ...gpu_backend.memory.allocator import CachingAllocator

ADVICE: Final = "tallow needs cuBLAS 12 or later, of the CUDA that cuda-python is for, and some free device memory"

# cudaDataType_t, which nvmath-python takes as numbers.
KINDS: Final = DType.known({"bf16": 14, "f16": 2, "f32": 0, "f64": 1, "complex64": 4, "complex128": 5})
# What cuBLAS wants on a Hopper GPU; elsewhere it takes less.
_WORKSPACE_BYTES: Final = 32 << 20
# CUBLAS_GEMM_DEFAULT.
_ALGORITHM: Final = -1


class CuBlas(GemmLibrary):
    """A handle of cuBLAS."""

    needs = "libcublas and the module nvmath: pip install nvmath-python 'cuda-toolkit[cublas]==13.*'"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """CuBLAS on the stream of a driver; None where nvmath-python or the library is missing."""
        library = load_optional("nvmath.bindings", "cublas", "get_cudart_version")
        return None if library is None else cls(library, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        sums, operations = library.ComputeType, library.Operation
        constants = GemmConstants(
            kinds=KINDS,
            sums={DType.F32: sums.COMPUTE_32F, DType.F64: sums.COMPUTE_64F},
            operations=(operations.N, operations.T),
            algorithm=_ALGORITHM,
        )
        super().__init__(device, stream, constants)
        self._binding = Binding("cublas", library, library.cuBLASError, ADVICE)
        self._gemm = library.gemm_strided_batched_ex
        # Of a workspace of cuBLAS's own, graphs would allocate each time that they are replayed.
        self._workspace = Slice(allocator, _WORKSPACE_BYTES)
        with device.activated():
            handle = self._handle = self._binding.call("create")
            release_with(self, destroy_handle, library.destroy, device, handle)
            self._set_stream(stream.handle)
            # f32 is multiplied as f32, and no sum is rounded to a narrower dtype in between.
            modes = library.Math
            self._binding.call("set_math_mode", handle, modes.DEFAULT_MATH | modes.DISALLOW_REDUCED_PRECISION_REDUCTION)
            # The same bits on every run.
            self._binding.call("set_atomics_mode", handle, library.AtomicsMode.NOT_ALLOWED)

    def _set_stream(self, stream: Any) -> None:
        self._binding.call("set_stream", self._handle, int(stream))
        # A new stream brings cuBLAS back to a workspace of its own.
        self._binding.call("set_workspace", self._handle, self._workspace.address, self._workspace.nbytes)

    def _enqueue(self, arguments: tuple[Any, ...]) -> None:
        try:
            self._gemm(self._handle, *arguments)
        except self._binding.refusal as error:
            raise self._binding.refused("gemm_strided_batched_ex", error) from error
