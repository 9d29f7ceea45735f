"""Objects that own HIP handles: devices, streams, events, buffers, modules and graphs. The backend builds on them."""

from ...gpu_backend.driver.launch import Dim3
from ...gpu_backend.driver.launch import LaunchLimits as HipLimits
from .device import HipDevice, HipDeviceProp, HipMemory, device_count, hipUUID, runtime_version
from .error import HipClosed, HipError, check, error_string, hipDataType, require_runtime
from .event import HipEvent
from .graph import HipGraph
from .loader import AsyncLoader
from .memory import HipBuffer, HipHostBuffer
from .module import HipKernel, HipModule
from .stream import HipPriorities, HipStream

__all__ = [
    "AsyncLoader",
    "Dim3",
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
    "HipStream",
    "check",
    "device_count",
    "error_string",
    "hipDataType",
    "hipUUID",
    "require_runtime",
    "runtime_version",
]
