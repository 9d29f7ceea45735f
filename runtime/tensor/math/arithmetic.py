"""Arithmetic: operators, choices between elements, and filling in place.

Operands broadcast by NumPy's rules, and are promoted by the table of docs/promotion.md; `DTypeMismatch` where it has no
common dtype. Integers compare by value, exactly, none wraps. `/` is true division, which makes f32 of integers; `//`
rounds down, and `%` is what that leaves, with the sign of the divisor. `&`, `|`, `^`, `~`, `<<` and `>>` are of the
bits of integers; the first four are of masks too. A Python number takes the dtype of the tensor; `InvalidArgument` if
that is an integer dtype that does not have the number.
"""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np

from ....dtype import Array, DType
from ....tensor_ops import (
    ADD,
    BITWISE_AND,
    BITWISE_LEFT_SHIFT,
    BITWISE_OR,
    BITWISE_RIGHT_SHIFT,
    BITWISE_XOR,
    DIV,
    EQ,
    FLOOR_DIVIDE,
    GE,
    GT,
    LE,
    LT,
    MUL,
    NE,
    POW,
    REMAINDER,
    SUB,
)
from ...base.error import DTypeMismatch, InvalidArgument, TallowError
from ...core import argument
from ..base import TensorBase
from ..layouts import aligned
from ..number import CONVERT, NumberLike, as_number, default_dtype
from ..promotion import common_dtype, promote
from ..shape.views import ViewMethods
from .reductions import ReductionMethods

# What is compared; a list equals no tensor.
_COMPARED: Final[tuple[type, ...]] = (TensorBase, int, float, complex, NumberLike, np.generic, np.ndarray)
# What an operator takes. Lists are among it for their error, which says to make them tensors.
OPERANDS: Final[tuple[type, ...]] = (*_COMPARED, list, tuple)


