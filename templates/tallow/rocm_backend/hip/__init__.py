"""An object layer over hip-python: what the backend stands on, usable by itself."""

from .backend import HipBackend, synchronize_device
from .device import HipDevice, HipDeviceProp, HipMemory, device_count, hipUUID, runtime_version
from .error import HipClosed, HipError, check, hipDataType, require_runtime
from .event import HipEvent
from .loader import AsyncLoader
from .memory import HipBuffer, HipHostBuffer
from .module import HipKernel, HipModule
from .stream import HipPriorities, HipStream

__all__ = [
    "AsyncLoader",
    "HipBackend",
    "HipBuffer",
    "HipClosed",
    "HipDevice",
    "HipDeviceProp",
    "HipError",
    "HipEvent",
    "HipHostBuffer",
    "HipKernel",
    "HipMemory",
    "HipModule",
    "HipPriorities",
    "HipStream",
    "check",
    "device_count",
    "hipDataType",
    "hipUUID",
    "require_runtime",
    "runtime_version",
    "synchronize_device",
]
