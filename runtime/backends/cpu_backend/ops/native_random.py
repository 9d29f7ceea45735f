"""Random numbers by the kernels for the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .....dtype import DType
from .....kernels import host_arguments
from ....core.random import drawn_blocks, uniform_range
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, KernelArguments
from ..values import RUN_PARTS, THREADS

if TYPE_CHECKING:
    from ..kernels import HostKernels


def uniform(
    build: ProgramBuilder, kernels: HostKernels, lo: float, up: float, shape: Shape, dtype: DType
) -> Buffer | None:
    """As `random.uniform`; None where NumPy does it."""
    lowest, highest = uniform_range(lo, up, dtype)
    pack = partial(host_arguments.draw_uniform, low=lo, span=up - lo, lowest=lowest, highest=highest)
    return _draw(build, kernels, "uniform", pack, shape, dtype)


def normal(
    build: ProgramBuilder, kernels: HostKernels, mean: float, std: float, shape: Shape, dtype: DType
) -> Buffer | None:
    """As `random.normal`; None where NumPy does it."""
    return _draw(build, kernels, "normal", partial(host_arguments.draw_normal, mean=mean, std=std), shape, dtype)


def integers(build: ProgramBuilder, kernels: HostKernels, lo: int, up: int, shape: Shape) -> Buffer | None:
    """As `random.integers`; None where NumPy does it."""
    pack = partial(host_arguments.draw_integers, low=int(lo), span=int(up) - int(lo))
    return _draw(build, kernels, "integers", pack, shape, DType.I64)


def _draw(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: str,
    pack: Callable[..., KernelArguments],
    shape: Shape,
    dtype: DType,
) -> Buffer | None:
    kernel, count = f"{op}_{dtype.value}", shape.elem_count
    if not kernels.has("host_random", kernel) or count == 0:
        return None
    draw = build.draw(drawn_blocks(count, dtype))
    result = build.empty(dtype, count)
    packed = pack(
        result=result.address, run_parts=RUN_PARTS, count=count, seed=draw.seed, block=draw.block, threads=THREADS
    )
    build.launch("host_random", kernel, 1, packed)
    return result
