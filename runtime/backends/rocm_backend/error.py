"""The errors of ROCm, without importing any of its packages."""

from __future__ import annotations

from typing import ClassVar, Final

from ..gpu_backend.driver.error import DriverError

# After one of these the device's queues are gone for the whole process, and every later call on the device fails too.
_UNRECOVERABLE: Final = frozenset(
    {
        "hipErrorAssert",
        "hipErrorContextIsDestroyed",
        "hipErrorDeinitialized",
        "hipErrorECCNotCorrectable",
        "hipErrorIllegalAddress",
        "hipErrorIllegalState",
        "hipErrorLaunchFailure",
        "hipErrorLaunchTimeOut",
        "hipErrorPriorLaunchFailure",
        "hipErrorUnknown",
    }
)


class RocmError(DriverError):
    """A call of ROCm's runtime failed; `recoverable` tells whether the device can still be used by this process."""

    unrecoverable: ClassVar = _UNRECOVERABLE
    memory_exhausted: ClassVar = "hipErrorOutOfMemory"
