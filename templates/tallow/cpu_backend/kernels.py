"""The kernels for the host, where `opgen compile` made them for a target that this machine is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from .. import code_object
from ..kernels.host_arguments import FAMILIES, TARGETS
from ..threads import get_threads

Kernel: TypeAlias = Callable[[bytes], None]
"""What calls a kernel with the packed bytes of its struct."""

# The family whose library has the threads too.
_ELEMENTWISE: Final = "span"


class HostKernels:
    """Kernels in libraries. Calls of them leave the GIL."""

    def __init__(self, libraries: dict[str, ctypes.CDLL]) -> None:
        self._libraries = libraries
        self._kernels: dict[tuple[str, str], Kernel | None] = {}
        self.map_operands: Final = self._kernel(_ELEMENTWISE, "map_operands")
        self.run_parts: Final = self._address(_ELEMENTWISE, "run_parts")

    @classmethod
    @cache
    def open(cls) -> HostKernels | None:
        """Those for the best target that this machine is; None where there are none, or NumPy is to do everything."""
        if get_threads() == 0:
            return None
        for target in TARGETS:
            paths = {family: code_object.path_of(target, family) for family in FAMILIES}
            if any(code_object.current(path) is None for path in paths.values()):
                continue
            try:
                libraries = {family: ctypes.CDLL(str(path)) for family, path in paths.items()}
            except OSError:
                continue
            is_supported = libraries[_ELEMENTWISE].is_supported
            is_supported.restype = ctypes.c_bool
            if is_supported():
                return cls(libraries)
        return None

    def elementwise(self, name: str) -> int | None:
        """The address of an elementwise kernel; None where there is none of this name."""
        return self._address(_ELEMENTWISE, name)

    def kernel(self, family: str, name: str) -> Kernel | None:
        """A kernel of another family; None where there is none of this name."""
        key = family, name
        if key not in self._kernels:
            is_there = hasattr(self._libraries[family], name)
            self._kernels[key] = self._kernel(family, name) if is_there else None
        return self._kernels[key]

    def _kernel(self, family: str, name: str) -> Kernel:
        function = self._libraries[family][name]
        function.argtypes = (ctypes.c_char_p,)
        function.restype = None
        return function

    def _address(self, family: str, name: str) -> int | None:
        try:
            return ctypes.cast(self._libraries[family][name], ctypes.c_void_p).value
        except AttributeError:
            return None
