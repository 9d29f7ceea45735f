"""Normalisation of channels: partial sums, which are combined to statistics, and a pass that writes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, COLUMN_ELEMENTS, REDUCE_IN_FLIGHT, ROW_SUBGROUP
from ....program.builder import ProgramBuilder
from ....program.values import Operand
from ..driver.grid import ceil_divide, power_of_two
from . import copy

# Below this many blocks for each multiprocessor, the positions of a channel are cut into parts.
_BUSY_BLOCKS: Final = 4
_MAX_SPLITS: Final = 1024
# A thread sums at most this many accesses, so that rounding errors stay small.
_MAX_ACCESSES: Final = 512
# A wave joins fewer parts of a group than these, a block more.
_WAVE_PARTS: Final = 64


class Grid(NamedTuple):
    """How elements are cut, and channels grouped: see normalization.yaml."""

    batch: int
    channels: int
    length: int
    splits: int
    chunk: int
    subgroup_size: int
    blocks: int
    group_size: int
    batch_groups: int

    @property
    def parts(self) -> int:
        """How many parts a group of channels has."""
        return (1 if self.batch_groups else self.batch) * self.splits * self.group_size


def fields(grid: Grid, x: Operand, gradient: Operand | None, subgroup_size: int) -> arguments.Channels:
    """The fields that kernels share; those that combine parts have another subgroup."""
    strides = [(0, 0) if each is None else (each.strides[0], each.strides[1]) for each in (x, gradient)]
    (source_batch, source_step), (gradient_batch, gradient_step) = strides
    return arguments.Channels(
        source_batch, source_step, gradient_batch, gradient_step, grid.batch, grid.channels, grid.length, grid.splits,
        grid.chunk, subgroup_size, grid.group_size, grid.batch_groups,
    )  # fmt: skip


def in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements with those of the last dim side by side: in place if they are, else copied."""
    return x if x.strides[2] == 1 or x.shape[2] == 1 else copy.copied(build, x)


def share_of(grid: Grid, whole_batch: bool) -> float:
    """The share of an element in the mean of its group."""
    elements = grid.group_size * grid.length * (grid.batch if whole_batch else 1)
    return 1 / max(elements, 1)


def grid_of(build: ProgramBuilder, x: Operand, dim: int, groups: int | None, whole_batch: bool | None) -> Grid:
    """The grid of elements; without groups, all items share the statistics of each channel."""
    groups, whole_batch = x.shape[dim] if groups is None else groups, whole_batch is None or whole_batch
    return _grid(x.shape, dim, groups, whole_batch, x.itemsize, build.facts.multiprocessors)


@lru_cache(maxsize=4096)
def _grid(
    shape: tuple[int, ...], dim: int, groups: int, whole_batch: bool, itemsize: int, multiprocessors: int
) -> Grid:
    batch, channels, length = shape[0], shape[dim], shape[3 - dim]
    wanted = _BUSY_BLOCKS * multiprocessors
    if dim == 1:
        unit = ACCESS_BYTES // itemsize
        accesses = ceil_divide(length, unit)
        rows = batch * channels
        subgroup_size = min(ROW_SUBGROUP, power_of_two(max(accesses, 1)))
        if accesses > ROW_SUBGROUP * REDUCE_IN_FLIGHT and rows * subgroup_size < wanted * BLOCK_SIZE:
            subgroup_size = BLOCK_SIZE
        per_split, at_once = ceil_divide(rows * subgroup_size, BLOCK_SIZE), subgroup_size * unit
    else:
        packs = ceil_divide(channels, COLUMN_ELEMENTS[itemsize])
        subgroup_size = min(ROW_SUBGROUP, power_of_two(max(packs, 1)))
        per_split, at_once = batch * ceil_divide(packs, subgroup_size), BLOCK_SIZE // subgroup_size
    splits = min(wanted // max(per_split, 1), length // (at_once * REDUCE_IN_FLIGHT), _MAX_SPLITS)
    splits = max(splits, ceil_divide(length, at_once * _MAX_ACCESSES))
    chunk = ceil_divide(ceil_divide(length, max(splits, 1)), at_once) * at_once
    splits = ceil_divide(length, max(chunk, 1))
    blocks = 0
    if length and dim == 1:
        blocks = ceil_divide(batch * channels * splits * subgroup_size, BLOCK_SIZE)
    elif length:
        blocks = per_split * splits
    group_size = channels // groups
    return Grid(batch, channels, length, splits, chunk, subgroup_size, blocks, group_size, 0 if whole_batch else groups)


def size_to_combine(parts: int) -> int:
    """Return the number of threads that combine `parts`."""
    return BLOCK_SIZE if parts > _WAVE_PARTS else min(ROW_SUBGROUP, power_of_two(max(parts, 1)))
