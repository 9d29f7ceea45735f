"""Ranges that profilers of NVIDIA and AMD show: those of NVTX and ROCTX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ..helpers import c_library
from ..helpers.installed import installed

# The libraries, and what begins a range in each; the name of what ends it has Pop for PushA.
_LIBRARIES: Final = {
    "nvtxRangePushA": ("libnvToolsExt.so.1", "libnvToolsExt.so", "nvToolsExt64_1.dll"),
    "roctxRangePushA": (
        "librocprofiler-sdk-roctx.so.1",
        "librocprofiler-sdk-roctx.so",
        "libroctx64.so.4",
        "libroctx64.so",
    ),
}


class Ranges:
    """Ranges of the thread that begins and ends them, in all libraries that are installed when the first one begins."""

    def __init__(self) -> None:
        self._libraries: list[tuple[Callable[[bytes], Any], Callable[[], Any]]] | None = None

    def push(self, name: str) -> None:
        """Begin a range, inside of those of the thread that have not ended."""
        if self._libraries is None:
            self._libraries = list(_found())
        for push, _ in self._libraries:
            push(name.encode())

    def pop(self) -> None:
        """End the range that began last."""
        for _, pop in self._libraries or ():
            pop()


def _found() -> list[tuple[Callable[[bytes], Any], Callable[[], Any]]]:
    libraries: list[tuple[Callable[[bytes], Any], Callable[[], Any]]] = []
    for push, paths in _LIBRARIES.items():
        pop = push.replace("PushA", "Pop")
        library = c_library.load(paths, {push: (ctypes.c_int, ctypes.c_char_p), pop: (ctypes.c_int,)})
        if library is not None:
            libraries.append((getattr(library, push), getattr(library, pop)))
        elif push.startswith("nvtx") and installed("nvtx"):
            # Newer toolkits come without the library; the Python package has its own.
            libraries.append(_of_package(import_module("nvtx")))
    return libraries


def _of_package(nvtx: Any) -> tuple[Callable[[bytes], Any], Callable[[], Any]]:
    return lambda name: nvtx.push_range(name.decode()), nvtx.pop_range
