"""Random numbers as `tallow.random` defines them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .....dtype import DType
from ....core.random import (
    PHILOX_MULTIPLIERS,
    PHILOX_ROUNDS,
    PHILOX_WEYL,
    drawn_blocks,
    elements_per_block,
    uniform_range,
)
from ....core.shape import Shape
from ..memory_limit import require_memory
from . import cast

if TYPE_CHECKING:
    from ..device import ArrayDevice

_WORD = 0xFFFFFFFF


def set_seed(device: ArrayDevice, seed: int) -> None:
    """Start the random stream of the device again."""
    device.random.set_seed(seed)


def seed(device: ArrayDevice) -> int:
    """The seed that the random stream began with."""
    return device.random.seed


def uniform(device: ArrayDevice, lo: float, up: float, shape: Shape, dtype: DType) -> Any:
    """Numbers uniform in [lo, up)."""
    library = device.library
    require_memory(device, shape, dtype)
    lowest, highest = uniform_range(lo, up, dtype)
    units = _units(device, shape.elem_count, dtype)
    result = units * library.constant(up - lo, units) + library.constant(lo, units)
    rounded = cast.widen(library, cast.narrow(library, result, dtype), dtype)
    for limit, is_beyond in ((lowest, rounded < lowest), (highest, rounded > highest)):
        rounded = library.where(is_beyond, library.constant(float(limit), rounded), rounded)
    return device.storage_class(device, dtype, cast.narrow(library, rounded, dtype))


def normal(device: ArrayDevice, mean: float, std: float, shape: Shape, dtype: DType) -> Any:
    """Normal numbers, by Box-Muller."""
    library, count = device.library, shape.elem_count
    require_memory(device, shape, dtype)
    units = _units(device, count + count % 2, dtype)
    if DType.F64 in library.DTYPES:
        units = library.astype(units, library.DTYPES[DType.F64])
    pairs = library.reshape(units, (-1, 2))
    radius = library.sqrt(-2 * library.log(1 - pairs[..., 0]))
    waves = [library.reshape(wave * radius, (-1, 1)) for wave in _cosine_and_sine(library, pairs[..., 1])]
    flat = library.reshape(library.concat(waves, 1), (-1,))
    result = flat * library.constant(std, flat) + library.constant(mean, flat)
    return device.storage_class(device, dtype, cast.narrow(library, result, dtype)[:count])


def integers(device: ArrayDevice, lo: int, up: int, shape: Shape) -> Any:
    """Integers of i64 uniform in [lo, up)."""
    library, count = device.library, shape.elem_count
    require_memory(device, shape, DType.I64)
    blocks = library.arange(drawn_blocks(count, DType.I64), device.handle)
    seed, base = device.random.reserve(drawn_blocks(count, DType.I64))
    pairs = library.reshape(_philox(device, seed, base, blocks), (-1, 2))
    share = _multiply_high(pairs[..., 0], pairs[..., 1], up - lo)
    return device.storage_class(device, DType.I64, (share + library.constant(lo, share))[:count])


def _multiply_high(low: Any, high: Any, factor: int) -> Any:
    """The upper 64 bits of the products of numbers, as two words each, and a factor of at most 2**63, as i64."""
    factor_low, factor_high = factor & _WORD, factor >> 32
    # i64 wraps, and shifts its sign, which a mask takes away: of no sum here the upper word overflows.
    middle = high * factor_low
    first = (middle & _WORD) + ((low * factor_low >> 32) & _WORD)
    second = low * factor_high + (first & _WORD)
    return high * factor_high + ((middle >> 32) & _WORD) + (first >> 32) + ((second >> 32) & _WORD)


def _units(device: ArrayDevice, count: int, dtype: DType) -> Any:
    """Numbers in [0, 1) of the compute dtype."""
    library = device.library
    real = library.DTYPES[dtype.compute]
    per_block = elements_per_block(dtype)
    # Without memory for it, this fails before the stream advances.
    blocks = library.arange(-(-count // per_block), device.handle)
    seed, base = device.random.reserve(drawn_blocks(count, dtype))
    words = _philox(device, seed, base, blocks)
    if per_block == 4:
        result = library.astype(words >> 8, real) * 2.0**-24
    else:
        pairs = library.reshape(words, (-1, 2))
        result = library.astype(((pairs[..., 0] >> 5) << 26) + (pairs[..., 1] >> 6), real) * 2.0**-53
    return result[:count]


def _philox(device: ArrayDevice, seed: int, base: int, blocks: Any) -> Any:
    """Return the words of blocks numbered from `base` on, concatenated, as i64."""
    library = device.library
    # i64 wraps, which leaves all bits of a product of 32 bits by 32 in place.
    low = blocks + (base & _WORD)
    x0, x1 = low & _WORD, ((low >> 32) + (base >> 32)) & _WORD
    x2 = x3 = low * 0
    key = (seed & _WORD, seed >> 32)
    for number in range(PHILOX_ROUNDS):
        first, second = x0 * PHILOX_MULTIPLIERS[0], x2 * PHILOX_MULTIPLIERS[1]
        key0, key1 = ((word + number * weyl) & _WORD for word, weyl in zip(key, PHILOX_WEYL, strict=True))
        x0, x1 = ((second >> 32) & _WORD) ^ x1 ^ key0, second & _WORD
        x2, x3 = ((first >> 32) & _WORD) ^ x3 ^ key1, first & _WORD
    return library.reshape(library.concat([library.reshape(x, (-1, 1)) for x in (x0, x1, x2, x3)], 1), (-1,))


def _cosine_and_sine(library: Any, turns: Any) -> tuple[Any, Any]:
    """The cosine and sine of 2 pi `turns`, numbers in [0, 1), with small relative errors near the zeros too."""
    nearest = library.floor(4 * turns + 0.5)
    angle = (turns - nearest / 4) * (2 * math.pi)
    cosine, sine = library.cos(angle), library.sin(angle)
    quadrant = nearest - 4 * library.floor(nearest / 4)
    is_odd = (quadrant == 1) | (quadrant == 3)
    cosine, sine = library.where(is_odd, sine, cosine), library.where(is_odd, cosine, sine)
    cosine = library.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)
    return cosine, library.where(quadrant >= 2, -sine, sine)
