"""Truth values: what is not 0 is true. Masks are tensors of bool, which comparisons and the methods here give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from ....dtype import Array, DType
from ....tensor_ops import BITWISE_AND, BITWISE_OR, BITWISE_XOR, EQ
from ...core import argument
from ..base import TensorBase, named, require_tensors
from .arithmetic import ArithmeticMethods

T = TypeVar("T", bound=ArithmeticMethods)


class LogicMethods(ArithmeticMethods):
    """Logic. The operators `&`, `|`, `^` and `~` are of masks, or of bits; the methods take any dtype."""

    __slots__ = ()

    def __invert__(self) -> Self:
        return self._cmp(EQ, 0) if self._storage.inner.dtype.kind == "bool" else self.bitwise_invert()

    def _truth_of(self, other: object) -> Any:
        """Tell where an operand is not 0."""
        operand = other if isinstance(other, LogicMethods) else self._of_host("logical", other)
        if operand is None:
            return argument.number("logical", "other", other, "a Tensor or a Python number") != 0
        return operand._truth()

    def _truth(self) -> Self:
        """Tell where the elements are not 0."""
        return self.to_dtype(DType.BOOL)

    @named
    def logical_and(self, other: Self | Array | float) -> Self:
        """Return a mask of where both elements are not 0.

        >>> tl.Tensor([True, True, False]).logical_and(tl.Tensor([True, False, False]))
        Tensor([True, False, False], dtype=bool)
        """
        return self._truth()._binary(BITWISE_AND, self._truth_of(other))

    @named
    def logical_or(self, other: Self | Array | float) -> Self:
        """Return a mask of where at least one of the elements is not 0.

        >>> tl.Tensor([True, True, False]).logical_or(tl.Tensor([True, False, False]))
        Tensor([True, True, False], dtype=bool)
        """
        return self._truth()._binary(BITWISE_OR, self._truth_of(other))

    @named
    def logical_xor(self, other: Self | Array | float) -> Self:
        """Return a mask of where exactly one of the elements is not 0.

        >>> tl.Tensor([True, True, False]).logical_xor(tl.Tensor([True, False, False]))
        Tensor([False, True, False], dtype=bool)
        """
        return self._truth()._binary(BITWISE_XOR, self._truth_of(other))

    @named
    def logical_not(self) -> Self:
        """Return a mask of where elements are 0.

        >>> tl.Tensor([True, False]).logical_not()
        Tensor([False, True], dtype=bool)
        """
        return self._cmp(EQ, 0)

    @named
    def count_nonzero(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool | None = None,
    ) -> Self:
        """Count the elements that are not 0 along some dims, or all of them, in i64.

        >>> tl.Tensor([[0, 5], [7, 8]]).count_nonzero(dim=1)
        Tensor([1, 2], dtype=i64)
        """
        return self._truth().sum(dim, keepdim, axis, keepdims)

    @named
    def masked_fill(self, mask: Self, value: Self | float) -> Self:
        """Copy the tensor with `value`, a number or a tensor, wherever a mask is not 0.

        Mask and value broadcast to the shape of the tensor.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.masked_fill(x > 4, 0)
        Tensor([[1, 2, 3],
                [4, 0, 0]], dtype=i64)
        """
        filling = self._operand("masked_fill", value, "value").broadcast_as(self.shape)
        return self._stretched_mask("masked_fill", mask).where(filling, self)

    def _stretched_mask(self, op: str, mask: Self) -> Self:
        """Stretch a mask to this tensor."""
        if not isinstance(mask, TensorBase):
            require_tensors(op, mask=mask)
        return mask._truth().broadcast_as(self.shape)


def where(condition: T | Array, on_true: T | Array | float, on_false: T | Array | float) -> T:
    """Select elements by a condition: those of `on_true` where it is not 0, else those of `on_false`.

    All three broadcast to one shape. The last two are promoted, and may be numbers: `tl.where(condition, x, 0)`.
    The condition may be an array of NumPy's where one of the two is a tensor.

    >>> x = tl.Tensor([-1.0, 2.0, -3.0])
    >>> tl.where(x > 0, x, 0.0)
    Tensor([0., 2., 0.], dtype=f32)
    """
    operand = next((it for it in (on_true, on_false) if isinstance(it, TensorBase)), None)
    mask: Any = condition
    if isinstance(condition, np.ndarray) and operand is not None:
        mask = operand._of_array("where", condition, operand.device)
    require_tensors("where", condition=mask)
    chosen: T = mask.where(on_true, on_false)
    return chosen
