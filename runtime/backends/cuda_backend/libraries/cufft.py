"""Discrete Fourier transforms by cuFFT, through nvmath-python."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.libraries.fft import FftLibrary
from .binding import Binding, load_optional

if TYPE_CHECKING:
    from ...gpu_backend.driver.device import Device
    from ...gpu_backend.driver.gpu_driver import GpuDriver
    from ...gpu_backend.driver.stream import Stream
    from ...gpu_backend.memory.allocator import CachingAllocator

_ADVICE: Final = "tallow needs cuFFT 11 or later, of the CUDA that cuda-python is for, and some free device memory"


class CuFft(FftLibrary):
    """Plans of cuFFT."""

    needs = "libcufft and the module nvmath: pip install nvmath-python 'cuda-toolkit[cufft]==13.*'"

    @classmethod
    def open(cls, driver: GpuDriver, allocator: CachingAllocator) -> Self | None:
        """CuFFT on the stream of a driver; None where nvmath-python or the library is missing."""
        library = load_optional("nvmath.bindings", "cufft", "get_version")
        return None if library is None else cls(library, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, device: Device, stream: Stream, allocator: CachingAllocator) -> None:
        self._binding = Binding("cufft", library, library.cuFFTError, _ADVICE)
        super().__init__(device, stream, allocator, partial(self._binding.call, "destroy"))

    def _create(self) -> Any:
        return self._binding.call("create")

    def _lay_out(self, plan: Any, kind: str, count: int, lines: int) -> Any:
        self._binding.call("set_auto_allocation", plan, 0)
        # Without strides, which 0 stands for, lines follow each other.
        which = int(self._binding.module.Type[kind])
        return self._binding.call("make_plan_many64", plan, 1, [count], 0, 1, 0, 0, 1, 0, which, lines)

    def _set_stream(self, plan: Any, stream: Any) -> None:
        self._binding.call("set_stream", plan, int(stream))

    def _set_work_area(self, plan: Any, address: int) -> None:
        self._binding.call("set_work_area", plan, int(address))

    def _execute(self, plan: Any, kind: str, *arguments: Any) -> None:
        self._binding.call(f"exec_{kind.lower()}", plan, *arguments)
