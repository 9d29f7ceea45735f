"""Results of the CUDA driver's calls, and the one seam through which cuda-python's untyped values enter typed code."""

from __future__ import annotations

import functools
from typing import Any, Final

from cuda.bindings import driver as _binding

from ...base.error import BackendUnavailable
from ..gpu_backend.driver import fork
from .error import CudaError

# cuda-python annotates no arguments of its functions; calling them through `Any` keeps that out of every other module.
cuda: Final[Any] = _binding

_INSTALL: Final = "install NVIDIA's driver, 570 or later, and check that nvidia-smi lists a GPU"


def check(call: str, result: tuple[Any, ...], detail: str = "") -> Any:
    """Convert cuda-python's `(status, value, ...)` into the value: None, one value, or a tuple of several.

    Raises CudaError for any status but CUDA_SUCCESS.
    """
    status = result[0]
    if status:
        raise CudaError(call, status.name, int(status), detail)
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def start_driver() -> None:
    """Start the driver, once in a process; BackendUnavailable where it is missing or finds no device.

    Also in a process that was forked from one that uses the driver.
    """
    fork.require_own()
    _start_driver()


@functools.cache
def _start_driver() -> None:
    try:
        (status,) = cuda.cuInit(0)
    # What cuda-python raises where libcuda, or a function of it, is not there.
    except RuntimeError as error:
        raise BackendUnavailable("cuda", f"the CUDA driver does not load ({error}); {_INSTALL}") from error
    if status:
        raise BackendUnavailable("cuda", f"the CUDA driver does not start: {status.name}; {_INSTALL}")
    fork.watch("cuda")
