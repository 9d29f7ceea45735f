"""Normalisation of channels: in f64 where the library has it, else in f32, and rounded once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .....array_functors import functors
from .....op import UnaryOp
from ....numerics.numerics import accumulated
from . import cast
from .operand import Operand


class _Groups(NamedTuple):
    """The reduction of elements whose channels are in groups: over the axes of `order` from `reduced_from` on."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    reduced_from: int

    @classmethod
    def of(cls, shape: tuple[int, ...], groups: int, dim: int, whole_batch: bool) -> _Groups:
        batch, size = shape[0], shape[dim] // groups
        if dim == 1:
            grouped, order = (batch, groups, size, shape[2]), (0, 1, 2, 3)
        else:
            grouped, order = (batch, shape[1], groups, size), (0, 2, 1, 3)
        return cls(grouped, (order[1], order[0], *order[2:]), 1) if whole_batch else cls(grouped, order, 2)

    @property
    def statistics(self) -> tuple[int, ...]:
        """The shape of the statistics: one number for each group, which broadcasts with the elements."""
        own = self.order[: self.reduced_from]
        return tuple([size if axis in own else 1 for axis, size in enumerate(self.shape)])

    @property
    def elements(self) -> int:
        """How many elements a group has."""
        return math.prod([self.shape[axis] for axis in self.order[self.reduced_from :]])


def normalize_groups(
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Any, ...]:
    """The normalised elements, and the mean and the variance of each group."""
    library, compute = x.library, x.dtype.compute
    shape = tuple(x.layout.shape)
    known = _Groups.of(shape, groups, dim, whole_batch)
    if known.elements == 0 or x.layout.elem_count == 0:
        empty = (1 if whole_batch else shape[0], groups)
        nothing = library.full(empty, math.nan, library.DTYPES[compute], x.device.handle)
        return x.result(x.array), x.result(nothing, compute), x.result(nothing, compute)
    wide = library.reshape(cast.widest(library, x.array, x.dtype), known.shape)
    mean = _mean(library, wide, known)
    centred = wide - mean
    variance = _mean(library, centred * centred, known)
    scaled = _scaled(library, library.reshape(centred * _root(library, variance, eps), shape), weight, bias, dim)
    statistics = [
        x.result(cast.narrow(library, library.reshape(each, (-1,)), compute), compute) for each in (mean, variance)
    ]
    return x.result(cast.narrow(library, scaled, x.dtype)), *statistics


def normalize_groups_gradient(
    x: Operand,
    weight: Operand | None,
    mean: Operand,
    variance: Operand,
    gradient: Operand,
    groups: int,
    dim: int,
    whole_batch: bool,
    eps: float,
) -> tuple[Any, ...]:
    """The gradients of the elements, of the weight and of the bias."""
    library, affine = x.library, x.dtype.compute if weight is None else weight.dtype
    shape = tuple(x.layout.shape)
    known = _Groups.of(shape, groups, dim, whole_batch)
    if x.layout.elem_count == 0:
        zeros = library.full((shape[dim],), 0, library.DTYPES[affine], x.device.handle)
        return x.result(x.array), x.result(zeros, affine), x.result(zeros, affine)
    wide, slope = [cast.widest(library, each.array, each.dtype) for each in (x, gradient)]
    centres, variances = [
        library.reshape(cast.widest(library, each.array, each.dtype), known.statistics) for each in (mean, variance)
    ]
    root = _root(library, variances, eps)
    normed = (library.reshape(wide, known.shape) - centres) * root
    slopes = library.reshape(_scaled(library, slope, weight, None, dim), known.shape)
    result = root * (slopes - _mean(library, slopes, known) - normed * _mean(library, slopes * normed, known))
    sums = [_over_channels(library, each, dim) for each in (slope * library.reshape(normed, shape), slope)]
    own = x.result(cast.narrow(library, library.reshape(result, shape), x.dtype))
    return own, *[x.result(cast.narrow(library, each, affine), affine) for each in sums]


def normalize_channels(
    x: Operand,
    mean: Operand,
    variance: Operand,
    weight: Operand | None,
    bias: Operand | None,
    dim: int,
    eps: float,
) -> Any:
    """Normalize the elements by a mean and a variance for each channel."""
    library = x.library
    wide = cast.widest(library, x.array, x.dtype)
    centres, variances = [_vector(library, each, dim) for each in (mean, variance)]
    scaled = _scaled(library, (wide - centres) * _root(library, variances, eps), weight, bias, dim)
    return x.result(cast.narrow(library, scaled, x.dtype))


def move_statistics(
    mean: Operand, variance: Operand, batch_mean: Operand, batch_variance: Operand, share: float, factor: float
) -> None:
    """Move a running mean and variance by a share towards those of a batch, the variance times a factor, in place."""
    library = mean.library
    for running, new, weight in (mean, batch_mean, share), (variance, batch_variance, factor * share):
        old, added = [cast.widest(library, each.array, each.dtype) for each in (running, new)]
        running.write(cast.narrow(library, old * (1 - share) + added * weight, running.dtype))


def _root(library: Any, variance: Any, eps: float) -> Any:
    return functors(library).elementwise[UnaryOp.RSQRT].compute(variance + eps)


def _vector(library: Any, vector: Operand, dim: int) -> Any:
    """A number per channel, which repeats along the other dims."""
    return library.reshape(cast.widest(library, vector.array, vector.dtype), (1, -1, 1) if dim == 1 else (1, 1, -1))


def _scaled(library: Any, x: Any, weight: Operand | None, bias: Operand | None, dim: int) -> Any:
    if weight is not None:
        x = x * _vector(library, weight, dim)
    return x if bias is None else x + _vector(library, bias, dim)


def _mean(library: Any, x: Any, groups: _Groups) -> Any:
    """The mean of each group, which is as exact as the sums of rows are."""
    rows = library.reshape(library.permute_dims(x, groups.order), (-1, groups.elements))
    return library.reshape(accumulated(library, library.sum, rows), groups.statistics) / groups.elements


def _over_channels(library: Any, x: Any, dim: int) -> Any:
    order = (1, 0, 2) if dim == 1 else (2, 0, 1)
    rows = library.reshape(library.permute_dims(x, order), (x.shape[dim], -1))
    return library.reshape(accumulated(library, library.sum, rows), (-1,))
