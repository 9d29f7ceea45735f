"""How kernels are cut into blocks."""

from typing import Final

from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE

# HIP counts the threads of a launch in 32 bits. Kernels loop over what is left; those of tiles are launched again.
MAX_BLOCKS: Final = (1 << 32) // BLOCK_SIZE - 1
# The most activation rows that are multiplied at once with weights that are floats, and with block-quantized ones.
FEW_ROWS_OF_X: Final = 8
MAX_ROWS_OF_X: Final = 16


def ceil_divide(number: int, divisor: int) -> int:
    """`number` / `divisor`, rounded up."""
    return -(-number // divisor)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def blocks_for(count: int, itemsize: int, packs: int = 1) -> int:
    """The blocks in which each thread has `packs` packs of `count` elements."""
    return -(-count // (BLOCK_SIZE * packs * (ACCESS_BYTES // itemsize)))
