"""How far predictions are from targets of the same shape, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ....tensor_ops import BERNOULLI_LOSS, LOGISTIC_LOSS, SQUARED_DIFFERENCE
from ...base.error import InvalidArgument, ShapeMismatch, shown
from ...core import argument
from ..base import named, require_tensors
from ..math.composed import ComposedMethods
from ..promotion import common_dtype
from .ops import NetworkOpMethods


class LossMethods(ComposedMethods, NetworkOpMethods):
    """Losses of numbers. The reduction is "mean", "sum", or "none" for the loss of each element.

    `ShapeMismatch` unless targets have the shape of the predictions.
    """

    __slots__ = ()

    @named
    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """Mean squared error: the mean of (x - target)**2.

        `reduction` is "mean", "sum" or "none", which keeps the elements.

        >>> tl.Tensor([1.0, 2.0]).mse_loss(tl.Tensor([0.0, 4.0])).item()
        2.5
        """
        return self._joined_losses("mse_loss", target, reduction, lambda x, y: x._binary(SQUARED_DIFFERENCE, y))

    @named
    def huber_loss(self, target: Self, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Huber loss: the mean of d**2 / 2 for distances d up to `delta`, and of delta * (d - delta / 2) beyond.

        `reduction` is "mean", "sum" or "none", which keeps the elements.

        >>> tl.Tensor([1.0, 2.0]).huber_loss(tl.Tensor([0.5, 5.0])).item()
        1.3125
        """
        limit = argument.real("huber_loss", "delta", delta)
        if not limit > 0:
            raise InvalidArgument("huber_loss", f"delta is above 0, not {limit}")

        def losses(x: Self, y: Self) -> Self:
            return x._new(x._storage.huber(x._layout, y._storage, y._layout, limit), x._layout.dense)

        return self._joined_losses("huber_loss", target, reduction, losses)

    @named
    def binary_cross_entropy(self, target: Self, reduction: str = "mean") -> Self:
        """Binary cross entropy of probabilities p, this tensor: the mean of -(y log p + (1 - y) log(1 - p)).

        Targets y are from 0 to 1. Logarithms below -100 count as -100, and the gradient is finite at 0 and 1. For
        logits, `binary_cross_entropy_with_logits` is more accurate. `reduction` is "mean", "sum" or "none", which keeps
        the elements.

        >>> tl.Tensor([0.9, 0.2]).binary_cross_entropy(tl.Tensor([1.0, 0.0])).item()
        0.16425205767154694
        """
        return self._joined_losses("binary_cross_entropy", target, reduction, lambda x, y: x._binary(BERNOULLI_LOSS, y))

    @named
    def binary_cross_entropy_with_logits(self, target: Self, reduction: str = "mean") -> Self:
        """Binary cross entropy of logits x: the mean of max(x, 0) - x y + log(1 + exp(-abs(x))), without overflow.

        It is `binary_cross_entropy` of sigmoid(x). `reduction` is "mean", "sum" or "none", which keeps the elements.

        >>> tl.Tensor([2.0, -1.0]).binary_cross_entropy_with_logits(tl.Tensor([1.0, 0.0])).item()
        0.22009481489658356
        """
        op = "binary_cross_entropy_with_logits"
        return self._joined_losses(op, target, reduction, lambda x, y: x._binary(LOGISTIC_LOSS, y))

    def _distance(self, op: str, target: Self) -> Self:
        self._require_alike(op, target)
        return self.sub(target)

    def _require_alike(self, op: str, target: Self) -> None:
        require_tensors(op, target=target)
        if self.shape != target.shape:
            raise ShapeMismatch(
                op, (self.shape, target.shape), "there is a target for each element; broadcast it first"
            )

    def _joined_losses(self, op: str, target: Self, reduction: str, losses: Callable[[Self, Self], Self]) -> Self:
        """The losses of each element as the reduction joins them: of short floats in f32, and rounded once."""
        self._require_alike(op, target)
        if argument.text(op, "reduction", reduction) not in ("mean", "sum", "none"):
            raise InvalidArgument(op, f"reduction is one of mean, sum, none, not {shown(reduction)}")
        dtype = common_dtype(op, self.dtype, target.dtype)
        is_rounded = reduction != "none" and dtype.is_float
        wide = dtype.compute if is_rounded else dtype
        found = losses(self.to_dtype(wide), target.to_dtype(wide))
        if reduction == "none":
            return found
        joined = found.mean() if reduction == "mean" else found.sum()
        return joined.to_dtype(dtype) if is_rounded else joined
