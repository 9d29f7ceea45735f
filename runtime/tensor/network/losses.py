"""Losses of predictions at targets, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Self, TypeVar

from ....dtype import FLOAT, INDEX, DType
from ....tensor_ops import BERNOULLI_LOSS, LOGISTIC_LOSS, SQUARED_DIFFERENCE
from ...base.error import InvalidArgument, ShapeMismatch, UnsupportedDType, shown
from ...core import argument
from ...core.conversion import conversion
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
        is_logarithm = argument.boolean(op, "log_target", log_target)

        def losses(x: Self, y: Self) -> Self:
            if is_logarithm:
                return y.exp().mul(y.sub(x))
            return y.eq(0).where(0.0, y.mul(y.log().sub(x)))

        if argument.text(op, "reduction", reduction) == "batchmean" and not self.rank:
            raise ShapeMismatch(op, (self.shape,), "the size of a batch is that of dim 0; unsqueeze the tensor first")
        known = *_REDUCTIONS, "batchmean"
        return self._joined_losses(op, target, reduction, losses, known, is_one_op=False)

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
        op = "nll_loss"
        if live_autocasts:
            self, weight = extensions.widened(self, weight)
        x = self if weight is None else self._promoted(op, weight)
        x._require_targets(op, targets, reduction)
        chosen = _Targets(targets, argument.integer(op, "ignore_index", ignore_index))
        dim = self._classes_dim
        losses = x.gather(chosen.indexes.unsqueeze(dim), dim).squeeze(dim).to_dtype(x.dtype.compute).neg()
        weights = chosen.weights(op, weight, x)
        if weight is not None:
            losses = losses.mul(weights)
        return chosen.is_counted.where(losses, 0.0)._reduced(reduction, weights).to_dtype(x.dtype)

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
        op = "cross_entropy"
        if not isinstance(targets, TensorBase):
            require_tensors(op, targets=targets)
        if type(reduction) is not str or reduction not in _REDUCTIONS:
            _require_reduction(op, reduction, _REDUCTIONS)
        if live_autocasts:
            self, weight = extensions.widened(self, weight)
        x = self if weight is None else self._promoted(op, weight)
        dim, layout = min(len(x._layout.shape), 2) - 1, targets._layout.dense
        share = 0.0 if label_smoothing == 0 else argument.real(op, "label_smoothing", label_smoothing)
        if not 0 <= share <= 1:
            raise InvalidArgument(op, f"label_smoothing is from 0 to 1, not {share}")
        operands = x._layout, targets._storage, targets._layout, dim, ignore_index
        if share and weight is None:
            results = x._storage.smoothed_cross_entropy(*operands, share)
        else:
            results = x._storage.cross_entropy(*operands)
        losses, counted = self._new(results[0], layout), self._new(results[1], layout)
        if weight is not None:
            losses, counted = x._weighted(losses, _Targets(targets, ignore_index), weight, share)
            joined = losses._reduced(reduction, counted)
        elif reduction == "mean":
            joined = losses._mean_of_counted(counted)
        else:
            joined = losses._reduced(reduction, counted)
        return joined.to_dtype(x._storage.inner.dtype)

    def _promoted(self, op: str, weight: Self) -> Self:
        require_tensors(op, weight=weight)
        return self.to_dtype(common_dtype(op, self.dtype, weight.dtype))

    def _weighted(self, losses: Self, targets: _Targets[Self], weight: Self, share: float) -> tuple[Self, Self]:
        """Return the losses at targets with weights and smoothing, and the weights of the targets."""
        weights = targets.weights("cross_entropy", weight, self)
        losses = losses.mul(weights)
        if share:
            dim = self._classes_dim
            shape = [-1 if each == dim else 1 for each in range(self.rank)]
            logarithms = self.to_dtype(self.dtype.compute).log_softmax(dim)
            logarithms = logarithms.mul(weight.to_dtype(logarithms.dtype).reshape(shape))
            losses = losses.affine(1 - share, 0.0).sub(logarithms.mean(dim).affine(share, 0.0))
        return targets.is_counted.where(losses, 0.0), weights

    @property
    def _classes_dim(self) -> int:
        return min(self.rank, 2) - 1

    def _require_targets(self, op: str, targets: Self, reduction: str) -> None:
        require_tensors(op, targets=targets)
        _require_reduction(op, reduction, _REDUCTIONS)
        dim = self._classes_dim
        if not self.rank or targets.shape != (*self.shape[:dim], *self.shape[dim + 1 :]):
            reason = "targets have the shape without the dim of the classes, which is dim 1, of a vector dim 0"
            raise ShapeMismatch(op, (self.shape, targets.shape), reason)
        if not self.dtype.is_float:
            reason = "log probabilities are floating point"
            raise UnsupportedDType(op, self.dtype, self.device.backend, reason, conversion(self.dtype, FLOAT))
        if targets.dtype not in INDEX:
            reason = "targets are integers"
            raise UnsupportedDType(op, targets.dtype, self.device.backend, reason, conversion(targets.dtype, INDEX))

    def _reduced(self, reduction: str, weights: Self) -> Self:
        """Return the losses, their sum, or that over the sum of the weights."""
        if reduction == "none":
            return self
        total = self.sum()
        return total.div(weights.sum()) if reduction == "mean" else total

    def _mean_of_counted(self, counted: Self) -> Self:
        """Return the mean of the losses for which `counted` is 1; it is 0 for the others."""
        storage: Any = self._storage
        if storage.inner.kind == RECORDED:
            mean: Self = extensions.mean_of_counted(self, counted)
            return mean
        ratio, *_ = storage.ratio_of_sums(self._layout, counted._storage, counted._layout)
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
        joined = losses(self.to_dtype(wide), target.to_dtype(wide))
        if reduction == "mean":
            joined = joined.mean()
        elif reduction != "none":
            joined = joined.sum()
        if reduction == "batchmean":
            joined = joined / self.shape[0]
        return joined.to_dtype(dtype) if is_rounded else joined


class _Targets(Generic[T]):
    """Targets that are numbers of classes, of which some are ignored."""

    def __init__(self, targets: T, ignore_index: int) -> None:
        wide = targets.to_dtype(DType.I64)
        self.is_counted = wide.ne(ignore_index)
        """False where a target is ignored."""
        if targets.dtype.index_mark is not None:
            self.is_counted = self.is_counted.bitwise_and(targets.ne(targets.dtype.index_mark))
        self.indexes = self.is_counted.where(wide, 0)
        """The targets, 0 where they are ignored."""

    def weights(self, op: str, weight: T | None, scores: T) -> T:
        """Return the weight of each target in the compute dtype of the scores, 0 where it is ignored."""
        dtype = scores.dtype.compute
        if weight is None:
            return self.is_counted.to_dtype(dtype)
        count = scores.shape[scores._classes_dim]
        if weight.shape != (count,):
            reason = f"weight is a vector of {count} elements, one for each class"
            raise ShapeMismatch(op, (scores.shape, weight.shape), reason)
        chosen = weight.to_dtype(dtype).index_select(self.indexes.reshape(-1), 0).reshape(self.indexes.shape)
        return self.is_counted.where(chosen, 0.0)


def _require_reduction(op: str, reduction: str, known: Sequence[str]) -> None:
    if argument.text(op, "reduction", reduction) not in known:
        raise InvalidArgument(op, f"reduction is one of {', '.join(known)}, not {shown(reduction)}")
