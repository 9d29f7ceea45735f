"""Random numbers, as `tallow.random` defines them, drawn by kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import arguments
from ....core.random import drawn_blocks, uniform_range
from ....core.shape import Shape
from ....kernels.argument_struct import NOWHERE, Address
from ..driver import capture, slow_path
from ..driver.grid import blocks_for

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..memory.storage import GpuStorage

# The packs of 16 bytes that a thread draws, which share what depends on the seed and the parameters alone; more of them
# where there are still enough threads to keep a GPU busy.
_DRAWN_PACKS: Final = 2
_MOST_DRAWN_PACKS: Final = 4
_LEAST_SHARED_BYTES: Final = 1 << 24


def set_seed(device: GpuDevice, seed: int) -> None:
    """Start the random stream of the device again."""
    if slow_path.required:
        capture.refuse(device.driver, "set_seed", "call it before the replay that it is for")
    device.random.set_seed(seed)


def seed(device: GpuDevice) -> int:
    """The seed that the random stream began with."""
    return device.random.seed


def uniform(device: GpuDevice, lo: float, up: float, shape: Shape, dtype: DType) -> GpuStorage:
    """Numbers uniform in [lo, up)."""
    lowest, highest = uniform_range(lo, up, dtype)

    def pack(result: Address, count: int, state: Address, seed: int, block: int) -> bytes:
        return arguments.random_uniform(
            result=result, count=count, state=state, seed=seed, block=block, low=lo, span=up - lo, lowest=lowest,
            highest=highest,
        )  # fmt: skip

    return _draw(device, "rand_uniform", pack, shape, dtype)


def normal(device: GpuDevice, mean: float, std: float, shape: Shape, dtype: DType) -> GpuStorage:
    """Normal numbers, by Box-Muller."""

    def pack(result: Address, count: int, state: Address, seed: int, block: int) -> bytes:
        return arguments.random_normal(
            result=result, count=count, state=state, seed=seed, block=block, mean=mean, std=std
        )

    return _draw(device, "rand_normal", pack, shape, dtype)


def integers(device: GpuDevice, lo: int, up: int, shape: Shape) -> GpuStorage:
    """Integers of i64 uniform in [lo, up)."""

    def pack(result: Address, count: int, state: Address, seed: int, block: int) -> bytes:
        return arguments.random_integers(
            result=result, count=count, state=state, seed=seed, block=block, low=lo, span=up - lo
        )

    return _draw(device, "rand_integers", pack, shape, DType.I64)


def _draw(device: GpuDevice, kernel: str, pack: Callable[..., bytes], shape: Shape, dtype: DType) -> GpuStorage:
    count = shape.elem_count
    result = device.empty(dtype, count)
    packs = _MOST_DRAWN_PACKS if result.memory.nbytes >= _LEAST_SHARED_BYTES else _DRAWN_PACKS
    captured = capture.of(device.driver) if slow_path.required else None
    stream = device.random if captured is None else captured.random
    blocks = drawn_blocks(count, dtype)
    reserved = stream.reserve(blocks)
    try:
        state = NOWHERE if captured is None else captured.state_address()
        packed = pack(result.memory.address, count, state, *reserved)
        device.kernels.launch("random", f"{kernel}_{dtype.value}", blocks_for(count, dtype.itemsize, packs), packed)
    except BaseException:
        stream.cancel(reserved, blocks)
        raise
    return result
