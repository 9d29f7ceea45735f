"""Dims, strides and divisors as kernels take them.

Everything here is worked out once for a combination of shapes and strides: a program repeats them, and working one out
takes longer than a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels.arguments import Geometry
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, SIDE_BY_SIDE, TILE_SIDE
from .....limits import MAX_RANK
from ....base.error import InvalidArgument
from ....core.layout import collapse
from ..driver.grid import MAX_BLOCKS, ceil_divide

Dims = tuple[int, ...]

# Kernels number elements in 32 bits, and divide such a number by a dim through a product only below this.
LIMIT: Final = 1 << 31
# With fewer elements along a side, tiles stay too empty to pay.
_MIN_SIDE: Final = 16


class Part(NamedTuple):
    """One launch: all elements of an op, or as many as 32 bits number."""

    blocks: int
    first: int
    """The row-major number of the first element."""
    offsets: Dims
    """The first element of each operand."""
    elements: int
    """How many elements; where tiles are launched, the number of the first one."""
    geometry: Geometry


def blocks_of(threads: int) -> int:
    """Return the number of blocks for `count` threads, up to the most of a launch: threads loop over the others."""
    return min(ceil_divide(threads, BLOCK_SIZE), MAX_BLOCKS)


def strided_block(itemsize: int) -> int:
    """How many elements a block of a strided kernel takes, by the bytes of the widest."""
    return BLOCK_SIZE * min(ACCESS_BYTES // itemsize, SIDE_BY_SIDE)


def packed_block(itemsize: int, row: int) -> int:
    """Return it where rows, the innermost dim, may be shorter than a pack: then a thread takes one element."""
    packs = strided_block(itemsize)
    return BLOCK_SIZE if row < packs // BLOCK_SIZE else packs


@lru_cache(maxsize=4096)
def divisor(size: int) -> tuple[int, int]:
    """The multiplier and the shift by which kernels divide (Granlund and Montgomery 1994)."""
    if size == 0:
        # Nothing is divided by it: there are no elements.
        size = 1
    shift = (size - 1).bit_length()
    return (1 << 32) * ((1 << shift) - size) // size + 1, shift


def packed_dims(dims: Dims, strides: Sequence[Dims], absent: int = 0) -> Geometry:
    """The fields rank, dims, multipliers, shifts and strides, innermost first and filled up to the most dims.

    No dims are one element. So many operands more are `absent`.
    """
    padding = (0,) * (MAX_RANK - len(dims))
    steps: Dims = ()
    for operand in strides:
        steps += operand[::-1] + padding
    if absent:
        steps += (0,) * (absent * MAX_RANK)
    if not dims:
        return Geometry((0, 1, *padding[1:], 1, *padding[1:], 0, *padding[1:], *steps))
    inner = dims[::-1]
    multipliers, shifts = zip(*map(divisor, inner), strict=True)
    return Geometry((len(inner), *inner, *padding, *multipliers, *padding, *shifts, *padding, *steps))


def merged(dims: Dims, strides: Sequence[Dims]) -> tuple[Dims, tuple[Dims, ...]]:
    """The fewest dims, and strides of each operand, that reach the same elements in the same order."""
    return collapse(dims, tuple(strides))


class Piece(NamedTuple):
    """Some of the elements of dims and strides, and what was left out before them."""

    first: int
    offsets: Dims
    dims: Dims


def split(dims: Dims, strides: Sequence[Dims], limit: int = LIMIT) -> Iterator[Piece]:
    """Cut into pieces of fewer than `limit` elements each, that follow each other in row-major order."""
    if math.prod(dims) < limit:
        yield Piece(0, (0,) * len(strides), dims)
        return
    size, *outer = dims
    inner = math.prod(outer)
    length = max((limit - 1) // inner, 1)
    # Where a part begins, aligned accesses still fit, of elements of one byte too.
    if length > ACCESS_BYTES:
        length -= length % ACCESS_BYTES
    for start in range(0, size, length):
        below = (min(length, size - start), *outer) if length > 1 else tuple(outer)
        steps = strides if length > 1 else [operand[1:] for operand in strides]
        for piece in split(below, steps, limit):
            offsets = [start * operand[0] + offset for operand, offset in zip(strides, piece.offsets, strict=True)]
            ones = (1,) * (len(dims) - len(piece.dims))
            yield Piece(start * inner + piece.first, tuple(offsets), (*ones, *piece.dims))


@lru_cache(maxsize=4096)
def parts(per_block: int, dims: Dims, strides: tuple[Dims, ...], limit: int = LIMIT) -> tuple[Part, ...]:
    """The launches over elements numbered in row-major order, of which a block takes `per_block`; dims are merged."""
    return tuple(_parts(per_block, *merged(dims, strides), limit))


@lru_cache(maxsize=1024)
def plane_parts(op: str, per_block: int, dims: Dims, strides: tuple[Dims, ...], positions: int) -> tuple[Part, ...]:
    """Like `parts` without merging dims, where the first `positions` operands are positions and no elements.

    A position cannot begin elsewhere than at 0: InvalidArgument where that would take more than 32 bits.
    """
    split = tuple(_parts(per_block, dims, strides, LIMIT))
    if any(any(part.offsets[:positions]) for part in split):
        raise InvalidArgument(op, f"one image has more than {LIMIT - 1} positions; use smaller images")
    return split


def _parts(per_block: int, dims: Dims, strides: Sequence[Dims], limit: int) -> Iterator[Part]:
    for piece in split(dims, strides, limit):
        count = math.prod(piece.dims)
        geometry = packed_dims(piece.dims, strides)
        yield Part(ceil_divide(count, per_block), piece.first, piece.offsets, count, geometry)


def tiled(dims: Dims, strides: Sequence[Dims], transposed: int, itemsize: int) -> tuple[Part, ...] | None:
    """Launches by tiles of merged dims in which operand 0 is dense in the last and operand `transposed` in another one.

    None where they do not lie like that, or where tiles would stay mostly empty.
    """
    side = TILE_SIDE.get(itemsize)
    if side is None or len(dims) < 2 or strides[0][-1] != 1 or strides[transposed][-1] <= 1:
        return None
    long = [dim for dim, size in enumerate(dims) if size >= _MIN_SIDE]
    along = next((dim for dim in long if strides[transposed][dim] == 1), None)
    if along is None or dims[-1] < _MIN_SIDE:
        return None
    last = len(dims) - 1
    order = [*(dim for dim in range(last) if dim != along), along, last]
    sizes = tuple(dims[dim] for dim in order)
    tiles = ceil_divide(dims[along], side) * ceil_divide(dims[last], side) * math.prod(sizes[:-2])
    if max(tiles, *sizes) >= LIMIT:
        return None
    geometry = packed_dims(sizes, [tuple(operand[dim] for dim in order) for operand in strides])
    # A block has one tile.
    return tuple(
        Part(min(tiles - first, MAX_BLOCKS), 0, (0,) * len(strides), first, geometry)
        for first in range(0, tiles, MAX_BLOCKS)
    )
