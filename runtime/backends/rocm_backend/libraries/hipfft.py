"""Discrete Fourier transforms by hipFFT, which hands them to rocFFT."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ...gpu_backend.libraries.fft import FftLibrary
from ..result import value_of

if TYPE_CHECKING:
    from ...gpu_backend.memory.allocator import CachingAllocator
    from ..driver import Driver
    from ..hip import HipDevice, HipStream

_ADVICE: Final = "tallow needs hipFFT of the ROCm that is installed, and some free device memory"
_REQUIRED: Final = (
    *("hipfftCreate", "hipfftDestroy", "hipfftMakePlanMany64", "hipfftSetAutoAllocation", "hipfftSetWorkArea"),
    *("hipfftSetStream", *(f"hipfftExec{kind}" for kind in ("C2C", "R2C", "C2R", "Z2Z", "D2Z", "Z2D"))),
)


class HipFft(FftLibrary):
    """Plans of hipFFT."""

    needs = "libhipfft.so of ROCm, and hip-python[libraries]"
    parts = ("rocfft",)

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:
        """HipFFT on the stream of a driver; None where its binding, the library or a function of it is missing."""
        try:
            from rocm.bindings import hipfft
        except ImportError:
            return None
        if not all(hipfft.has_symbol(name) for name in _REQUIRED):
            return None
        return cls(hipfft, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, device: HipDevice, stream: HipStream, allocator: CachingAllocator) -> None:
        super().__init__(device, stream, allocator, partial(_call, library, "Destroy"))
        self._library = library

    def _create(self) -> Any:
        return _call(self._library, "Create")

    def _lay_out(self, plan: Any, kind: str, count: int, lines: int) -> Any:
        _call(self._library, "SetAutoAllocation", plan, 0)
        which = self._library.hipfftType[f"HIPFFT_{kind}"]
        # Without strides lines follow each other.
        sizes = np.array([count], np.int64)
        return _call(self._library, "MakePlanMany64", plan, 1, sizes, None, 1, 0, None, 1, 0, which, lines)

    def _set_stream(self, plan: Any, stream: Any) -> None:
        _call(self._library, "SetStream", plan, stream)

    def _set_work_area(self, plan: Any, address: int) -> None:
        _call(self._library, "SetWorkArea", plan, address)

    def _execute(self, plan: Any, kind: str, *arguments: Any) -> None:
        _call(self._library, f"Exec{kind}", plan, *arguments)


def _call(library: Any, name: str, *arguments: Any) -> Any:
    call = f"hipfft{name}"
    return value_of(call, getattr(library, call)(*arguments), _ADVICE)
