"""The state that all objects of one device share: its stream, memory, kernels, libraries and random stream."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ....kernels.constants import COUNTERS
from ...core.random import RandomState
from ..plan import Plans
from .driver import capture, fork
from .driver.gpu_driver import GpuDriver
from .execute.index_errors import IndexErrors
from .execute.kernels import Kernels
from .memory.allocator import CachingAllocator

if TYPE_CHECKING:
    from .driver.loader import AsyncLoader
    from .gpu_base import GpuBase
    from .user_kernels import UserKernels

Library = TypeVar("Library")


class Runtime:
    """One device at work. Everything here may be used by several threads at once."""

    def __init__(self, driver: GpuDriver) -> None:
        self.driver = driver
        self.allocator = CachingAllocator(driver)
        self.kernels = Kernels(driver)
        self.index_errors = IndexErrors(driver)
        # By counters of 32 bits the blocks of a launch find the last one of them, which leaves 0. No two launches count
        # at a time: all of a device are in one stream, those of graphs too.
        self.counters = driver.allocate(4 * COUNTERS)
        driver.zero(self.counters, 4 * COUNTERS)
        self.random = RandomState()
        self.plans = Plans()
        self._lock = threading.Lock()
        self._libraries: dict[object, Any] = {}
        self._loader: AsyncLoader | None = None
        self._user_kernels: UserKernels | None = None
        atexit.register(_leave, weakref.ref(self))

    def leave(self) -> None:
        """Drop what bindings report as leaked at the end of the interpreter: plans, and objects of libraries."""
        self.plans.clear()
        for library in list(self._libraries.values()):
            if library is not None:
                library.leave()

    def library(self, open_library: Callable[[GpuDriver, CachingAllocator], Library | None]) -> Library | None:
        """The library that `open_library` opens at its first use, since that takes longer than opening the device."""
        try:
            library: Library | None = self._libraries[open_library]
        except KeyError:
            # What a library gives the device when it is opened is no part of a capture.
            with self._lock, capture.suspended():
                if open_library not in self._libraries:
                    self._libraries[open_library] = open_library(self.driver, self.allocator)
                library = self._libraries[open_library]
        return library

    @property
    def user_kernels(self) -> UserKernels:
        """The kernels that users wrote; most programs have none."""
        if self._user_kernels is None:
            from .user_kernels import UserKernels

            with self._lock:
                self._user_kernels = self._user_kernels or UserKernels(self.driver, self.kernels.cache)
        return self._user_kernels

    @property
    def loader(self) -> AsyncLoader:
        """The loader that streams host memory to the device, opened at the first use and again after it was closed."""
        fork.require_own()
        with self._lock:
            if self._loader is None or self._loader.closed:
                self._loader = self.driver.open_loader()
            return self._loader


def _leave(reference: weakref.ref[Runtime]) -> None:
    runtime = reference()
    if runtime is not None and not fork.lost:
        runtime.leave()


_runtimes: dict[tuple[type[GpuBase], int], Runtime] = {}
_opening = threading.Lock()


def runtime_of(device_class: type[GpuBase], ordinal: int) -> Runtime:
    """The runtime of a device, created at the first use; BackendUnavailable or InvalidArgument where there is none."""
    fork.require_own()
    key = device_class, ordinal
    runtime = _runtimes.get(key)
    if runtime is None:
        with _opening:
            runtime = _runtimes.get(key)
            if runtime is None:
                runtime = _runtimes[key] = Runtime(device_class.open_driver(ordinal))
    return runtime
