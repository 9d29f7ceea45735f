"""The shapes of results that take more than a formula: `result` of spec/storage calls these functions by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocols import HasShape

Sizes = tuple[int, ...]


def reduced(shape: Sizes, dims: Collection[int]) -> Sizes:
    """The shape after a reduction along dims, which keep size 1."""
    return tuple([1 if dim in dims else size for dim, size in enumerate(shape)])


def without_dim(shape: Sizes, dim: int) -> Sizes:
    """The shape of numbers of rows along a dim, of which -1 is the last one."""
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]


def concatenated(first: HasShape, others: Sequence[HasShape], dim: int) -> Sizes:
    """The shape of tensors that follow each other along a dim."""
    shape = first.shape
    return (*shape[:dim], shape[dim] + sum([other.shape[dim] for other in others]), *shape[dim + 1 :])


def padded(shape: Sizes, before: Sequence[int], after: Sequence[int]) -> Sizes:
    """The shape with new elements before and after each dim; negative numbers cut elements off."""
    return tuple([front + size + back for size, front, back in zip(shape, before, after, strict=True)])


def pooled(shape: Sizes, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Sizes:
    """The shape of what windows over (b, c, h, w) give."""
    *outer, height, width = shape
    return (*outer, (height - kernel_size[0]) // stride[0] + 1, (width - kernel_size[1]) // stride[1] + 1)


def in_memory_order(shape: Sizes, channels_last: bool) -> Sizes:
    """The shape (b, c, ..) as its dims follow in memory."""
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


def group_statistics(shape: Sizes, groups: int, whole_batch: bool) -> Sizes:
    """The shape of the means, or the variances, of groups of channels, of each item of a batch or of all together."""
    return 1 if whole_batch else shape[0], groups
