"""Random numbers by the kernels for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...dtype import DType
from ...host_memory import require_room, tells_lack_of_memory
from ...kernels import host_arguments
from ...random import uniform_range
from ...shape import Shape
from ...threads import get_threads

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..kernels import HostKernels
    from ..storage import CpuStorage


@tells_lack_of_memory
def uniform(
    kernels: HostKernels, device: CpuDevice, lo: float, up: float, shape: Shape, dtype: DType
) -> CpuStorage | None:
    """As `random.uniform`; None where NumPy does it."""
    lowest, highest = uniform_range(lo, up, dtype)
    return _drawn(kernels, device, "uniform", shape, dtype, lo, up - lo, lowest, highest)


@tells_lack_of_memory
def normal(
    kernels: HostKernels, device: CpuDevice, mean: float, std: float, shape: Shape, dtype: DType
) -> CpuStorage | None:
    """As `random.normal`; None where NumPy does it."""
    return _drawn(kernels, device, "normal", shape, dtype, mean, std)


def _drawn(
    kernels: HostKernels, device: CpuDevice, name: str, shape: Shape, dtype: DType, *numbers: float
) -> CpuStorage | None:
    kernel = kernels.kernel("host_random", f"{name}_{dtype.value}")
    if kernel is None:
        return None
    require_room(shape, dtype)
    count = shape.elem_count
    made = device.storage_class(device, dtype, np.empty(count, dtype.numpy))
    struct = host_arguments.DRAW_UNIFORM if name == "uniform" else host_arguments.DRAW_NORMAL
    reserved = device.random.reserve(count, dtype)
    kernel(struct.pack(made.address, kernels.run_parts, count, *reserved, *numbers, get_threads()))
    return made
