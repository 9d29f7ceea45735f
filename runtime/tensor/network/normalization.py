"""Normalisation of channels by their mean and variance."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from ....dtype import FLOAT
from ....promotion import promoted
from ....storage import Storage
from ...base.bounded_cache import BoundedCache
from ...base.error import DTypeMismatch, InvalidArgument, ShapeMismatch, UnsupportedDType
from ...core import argument
from ...core.conversion import conversion
from ...core.extensions import extensions
from ...core.layout import Layout
from ...storage.calls import TRACED, live_autocasts
from ..base import TensorBase, named, parts, require_tensors
from ..gradients import GradientMethods
from ..shape.assignment import AssignmentMethods
from .ops import NetworkOpMethods


class NormalizationMethods(AssignmentMethods, GradientMethods, NetworkOpMethods):
    """Normalisation of channels, of a batch or of each item of it."""

    __slots__ = ()

    @named
    def batch_norm(
        self,
        running_mean: Self | None = None,
        running_var: Self | None = None,
        weight: Self | None = None,
        bias: Self | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """Normalise each channel of (b, c, ..): (x - mean) / sqrt(variance + eps) * weight + bias, of vectors (c).

        In training mean and variance are those of the batch, the variance the biased one, and the running ones, if
        passed, take a share `momentum` of them, in place, of the unbiased variance; a batch with at most one element
        for each channel leaves them. Else they are the running ones. bf16 and f16 are computed in f32 and rounded once,
        and so are running ones of 16 bits; their weight and bias may be f32. The result is channels last if x is.

        >>> x = tl.Tensor([[1.0, 10.0], [3.0, 30.0]])
        >>> x.batch_norm(training=True)
        Tensor([[-1., -1.],
                [ 1.,  1.]], dtype=f32)
        >>> mean, variance = tl.Tensor([2.0, 20.0]), tl.Tensor([1.0, 100.0])
        >>> x.batch_norm(mean, variance, weight=tl.Tensor([2.0, 3.0]), bias=tl.Tensor([0.0, 1.0]))
        Tensor([[-2., -2.],
                [ 2.,  4.]], dtype=f32)
        """
        op = "batch_norm"
        if live_autocasts:
            self, weight, bias = extensions.widened(self, weight, bias)
        self._require_channels(op, 2, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
        share, epsilon = argument.real(op, "momentum", momentum), argument.real(op, "eps", eps)
        if argument.boolean(op, "training", training):
            result, mean, var = self._normalized_groups(op, self.shape[1], True, weight, bias, epsilon)
            count = self.elem_count // max(self.shape[1], 1)
            # Of one element or none there is no unbiased variance.
            if count > 1:
                _move_statistics((running_mean, running_var), (mean, var), share, count / (count - 1))
            return result
        if running_mean is None or running_var is None:
            raise InvalidArgument(op, "running_mean and running_var are needed; or write training=True")
        if self._storage.inner.kind == TRACED:
            return self._normalized_by_ops(running_mean, running_var, weight, bias, epsilon)
        x, view = self._channels(True)
        centre, centre_layout, spread, spread_layout = x._vectors(op, running_mean, running_var)
        assert centre is not None and centre_layout is not None and spread is not None and spread_layout is not None
        affine = *x._vectors(op, weight, bias), view.dim, epsilon
        storage = x._storage.normalize_channels(view.layout, centre, centre_layout, spread, spread_layout, *affine)
        return x._shown(storage, view.result)

    @named
    def group_norm(self, groups: int, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5) -> Self:
        """Normalise each of several groups of channels of (b, c, ..), of each of the batch, as `layer_norm` does.

        Weight and bias are vectors (c), of the tensor's dtype or of f32 for short floats, which are computed in f32 and
        rounded once. The result is channels last if x is.

        >>> tl.Tensor([[1.0, 2.0, 10.0, 20.0]]).group_norm(2)
        Tensor([[-1.,  1., -1.,  1.]], dtype=f32)
        >>> x = tl.Tensor([[1.0, 2.0, 10.0, 20.0]])
        >>> x.group_norm(2, weight=tl.Tensor([1.0, 1.0, 2.0, 2.0]), bias=tl.Tensor([0.0, 0.0, 1.0, 1.0]))
        Tensor([[-1.,  1., -1.,  3.]], dtype=f32)
        """
        op = "group_norm"
        if live_autocasts:
            self, weight, bias = extensions.widened(self, weight, bias)
        self._require_channels(op, 2, weight=weight, bias=bias)
        count, channels = argument.integer(op, "groups", groups), self.shape[1]
        if count < 1 or channels % count:
            raise InvalidArgument(op, f"{channels} channels are not {count} groups of one size; choose a divisor")
        return self._normalized_groups(op, count, False, weight, bias, argument.real(op, "eps", eps))[0]

    @named
    def instance_norm(self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5) -> Self:
        """Normalise each channel of each item of (b, c, ..), as `group_norm` does with a group for each channel.

        >>> tl.Tensor([[[1.0, 3.0], [10.0, 30.0]]]).instance_norm()
        Tensor([[[-1.,  1.],
                 [-1.,  1.]]], dtype=f32)
        """
        op = "instance_norm"
        if live_autocasts:
            self, weight, bias = extensions.widened(self, weight, bias)
        self._require_channels(op, 3, weight=weight, bias=bias)
        return self._normalized_groups(op, max(self.shape[1], 1), False, weight, bias, argument.real(op, "eps", eps))[0]

    def _normalized_groups(
        self, op: str, groups: int, whole_batch: bool, weight: Self | None, bias: Self | None, eps: float
    ) -> tuple[Self, Self, Self]:
        """The normalised elements, and the mean and the variance of each group, which are not recorded."""
        x, view = self._channels(whole_batch)
        if not self.shape[1]:
            return self.zeros_like(), self._shaped(self._storage, (0,)), self._shaped(self._storage, (0,))
        vectors = x._vectors(op, weight, bias)
        storages = x._storage.normalize_groups(view.layout, *vectors, groups, view.dim, whole_batch, eps)
        layout = Layout.contiguous((groups if whole_batch else view.layout.shape[0] * groups,))
        mean, var = [self._shown(storage, layout).detach() for storage in storages[1:]]
        return self._shown(storages[0], view.result), mean, var

    def _shown(self, storage: Storage, layout: Layout) -> Self:
        result: Self = self._result_class._new(storage, layout)
        return result

    def _normalized_by_ops(self, mean: Self, var: Self, weight: Self | None, bias: Self | None, eps: float) -> Self:
        """Normalize by elementwise ops, to the same bits; fused functions are composed of these."""
        compute = self.dtype.compute

        def channels(vector: Self) -> Self:
            return vector.reshape(1, -1, *[1] * (self.rank - 2)).to_dtype(compute)

        scale = channels(var).affine(1.0, eps).rsqrt()
        if weight is not None:
            scale = scale.mul(channels(weight))
        normed = self.to_dtype(compute).sub(channels(mean)).mul(scale)
        return (normed if bias is None else normed.add(channels(bias))).to_dtype(self.dtype)

    def _move(self, new: Self, share: float, factor: float) -> None:
        """Move a running statistic by a share towards a new one times a factor, in place and rounded once."""
        common = promoted(self.dtype.compute, new.dtype) or self.dtype
        added = new.to_dtype(common).affine(factor, 0.0).affine(share, 0.0)
        if self.dtype is common:
            self.mul_(1 - share).add_(added)
        else:
            self.copy_(self.to_dtype(common).affine(1 - share, 0.0).add(added).to_dtype(self.dtype))

    def _require_channels(self, op: str, rank: int, **vectors: Self | None) -> None:
        """Check that the tensor is (b, c, ..) of floats, and that there is a number for each channel where any is."""
        shape, dtype = self._layout.shape, self._storage.inner.dtype
        if len(shape) < rank:
            raise ShapeMismatch(op, (shape,), "the channels are dim 1; unsqueeze the tensor first")
        if not dtype.is_float:
            reason = "what is normalised is floating point"
            raise UnsupportedDType(op, dtype, self.device.backend, reason, conversion(dtype, FLOAT))
        for name, vector in vectors.items():
            if vector is None:
                continue
            if not isinstance(vector, TensorBase):
                require_tensors(op, **{name: vector})
            sizes, own = vector._layout.shape, vector._storage.inner.dtype
            if len(sizes) != 1 or sizes[0] != shape[1]:
                reason = f"{name} is a vector of {shape[1]} elements, one for each channel"
                raise ShapeMismatch(op, (shape, sizes), reason)
            # Running statistics may have any dtype: they are converted, and rounded where they are written.
            if own is not dtype and name in ("weight", "bias") and own is not dtype.compute:
                raise DTypeMismatch(op, (dtype, own))

    def _vectors(
        self, op: str, first: Self | None, second: Self | None
    ) -> tuple[Storage | None, Layout | None, Storage | None, Layout | None]:
        """The storages and layouts of vectors in one dtype, the tensor's or its compute dtype."""
        dtype = self._storage.inner.dtype
        if first is not None and second is not None and first.dtype is dtype and second.dtype is dtype:
            return first._storage, first._layout, second._storage, second._layout
        dtypes = [vector._storage.inner.dtype for vector in (first, second) if vector is not None]
        if dtypes and (dtypes[0] is not dtypes[-1] or (dtypes[0] is not dtype and dtypes[0] is not dtype.compute)):
            first, second = [None if it is None else it.to_dtype(dtype.compute) for it in (first, second)]
        return *parts(op, "operand", first), *parts(op, "operand", second)

    def _as_channels(self, rank: int) -> Self:
        """View a vector along dim 1 of `rank` dims."""
        return self.reshape(1, -1, *[1] * (rank - 2))

    def _channels(self, whole_batch: bool) -> tuple[Self, _View]:
        """Return the tensor, copied if its elements lie otherwise, and the layout that storage methods take."""
        key = self._layout.number, whole_batch
        view = _views.get(key)
        if view is None:
            view = _View.of(self._layout, whole_batch)
            if view is None:
                return self.contiguous()._channels(whole_batch)
            _views.put(key, view)
        return self, view


