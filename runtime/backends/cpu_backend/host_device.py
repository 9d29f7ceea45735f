"""The CPU as its storages see it; `device.CpuDevice` extends it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy as np

from ....dtype import Array, DType
from ..array_backend.library_device import LibraryDevice

# Smaller memory is NumPy's: it is cached by the C library, and few vectors are in it.
_SMALL: Final = 1 << 16


class HostDevice(LibraryDevice):
    """The CPU as its storages see it. What it has of libraries makes storages, so their classes are above this one."""

    @property
    @abstractmethod
    def kernels(self) -> Any:
        """The `HostKernels` of this machine; None where NumPy does everything."""

    def empty(self, length: int, dtype: DType) -> Array:
        """An array of elements that are not initialised."""
        kernels = None if length * dtype.itemsize < _SMALL else self.kernels
        array: Array = np.empty(length, dtype.numpy) if kernels is None else kernels.empty(length, dtype)
        return array

    @property
    @abstractmethod
    def onednn(self) -> Any:
        """`Onednn`, where its library is installed."""
