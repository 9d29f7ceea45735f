"""The errors of CUDA, without importing any of its packages."""

from __future__ import annotations

from typing import ClassVar, Final

from ..gpu_backend.driver.error import DriverError

# After one of these the device's context is gone for the whole process, and every later call in it fails too.
_UNRECOVERABLE: Final = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_DEINITIALIZED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_UNKNOWN",
    }
)


class CudaError(DriverError):
    """A call of the CUDA driver failed."""

    unrecoverable: ClassVar = _UNRECOVERABLE
    memory_exhausted: ClassVar = "CUDA_ERROR_OUT_OF_MEMORY"
