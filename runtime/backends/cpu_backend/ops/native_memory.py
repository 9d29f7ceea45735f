"""New storages, made as the results of kernels are: in less time than NumPy makes an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .....dtype import DType
from ....core.layout import Layout
from ....core.shape import Shape
from ....helpers.host_memory import require_room
from ..kernels import BRIEF
from .native import plan_map

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..kernels import HostKernels
    from ..storage import CpuStorage

Make = Callable[[], "CpuStorage"]


def empty(kernels: HostKernels, device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage | None:
    """As `memory.empty`; None where NumPy does it."""
    return _made(kernels, device, "empty", shape, dtype)


def zeros(kernels: HostKernels, device: CpuDevice, shape: Shape, dtype: DType) -> CpuStorage | None:
    """As `memory.zeros`; None where NumPy does it."""
    return _made(kernels, device, "zeros", shape, dtype)


def _made(kernels: HostKernels, device: CpuDevice, name: str, shape: Shape, dtype: DType) -> CpuStorage | None:
    key = name, dtype, shape
    plan: Make | None = device.plans.get(key)
    if plan is None:
        require_room(shape, dtype)
        count = shape.elem_count
        plan = _plan(kernels, device, count if name == "zeros" else 0, count, dtype)
        if plan is None:
            return None
        device.plans.keep(key, plan)
    return plan()


def _plan(kernels: HostKernels, device: CpuDevice, cleared: int, count: int, dtype: DType) -> Make | None:
    """What makes a storage, and clears so many of its elements."""
    kernel = kernels.elementwise(f"fill_b{8 * dtype.itemsize}")
    # The system clears large memory, and only when somebody writes to it.
    if kernel is None or cleared > BRIEF:
        return None
    nothing = device.storage_class(device, dtype, np.empty(0, dtype.numpy))
    layout = Layout.contiguous((cleared,))
    return plan_map(kernels, kernel, nothing, layout, dtype, [], made=count, numbers=[0])
