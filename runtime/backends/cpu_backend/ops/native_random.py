"""Random numbers by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .....dtype import DType
from .....kernels import host_arguments
from ....base.error import OutOfMemory
from ....core.random import drawn_blocks, uniform_range
from ....core.shape import Shape
from ....helpers.host_memory import require_room
from ..kernels import THREADS, Number, Result

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..kernels import HostKernels
    from ..storage import CpuStorage


def uniform(
    kernels: HostKernels, device: CpuDevice, lo: float, up: float, shape: Shape, dtype: DType
) -> CpuStorage | None:
    """As `random.uniform`; None where NumPy does it."""
    return _drawn(kernels, device, "uniform", lo, up, shape, dtype)


def normal(
    kernels: HostKernels, device: CpuDevice, mean: float, std: float, shape: Shape, dtype: DType
) -> CpuStorage | None:
    """As `random.normal`; None where NumPy does it."""
    return _drawn(kernels, device, "normal", mean, std, shape, dtype)


def integers(kernels: HostKernels, device: CpuDevice, lo: int, up: int, shape: Shape) -> CpuStorage | None:
    """As `random.integers`; None where NumPy does it."""
    return _drawn(kernels, device, "integers", lo, up, shape, DType.I64)


def _drawn(
    kernels: HostKernels, device: CpuDevice, name: str, first: float, second: float, shape: Shape, dtype: DType
) -> CpuStorage | None:
    count = shape.elem_count
    # The two zeros are equal.
    key = name, dtype, count, first or repr(first), second or repr(second)
    plan: Callable[[], CpuStorage] | None = device.plans.get(key)
    if plan is None:
        require_room(shape, dtype)
        plan = _plan(kernels, device, name, first, second, count, dtype)
        if plan is None:
            return None
        device.plans.keep(key, plan)
    return plan()


def _plan(
    kernels: HostKernels, device: CpuDevice, name: str, first: float, second: float, count: int, dtype: DType
) -> Callable[[], CpuStorage] | None:
    """What draws the next so many numbers of a device."""
    kernel = kernels.address("host_random", f"{name}_{dtype.value}")
    if kernel is None or count == 0:
        return None
    pack: Callable[..., bytes] = partial(host_arguments.draw_normal, mean=first, std=second)
    if name == "uniform":
        lowest, highest = uniform_range(first, second, dtype)
        pack = partial(host_arguments.draw_uniform, low=first, span=second - first, lowest=lowest, highest=highest)
    elif name == "integers":
        pack = partial(host_arguments.draw_integers, low=int(first), span=int(second) - int(first))
    packed = pack(
        result=Result(count, dtype), run_parts=kernels.run_parts, count=count, seed=Number(), block=Number(),
        threads=THREADS,
    )  # fmt: skip
    nothing = device.storage_class(device, dtype, np.empty(0, dtype.numpy))
    call = kernels.call(kernel, packed, nothing, compute=None)
    random, blocks = device.random, drawn_blocks(count, dtype)

    def draw() -> CpuStorage:
        reserved = random.reserve(blocks)
        try:
            made: CpuStorage = call(*reserved)
        except OutOfMemory:
            random.cancel(reserved, blocks)
            raise
        return made

    return draw
