"""How far predictions are from targets of the same shape, under PyTorch's names."""

from __future__ import annotations

from typing import Self

from ...promotion import promoted
from ...tensor_ops import BERNOULLI_LOSS, LOGISTIC_LOSS, SQUARED_DIFFERENCE
from ..base.error import InvalidArgument, ShapeMismatch, shown
from ..core import argument
from .base import named, require_tensors
from .composed import ComposedMethods
from .network_ops import NetworkOpMethods


class LossMethods(ComposedMethods, NetworkOpMethods):
    """Losses of numbers. The reduction is "mean", "sum", or "none" for the loss of each element.

    `ShapeMismatch` unless targets have the shape of the predictions.
    """

    __slots__ = ()

    @named
    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """Return the mean of the squares of the distances from the targets."""
        self._require_alike("mse_loss", target)
        return self._binary(SQUARED_DIFFERENCE, target)._joined_losses("mse_loss", reduction)

    @named
    def huber_loss(self, target: Self, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Return the mean of d * d / 2 of distances d up to `delta`, and of delta * (d - delta / 2) beyond it."""
        limit = argument.real("huber_loss", "delta", delta)
        if not limit > 0:
            raise InvalidArgument("huber_loss", f"delta is above 0, not {limit}")
        self._require_alike("huber_loss", target)
        common = promoted(self.dtype, target.dtype) or self.dtype
        x, y = self.to_dtype(common), target.to_dtype(common)
        losses = x._new(x._storage.huber(x._layout, y._storage, y._layout, limit), x._layout.dense)
        return losses._joined_losses("huber_loss", reduction)

    @named
    def binary_cross_entropy(self, target: Self, reduction: str = "mean") -> Self:
        """Return the mean of -(y log p + (1 - y) log(1 - p)) of probabilities p, this tensor, and targets y in [0, 1].

        Logarithms below -100 count as -100, and the gradient is finite at 0 and 1. Of logits,
        `binary_cross_entropy_with_logits` keeps more digits.
        """
        self._require_alike("binary_cross_entropy", target)
        losses: Self = self._binary(BERNOULLI_LOSS, target)
        return losses._joined_losses("binary_cross_entropy", reduction)

    @named
    def binary_cross_entropy_with_logits(self, target: Self, reduction: str = "mean") -> Self:
        """Return the mean of `binary_cross_entropy` of sigmoid(x): max(x, 0) - x y + log(1 + e**-|x|)."""
        self._require_alike("binary_cross_entropy_with_logits", target)
        losses: Self = self._binary(LOGISTIC_LOSS, target)
        return losses._joined_losses("binary_cross_entropy_with_logits", reduction)

    def _distance(self, op: str, target: Self) -> Self:
        self._require_alike(op, target)
        return self.sub(target)

    def _require_alike(self, op: str, target: Self) -> None:
        require_tensors(op, target=target)
        if self.shape != target.shape:
            raise ShapeMismatch(
                op, (self.shape, target.shape), "there is a target for each element; broadcast it first"
            )

    def _joined_losses(self, op: str, reduction: str) -> Self:
        match argument.text(op, "reduction", reduction):
            case "mean":
                return self.mean()
            case "sum":
                return self.sum()
            case "none":
                return self
        raise InvalidArgument(op, f"reduction is one of mean, sum, none, not {shown(reduction)}")
