"""Layouts as BLAS libraries take matrices."""

from functools import lru_cache
from typing import Final, NamedTuple

from ....core.layout import Layout, collapse
from ....program.values import Address

# BLAS counts rows, columns and steps in 32 bits.
LARGEST_COUNT: Final = (1 << 31) - 1


class Matrices(NamedTuple):
    """A batch of matrices as a library that lays out columns first sees them: each one is transposed there already.

    Consecutive rows are `leading` elements from each other; if `transposed`, columns are. Consecutive matrices are
    `step` elements from each other, 0 if all are one.
    """

    address: Address
    transposed: bool
    leading: int
    step: int


def matrices(address: Address, layout: Layout, itemsize: int) -> Matrices | None:
    """The last two dims of a layout of at least two, in a storage at `address`, as matrices of a batch of the others.

    None where no library can step like this; a contiguous copy can be taken unless it is too large for all of them.
    """
    arrangement = _arranged(layout.shape, layout.strides)
    return None if arrangement is None else Matrices(address + layout.start_offset * itemsize, *arrangement)


@lru_cache(maxsize=4096)
def _arranged(dims: tuple[int, ...], strides: tuple[int, ...]) -> tuple[bool, int, int] | None:
    """Whether columns are what `leading` steps over, `leading` and `step`."""
    *batch, rows, columns = dims
    row_stride, column_stride = strides[-2:]
    if (column_stride == 1 or columns == 1) and (row_stride >= columns or rows == 1):
        transposed, leading = False, row_stride if rows > 1 else columns
    elif (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1):
        transposed, leading = True, column_stride if columns > 1 else rows
    else:
        return None
    if max(*dims, leading) > LARGEST_COUNT:
        return None
    _, (steps,) = collapse(tuple(batch), (strides[:-2],))
    if len(steps) > 1:
        return None
    return transposed, leading, steps[0] if steps else rows * columns
