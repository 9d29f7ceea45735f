"""Decompositions by hipSOLVER, which hands them to rocSOLVER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from ....dtype import DType
from ..gpu_backend.release import release_with
from ..gpu_backend.solver import LETTERS, SolverLibrary
from .result import value_of

if TYPE_CHECKING:
    from ..gpu_backend.allocator import CachingAllocator
    from .driver import Driver
    from .hip import HipDevice

_ADVICE: Final = "tallow needs hipSOLVER of the ROCm that is installed, and some free device memory"
_REQUIRED: Final = (
    *("hipsolverDnCreate", "hipsolverDnDestroy", "hipsolverDnSetStream"),
    *(f"hipsolverDn{letter}{name}" for letter in LETTERS.values() for name in ("potrf", "getrf", "geqrf", "gesvd")),
)


class HipSolver(SolverLibrary):
    """A handle of hipSOLVER."""

    needs = "libhipsolver.so of ROCm, and hip-python[libraries]"

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:
        """HipSOLVER on the stream of a driver; None where its binding, the library or a function of it is missing."""
        try:
            from rocm.bindings import hipsolver
        except ImportError:
            return None
        if not all(hipsolver.has_symbol(name) for name in _REQUIRED):
            return None
        return cls(hipsolver, driver, allocator)

    def __init__(self, library: Any, driver: Driver, allocator: CachingAllocator) -> None:
        super().__init__(driver, allocator)
        self._library = library
        fills, modes = library.hipsolverFillMode_t, library.hipsolverEigMode_t
        self.lower, self.upper = fills.HIPBLAS_FILL_MODE_LOWER, fills.HIPBLAS_FILL_MODE_UPPER
        self.transposed = library.hipsolverOperation_t.HIPBLAS_OP_T
        self.vectors = modes.HIPSOLVER_EIG_MODE_NOVECTOR, modes.HIPSOLVER_EIG_MODE_VECTOR
        with driver.device.activated():
            self._handle = _checked(library, "Create")
            release_with(self, _destroy, library, driver.device, self._handle)
            _checked(library, "SetStream", self._handle, driver.queue.own_handle)

    def _call(self, letter: str, function: str, *arguments: Any) -> Any:
        return _checked(self._library, f"{letter}{function}", self._handle, *arguments)

    def _work_bytes(self, dtype: DType, size: int) -> int:  # noqa: ARG002 - rocSOLVER counts bytes
        return size


def _checked(library: Any, name: str, *arguments: Any) -> Any:
    call = f"hipsolverDn{name}"
    return value_of(call, getattr(library, call)(*arguments), _ADVICE)


def _destroy(library: Any, device: HipDevice, handle: Any) -> None:
    with device.activated():
        _checked(library, "Destroy", handle)
