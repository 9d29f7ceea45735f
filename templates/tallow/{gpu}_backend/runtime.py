"""What all objects that stand for one device share: its stream, memory, kernels, libraries and random stream."""

import threading

from ..random import RandomState
from . import fork
from .allocator import CachingAllocator
from .driver import Driver
from .index_errors import IndexErrors
from .kernels import Kernels
from .libraries import Blas, Images


class Runtime:
    """One device at work. Everything here may be used by several threads at once."""

    def __init__(self, ordinal: int) -> None:
        self.driver = Driver(ordinal)
        self.allocator = CachingAllocator(self.driver)
        self.kernels = Kernels(self.driver)
        self.index_errors = IndexErrors(self.driver)
        self.random = RandomState()
        self._lock = threading.Lock()
        self._libraries: tuple[Blas | None, Images | None] | None = None

    def libraries(self) -> tuple[Blas | None, Images | None]:
        """The libraries that are there, opened at the first use: that takes longer than opening the device."""
        if self._libraries is None:
            with self._lock:
                if self._libraries is None:
                    self._libraries = self.driver.open_libraries(self.allocator)
        return self._libraries


_runtimes: dict[int, Runtime] = {}
_opening = threading.Lock()


def runtime_of(ordinal: int) -> Runtime:
    """The runtime of a device, made at the first use; BackendUnavailable or InvalidArgument where there is none."""
    fork.require_own()
    found = _runtimes.get(ordinal)
    if found is None:
        with _opening:
            found = _runtimes.get(ordinal)
            if found is None:
                found = _runtimes[ordinal] = Runtime(ordinal)
    return found
