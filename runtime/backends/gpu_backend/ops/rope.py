"""Rotary embeddings: how threads share out the pairs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROPE_HEADS
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Number, Operand, Pointer, alignment_of
from ..driver.grid import ceil_divide
from . import copy, index
from .geometry import Dims, Part, merged, parts


def check(build: ProgramBuilder, positions: Operand, size: int) -> None:
    """Check positions in memory that no kernel reads."""
    if positions.storage.number is None:
        index.check(build, index.Rows.of(build, "rope", positions, size))


def in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements with those of the last dim side by side: in place if they are, else in a copy."""
    return x if x.strides[-1] == 1 else copy.copied(build, x)


def position_of(positions: Operand) -> Number:
    """The position that a kernel takes along, of a number that has no memory."""
    number: Number | None = positions.storage.number
    return 0 if number is None else number


def positions_at(positions: Operand, offset: int) -> Pointer:
    """The address of positions from one on; NULL where a kernel takes the one along."""
    return NULL if positions.storage.number is not None else positions.address + offset * positions.itemsize


def plan(build: ProgramBuilder, x: Operand, cos: Operand, sin: Operand, positions: Operand, interleaved: bool) -> _Plan:
    """The launches."""
    step = positions.strides[0] if positions.layout.elem_count > 1 else 0
    alignment = alignment_of(x.address, cos.address, sin.address)
    return _plan(x.shape, x.strides, step, x.itemsize, alignment, interleaved, build.facts.multiprocessors)


# Threads rotate more heads each as long as this many blocks remain for each multiprocessor.
_BUSY_BLOCKS: Final = 8


class _Plan(NamedTuple):
    """How threads share out the pairs."""

    is_packed: bool
    heads: int
    rotated: int
    """By a thread, which reads the angles once."""
    source_stride: int
    """From one head to the next."""
    result_stride: int
    parts: tuple[Part, ...]


@lru_cache(maxsize=4096)
def _plan(
    shape: Dims, strides: Dims, step: int, itemsize: int, alignment: int, interleaved: bool, multiprocessors: int
) -> _Plan:
    *before, tokens, size = shape
    natural = copy.row_major(shape)
    positions = (step, *(0,) * (len(before) - 1)) if before else ()
    dims, (source, target, index) = merged(tuple(before), (strides[:-2], natural[:-2], positions))
    if not dims or index[-1]:
        dims, source, target, index = (*dims, 1), (*source, 0), (*target, 0), (*index, 0)
    *outer, heads = dims
    pack = ACCESS_BYTES // itemsize
    width = size if interleaved else size // 2
    is_packed = alignment == ACCESS_BYTES and width % pack == 0 and all(each % pack == 0 for each in strides[:-1])
    # The elements of a thread that are adjacent, and the angles.
    unit = pack if is_packed else 1 + interleaved
    angles = unit // 2 if interleaved else unit
    threads = math.prod(outer) * tokens * (width // unit)
    rotated = ROPE_HEADS
    while rotated < heads and threads * ceil_divide(heads, 2 * rotated) >= _BUSY_BLOCKS * multiprocessors * BLOCK_SIZE:
        rotated *= 2
    still = (0,) * len(outer)
    operands = (
        (*source[:-1], source[-1] * rotated, strides[-2], unit),
        (*target[:-1], target[-1] * rotated, natural[-2], unit),
        (*still, 0, size // 2, angles),
        (*index[:-1], 0, 0, 0),
        (*still, rotated, 0, 0),
    )
    launches = parts(BLOCK_SIZE, (*outer, ceil_divide(heads, rotated), tokens, width // unit), operands)
    return _Plan(is_packed, heads, rotated, source[-1], target[-1], launches)
