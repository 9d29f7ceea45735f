"""Discrete Fourier transforms by hipFFT, which hands them to rocFFT."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ...gpu_backend.libraries.fft import FftLibrary
from ..result import Functions, load_optional

if TYPE_CHECKING:
    from ...gpu_backend.driver.device import Device
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.memory.allocator import CachingAllocator
from ...gpu_backend.driver.stream import Stream

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
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """HipFFT on the stream of a driver; None where its binding, the library or a function of it is missing."""
        library = load_optional("rocm.bindings", "hipfft", _REQUIRED)
        return None if library is None else cls(library, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        self._functions = Functions("hipfft", library, _ADVICE)
        super().__init__(device, stream, allocator, partial(self._functions.call, "Destroy"))

    def _create(self) -> Any:
        return self._functions.call("Create")

    def _lay_out(self, plan: Any, kind: str, count: int, lines: int) -> Any:
        self._functions.call("SetAutoAllocation", plan, 0)
        which = self._functions.library.hipfftType[f"HIPFFT_{kind}"]
        # Without strides lines follow each other.
        sizes = np.array([count], np.int64)
        return self._functions.call("MakePlanMany64", plan, 1, sizes, None, 1, 0, None, 1, 0, which, lines)

    def _set_stream(self, plan: Any, stream: Any) -> None:
        self._functions.call("SetStream", plan, stream)

    def _set_work_area(self, plan: Any, address: int) -> None:
        self._functions.call("SetWorkArea", plan, address)

    def _execute(self, plan: Any, kind: str, *arguments: Any) -> None:
        self._functions.call(f"Exec{kind}", plan, *arguments)
