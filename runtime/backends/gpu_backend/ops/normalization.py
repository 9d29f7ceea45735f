"""Normalisation of channels: sums of parts of them, which are joined to statistics, and a pass that writes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ..... import results
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, COLUMN_ELEMENTS, REDUCE_IN_FLIGHT, ROW_TEAM
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Memory, Operand, StorageOrBuffer, address_of
from ..driver.grid import ceil_divide, power_of_two
from . import copy
from .scalar import element_bits

_FAMILY: Final = "normalization"
# Below this many blocks for each multiprocessor, the positions of a channel are cut into parts.
_BUSY_BLOCKS: Final = 4
_MAX_SPLITS: Final = 1024
# A thread sums at most so many accesses, so that rounding errors stay small.
_MAX_ACCESSES: Final = 512
# A wave joins fewer parts of a group than these, a block more.
_WAVE_PARTS: Final = 64


class _Grid(NamedTuple):
    """How elements are cut, and channels joined to groups: see normalization.yaml."""

    batch: int
    channels: int
    length: int
    splits: int
    chunk: int
    team: int
    blocks: int
    group_size: int
    batch_groups: int

    @property
    def parts(self) -> int:
        """How many parts a group of channels has."""
        return (1 if self.batch_groups else self.batch) * self.splits * self.group_size

    def fields(self, x: Operand, gradient: Operand | None, team: int) -> arguments.Channels:
        """The fields that kernels share; those that join parts have another team."""
        strides = [(0, 0) if each is None else (each.strides[0], each.strides[1]) for each in (x, gradient)]
        (source_batch, source_step), (gradient_batch, gradient_step) = strides
        return arguments.Channels(
            source_batch, source_step, gradient_batch, gradient_step, self.batch, self.channels, self.length,
            self.splits, self.chunk, team, self.group_size, self.batch_groups,
        )  # fmt: skip


def normalize_groups(
    build: ProgramBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Buffer, ...]:
    """The normalised elements, and the mean and the variance of each group."""
    x, (weight, bias) = _in_rows(build, x), _contiguous(build, weight, bias)
    result, mean, variance = map(build.output, results.normalize_groups(x, groups, whole_batch))
    grid = _grid_of(build, x, dim, groups, whole_batch)
    sums = _sums(build, grid, x, dim)
    team = _joining_team(grid.parts)
    packed = arguments.channel_statistics(
        sums=sums.address, mean=mean.address, variance=variance.address, groups=mean.length,
        channels=grid.fields(x, None, team),
    )  # fmt: skip
    kernel = f"channel_statistics_{x.dtype.compute.value}"
    build.launch(_FAMILY, kernel, ceil_divide(mean.length * team, BLOCK_SIZE), packed)
    _write(build, grid, x, dim, result, (mean, variance), (weight, bias), eps)
    return result, mean, variance


def normalize_groups_gradient(
    build: ProgramBuilder,
    x: Operand,
    weight: Operand | None,
    mean: Operand,
    variance: Operand,
    gradient: Operand,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Buffer, ...]:
    """The gradients of the elements, of the weight and of the bias."""
    x, gradient = _in_rows(build, x), _in_rows(build, gradient)
    mean, variance = copy.contiguous(build, mean), copy.contiguous(build, variance)
    (weight,) = _contiguous(build, weight)
    result, of_weight, of_bias = map(build.output, results.normalize_groups_gradient(x, dim))
    grid, compute, count = _grid_of(build, x, dim, groups, whole_batch), x.dtype.compute, mean.layout.elem_count
    sums = _sums(build, grid, x, dim, gradient, mean)
    totals = build.allocate(count * 2 * compute.itemsize)
    team = _joining_team(max(grid.parts, grid.batch * grid.splits))
    elements = grid.group_size * grid.length * (grid.batch if whole_batch else 1)
    packed = arguments.channel_gradients(
        sums=sums.address, totals=totals.address, variance=variance.address, weight=address_of(weight),
        weight_gradient=of_weight.address, bias_gradient=of_bias.address, epsilon=element_bits(eps, compute),
        share=element_bits(1 / max(elements, 1), compute), groups=count, wide_affine=_is_wide(x, weight),
        channels=grid.fields(x, gradient, team),
    )  # fmt: skip
    blocks = ceil_divide((count + grid.channels) * team, BLOCK_SIZE)
    build.launch(_FAMILY, f"channel_gradients_{x.dtype.value}", blocks, packed)
    _write(build, grid, x, dim, result, (mean, variance), (weight, None), eps, gradient, totals)
    return result, of_weight, of_bias


def normalize_channels(
    build: ProgramBuilder,
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None,
    bias: Operand | None,
    dim: int,
    eps: float,
) -> Buffer:
    """The elements normalised by a mean and a variance given for each channel."""
    x, (weight, bias) = _in_rows(build, x), _contiguous(build, weight, bias)
    mean, variance = copy.contiguous(build, mean), copy.contiguous(build, variance)
    result = build.empty(x.dtype, x.layout.elem_count)
    grid = _grid_of(build, x, dim, x.shape[dim], True)
    _write(build, grid, x, dim, result, (mean, variance), (weight, bias), eps)
    return result


def _in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements with those of the last dim side by side: where they are, else copied."""
    return x if x.strides[2] == 1 or x.shape[2] == 1 else copy.copied(build, x)


