"""Losses of predictions at targets, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeVar

from ....tensor_ops import BERNOULLI_LOSS, KL_DIVERGENCE, KL_DIVERGENCE_OF_LOGS, LOGISTIC_LOSS, SQUARED_DIFFERENCE
from ...base.error import InvalidArgument, ShapeMismatch, describe
from ...core import argument
from ...core.extensions import extensions
from ...core.layout import Layout
from ...storage.calls import RECORDED, live_autocasts
from ..base import TensorBase, named, require_tensors
from ..math.composed import ComposedMethods
from ..promotion import common_dtype
from .ops import NetworkOpMethods

T = TypeVar("T", bound="LossMethods")

_REDUCTIONS: Final = ("mean", "sum", "none")


class LossMethods(ComposedMethods, NetworkOpMethods):
    """Losses. The reduction is "mean", "sum", or "none" for the loss of each element.

    `ShapeMismatch` unless targets have the shape of the predictions; targets that are classes lack the dim of classes.
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

    @named
    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """Mean absolute error: the mean of abs(x - target).

        `reduction` is "mean", "sum" or "none", which keeps the elements.

        >>> tl.Tensor([1.0, 2.0]).l1_loss(tl.Tensor([0.0, 4.0])).item()
        1.5
        """
        return self._joined_losses("l1_loss", target, reduction, lambda x, y: x.sub(y).abs())

    @named
    def smooth_l1_loss(self, target: Self, reduction: str = "mean", beta: float = 1.0) -> Self:
        """Smooth L1 loss: the mean of d**2 / (2 * beta) for distances d below `beta`, and of d - beta / 2 beyond.

        It is `huber_loss` over `beta`, and `l1_loss` where that is 0. `reduction` is "mean", "sum" or "none", which
        keeps the elements.

        >>> tl.Tensor([1.0, 2.0]).smooth_l1_loss(tl.Tensor([0.0, 4.0])).item()
        1.0
        """
        limit = argument.real("smooth_l1_loss", "beta", beta)
        if not limit >= 0:
            raise InvalidArgument("smooth_l1_loss", f"beta is at least 0, not {limit}")

        def losses(x: Self, y: Self) -> Self:
            if limit == 0:
                return x.sub(y).abs()
            storage = x._storage.huber(x._layout, y._storage, y._layout, limit)
            return x._new(storage, x._layout.dense).affine(1 / limit, 0.0)

        return self._joined_losses("smooth_l1_loss", target, reduction, losses, is_one_op=False)

    @named
    def kl_div(self, target: Self, reduction: str = "mean", log_target: bool = False) -> Self:
        """Kullback-Leibler divergence of log probabilities x: the mean of target * (log(target) - x), 0 where it is 0.

        With `log_target` the target is the logarithm of probabilities too. `reduction` is "mean", "sum", "batchmean"
        for the sum over the size of dim 0, which is the divergence of a batch, or "none", which keeps the elements.

        >>> x = tl.Tensor([[0.5, 0.5]]).log()
        >>> x.kl_div(tl.Tensor([[0.25, 0.75]]), "batchmean").item()
        0.13081201910972595
        """
        op = "kl_div"
        term = KL_DIVERGENCE_OF_LOGS if argument.boolean(op, "log_target", log_target) else KL_DIVERGENCE
        if argument.text(op, "reduction", reduction) == "batchmean" and not self.rank:
            raise ShapeMismatch(op, (self.shape,), "the size of a batch is that of dim 0; unsqueeze the tensor first")
        known = *_REDUCTIONS, "batchmean"
        return self._joined_losses(op, target, reduction, lambda x, y: y._binary(term, x), known)

    @named
    def nll_loss(
        self, targets: Self, ignore_index: int = -100, reduction: str = "mean", weight: Self | None = None
    ) -> Self:
        """Return the mean of minus the log probabilities, this tensor, at the targets; the classes are dim 1, of a
        vector dim 0.

        Targets, weights and the reduction are those of `cross_entropy`, which is this of `log_softmax`.

        >>> x = tl.Tensor([[0.25, 0.75], [0.5, 0.5]]).log()
        >>> x.nll_loss(tl.Tensor([1, 0]), reduction="none")
        Tensor([0.2877, 0.6931], dtype=f32)
        """
        return self._of_classes("nll_loss", targets, ignore_index, reduction, weight)

    @named
    def cross_entropy(
        self,
        targets: Self,
        ignore_index: int = -100,
        reduction: str = "mean",
        weight: Self | None = None,
        label_smoothing: float = 0.0,
    ) -> Self:
        """Return the mean of -log_softmax at the targets, as PyTorch has it; the classes are dim 1, of a vector dim 0.

        Targets are integers in the shape without that dim. One that is `ignore_index` or the "no row" mark of its dtype
        counts for nothing; where all do, the mean is NaN. The reduction is "mean", "sum", or "none" for each loss.

        `weight` has a factor for each class: a loss is multiplied by that of its target, and the mean is the sum of the
        losses over that of those factors. With `label_smoothing` s, a loss is 1 - s times that at the target plus s
        times the mean over all classes, each with its weight.

        >>> scores = tl.Tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> scores.cross_entropy(tl.Tensor([0, 1])).item()
        0.22009485960006714
        >>> scores.cross_entropy(tl.Tensor([0, 1]), reduction="none")
        Tensor([0.1269, 0.3133], dtype=f32)
        >>> scores.cross_entropy(tl.Tensor([0, 1]), weight=tl.Tensor([1.0, 3.0]), label_smoothing=0.1).item()
        0.3495199382305145
        """
        op, saves = "cross_entropy", self._storage.is_wrapped
        if label_smoothing == 0:
            return self._of_classes(op, targets, ignore_index, reduction, weight, saves)
        share = argument.real(op, "label_smoothing", label_smoothing)
        if not 0 <= share <= 1:
            raise InvalidArgument(op, f"label_smoothing is from 0 to 1, not {share}")
        return self._of_classes("smoothed_cross_entropy", targets, ignore_index, reduction, weight, saves, share)

    def _of_classes(
        self, op: str, targets: Self, ignore_index: int, reduction: str, weight: Self | None, *options: float
    ) -> Self:
        """Return the reduced losses of an op of rows at targets."""
        if not isinstance(targets, TensorBase):
            require_tensors(op, targets=targets)
        if type(reduction) is not str or reduction not in _REDUCTIONS:
            _require_reduction(op, reduction, _REDUCTIONS)
        if live_autocasts:
            self, weight = extensions.widened(self, weight)
        factors = factors_layout = None
        if weight is not None:
            require_tensors(op, weight=weight)
            dtype = common_dtype(op, self.dtype, weight.dtype)
            self, weight = self.to_dtype(dtype), weight.to_dtype(dtype)
            factors, factors_layout = weight._storage, weight._layout
        storage, layout = self._storage, targets._layout
        rows = factors, factors_layout, targets._storage, layout, 1 if len(self._layout.shape) > 1 else 0, ignore_index
        results = getattr(storage, op)(self._layout, *rows, *options)
        losses, dtype = self._new(results[0], layout.dense), storage.inner.dtype
        if reduction == "none":
            loss = losses
        elif reduction == "sum":
            loss = losses.sum()
        elif factors is None or not factors.is_wrapped:
            loss = losses._mean_of_counted(self._new(results[1], layout.dense))
        else:
            # What rows count for has no gradient, and the weights of targets have.
            ones = self._new_full((), -1.0).broadcast_as(self.shape)
            loss = losses.sum().div(self._new(ones._storage.nll_loss(ones._layout, *rows)[0], layout.dense).sum())
        return loss if loss._storage.inner.dtype is dtype else loss.to_dtype(dtype)

    def _mean_of_counted(self, counted: Self) -> Self:
        """Return the mean of the losses for which `counted` is 1; it is 0 for the others."""
        storage: Any = self._storage
        if storage.inner.kind == RECORDED:
            mean: Self = extensions.mean_of_counted(self, counted)
            return mean
        (ratio,) = storage.ratio_of_sums(self._layout, counted._storage, counted._layout, False)
        return self._new(ratio, Layout.contiguous(()))

    def _require_alike(self, op: str, target: Self) -> None:
        require_tensors(op, target=target)
        if self.shape != target.shape:
            raise ShapeMismatch(
                op, (self.shape, target.shape), "there is a target for each element; broadcast it first"
            )

    def _joined_losses(
        self,
        op: str,
        target: Self,
        reduction: str,
        losses: Callable[[Self, Self], Self],
        reductions: Sequence[str] = _REDUCTIONS,
        is_one_op: bool = True,
    ) -> Self:
        """Return the losses of the elements, or what the reduction makes of them: computed in f32 for 16-bit dtypes.

        A result is rounded once. A function that is one op rounds its own.
        """
        self._require_alike(op, target)
        _require_reduction(op, reduction, reductions)
        if live_autocasts:
            self, target = extensions.widened(self, target)
        dtype = common_dtype(op, self.dtype, target.dtype)
        is_rounded = dtype.is_float and (reduction != "none" or not is_one_op)
        wide = dtype.compute if is_rounded else dtype
        loss = losses(self.to_dtype(wide), target.to_dtype(wide))
        if reduction == "mean":
            loss = loss.mean()
        elif reduction != "none":
            loss = loss.sum()
        if reduction == "batchmean":
            loss = loss / self.shape[0]
        return loss.to_dtype(dtype) if is_rounded else loss


def _require_reduction(op: str, reduction: str, known: Sequence[str]) -> None:
    if argument.text(op, "reduction", reduction) not in known:
        raise InvalidArgument(op, f"reduction is one of {', '.join(known)}, not {describe(reduction)}")
