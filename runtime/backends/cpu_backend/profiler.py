"""Runs plans of the CPU for a profiler."""

from __future__ import annotations

import os
from functools import cache

from ...program.program import Launch
from ..profiler import DeviceProfiler, name_of_kernel
from .values import RUN_PARTS, Function


class CpuProfiler(DeviceProfiler):
    """An observer that knows the names of functions that kernels map, and the memory of the process."""

    def kernel_name(self, launch: Launch) -> str:
        """Name a kernel with the function that it maps, as in "span/map_operands exp_f32"."""
        values = [value for _, value in launch.arguments.values if isinstance(value, Function)]
        functions = [value.name for value in values if value is not RUN_PARTS]
        return " ".join([name_of_kernel(launch), *functions])

    def allocated(self) -> int | None:
        """Return the resident bytes of the process, which Linux counts."""
        file = _memory_file(os.getpid())
        return None if file is None else int(os.pread(file, 100, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")


@cache
def _memory_file(process: int) -> int | None:
    # It stays open, since opening it for each call would take 10 us.
    try:
        return os.open(f"/proc/{process}/statm", os.O_RDONLY)
    except OSError:
        return None
