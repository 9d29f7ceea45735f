"""Discrete Fourier transforms by cuFFT, through nvmath-python."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from ...gpu_backend.driver.error import LibraryError
from ...gpu_backend.libraries.fft import FftLibrary

if TYPE_CHECKING:
    from ...gpu_backend.memory.allocator import CachingAllocator
    from ..context import Context
    from ..driver import Driver
    from ..stream import CudaStream

_ADVICE: Final = "tallow needs cuFFT 11 or later, of the CUDA that cuda-python is for, and some free device memory"


class CuFft(FftLibrary):
    """Plans of cuFFT."""

    needs = "libcufft and the module nvmath: pip install nvmath-python 'cuda-toolkit[cufft]==13.*'"

    @classmethod
    def open(cls, driver: Driver, allocator: CachingAllocator) -> Self | None:
        """CuFFT on the stream of a driver; None where nvmath-python or the library is missing."""
        try:
            from nvmath.bindings import cufft

            cufft.get_version()
        # nvmath-python raises a RuntimeError where it does not find the library, or a function of it.
        except (ImportError, RuntimeError):
            return None
        return cls(cufft, driver.device, driver.queue, allocator)

    def __init__(self, library: Any, context: Context, stream: CudaStream, allocator: CachingAllocator) -> None:
        super().__init__(context, stream, allocator, partial(_call, library, "destroy"))
        self._library = library

    def _create(self) -> Any:
        return _call(self._library, "create")

    def _lay_out(self, plan: Any, kind: str, count: int, lines: int) -> Any:
        _call(self._library, "set_auto_allocation", plan, 0)
        # Without strides, which 0 stands for, lines follow each other.
        which = int(self._library.Type[kind])
        return _call(self._library, "make_plan_many64", plan, 1, [count], 0, 1, 0, 0, 1, 0, which, lines)

    def _set_stream(self, plan: Any, stream: Any) -> None:
        _call(self._library, "set_stream", plan, int(stream))

    def _set_work_area(self, plan: Any, address: int) -> None:
        _call(self._library, "set_work_area", plan, int(address))

    def _execute(self, plan: Any, kind: str, *arguments: Any) -> None:
        _call(self._library, f"exec_{kind.lower()}", plan, *arguments)


def _call(library: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(library, name)(*arguments)
    except library.cuFFTError as error:
        raise LibraryError(f"cufft {name}", str(error), _ADVICE) from error
