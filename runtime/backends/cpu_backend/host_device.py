"""The CPU as its storages see it; `device.CpuDevice` extends it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ..array_backend.library_device import LibraryDevice


class HostDevice(LibraryDevice):
    """The CPU as its storages see it. What it has of libraries makes storages, so their classes are above this one."""

    @property
    @abstractmethod
    def kernels(self) -> Any:
        """The `HostKernels` of this machine; None where NumPy does everything."""

    @property
    @abstractmethod
    def onednn(self) -> Any:
        """`Onednn`, where its library is installed."""
