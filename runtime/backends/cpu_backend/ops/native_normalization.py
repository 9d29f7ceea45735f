"""Normalisation of channels by the kernels for the host: what its launches need."""

from __future__ import annotations

from typing import Final, NamedTuple

from ....program.builder import ProgramBuilder
from ....program.values import Operand
from .native import copied

# Parts of the rows of an item: as many as threads may share, whatever their number, each of a minimum of elements.
_MAX_PARTS: Final = 64
_PART_LENGTH: Final = 1 << 14


class Cut(NamedTuple):
    """How elements are divided into parts, and channels into groups: see host_normalization.yaml."""

    vectors: int
    """How many items have statistics of their own."""
    splits: int
    chunk: int
    group_size: int
    batch_groups: int


def cut(shape: tuple[int, ...], dim: int, groups: int | None, whole_batch: bool | None) -> Cut:
    """The parts and the groups; without groups, all items share the statistics of each channel."""
    batch, channels, length = shape[0], shape[dim], shape[3 - dim]
    vectors = batch if groups is not None and not whole_batch else 1
    splits, chunk = vectors // max(batch, 1), length
    if dim == 2:
        most = min(max(batch * channels * length // _PART_LENGTH, 1), _MAX_PARTS)
        chunk = max(-(-length * batch // most), 1)
        splits = -(-length // chunk) if batch else 0
    group_size = 1 if groups is None else channels // groups
    return Cut(vectors, splits, chunk, group_size, groups if groups is not None and not whole_batch else 0)


def in_rows(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements with those of the last dim side by side: in place if they are, else copied."""
    return x if x.strides[2] == 1 or x.shape[2] == 1 else copied(build, x)
