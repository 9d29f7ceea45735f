"""Pooling of (b, c, ..) along one to three dims, and its gradients: what their launches need."""

from __future__ import annotations

from functools import lru_cache

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE
from ....base.error import InvalidArgument
from ....core.pool import ParamsPool
from ....core.pool import volumes_of as volumes_of
from ....program.values import Operand
from ..driver.grid import ceil_divide
from .geometry import LIMIT, Dims, Part, merged, plane_parts, strided_block


def steps_of(x: Operand) -> Dims:
    """The strides along depth, height and width."""
    return x.as_rank(5).strides[2:]


def fields(op: str, params: ParamsPool) -> arguments.Pool:
    """The numbers of a pool as kernels take them; they add some of them up in 31 bits."""
    if params.farthest >= LIMIT:
        raise InvalidArgument(op, f"one dim has more than {LIMIT - 1} positions; use smaller windows")
    return arguments.Pool(*params.numbers)


@lru_cache(maxsize=1024)
def packs(op: str, itemsize: int, shape: Dims, strides: Dims) -> tuple[Part, ...]:
    """The launches over packs of elements of the rows of a contiguous (b, c, d, h, w) and planes at strides."""
    b, c, depth, height, width = shape
    # As the kernels have it.
    length = strided_block(itemsize) // BLOCK_SIZE
    across = ceil_divide(width, length if width >= length else 1)
    volume = depth * height * width
    if depth * height * across >= LIMIT:
        raise InvalidArgument(op, f"one volume has more than {LIMIT - 1} elements; use smaller ones")
    dims, steps = merged((b, c), ((c * volume, volume), strides))
    to, offset = [(*operand, 0, 0, 0) for operand in steps]
    return plane_parts(op, BLOCK_SIZE, (*dims, depth, height, across), (to, offset), 0)
