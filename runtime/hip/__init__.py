"""HIP by its objects, and `HipBackend` and `DeviceTensor`, which share memory and stream with tensors on rocm.

This package is part of the front: it may import tensors. The objects below it are in `backends/rocm_backend/hip`.
"""

from ..backends.rocm_backend.hip import (
    AsyncLoader,
    Dim3,
    HipBuffer,
    HipClosed,
    HipDevice,
    HipDeviceProp,
    HipError,
    HipEvent,
    HipGraph,
    HipHostBuffer,
    HipKernel,
    HipLimits,
    HipMemory,
    HipModule,
    HipPriorities,
    HipStream,
    check,
    device_count,
    error_string,
    hipDataType,
    hipUUID,
    require_runtime,
    runtime_version,
)
from .backend import HipBackend, HipStatus, synchronize_device
from .tensor import DeviceTensor

__all__ = [
    "AsyncLoader",
    "DeviceTensor",
    "Dim3",
    "HipBackend",
    "HipBuffer",
    "HipClosed",
    "HipDevice",
    "HipDeviceProp",
    "HipError",
    "HipEvent",
    "HipGraph",
    "HipHostBuffer",
    "HipKernel",
    "HipLimits",
    "HipMemory",
    "HipModule",
    "HipPriorities",
    "HipStatus",
    "HipStream",
    "check",
    "device_count",
    "error_string",
    "hipDataType",
    "hipUUID",
    "require_runtime",
    "runtime_version",
    "synchronize_device",
]
