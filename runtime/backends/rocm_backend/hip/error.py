"""Errors of HIP calls, and the one seam through which hip-python's untyped results enter typed code."""

from __future__ import annotations

import functools
from typing import Any, Final

from hip import hip as _binding

from ....base.error import BackendUnavailable, InvalidArgument
from ....doctor.machine import library_files
from ...gpu_backend.driver import fork
from ...gpu_backend.driver.error import Closed
from ..error import RocmError

# hip-python annotates no arguments of its functions; calling them through `Any` keeps that out of every other module.
hip: Final[Any] = _binding
# The numbers by which ROCm's libraries know what elements are.
hipDataType: Final[Any] = hip.hipDataType  # noqa: N816 - HIP's own name

# A runtime without one of these is too old: hip-python binds lazily and would fail in the middle of some later call.
REQUIRED_FUNCTIONS: Final = (
    "hipDeviceCanAccessPeer",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGetStreamPriorityRange",
    "hipDeviceSynchronize",
    "hipEventCreateWithFlags",
    "hipEventDestroy",
    "hipEventElapsedTime",
    "hipEventQuery",
    "hipEventRecord",
    "hipEventSynchronize",
    "hipExtMallocWithFlags",
    "hipFree",
    "hipFuncGetAttribute",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDevicePropertiesR0600",
    "hipGetErrorString",
    "hipGetLastError",
    "hipGraphDestroy",
    "hipGraphExecDestroy",
    "hipGraphInstantiateWithFlags",
    "hipGraphLaunch",
    "hipHostFree",
    "hipHostMalloc",
    "hipIpcCloseMemHandle",
    "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle",
    "hipMalloc",
    "hipMemGetInfo",
    "hipMemcpy2DAsync",
    "hipMemcpyAsync",
    "hipMemcpyPeerAsync",
    "hipMemsetD16Async",
    "hipMemsetD32Async",
    "hipMemsetD8Async",
    "hipModuleGetFunction",
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchKernel",
    "hipModuleLoadData",
    "hipModuleUnload",
    "hipPointerGetAttributes",
    "hipRuntimeGetVersion",
    "hipSetDevice",
    "hipStreamBeginCapture",
    "hipStreamCreateWithPriority",
    "hipStreamDestroy",
    "hipStreamEndCapture",
    "hipStreamQuery",
    "hipStreamSynchronize",
    "hipStreamWaitEvent",
)


class HipError(RocmError):
    """A call of the HIP runtime failed."""


class HipClosed(Closed):
    """An object of HIP was used after it was closed."""


def failure(call: str, status: Any, detail: str = "") -> HipError:
    """The error for a failed call, to be raised by the caller; `status` is its `hipError_t`."""
    # HIP remembers the last error per thread; left there, the next library that asks for it would take it for its own.
    hip.hipGetLastError()
    return HipError(call, status.name, status.value, detail)


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


def check(call: str, result: tuple[Any, ...], detail: str = "") -> Any:
    """Convert hip-python's `(status, value, ...)` into the value: None, one value, or a tuple of several.

    Raises `HipError` for any status but hipSuccess.
    """
    if result[0]:
        raise failure(call, result[0], detail)
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def require_runtime() -> None:
    """Check once that the HIP runtime loads and has every function used here; `BackendUnavailable` otherwise.

    Also in a process that was forked from one that uses the runtime.
    """
    fork.require_own()
    load_runtime()


@functools.cache
def load_runtime() -> None:
    """What `require_runtime` does once in a process."""
    missing = [name for name in REQUIRED_FUNCTIONS if not hip.has_symbol(name)]
    if len(missing) == len(REQUIRED_FUNCTIONS):
        try:
            hip.hipGetDeviceCount()
        except RuntimeError as error:
            reason = f"the HIP runtime does not load ({error}); install ROCm, or set ROCM_PATH to where it is"
            raise BackendUnavailable("rocm", reason) from error
    if missing:
        files = library_files("amdhip64")
        runtime = f"the HIP runtime of {', '.join(files)}" if files else "the HIP runtime"
        reason = f"{runtime} lacks {', '.join(missing)}; install ROCm 6.0 or later, or set ROCM_PATH to where it is"
        raise BackendUnavailable("rocm", reason)
    fork.watch("rocm")
