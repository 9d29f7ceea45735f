"""Layers of networks that are made of several ops."""

from __future__ import annotations

from typing import Self

from ....dtype import FLOAT, DType
from ....promotion import promoted
from ....tensor_ops import PRELU
from ...base.error import DTypeMismatch, InvalidArgument, ShapeMismatch, UnsupportedDType
from ...core import argument
from ...core.conversion import conversion
from ...core.extensions import extensions
from ...storage.calls import live_autocasts
from ..base import named, require_tensors
from ..gradients import GradientMethods
from ..promotion import common_dtype
from ..shape.assignment import AssignmentMethods
from .ops import NetworkOpMethods


class LayerMethods(AssignmentMethods, GradientMethods, NetworkOpMethods):
    """Normalisation of channels, and dropout."""

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
        given, take a share `momentum` of them, in place, of the unbiased variance; a batch with at most one element for
        each channel leaves them. Else they are the running ones. bf16 and f16 are computed in f32 and rounded once, and
        so are running ones of 16 bits; their weight and bias may be f32.

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
        statistics = {"running_mean": running_mean, "running_var": running_var}
        affine = {"weight": weight, "bias": bias}
        self._require_channels(op, 2, **statistics, **affine)
        share, epsilon = argument.real(op, "momentum", momentum), argument.real(op, "eps", eps)
        wide = self.to_dtype(self.dtype.compute)
        if argument.boolean(op, "training", training):
            dims = [dim for dim in range(self.rank) if dim != 1]
            mean, var = wide.mean(dims), wide.var(dims, correction=0)
            count = self.elem_count // max(self.shape[1], 1)
            # Of one element or none there is no unbiased variance.
            if count > 1:
                found = mean.detach(), var.detach().affine(count / (count - 1), 0.0)
                for running, new in zip(statistics.values(), found, strict=True):
                    if running is not None:
                        running._averaged_in(new, share)
        elif running_mean is None or running_var is None:
            raise InvalidArgument(op, "running_mean and running_var are needed; or write training=True")
        else:
            mean, var = running_mean.to_dtype(wide.dtype), running_var.to_dtype(wide.dtype)
        scale = var.affine(1.0, epsilon).rsqrt()
        centred = wide.sub(mean._as_channels(self.rank))
        if weight is not None:
            scale = scale.mul(weight.to_dtype(wide.dtype))
        return centred.mul(scale._as_channels(self.rank))._shifted(bias, self.dtype)

    def _averaged_in(self, new: Self, share: float) -> None:
        """Move a running statistic by a share towards a new one, in place and rounded once."""
        common = promoted(self.dtype.compute, new.dtype) or self.dtype
        added = new.to_dtype(common).affine(share, 0.0)
        if self.dtype is common:
            self.mul_(1 - share).add_(added)
        else:
            self.copy_(self.to_dtype(common).affine(1 - share, 0.0).add(added).to_dtype(self.dtype))

    @named
    def group_norm(self, groups: int, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5) -> Self:
        """Normalise each of several groups of channels of (b, c, ..), of each of the batch, as `layer_norm` does.

        Weight and bias are vectors (c), of the tensor's dtype or of f32 for short floats, which are computed in f32 and
        rounded once.

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
        wide = self.to_dtype(self.dtype.compute)
        size = self.elem_count // max(self.shape[0] * count, 1)
        normed = wide.reshape(self.shape[0] * count, size).layer_norm(eps=eps).reshape(self.shape)
        if self._layout.is_channels_last:
            normed = normed.contiguous("channels_last")
        if weight is not None:
            normed = normed.mul(weight.to_dtype(wide.dtype)._as_channels(self.rank))
        return normed._shifted(bias, self.dtype)

    @named
    def prelu(self, weight: Self) -> Self:
        """Return x where it is above 0, else x times a weight: one for all, or a vector with one for each channel.

        The channels are dim 1.

        >>> tl.Tensor([[-1.0, 2.0], [-4.0, -3.0]]).prelu(tl.Tensor([0.5, 0.1]))
        Tensor([[-0.5,  2.0],
                [-2.0, -0.3]], dtype=f32)
        """
        require_tensors("prelu", weight=weight)
        dtype = common_dtype("prelu", self.dtype, weight.dtype)
        x, factors = self.to_dtype(dtype), weight.to_dtype(dtype)
        if weight.elem_count == 1:
            factors = factors.reshape([1] * self.rank)
        else:
            x._require_channels("prelu", 2, weight=factors)
            factors = factors._as_channels(self.rank)
        return x._binary(PRELU, factors)

    @named
    def dropout(self, p: float = 0.5) -> Self:
        """Set each element to 0 with probability p, and multiply the others by 1 / (1 - p).

        An element is dropped where `rand` of f32 on the tensor's device gives less than p. Only for training: call
        nothing in evaluation.

        >>> x = tl.ones(1000).dropout(0.5)
        >>> x.unique()
        Tensor([0., 2.], dtype=f32)
        """
        share = argument.real("dropout", "p", p)
        if not 0 <= share <= 1:
            raise InvalidArgument("dropout", f"a probability is from 0 to 1, not {share}")
        if not self.dtype.is_float:
            reason = "scaled elements are floating point"
            raise UnsupportedDType("dropout", self.dtype, self.device.backend, reason, conversion(self.dtype, FLOAT))
        if share == 1:
            return self.zeros_like()
        kept = self.rand(self.shape, device=self.device).ge(share)
        return kept.where(self.affine(1 / (1 - share), 0.0), 0)

    def _require_channels(self, op: str, rank: int, **vectors: Self | None) -> None:
        """Check that the tensor is (b, c, ..) of floats, and that there is a number for each channel where any is."""
        if self.rank < rank:
            raise ShapeMismatch(op, (self.shape,), "the channels are dim 1; unsqueeze the tensor first")
        if not self.dtype.is_float:
            reason = "what is normalised is floating point"
            raise UnsupportedDType(op, self.dtype, self.device.backend, reason, conversion(self.dtype, FLOAT))
        given = {name: vector for name, vector in vectors.items() if vector is not None}
        require_tensors(op, **given)
        for name, vector in given.items():
            if vector.shape != (self.shape[1],):
                reason = f"{name} is a vector of {self.shape[1]} elements, one for each channel"
                raise ShapeMismatch(op, (self.shape, vector.shape), reason)
            # Running statistics may have any dtype: they are converted, and rounded where they are written.
            if name in ("weight", "bias") and vector.dtype not in (self.dtype, self.dtype.compute):
                raise DTypeMismatch(op, (self.dtype, vector.dtype))

    def _as_channels(self, rank: int) -> Self:
        """A vector with its elements along dim 1 of so many."""
        return self.reshape(1, -1, *[1] * (rank - 2))

    def _shifted(self, bias: Self | None, dtype: DType) -> Self:
        """The tensor with a bias for each channel, in a dtype."""
        added = self if bias is None else self.add(bias.to_dtype(self.dtype)._as_channels(self.rank))
        return added.to_dtype(dtype)
