"""How kernels are cut into blocks."""

from typing import Final

BLOCK: Final = 256
"""Threads of a block, for every kernel."""

# HIP counts the threads of a launch in 32 bits. Kernels loop over what is left; those of tiles are launched again.
MOST_BLOCKS: Final = (1 << 32) // BLOCK - 1

PACK_BYTES: Final = 16
"""What a thread loads or stores at once."""


def ceil_divide(number: int, divisor: int) -> int:
    """`number` / `divisor`, rounded up."""
    return -(-number // divisor)


def blocks_for(count: int, itemsize: int, packs: int = 1) -> int:
    """The blocks in which each thread has `packs` packs of 16 bytes of `count` elements."""
    return ceil_divide(count, BLOCK * packs * (PACK_BYTES // itemsize))
