"""Objects that own HIP handles: devices, streams, events, buffers, modules and graphs."""

from ...gpu_backend.driver.launch import Dim3
from ...gpu_backend.driver.launch import LaunchLimits as HipLimits
from ...gpu_backend.driver.loader import AsyncLoader
from .device import HipDevice, HipDeviceProp, HipMemory, device_count, hipUUID, runtime_version
from .error import HipClosed, HipError, check, error_string, hipDataType, require_runtime
from .module import HipKernel, HipModule
from .objects import HipBuffer, HipEvent, HipGraph, HipHostBuffer, HipPriorities, HipStream

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
