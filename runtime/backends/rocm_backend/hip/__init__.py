"""An object layer over hip-python: what the backend stands on, usable by itself."""

from ...gpu_backend.launch import Dim3
from ...gpu_backend.launch import LaunchLimits as HipLimits
from .backend import HipBackend, HipStatus, synchronize_device
from .device import HipDevice, HipDeviceProp, HipMemory, device_count, hipUUID, runtime_version
from .error import HipClosed, HipError, check, error_string, hipDataType, require_runtime
from .event import HipEvent
from .graph import HipGraph
from .loader import AsyncLoader
from .memory import HipBuffer, HipHostBuffer
from .module import HipKernel, HipModule
from .stream import HipPriorities, HipStream
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
