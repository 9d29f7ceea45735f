"""The random numbers that every backend draws alike: one seed gives the same uniform bits everywhere.

The generator is Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011):
a bijection from a 128-bit counter to four 32-bit words under a 64-bit key. It has no state to carry along, so the
elements of a tensor can be drawn in any order.

    key      (seed mod 2**32, seed div 2**32)
    counter  (block mod 2**32, block div 2**32, 0, 0), where a device counts blocks from 0 after `set_seed`

Uniform numbers u in [0, 1), where `base` is the first block of a call:

    f64      element i has words (w0, w1) = (2j, 2j + 1), j = i mod 2, of block base + i div 2:
             u = ((w0 >> 5) * 2**26 + (w1 >> 6)) * 2**-53
    others   element i has word i mod 4 of block base + i div 4: u = (w >> 8) * 2**-24

    lo + u * (up - lo) is computed in the compute dtype, to which lo and up - lo are rounded first, with a rounding
    after the product and one after the sum. It is rounded to the dtype, and what is then below or above
    `uniform_range` is replaced by that end of it.

Integers in [lo, up) are lo + (w * (up - lo) div 2**64) of w = w0 + w1 * 2**32, of the words (w0, w1) of f64.

Normal numbers come in pairs by the method of Box and Muller (1958), elements 2j and 2j + 1 of a call from u1 in (0, 1]
and u2 in [0, 1): mean + std * sqrt(-2 ln u1) * (cos(2 pi u2), sin(2 pi u2)), rounded once to the dtype.

    f64      u1 is 1 - u of words (0, 1), u2 is u of words (2, 3), of block base + j
    others   u1 is 1 - u of word 2(j mod 2), u2 is u of word 2(j mod 2) + 1, of block base + j div 2
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.error import InvalidArgument
from .drawing import tape

if TYPE_CHECKING:
    from ...dtype import DType

INITIAL_SEED = 299792458
"""The seed that a device begins with: Candle's, the speed of light in meters per second."""

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
"""Multipliers of the first and the third word of the counter in each round."""

PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
"""Increments of the two words of the key after each round: the golden ratio and sqrt(3) - 1, as fractions."""

PHILOX_ROUNDS = 10

_WORD_64 = 1 << 64
_LARGEST_F32 = float(np.finfo(np.float32).max)
_LARGEST_F64 = float(np.finfo(np.float64).max)


def elements_per_block(dtype: DType) -> int:
    """Return how many elements of a floating-point dtype one block of words gives: 2 in f64, 4 in the others."""
    return 2 if dtype.itemsize == 8 else 4


def drawn_blocks(elements: int, dtype: DType) -> int:
    """Return the number of blocks of words that `elements` numbers of a floating-point dtype are drawn from."""
    return -(-elements // elements_per_block(dtype))


class RandomState:
    """Where the random stream of a device is. Threads may share it: no two calls get the same blocks."""

    def __init__(self, seed: int = INITIAL_SEED) -> None:
        self._lock = threading.Lock()
        self.set_seed(seed)

    @property
    def seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    @property
    def next_block(self) -> int:
        """The first block that no call has used."""
        return self._next_block

    def set_seed(self, seed: int) -> None:
        """Begin the stream of `seed` from its first block; `InvalidArgument` if it is not in [0, 2**64)."""
        if not 0 <= seed < _WORD_64:
            raise InvalidArgument("set_seed", f"a seed is an integer from 0 to 2**64 - 1, not {seed}")
        with self._lock:
            self._seed = seed
            self._next_block = 0

    def reserve(self, blocks: int) -> tuple[int, int]:
        """Return the seed, and the first of `blocks` blocks that no other caller gets.

        A function that `checkpoint` runs again gets the blocks of its first run.
        """
        noting = tape()
        return self._reserve(blocks) if noting is None else noting.reserve(self, blocks, self._reserve)

    def _reserve(self, blocks: int) -> tuple[int, int]:
        with self._lock:
            first = self._next_block
            self._next_block = (first + blocks) % _WORD_64
            return self._seed, first

    def cancel(self, reserved: tuple[int, int], blocks: int) -> None:
        """Take back what `reserve` returned to a call that failed, unless another one has reserved blocks since."""
        noting = tape()
        if noting is not None and not noting.cancel(self, blocks, reserved):
            return
        seed, first = reserved
        with self._lock:
            if (self._seed, self._next_block) == (seed, (first + blocks) % _WORD_64):
                self._next_block = first


@lru_cache(maxsize=256)
def uniform_range(lo: float, up: float, dtype: DType, op: str = "rand_uniform_f64") -> tuple[float, float]:
    """Return the smallest number of `dtype` that is at least `lo` and the largest that is below `up`.

    `InvalidArgument` if the bounds are not finite, lo is not below up, their distance is too large for the compute
    dtype, or the dtype has no number between them.
    """
    if not (math.isfinite(lo) and math.isfinite(up) and lo < up):
        raise InvalidArgument(op, f"the bounds are finite and lo is below up, not lo {lo} and up {up}")
    if up - lo > (_LARGEST_F64 if dtype.itemsize == 8 else _LARGEST_F32):
        raise InvalidArgument(op, f"up - lo is too large for {dtype.compute.value}; move {lo} and {up} closer")
    lowest, highest = _neighbours(lo, up, dtype)
    if lowest > highest:
        raise InvalidArgument(op, f"{dtype.value} has no number from {lo} to below {up}; widen the bounds or the dtype")
    return lowest, highest


def _neighbours(lo: float, up: float, dtype: DType) -> tuple[float, float]:
    if dtype.itemsize == 8:
        return lo, math.nextafter(up, -math.inf)
    if dtype.itemsize == 4:
        with np.errstate(over="ignore", under="ignore"):
            lowest, highest = np.float32(lo), np.float32(up)
            # Rounding may have passed the bound; one step back corrects it.
            if float(lowest) < lo:
                lowest = np.nextafter(lowest, np.float32(math.inf))
            if float(highest) >= up:
                highest = np.nextafter(highest, np.float32(-math.inf))
        return float(lowest), float(highest)
    numbers = _numbers(dtype)
    first, last = np.searchsorted(numbers, (lo, up))
    return float(numbers[first]) if first < len(numbers) else math.inf, float(numbers[last - 1]) if last else -math.inf


@lru_cache(maxsize=8)
def _numbers(dtype: DType) -> NDArray[np.float64]:
    """List the finite numbers of a dtype of one or two bytes in increasing order: they are few."""
    numbers = dtype.format.values().astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)]) + 0.0  # of the two zeros, the positive one
