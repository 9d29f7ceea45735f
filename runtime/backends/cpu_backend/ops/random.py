"""Random numbers as `tallow.random` defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .....dtype import Array, DType
from ....core.random import (
    PHILOX_MULTIPLIERS,
    PHILOX_ROUNDS,
    PHILOX_WEYL,
    drawn_blocks,
    elements_per_block,
    uniform_range,
)
from ....core.shape import Shape
from ....host import cast
from ....host.array import in_parts
from .memory import make

if TYPE_CHECKING:
    from ..device import CpuDevice
    from ..storage import CpuStorage

_WORD = 0xFFFFFFFF

# Blocks at a time, which stay in the cache during all rounds.
_PART_BLOCKS = 1 << 14


def set_seed(device: CpuDevice, seed: int) -> None:
    """Start the random stream of the device again."""
    device.random.set_seed(seed)


def seed(device: CpuDevice) -> int:
    """The seed that the random stream began with."""
    return device.random.seed


def uniform(device: CpuDevice, lo: float, up: float, shape: Shape, dtype: DType) -> CpuStorage:
    """Numbers uniform in [lo, up)."""
    return _draw(device, lambda seed, base, count: _uniform(seed, base, count, lo, up, dtype), shape, dtype)


def normal(device: CpuDevice, mean: float, std: float, shape: Shape, dtype: DType) -> CpuStorage:
    """Normal numbers, by Box-Muller."""
    return _draw(device, lambda seed, base, count: _normal(seed, base, count, mean, std, dtype), shape, dtype)


def integers(device: CpuDevice, lo: int, up: int, shape: Shape) -> CpuStorage:
    """Integers of i64 uniform in [lo, up)."""
    return _draw(device, lambda seed, base, count: _integers(seed, base, count, lo, up), shape, DType.I64)


def _draw(device: CpuDevice, draw: Callable[[int, int, int], Array], shape: Shape, dtype: DType) -> CpuStorage:
    """What `draw` makes of the seed, the first block and the number of elements."""
    blocks = drawn_blocks(shape.elem_count, dtype)
    reserved = device.random.reserve(blocks)
    try:
        return make(device, lambda count: draw(*reserved, count), shape, dtype)
    except BaseException:
        device.random.cancel(reserved, blocks)
        raise


def _uniform(seed: int, base: int, count: int, lo: float, up: float, dtype: DType) -> Array:
    """`count` numbers in [lo, up) from the stream of `seed`, beginning at block `base`."""
    lowest, highest = uniform_range(lo, up, dtype)
    real = dtype.compute.numpy.type
    result = _units(seed, base, count, dtype)[:count].astype(real)
    result *= real(up - lo)
    result += real(lo)
    rounded = cast.widen(cast.narrow(result, dtype), dtype)
    # Not np.clip: which of two equal zeros it takes depends on where they stand, and the bits are promised.
    rounded[rounded < lowest] = lowest
    rounded[rounded > highest] = highest
    return cast.narrow(rounded, dtype)


def _integers(seed: int, base: int, count: int, lo: int, up: int) -> Array:
    """`count` integers in [lo, up) from the stream of `seed`, beginning at block `base`."""
    words = philox(seed, base, drawn_blocks(count, DType.I64)).reshape(-1, 2)[:count].astype(np.uint64)
    low, high = words[:, 0], words[:, 1]
    factor_low, factor_high = np.uint64((up - lo) & _WORD), np.uint64((up - lo) >> 32)
    first = high * factor_low + (low * factor_low >> 32)
    second = low * factor_high + (first & _WORD)
    share: Array = high * factor_high + (first >> 32) + (second >> 32)
    share += np.uint64(lo % 2**64)
    return share.view(np.int64)


def _normal(seed: int, base: int, count: int, mean: float, std: float, dtype: DType) -> Array:
    """`count` numbers of the normal distribution from the stream of `seed`, beginning at block `base`."""

    def box_muller(units: Array) -> Array:
        pairs = units.reshape(-1, 2)
        radius = np.sqrt(-2 * np.log(1 - pairs[:, 0]))
        result = np.stack(_cosine_and_sine(pairs[:, 1]), axis=1)
        result *= radius[:, None]
        result *= std
        result += mean
        return cast.narrow(result.reshape(-1), dtype)

    with np.errstate(all="ignore"):
        return in_parts(box_muller, dtype.numpy, _units(seed, base, count, dtype))[:count]


def philox(seed: int, base: int, blocks: int) -> Array:
    """The words of `blocks` blocks from block `base` on: u32 of shape (blocks, 4)."""
    result = np.empty((blocks, 4), np.uint32)
    for first in range(0, blocks, _PART_BLOCKS):
        part = result[first : first + _PART_BLOCKS]
        counters = np.arange(len(part), dtype=np.uint64)
        counters += np.uint64((base + first) % 2**64)
        _fill(part, counters, (seed & _WORD, seed >> 32))
    return result


def _fill(words: Array, counters: Array, key: tuple[int, int]) -> None:
    x0, x1 = counters & _WORD, counters >> 32
    x2, x3 = np.zeros_like(counters), np.zeros_like(counters)
    for number in range(PHILOX_ROUNDS):
        first, second = x0 * PHILOX_MULTIPLIERS[0], x2 * PHILOX_MULTIPLIERS[1]
        key0, key1 = ((word + number * weyl) & _WORD for word, weyl in zip(key, PHILOX_WEYL, strict=True))
        x0, x1, x2, x3 = (second >> 32) ^ x1 ^ key0, second & _WORD, (first >> 32) ^ x3 ^ key1, first & _WORD
    for column, x in enumerate((x0, x1, x2, x3)):
        words[:, column] = x


def _units(seed: int, base: int, count: int, dtype: DType) -> Array:
    """f64 numbers in [0, 1), at least `count`, to whole pairs of blocks' words."""
    per_block = elements_per_block(dtype)
    words = philox(seed, base, -(-count // per_block))
    if per_block == 4:
        return (words >> 8).reshape(-1) * 2.0**-24
    pairs = words.reshape(-1, 2)
    return ((pairs[:, 0] >> 5) * 2.0**26 + (pairs[:, 1] >> 6)) * 2.0**-53


def _cosine_and_sine(turns: Array) -> tuple[Array, Array]:
    """The cosine and sine of 2 pi `turns`, numbers in [0, 1), with small relative errors near the zeros too."""
    nearest = np.rint(4 * turns)
    angle = (turns - nearest / 4) * (2 * np.pi)
    cosine, sine = np.cos(angle), np.sin(angle)
    quadrant = nearest.astype(np.uint8) % 4
    is_odd = quadrant % 2 == 1
    cosine, sine = np.where(is_odd, sine, cosine), np.where(is_odd, cosine, sine)
    np.negative(cosine, out=cosine, where=(quadrant == 1) | (quadrant == 2))
    np.negative(sine, out=sine, where=quadrant >= 2)
    return cosine, sine
