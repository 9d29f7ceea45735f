"""Rows of elements side by side: how many threads take one, and what of it each holds in registers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels.arguments import Geometry
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROW_TEAM
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from ..driver.grid import ceil_divide, power_of_two
from . import copy
from .geometry import Dims, merged, packed_dims, split

# Below this many blocks for each multiprocessor, long rows are cut into parts of several blocks.
_BUSY_BLOCKS: Final = 4
# A thread holds so many packs where more threads could take the row.
_GOOD_PACKS: Final = 4
# A thread has so many packs at least of a part, so that what is known of the parts is little to read.
_MIN_PACKS: Final = 4
_MAX_PARTS: Final = 1024
# Kernels number the elements of a row in 32 bits, and those before it from the end of these down.
_MAX_IN_ROW: Final = (1 << 32) - (1 << 20)


class Rows(NamedTuple):
    """One launch, of the rows from row `first` on. With a `team` it holds rows in registers, else it takes parts."""

    first: int
    offsets: Dims
    """Where the first row begins in each operand."""
    rows: int
    length: int
    kernel: str
    """With a team, the end of its name: the packs of a thread, of rows of whole packs or of rows with other ends."""
    team: int
    splits: int
    """Into how many parts a row is cut, and the packs of each."""
    chunk: int
    geometry: Geometry

    @property
    def blocks(self) -> int:
        """A block for as many teams as it has, or for each part."""
        return ceil_divide(self.rows * self.team, BLOCK_SIZE) if self.team else self.rows * self.splits


def in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements in rows that are cut into accesses where those of dense ones are: where they are, else copied."""
    is_there = x.address.is_aligned() and _is_cut_alike(x.shape, x.strides, ACCESS_BYTES // x.itemsize)
    return x if is_there else copy.copied(build, x)


@lru_cache(maxsize=4096)
def _is_cut_alike(shape: Dims, strides: Dims, unit: int) -> bool:
    steps = zip(shape[:-1], strides[:-1], copy.row_major(shape)[:-1], strict=True)
    is_dense = strides[-1] == 1 or shape[-1] == 1
    return is_dense and all(size == 1 or (step - natural) % unit == 0 for size, step, natural in steps)


def moved_last(x: Operand, dim: int) -> Operand:
    """The elements with a dim behind the others."""
    order = [*range(dim), *range(dim + 1, len(x.shape)), dim]
    return x.relaid(tuple([x.shape[d] for d in order]), tuple([x.strides[d] for d in order]))


def moved_back(build: ProgramBuilder, made: Buffer, shape: Dims, dim: int) -> Buffer:
    """What was made of rows along a dim of a shape, which were moved last, in row-major order of the shape."""
    order = [*range(dim), len(shape) - 1, *range(dim, len(shape) - 1)]
    strides = copy.row_major((*shape[:dim], *shape[dim + 1 :], shape[dim]))
    there = dense(made, shape).relaid(shape, tuple([strides[d] for d in order]))
    return made if there.layout.is_contiguous else copy.fresh(build, there)


def launches(build: ProgramBuilder, op: str, most_held: int, *operands: Operand) -> tuple[Rows, ...]:
    """The launches over operands that are `in_rows`, of one shape and dtype and at least one element.

    Kernels hold 1, 2, 4 and so on up to `most_held` packs of a row in a thread.
    """
    x = operands[0]
    strides = tuple([operand.strides[:-1] for operand in operands])
    return _launches(op, most_held, x.shape, strides, ACCESS_BYTES // x.itemsize, build.facts.multiprocessors)


@lru_cache(maxsize=4096)
def _launches(
    op: str, most_held: int, shape: Dims, strides: tuple[Dims, ...], unit: int, multiprocessors: int
) -> tuple[Rows, ...]:
    *outer, length = shape
    if length > _MAX_IN_ROW:
        raise InvalidArgument(op, f"a row has at most {_MAX_IN_ROW} elements, not {length}; cut it into several")
    dims, strides = merged(tuple(outer), strides)
    # A row that begins within an access may reach into one more.
    is_even = length % unit == 0 or not dims
    max_packs = ceil_divide(length if is_even else length + unit - 1, unit)
    held = _held(max_packs, most_held)
    found = []
    for piece in split(dims, strides):
        rows = math.prod(piece.dims)
        packs, team = held or (0, 0)
        kernel = f"{'ends' if length % unit else 'held'}{packs}"
        splits, chunk = (1, max_packs) if held else _parts(rows, max_packs, multiprocessors)
        geometry = packed_dims(piece.dims, strides)
        found.append(Rows(piece.first, piece.offsets, rows, length, kernel, team, splits, chunk, geometry))
    return tuple(found)


def _held(packs: int, most: int) -> tuple[int, int] | None:
    """What a thread holds of a row of so many packs, and how many threads take one; None where it is too long."""
    if packs > most * BLOCK_SIZE:
        return None
    # Lanes of a wave need no barrier, and several packs in flight are better than one: first two, then more of them, as
    # then fewer threads have to tell each other what they know.
    held = 1 if packs == 1 else 2
    while held < min(most, _GOOD_PACKS) and packs > held * ROW_TEAM:
        held *= 2
    while packs > held * BLOCK_SIZE:
        held *= 2
    return held, power_of_two(ceil_divide(packs, held))


def _parts(rows: int, packs: int, multiprocessors: int) -> tuple[int, int]:
    """Into how many parts rows of so many packs are cut, and the packs of each."""
    wanted = _BUSY_BLOCKS * multiprocessors // rows
    splits = max(min(wanted, packs // (_MIN_PACKS * BLOCK_SIZE), _MAX_PARTS), 1)
    chunk = ceil_divide(ceil_divide(packs, splits), BLOCK_SIZE) * BLOCK_SIZE
    return ceil_divide(packs, chunk), chunk
