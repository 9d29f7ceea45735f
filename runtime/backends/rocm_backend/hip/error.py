"""Errors of HIP calls, and the binding of HIP."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .....drivers import rocm as calls
from .....drivers.errors import RocmError
from ....base.error import InvalidArgument
from ...gpu_backend.driver.device import start
from ...gpu_backend.driver.error import Closed

hip: Final[Any] = calls.binding
# The numbers by which ROCm's libraries know what elements are.
hipDataType: Final[Any] = hip.hipDataType  # noqa: N816 - HIP's own name

HipError: TypeAlias = RocmError
check: Final = calls.checked
"""Convert hip-python's `(status, value, ...)` into the value: None, one value, or a tuple of several.

Raises `HipError` for any status but hipSuccess.
"""


class HipClosed(Closed):
    """An object of HIP was used after it was closed."""


def error_string(status: Any) -> str:
    """HIP's words for a status: a code such as 2, a `hipError_t` or a `HipError` ("out of memory").

    Raises `InvalidArgument` for a code that HIP does not have, `BackendUnavailable` where there is no runtime.
    """
    code = status.code if isinstance(status, HipError) else status
    try:
        known = hip.hipError_t(code)
    except ValueError as error:
        reason = f"{code!r} is no code of HIP's; give one of hip.hipError_t, such as 2"
        raise InvalidArgument("error_string", reason) from error
    require_runtime()
    text: bytes = check("hipGetErrorString", hip.hipGetErrorString(known))
    return text.decode()


def require_runtime() -> None:
    """Check once that the HIP runtime loads and has every function used here; `BackendUnavailable` otherwise.

    Also in a process that was forked from one that uses the runtime.
    """
    start(calls)
