"""Random numbers, as `tallow.random` defines them, drawn by kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import arguments
from ....core.random import drawn_blocks, uniform_range
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, KernelArguments
from ..driver import capture, slow_path
from ..driver.grid import blocks_for

if TYPE_CHECKING:
    from ..device import GpuDevice

# The packs of 16 bytes that a thread draws, which share what depends on the seed and the parameters alone; more of them
# where there are still enough threads to keep a GPU busy.
_DRAWN_PACKS: Final = 2
_MAX_DRAWN_PACKS: Final = 4
_MIN_SHARED_BYTES: Final = 1 << 24


def set_seed(device: GpuDevice, seed: int) -> None:
    """Start the random stream of the device again."""
    if slow_path.required:
        capture.refuse(device.driver, "set_seed", "call it before the replay that it is for")
    device.random.set_seed(seed)


def seed(device: GpuDevice) -> int:
    """The seed that the random stream began with."""
    return device.random.seed


def uniform(build: ProgramBuilder, lo: float, up: float, shape: Shape, dtype: DType) -> Buffer:
    """Numbers uniform in [lo, up)."""
    lowest, highest = uniform_range(lo, up, dtype)
    pack = partial(arguments.random_uniform, low=lo, span=up - lo, lowest=lowest, highest=highest)
    return _draw(build, "rand_uniform", pack, shape, dtype)


def normal(build: ProgramBuilder, mean: float, std: float, shape: Shape, dtype: DType) -> Buffer:
    """Normal numbers, by Box-Muller."""
    return _draw(build, "rand_normal", partial(arguments.random_normal, mean=mean, std=std), shape, dtype)


def integers(build: ProgramBuilder, lo: int, up: int, shape: Shape) -> Buffer:
    """Integers of i64 uniform in [lo, up)."""
    pack = partial(arguments.random_integers, low=lo, span=up - lo)
    return _draw(build, "rand_integers", pack, shape, DType.I64)


def _draw(
    build: ProgramBuilder, kernel: str, pack: Callable[..., KernelArguments], shape: Shape, dtype: DType
) -> Buffer:
    count = shape.elem_count
    result = build.empty(dtype, count)
    packs = _MAX_DRAWN_PACKS if result.nbytes >= _MIN_SHARED_BYTES else _DRAWN_PACKS
    draw = build.draw(drawn_blocks(count, dtype))
    packed = pack(result=result.address, count=count, state=draw.state, seed=draw.seed, block=draw.block)
    build.launch("random", f"{kernel}_{dtype.value}", blocks_for(count, dtype.itemsize, packs), packed)
    return result