def _move_statistics(
    running: tuple[NormalizationMethods | None, NormalizationMethods | None],
    batch: tuple[NormalizationMethods, NormalizationMethods],
    share: float,
    factor: float,
) -> None:
    """Move a running mean and variance by a share towards those of a batch, the variance times a factor, in place."""
    (mean, variance), (new_mean, new_variance) = running, batch
    if mean is not None and variance is not None:
        kinds = [each._storage.inner.kind for each in (mean, variance, new_mean, new_variance)]
        if mean.dtype is variance.dtype and mean.dtype.compute is new_mean.dtype and min(kinds) >= 0:
            mean._storage.move_statistics(
                mean._layout, variance._storage, variance._layout, new_mean._storage, new_mean._layout,
                new_variance._storage, new_variance._layout, share, factor,
            )  # fmt: skip
            return
    for old, new, times in (mean, new_mean, 1.0), (variance, new_variance, factor):
        if old is not None:
            old._move(new, share, times)


class _View(NamedTuple):
    """Elements (b, c, ..) as (b, c, s), with dim 1, or (b, s, c), with dim 2; and the layout of results."""

    layout: Layout
    dim: int
    result: Layout

    @classmethod
    def of(cls, layout: Layout, whole_batch: bool) -> _View | None:
        """The view of a layout whose elements need not be copied; None if there is none."""
        batch, channels, *sizes = layout.shape
        length, rank = math.prod(sizes), layout.rank
        last = layout.permute((0, *range(2, rank), 1))
        if length == 1 or (layout.strides[1] == 1 and layout.strides[-1] != 1):
            flat = last.reshape((1, batch * length, channels) if whole_batch else (batch, length, channels))
            if flat is not None:
                return cls(flat, 2, Layout.contiguous(last.shape).permute((0, rank - 1, *range(1, rank - 1))))
        flat = layout.reshape((batch, channels, length))
        return None if flat is None else cls(flat, 1, layout.dense)


_views: BoundedCache[tuple[int, bool], _View] = BoundedCache(1 << 12)
