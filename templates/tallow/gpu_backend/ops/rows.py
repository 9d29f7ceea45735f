"""Rows of elements side by side: how many threads take one, and what of it each holds in registers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from ...error import InvalidArgument
from ...kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROW_TEAM
from ..utils import ceil_divide
from . import copy
from .geometry import Dims, merged, packed_dims, split
from .operand import Operand

# The packs that a thread may hold, by the kernels that there are.
_HELD: Final = (1, 2, 4, 8)
# Below this many blocks for each multiprocessor, long rows are cut into parts of several blocks.
_BUSY_BLOCKS: Final = 4
# A thread has so many packs at least of a part, so that what is known of the parts is little to read.
_LEAST_PACKS: Final = 4
_MOST_PARTS: Final = 1024
# Kernels number the elements of a row in 32 bits, and those before it from the end of these down.
_MOST_IN_ROW: Final = (1 << 32) - (1 << 20)


class Rows(NamedTuple):
    """One launch, of the rows from row `first` on. With a `team` it holds rows in registers, else it takes parts."""

    first: int
    offsets: Dims
    """Where the first row begins in each operand."""
    rows: int
    length: int
    packs: int
    """What a thread of the team holds."""
    team: int
    splits: int
    """Into how many parts a row is cut, and the packs of each."""
    chunk: int
    fields: Dims
    """The arguments from rank on."""

    @property
    def blocks(self) -> int:
        """A block for as many teams as it has, or for each part."""
        return ceil_divide(self.rows * self.team, BLOCK_SIZE) if self.team else self.rows * self.splits


def in_rows(x: Operand) -> Operand:
    """The elements with those of the last dim side by side: where they are if they are so, else copied."""
    return x if x.strides[-1] == 1 or x.shape[-1] <= 1 else copy.contiguous(x)


def launches(op: str, *operands: Operand) -> tuple[Rows, ...]:
    """The launches over the rows of operands of one shape and dtype, of which there is at least one element."""
    x = operands[0]
    strides = tuple([operand.strides[:-1] for operand in operands])
    multiprocessors = x.device.driver.multiprocessors
    return _launches(op, x.shape, strides, x.itemsize, x.address % ACCESS_BYTES, multiprocessors)


@lru_cache(maxsize=4096)
def _launches(
    op: str, shape: Dims, strides: tuple[Dims, ...], itemsize: int, misaligned: int, multiprocessors: int
) -> tuple[Rows, ...]:
    *outer, length = shape
    if length > _MOST_IN_ROW:
        raise InvalidArgument(op, f"a row has at most {_MOST_IN_ROW} elements, not {length}; cut it into several")
    dims, strides = merged(tuple(outer), strides)
    unit = ACCESS_BYTES // itemsize
    is_even = misaligned == 0 and all(step % unit == 0 for step in (length, *strides[0]))
    most_packs = ceil_divide(length if is_even else length + unit - 1, unit)
    held = _held(most_packs)
    found = []
    for piece in split(dims, strides):
        rows = math.prod(piece.dims)
        packs, team = held or (0, 0)
        splits, chunk = (1, most_packs) if held else _parts(rows, most_packs, multiprocessors)
        fields = packed_dims(piece.dims, strides)
        found.append(Rows(piece.first, piece.offsets, rows, length, packs, team, splits, chunk, fields))
    return tuple(found)


def _held(packs: int) -> tuple[int, int] | None:
    """What a thread holds of a row of so many packs, and how many threads take one; None where it is too long."""
    # Two packs in flight are better than one, and lanes of a wave need no barrier.
    for count in (2, 4, 8):
        if packs <= ROW_TEAM * count:
            team = 1 << (ceil_divide(packs, count) - 1).bit_length()
            return (1, 1) if packs == 1 else (count, team)
    return next(((count, BLOCK_SIZE) for count in _HELD if packs <= BLOCK_SIZE * count), None)


def _parts(rows: int, packs: int, multiprocessors: int) -> tuple[int, int]:
    """Into how many parts rows of so many packs are cut, and the packs of each."""
    wanted = _BUSY_BLOCKS * multiprocessors // rows
    splits = max(min(wanted, packs // (_LEAST_PACKS * BLOCK_SIZE), _MOST_PARTS), 1)
    chunk = ceil_divide(ceil_divide(packs, splits), BLOCK_SIZE) * BLOCK_SIZE
    return ceil_divide(packs, chunk), chunk