class ArithmeticMethods(ReductionMethods, ViewMethods):
    """Operators and compositions of several ops."""

    __slots__ = ()

    # Comparisons give tensors, so equality can't serve dicts and sets: tensors are equal keys only to themselves.
    __hash__ = object.__hash__

    def __add__(self, other: Self | Array | complex) -> Self:
        return self._binary(ADD, other) if isinstance(other, OPERANDS) else NotImplemented

    def __radd__(self, other: complex) -> Self:
        return self._binary(ADD, other) if isinstance(other, OPERANDS) else NotImplemented

    def __sub__(self, other: Self | Array | complex) -> Self:
        return self._binary(SUB, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rsub__(self, other: complex) -> Self:
        return self._binary(SUB, other, reflected=True) if isinstance(other, OPERANDS) else NotImplemented

    def __mul__(self, other: Self | Array | complex) -> Self:
        return self._binary(MUL, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rmul__(self, other: complex) -> Self:
        return self._binary(MUL, other) if isinstance(other, OPERANDS) else NotImplemented

    def __truediv__(self, other: Self | Array | complex) -> Self:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        # A call of div would cost as much as this look.
        return self._binary(DIV, other) if self._storage.inner.dtype.is_inexact else self._quotient(other)

    def __rtruediv__(self, other: complex) -> Self:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return (self.to_dtype(DType.F32) if self.dtype.is_integer else self)._binary(DIV, other, reflected=True)

    def __floordiv__(self, other: Self | Array | float) -> Self:
        return self._binary(FLOOR_DIVIDE, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rfloordiv__(self, other: float) -> Self:
        return self._binary(FLOOR_DIVIDE, other, reflected=True) if isinstance(other, OPERANDS) else NotImplemented

    def __mod__(self, other: Self | Array | float) -> Self:
        return self._binary(REMAINDER, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rmod__(self, other: float) -> Self:
        return self._binary(REMAINDER, other, reflected=True) if isinstance(other, OPERANDS) else NotImplemented

    def __divmod__(self, other: Self | Array | float) -> tuple[Self, Self]:
        return (self // other, self % other) if isinstance(other, OPERANDS) else NotImplemented

    def __rdivmod__(self, other: float) -> tuple[Self, Self]:
        return (self.__rfloordiv__(other), self.__rmod__(other)) if isinstance(other, OPERANDS) else NotImplemented

    def __and__(self, other: Self | Array | int) -> Self:
        return self._binary(BITWISE_AND, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rand__(self, other: int) -> Self:
        return self._binary(BITWISE_AND, other) if isinstance(other, OPERANDS) else NotImplemented

    def __or__(self, other: Self | Array | int) -> Self:
        return self._binary(BITWISE_OR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ror__(self, other: int) -> Self:
        return self._binary(BITWISE_OR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __xor__(self, other: Self | Array | int) -> Self:
        return self._binary(BITWISE_XOR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rxor__(self, other: int) -> Self:
        return self._binary(BITWISE_XOR, other) if isinstance(other, OPERANDS) else NotImplemented

    def __lshift__(self, other: Self | Array | int) -> Self:
        return self._binary(BITWISE_LEFT_SHIFT, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rlshift__(self, other: int) -> Self:
        return (
            self._binary(BITWISE_LEFT_SHIFT, other, reflected=True) if isinstance(other, OPERANDS) else NotImplemented
        )

    def __rshift__(self, other: Self | Array | int) -> Self:
        return self._binary(BITWISE_RIGHT_SHIFT, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rrshift__(self, other: int) -> Self:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return self._binary(BITWISE_RIGHT_SHIFT, other, reflected=True)

    def __pow__(self, exponent: Self | Array | float) -> Self:
        is_of_integers = self._storage.inner.dtype.is_integer
        if is_of_integers or isinstance(exponent, TensorBase | complex | np.complexfloating):
            return self.pow(exponent)
        try:
            exponent = argument.real("powf", "the exponent", exponent)
        except InvalidArgument:
            array = self._of_host("pow", exponent, "the exponent")
            if array is None:
                raise
            return self.pow(array)
        return self.sqr() if exponent == 2 else self.powf(exponent)

    def __rpow__(self, base: float) -> Self:
        return self._binary(POW, base, reflected=True) if isinstance(base, OPERANDS) else NotImplemented

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    def __lt__(self, other: Self | Array | float) -> Self:
        return self._cmp(LT, other) if isinstance(other, OPERANDS) else NotImplemented

    def __le__(self, other: Self | Array | float) -> Self:
        return self._cmp(LE, other) if isinstance(other, OPERANDS) else NotImplemented

    def __gt__(self, other: Self | Array | float) -> Self:
        return self._cmp(GT, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ge__(self, other: Self | Array | float) -> Self:
        return self._cmp(GE, other) if isinstance(other, OPERANDS) else NotImplemented

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        """Compare element by element, as NumPy does; what is neither tensor nor number is simply not equal."""
        return self._cmp(EQ, other) if isinstance(other, _COMPARED) else NotImplemented  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        """Compare element by element, as NumPy does; what is neither tensor nor number is simply not equal."""
        return self._cmp(NE, other) if isinstance(other, _COMPARED) else NotImplemented  # type: ignore[arg-type]

    def div(self, other: Self | Array | complex) -> Self:
        """Divide: `x.div(y)` is `x / y`. Integers become f32 first; floats keep their dtype.

        `floor_divide` keeps integers.

        >>> tl.Tensor([1.0, 2.0]).div(4)
        Tensor([0.25, 0.50], dtype=f32)
        >>> tl.Tensor([1, 2]).div(tl.Tensor([4, 4]))
        Tensor([0.25, 0.50], dtype=f32)
        """
        return self._binary(DIV, other) if self._storage.inner.dtype.is_inexact else self._quotient(other)

    def _quotient(self, other: Self | Array | complex) -> Self:
        """Divide integers or masks by what may be floats; where both are integers, in f32."""
        if not isinstance(other, TensorBase):
            array = self._of_host("div", other)
            if array is not None:
                return self._quotient(array)
            dtype = DType.F32 if self.dtype.is_integer else self.dtype
            return self.to_dtype(dtype)._binary(DIV, other)
        common = common_dtype("div", self.dtype, other.dtype)
        dtype = DType.F32 if common.is_integer else common
        return self.to_dtype(dtype)._binary(DIV, other.to_dtype(dtype))

    def pow(self, other: Self | Array | complex) -> Self:
        """Raise x to the power y, as C's pow does; integers wrap.

        A negative number as the exponent of integers is `InvalidArgument`. A tensor may have negative ones, which give
        1 / x ** -y truncated toward zero, and 0 where x is 0.

        >>> tl.Tensor([1, 2, 3]).pow(2)
        Tensor([1, 4, 9], dtype=i64)
        >>> tl.Tensor([2.0, 4.0]).pow(tl.Tensor([3.0, 0.5]))
        Tensor([8., 2.], dtype=f32)
        """
        if self._storage.inner.dtype.is_integer and not isinstance(other, TensorBase | np.ndarray | list | tuple):
            exponent = as_number("pow", other, self.dtype)
            if exponent < 0:  # type: ignore[operator]
                reason = f"{exponent} is negative, and such powers of integers are fractions"
                raise InvalidArgument("pow", f"{reason}; {CONVERT.format('floating-point')}")
        elif type(other) in (int, float) and other == 2 and self._storage.inner.dtype.is_float:
            # One multiplication, rounded correctly.
            return self.sqr()
        return self._binary(POW, other)

    def where(self, on_true: Self | Array | float, on_false: Self | Array | float) -> Self:
        """Select elements by this tensor, the condition: those of `on_true` where it is not 0, else those of
        `on_false`.

        All three broadcast to one shape. The condition is of bool or integers; the two others are promoted. A number
        takes the dtype of the other one; two numbers are i64, f32, complex64 or bool, as in a new tensor.

        >>> x = tl.Tensor([-1.0, 2.0, -3.0])
        >>> (x > 0).where(x, 0.0)
        Tensor([0., 2., 0.], dtype=f32)
        """
        if isinstance(on_true, TensorBase):
            chosen, other = on_true, on_true._operand("where", on_false, "on_false")
        elif isinstance(on_false, TensorBase):
            chosen, other = on_false._operand("where", on_true, "on_true"), on_false
        elif isinstance(on_true, np.ndarray) or isinstance(on_false, np.ndarray):
            values = on_true, on_false
            operands: list[Any] = [self._of_host("where", it) if isinstance(it, np.ndarray) else it for it in values]
            return self.where(*operands)
        else:
            dtype = default_dtype(on_true, on_false)
            chosen = self._operand("where", on_true, "on_true", dtype)
            other = self._operand("where", on_false, "on_false", dtype)
        first, second, layout, preserved = aligned("where", chosen._layout, other._layout, self._layout)
        try:
            storage = self._storage.where_cond(layout, chosen._storage, first, other._storage, second)
        except TallowError as error:
            error.rename("where")
            if not isinstance(error, DTypeMismatch):
                raise
            chosen, other = promote(error, chosen, other)
        else:
            return self._new(storage, preserved)
        return self.where(chosen, other)

    def fill_(self, value: complex) -> Self:
        """Set every element to a number, in place, and return the tensor.

        >>> tl.zeros(3).fill_(7)
        Tensor([7., 7., 7.], dtype=f32)
        """
        return self._filled("fill_", value)

    def zero_(self) -> Self:
        """Set every element to 0, in place, and return the tensor.

        >>> tl.ones(3).zero_()
        Tensor([0., 0., 0.], dtype=f32)
        """
        return self._filled("zero_", 0)

    def _filled(self, op: str, value: complex, fix: str = CONVERT) -> Self:
        if type(value) is not float or not self._storage.inner.dtype.is_float:
            value = as_number(op, argument.complex_number(op, "value", value), self.dtype, fix)
        self._storage.const_set(value, self._layout)
        return self
