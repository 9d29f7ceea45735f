"""Random numbers, as `tallow.random` defines them, drawn by kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....dtype import DType
from ....program.values import Number, computed
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


def blocks(count: Number, dtype: DType) -> Number:
    """Return the blocks of a launch that draws `count` numbers."""
    return computed(_blocks, count, dtype)


def _blocks(count: int, dtype: DType) -> int:
    packs = _MAX_DRAWN_PACKS if count * dtype.itemsize >= _MIN_SHARED_BYTES else _DRAWN_PACKS
    return blocks_for(count, dtype.itemsize, packs)
