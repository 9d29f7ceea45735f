"""Reductions that are more than an op: tensors choose the dtype of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ....dtype import DType
from ....op import MethodOp, ReduceOp
from ....tensor_methods import StorageOpMethods
from ....tensor_ops import DIV, MEAN, PROD, PROD_I64, SUM, SUM_I64, OpMethods
from ...base.error import TallowError
from ..base import named


def _is_short(dtype: DType) -> bool:
    """Whether sums are in i64, which has all numbers of the dtype."""
    return not dtype.is_inexact and dtype.itemsize < DType.I64.itemsize


class ReductionMethods(OpMethods, StorageOpMethods):
    """Sums, products and statistics. `dim` is one dim, several, or None for all; `keepdim` keeps them with size 1.

    `axis` and `keepdims` are NumPy's names of both.
    """

    __slots__ = ()

    def sum(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Sum of the elements: of integers and bools in i64, of u64 in u64, which wrap; of floats in their dtype.

        Floats of 16 bits and fewer are summed in f32 and rounded once. The sum of no elements is 0.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.sum().item()
        21
        >>> x.sum(dim=0)
        Tensor([5, 7, 9], dtype=i64)
        >>> x.sum(dim=1, keepdim=True)
        Tensor([[ 6],
                [15]], dtype=i64)
        """
        if _is_short(self._storage.inner.dtype):
            return self._widened("sum", SUM_I64, dim, keepdim, axis, keepdims)
        return self._reduce(SUM, dim, keepdim, axis, keepdims)

    def prod(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Product of the elements: of integers and bools in i64, of u64 in u64, which wrap; of floats in their dtype.

        Floats of 16 bits and fewer are multiplied in f32 and rounded once. The product of no elements is 1.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.prod().item()
        720
        >>> x.prod(dim=0)
        Tensor([4, 10, 18], dtype=i64)
        """
        if _is_short(self._storage.inner.dtype):
            return self._widened("prod", PROD_I64, dim, keepdim, axis, keepdims)
        return self._reduce(PROD, dim, keepdim, axis, keepdims)

    def mean(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Mean of the elements: of integers and bools in f32; of floats in their dtype.

        Floats of 16 bits and fewer are summed and divided in f32 and rounded once. The mean of no elements is NaN.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.mean().item()
        3.5
        >>> x.mean(dim=0)
        Tensor([2.5, 3.5, 4.5], dtype=f32)
        """
        if not self._storage.inner.dtype.is_inexact:
            return self._mean_of_integers(dim, keepdim, axis, keepdims)
        return self._reduce(MEAN, dim, keepdim, axis, keepdims)

    def _mean_of_integers(
        self,
        dim: int | Sequence[int] | None,
        keepdim: bool,
        axis: int | Sequence[int] | None,
        keepdims: bool | None,
    ) -> Self:
        if self.dtype.itemsize == DType.I64.itemsize:
            # A sum of them could wrap.
            return self.to_dtype(DType.F64)._reduce(MEAN, dim, keepdim, axis, keepdims).to_dtype(DType.F32)
        total = self._widened("mean", SUM_I64, dim, keepdim, axis, keepdims)
        return total.to_dtype(DType.F32)._binary(DIV, self.elem_count // max(total.elem_count, 1))

    def _widened(
        self,
        name: str,
        op: ReduceOp,
        dim: int | Sequence[int] | None,
        keepdim: bool,
        axis: int | Sequence[int] | None,
        keepdims: bool | None,
    ) -> Self:
        try:
            return self._reduce(op, dim, keepdim, axis, keepdims)
        except TallowError as error:
            error.rename(name)
            raise

    @named
    def var(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        correction: float = 1,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Variance along some dims, by default all: the mean of the squared distances from the mean.

        The sum of squares is divided by the number of elements less `correction`: 1 estimates the variance of the
        population, 0 gives that of the elements themselves. Floats of 16 bits and fewer are computed in f32. Of too few
        elements it is NaN.

        >>> x = tl.Tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
        >>> x.var(dim=1)
        Tensor([1., 4.], dtype=f32)
        >>> x.var(dim=1, correction=0)
        Tensor([0.6667, 2.6667], dtype=f32)
        """
        return self._reduce(MethodOp.VAR, dim, keepdim, axis, keepdims, correction)

    @named
    def std(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        correction: float = 1,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Standard deviation along some dims: the square root of `var`.

        >>> x = tl.Tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
        >>> x.std(dim=1)
        Tensor([1., 2.], dtype=f32)
        >>> x.std(dim=1, correction=0)
        Tensor([0.8165, 1.6330], dtype=f32)
        """
        return self._reduce(MethodOp.STD, dim, keepdim, axis, keepdims, correction)
