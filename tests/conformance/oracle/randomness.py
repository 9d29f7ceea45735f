"""Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and what is drawn from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .formats import EXTENDED, FLOATS, Array, decode, encode, round_values
from .functions import cos_turns, sin_turns

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & _WORD, (first >> 32) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def words(seed: int, block: int) -> Iterator[int]:
    """The words of the stream of `seed`, from `block` on."""
    for number in itertools.count(block):
        yield from philox((number & _WORD, number >> 32, 0, 0), (seed & _WORD, seed >> 32))


def blocks_used(name: str, count: int) -> int:
    """How many blocks a call for `count` elements takes."""
    return -(-count // (2 if name == "f64" else 4))


def unit_uniform(name: str, seed: int, block: int, count: int) -> Array:
    """Numbers in [0, 1) as the stream gives them: 24 bits, or 53 for f64; extended."""
    stream = words(seed, block)
    if name == "f64":
        numbers = [
            (high >> 5 << 26 | low >> 6) for high, low in itertools.islice(zip(stream, stream, strict=False), count)
        ]
        return np.array(numbers, np.uint64).astype(EXTENDED) / 2**53
    return np.array([word >> 8 for word in itertools.islice(stream, count)], np.uint64).astype(EXTENDED) / 2**24


def uniform(name: str, seed: int, block: int, count: int, low: float, up: float) -> Array:
    """In [low, up), in dtype `name`, exactly."""
    unit = unit_uniform(name, seed, block, count)
    compute = np.float64 if name == "f64" else np.float32
    start, width = compute(low), compute(up - low)
    value = start + unit.astype(compute) * width
    rounded = round_values(name, value.astype(EXTENDED))
    lowest, highest = uniform_range(name, low, up)
    return encode(name, np.clip(rounded, lowest, highest))


def integers(seed: int, block: int, count: int, low: int, up: int) -> Array:
    """In [low, up): each of 64 bits, the first word the lower half."""
    stream = words(seed, block)
    pairs = itertools.islice(zip(stream, stream, strict=False), count)
    numbers = [low + ((first + (second << 32)) * (up - low) >> 64) for first, second in pairs]
    return np.array(numbers, np.int64)


def uniform_range(name: str, low: float, up: float) -> tuple[np.longdouble, np.longdouble]:
    """The smallest number of the dtype that is >= low and the largest that is < up."""
    smallest, largest = encode(name, EXTENDED(low)), encode(name, EXTENDED(up))
    if decode(name, smallest) < low:
        smallest = _neighbour(name, smallest, +1)
    while decode(name, largest) >= up:
        largest = _neighbour(name, largest, -1)
    return EXTENDED(decode(name, smallest)), EXTENDED(decode(name, largest))


def _neighbour(name: str, number: Array, direction: int) -> Array:
    """The next number of the dtype above (+1) or below (-1)."""
    number_format = FLOATS[name]
    bits = int(number.view(number_format.raw))
    sign = 1 << (number_format.bits - 1)
    # The order of the numbers as integers: negative bits mirror, and both zeros are 0.
    rank = (-(bits & ~sign) if bits & sign else bits) + direction
    bits = -rank | sign if rank < 0 else rank
    return np.array(bits, number_format.raw).view(number_format.numpy)


def normal(name: str, seed: int, block: int, count: int) -> Array:
    """Standard normal numbers by Box and Muller (1958), extended; elements 2j and 2j + 1 are one pair's."""
    pairs = -(-count // 2)
    unit = unit_uniform(name, seed, block, 2 * pairs)
    radius = np.sqrt(-2 * np.log(1 - unit[0::2]))
    turns = unit[1::2]
    values = np.stack([radius * cos_turns(turns), radius * sin_turns(turns)], axis=-1)
    return values.ravel()[:count]
