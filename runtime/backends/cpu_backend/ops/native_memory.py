"""New storages, allocated in C like the results of kernels: in less time than NumPy allocates an array."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .....dtype import DType
from ....core.layout import Layout
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.dynamic import dynamic
from ....program.values import Buffer, Number, Operand
from ..kernel_call import BRIEF
from .native import launch_map

if TYPE_CHECKING:
    from ..kernels import HostKernels


@dynamic
def empty(build: ProgramBuilder, kernels: HostKernels, shape: Shape, dtype: DType) -> Buffer | None:
    """As `memory.empty`; None where NumPy does it."""
    return _filled(build, kernels, build.count(shape.elem_count), dtype)


# The system clears large memory, and only on the first write to it.
@partial(dynamic, limit=BRIEF)
def zeros(build: ProgramBuilder, kernels: HostKernels, shape: Shape, dtype: DType) -> Buffer | None:
    """As `memory.zeros`; None where NumPy does it."""
    count = build.count(shape.elem_count)
    return None if shape.elem_count > BRIEF else _filled(build, kernels, count, dtype, count)


def _filled(
    build: ProgramBuilder, kernels: HostKernels, count: Number, dtype: DType, zeros: Number = 0
) -> Buffer | None:
    """Return a new buffer whose first elements, `zeros` of them, are set to 0."""
    kernel = f"fill_b{8 * dtype.itemsize}"
    if not kernels.has("span", kernel):
        return None
    result = build.empty(dtype, count)
    launch_map(build, kernel, [Operand(result, Layout.contiguous((1,)))], [], [0], count=zeros)
    return result
