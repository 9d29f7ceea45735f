"""Random numbers and choices. What is drawn follows from the seed of the device, and is the same on every backend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Final, Never, Self

from ....device import Device
from ....dtype import FLOAT, DType
from ...base.error import InvalidArgument, ShapeMismatch, TallowError, UnsupportedDType
from ...core import argument
from ...core.argument import DTypeLike
from ...core.conversion import conversion
from ...core.layout import Layout
from ..base import device_of, named
from ..batch import draw_examples
from ..create import _shape
from ..number import require_range
from .composed import ComposedMethods

# So many numbers are drawn of that hardly two are equal.
_MANY: Final = 1 << 63


class SamplingMethods(ComposedMethods):
    """Random numbers and choices."""

    __slots__ = ()

    def rand_like(self, lo: float = 0.0, up: float = 1.0) -> Self:
        """Draw uniform numbers from [lo, up), as `rand` does, with the shape, dtype and device of this tensor.

        >>> tl.zeros((2, 3)).rand_like().shape
        (2, 3)
        """
        return self.rand(self.shape, lo=lo, up=up, dtype=self.dtype, device=self.device)

    def randn_like(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """Draw normal numbers, as `randn` does, with the shape, dtype and device of this tensor.

        >>> tl.zeros((2, 3)).randn_like().shape
        (2, 3)
        """
        return self.randn(self.shape, mean=mean, std=std, dtype=self.dtype, device=self.device)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int,
        shape: int | Iterable[int],
        *more: Never,
        dtype: DTypeLike = DType.I64,
        device: Device | str | None = None,
    ) -> Self:
        """Draw integers uniformly from low to high - 1.

        `InvalidArgument` unless low is below high, by at most 2**63, and the dtype has all of the integers.

        >>> tl.Device.cpu().set_seed(0)
        >>> x = tl.randint(0, 10, (1000,))
        >>> x.min().item(), x.max().item()
        (0, 9)
        """
        sizes, target = _shape("randint", shape, more), argument.dtype("randint", "dtype", dtype)
        first, end = (argument.integer("randint", name, n) for name, n in (("low", low), ("high", high)))
        if target.is_integer and first < end:
            require_range("randint", (first, end - 1), target)
        try:
            storage = draw_examples("randint", partial(device_of(device).rand_integers, first, end), sizes)
        except TallowError as error:
            error.rename("randint")
            raise
        return cls._new(storage, Layout.contiguous(sizes)).to_dtype(target)

    @classmethod
    def randperm(cls, count: int, dtype: DTypeLike = DType.I64, device: Device | str | None = None) -> Self:
        """Draw a random permutation of the integers from 0 to count - 1.

        >>> sorted(tl.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        numbers = _shape("randperm", argument.integer("randperm", "count", count), ())
        target = argument.dtype("randperm", "dtype", dtype)
        if target.is_integer and numbers[0]:
            require_range("randperm", (numbers[0] - 1,), target)
        keys = draw_examples("randperm", partial(device_of(device).rand_integers, 0, _MANY), numbers)
        return cls._new(keys, Layout.contiguous(numbers)).argsort().to_dtype(target)

    @named
    def bernoulli(self) -> Self:
        """Draw 0 or 1 for each element, which is the probability of a 1; the dtype stays.

        It is 1 where `rand` of the compute dtype gives less.

        >>> tl.Tensor([0.0, 1.0]).bernoulli()
        Tensor([0., 1.], dtype=f32)
        """
        self._require_floats("bernoulli")
        wide = self.dtype.compute
        return self.rand(self.shape, dtype=wide, device=self.device).lt(self.to_dtype(wide)).to_dtype(self.dtype)

    @named
    def multinomial(self, count: int, replacement: bool = False) -> Self:
        """Draw `count` positions along the last dim with probabilities that are as the elements, 0 or more: i64.

        The tensor is a vector or a matrix, whose rows are drawn from each by itself. With replacement a position is
        where the running sum passes a random share of the sum. Without it the positions are those of the smallest of
        random numbers of the exponential distribution, each over its element; so a row has `count` elements above 0, or
        others follow them. Other backends round other sums and logarithms: rarely a position differs.

        `InvalidArgument` where an element is negative, NaN or infinite, or a row has no element above 0: the host reads
        whether one is, and waits for the device.

        >>> tl.Tensor([0.0, 1.0, 0.0]).multinomial(3, replacement=True)
        Tensor([1, 1, 1], dtype=i64)
        """
        op = "multinomial"
        self._require_floats(op)
        size, drawn = self.shape[-1] if self.shape else 0, argument.integer(op, "count", count)
        if self.rank not in (1, 2) or not size:
            raise ShapeMismatch(op, (self.shape,), "the weights are a vector or a matrix with columns; reshape them")
        with_replacement = argument.boolean(op, "replacement", replacement)
        if drawn < 0 or (drawn > size and not with_replacement):
            raise InvalidArgument(op, f"count is 0 or more, and without replacement at most {size}, not {drawn}")
        weights = self.to_dtype(self.dtype.compute).contiguous()
        largest = weights.max(-1, keepdim=True)
        if not bool((weights.ge(0).all(-1, keepdim=True) & largest.gt(0) & largest.lt(math.inf)).all()):
            raise InvalidArgument(op, "weights are finite and 0 or more, and one of each row is above 0")
        # No sum overflows, and no weight is so small that its share is rounded away.
        weights, has_weight = weights.div(largest), weights.gt(0)
        if not with_replacement:
            # 1 - u is above 0. NaN comes last, also after infinite waits.
            waits = weights.rand_like().neg().log1p().neg().div(weights)
            return has_weight.where(waits, math.nan).topk(drawn, largest=False)[1].to_dtype(DType.I64)
        ends = weights.cumsum(-1)
        shape = (*self.shape[:-1], drawn)
        shares = self.rand(shape, dtype=weights.dtype, device=self.device).mul(ends.narrow(-1, size - 1, 1))
        positions = ends.searchsorted(shares, "right").minimum(size - 1)
        # Parallel sums are rounded in different orders, so that one may exceed the next one by an ulp.
        return has_weight.gather(positions, -1).where(positions, weights.argmax(-1, keepdim=True).to_dtype(DType.I64))

    def _require_floats(self, op: str) -> None:
        if not self.dtype.is_float:
            reason = "probabilities are floating point"
            raise UnsupportedDType(op, self.dtype, self.device.backend, reason, conversion(self.dtype, FLOAT))