def _contiguous(build: ProgramBuilder, *vectors: Operand | None) -> list[Operand | None]:
    return [None if vector is None else copy.contiguous(build, vector) for vector in vectors]


def _is_wide(x: Operand, *vectors: Operand | Buffer | None) -> bool:
    """Whether vectors are in the compute dtype of the elements; where all are left out no kernel asks."""
    return any(_storage(vector).dtype is not x.dtype for vector in vectors if vector is not None)


def _storage(vector: Operand | Buffer) -> StorageOrBuffer:
    return vector.storage if isinstance(vector, Operand) else vector


def _sums(
    build: ProgramBuilder,
    grid: _Grid,
    x: Operand,
    dim: int,
    gradient: Operand | None = None,
    mean: Operand | None = None,
) -> Memory:
    """Two sums of each part of a channel."""
    sums = build.allocate(grid.batch * grid.splits * grid.channels * 2 * x.dtype.compute.itemsize)
    packed = arguments.channel_sums(
        source=x.address, gradient=address_of(gradient), sums=sums.address, mean=address_of(mean),
        channels=grid.fields(x, gradient, grid.team),
    )  # fmt: skip
    kernel = "channel_sums" if gradient is None else "channel_gradient_sums"
    build.launch(_FAMILY, f"{kernel}_{x.dtype.value}_{_KINDS[dim]}", grid.blocks, packed)
    return sums


def _write(
    build: ProgramBuilder,
    grid: _Grid,
    x: Operand,
    dim: int,
    result: Buffer,
    statistics: tuple[Operand | Buffer, Operand | Buffer],
    affine: tuple[Operand | None, Operand | None],
    eps: float,
    gradient: Operand | None = None,
    totals: Memory | None = None,
) -> None:
    """Write the normalised elements, or their gradients."""
    mean, variance = statistics
    packed = arguments.channel_write(
        result=result.address, source=x.address, gradient=address_of(gradient), totals=address_of(totals),
        mean=mean.address, variance=variance.address, weight=address_of(affine[0]), bias=address_of(affine[1]),
        epsilon=element_bits(eps, x.dtype.compute), wide_affine=_is_wide(x, *affine),
        wide_statistics=_is_wide(x, mean), channels=grid.fields(x, gradient, grid.team),
    )  # fmt: skip
    kernel = "channel_scale" if gradient is None else "channel_slope"
    build.launch(_FAMILY, f"{kernel}_{x.dtype.value}_{_KINDS[dim]}", grid.blocks, packed)


# Where the channels are along dim 1 rows are the positions of one, else the channels of a position.
_KINDS: Final = {1: "rows", 2: "columns"}


def _grid_of(build: ProgramBuilder, x: Operand, dim: int, groups: int, whole_batch: bool) -> _Grid:
    return _grid(x.shape, dim, groups, whole_batch, x.itemsize, build.facts.multiprocessors)


@lru_cache(maxsize=4096)
def _grid(
    shape: tuple[int, ...], dim: int, groups: int, whole_batch: bool, itemsize: int, multiprocessors: int
) -> _Grid:
    batch, channels, length = shape[0], shape[dim], shape[3 - dim]
    wanted = _BUSY_BLOCKS * multiprocessors
    if dim == 1:
        unit = ACCESS_BYTES // itemsize
        accesses = ceil_divide(length, unit)
        rows = batch * channels
        team = min(ROW_TEAM, power_of_two(max(accesses, 1)))
        if accesses > ROW_TEAM * REDUCE_IN_FLIGHT and rows * team < wanted * BLOCK_SIZE:
            team = BLOCK_SIZE
        per_split, at_once = ceil_divide(rows * team, BLOCK_SIZE), team * unit
    else:
        packs = ceil_divide(channels, COLUMN_ELEMENTS[itemsize])
        team = min(ROW_TEAM, power_of_two(max(packs, 1)))
        per_split, at_once = batch * ceil_divide(packs, team), BLOCK_SIZE // team
    splits = min(wanted // max(per_split, 1), length // (at_once * REDUCE_IN_FLIGHT), _MAX_SPLITS)
    splits = max(splits, ceil_divide(length, at_once * _MAX_ACCESSES))
    chunk = ceil_divide(ceil_divide(length, max(splits, 1)), at_once) * at_once
    splits = ceil_divide(length, max(chunk, 1))
    blocks = 0
    if length and dim == 1:
        blocks = ceil_divide(batch * channels * splits * team, BLOCK_SIZE)
    elif length:
        blocks = per_split * splits
    group_size = channels // groups
    return _Grid(batch, channels, length, splits, chunk, team, blocks, group_size, 0 if whole_batch else groups)


def _joining_team(parts: int) -> int:
    """How many threads join so many parts."""
    return BLOCK_SIZE if parts > _WAVE_PARTS else min(ROW_TEAM, power_of_two(max(parts, 1)))
