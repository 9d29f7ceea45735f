"""PyTorch's names for compositions of tallow's own methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Self

from ...dtype import DType
from ...promotion import promoted
from ...tensor_moves import MoveMethods
from ...tensor_ops import ROUND
from ..base.error import InvalidArgument, ShapeMismatch
from ..core import argument
from ..core.argument import FIRST, REQUIRED, DTypeLike
from .base import named, require_few, require_tensors
from .math.contraction import ContractionMethods
from .network.ops import NetworkOpMethods
from .number import NumberLike
from .shape.rearranging import RearrangingMethods
from .shape.views import _integers
from .standard import StandardMethods


class FamiliarMethods(RearrangingMethods, ContractionMethods, MoveMethods, NetworkOpMethods, StandardMethods):
    """Methods under the names, and with the meaning, that they have in PyTorch."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """The number of dims: `rank`.

        >>> tl.zeros((2, 3)).ndim
        2
        """
        return len(self._layout.shape)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes.

        >>> tl.zeros((2, 3)).nbytes
        24
        """
        return self.elem_count * self.dtype.itemsize

    def numel(self) -> int:
        """Return the number of elements: `elem_count`.

        >>> tl.zeros((2, 3)).numel()
        6
        """
        return self.elem_count

    def clone(self) -> Self:
        """Copy the elements to a new storage, as `copy` does.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.clone().storage is x.storage
        False
        """
        return self.copy()

    def ravel(self) -> Self:
        """Give the elements the shape of a vector: `flatten`, by NumPy's name.

        >>> tl.Tensor([[1, 2], [3, 4]]).ravel()
        Tensor([1, 2, 3, 4], dtype=i64)
        """
        return self.flatten()

    @named
    def view(self, *shape: int | Sequence[int]) -> Self:
        """Return a view of the elements in another shape, without a copy. One size may be -1 and follows from the
        others.

        `InvalidArgument` where the strides allow no view: `reshape` copies there.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.view(3, 2)
        Tensor([[1, 2],
                [3, 4],
                [5, 6]], dtype=i64)
        """
        target = self._completed(_integers("view", "shape", shape))
        layout = self._layout.reshape(target)
        if layout is None:
            reason = f"no strides make a view of shape {target} of {self._layout}; use reshape, which copies"
            raise InvalidArgument("view", reason)
        return self._view(layout)

    @named
    def expand(self, *shape: int | Sequence[int]) -> Self:
        """Broadcast the tensor to `shape`, as `broadcast_as` does; -1 keeps the size of a dim.

        >>> tl.Tensor([[1], [2]]).expand(-1, 3)
        Tensor([[1, 1, 1],
                [2, 2, 2]], dtype=i64)
        """
        sizes = _integers("expand", "shape", shape)
        ahead = len(sizes) - self.rank
        if ahead < 0 or -1 in sizes[:ahead]:
            reason = f"{sizes} has a size for each of {self.rank} dims, and -1 only for those"
            raise ShapeMismatch("expand", (self.shape,), reason)
        known = [self.shape[dim - ahead] if size == -1 else size for dim, size in enumerate(sizes)]
        return self.broadcast_as(known)

    @named
    def split(self, size: int | Sequence[int], dim: int = FIRST, *, axis: int | None = None) -> list[Self]:
        """Split the tensor along a dim into views of `size` elements, the last of which may be shorter.

        A list gives the size of each part: `InvalidArgument` unless they add up to the size of the dim.

        >>> [part.tolist() for part in tl.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        >>> [part.tolist() for part in tl.arange(5).split([1, 4])]
        [[0], [1, 2, 3, 4]]
        """
        if axis is not None:
            dim = argument.dim_of("split", dim, axis)
        dim = self.shape.dim("split", dim)
        length = self.shape[dim]
        if isinstance(size, Sequence):
            sizes = list(argument.integers("split", "size", size))
            if min(sizes, default=0) < 0 or sum(sizes) != length:
                raise InvalidArgument("split", f"the sizes are 0 or more and add up to {length}, not {sizes}")
        else:
            each = argument.integer("split", "size", size)
            if each < 1:
                raise InvalidArgument("split", f"size is 1 or more, not {each}")
            require_few("split", -(-length // each))
            sizes = [min(each, length - start) for start in range(0, max(length, 1), each)]
        starts = itertools.accumulate(sizes, initial=0)
        return [self.narrow(dim, start, count) for start, count in zip(starts, sizes, strict=False)]

    @named
    def unbind(self, dim: int = FIRST, *, axis: int | None = None) -> list[Self]:
        """Return a list of the views at each index of a dim, without that dim.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> [row.tolist() for row in x.unbind()]
        [[1, 2, 3], [4, 5, 6]]
        """
        if axis is not None:
            dim = argument.dim_of("unbind", dim, axis)
        dim = self.shape.dim("unbind", dim)
        require_few("unbind", self.shape[dim])
        return [self.narrow(dim, position, 1).squeeze(dim) for position in range(self.shape[dim])]

    @named
    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Move dims to other positions; the other dims keep their order. The result is a view.

        >>> tl.zeros((2, 3, 4)).movedim(0, -1).shape
        (3, 4, 2)
        """
        ends_of = []
        for name, dims_of in (("source", source), ("destination", destination)):
            dims = argument.integers("movedim", name, dims_of if isinstance(dims_of, Sequence) else (dims_of,))
            ends_of.append([self.shape.dim("movedim", dim) for dim in dims])
        moved, ends = ends_of
        if len(set(moved)) != len(moved) or len(set(ends)) != len(ends) or len(moved) != len(ends):
            reason = f"source and destination are as many dims, none of them twice, not {source} and {destination}"
            raise InvalidArgument("movedim", reason)
        order = [dim for dim in range(self.rank) if dim not in moved]
        for end, dim in sorted(zip(ends, moved, strict=True)):
            order.insert(end, dim)
        return self.permute(order)

    @named
    def log_sum_exp(self, dim: int | Sequence[int] = REQUIRED, *, axis: int | Sequence[int] | None = None) -> Self:
        """Compute the logarithm of the sum of exponentials along some dims: Candle's name of `logsumexp`.

        >>> tl.Tensor([[0.0, 0.0], [1.0, 2.0]]).log_sum_exp(1)
        Tensor([0.6931, 2.3133], dtype=f32)
        """
        if axis is not None:
            dim = argument.dim_of("log_sum_exp", dim, axis)
        return self.logsumexp(dim)

    @named
    def mm(self, other: Self) -> Self:
        """Multiply two matrices (m, k) and (k, n); `ShapeMismatch` for other ranks than 2.

        >>> x = tl.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.mm(x)
        Tensor([[ 7., 10.],
                [15., 22.]], dtype=f32)
        """
        return self._product_of_rank("mm", other, 2)

    @named
    def bmm(self, other: Self) -> Self:
        """Multiply two batches of matrices (b, m, k) and (b, k, n); `ShapeMismatch` for other ranks than 3.

        >>> tl.ones((2, 3, 4)).bmm(tl.ones((2, 4, 5))).shape
        (2, 3, 5)
        """
        return self._product_of_rank("bmm", other, 3)

    def _product_of_rank(self, op: str, other: Self, rank: int) -> Self:
        require_tensors(op, other=other)
        if self.rank != rank or other.rank != rank or self.shape[:-2] != other.shape[:-2]:
            reason = f"both have rank {rank} and as many matrices; matmul broadcasts"
            raise ShapeMismatch(op, (self.shape, other.shape), reason)
        return self.matmul(other)

    @named
    def equal(self, other: Self) -> bool:
        """Return True if two tensors have the same shape and equal elements; NaN equals nothing.

        >>> tl.Tensor([1, 2]).equal(tl.Tensor([1, 2]))
        True
        """
        require_tensors("equal", other=other)
        return self.shape == other.shape and bool(self.eq(other).all())

    @named
    def allclose(self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Return True if all elements are close: |x - y| <= atol + rtol * |y|, or equal.

        NaNs are close to each other with `equal_nan`. Integers and bools are compared in f64, floats of 16 bits and
        fewer in f32.

        >>> tl.Tensor([1.0]).allclose(tl.Tensor([1.0 + 1e-7]))
        True
        """
        require_tensors("allclose", other=other)
        rtol, atol = argument.real("allclose", "rtol", rtol), argument.real("allclose", "atol", atol)
        close = self.eq(other)
        common = promoted(self.dtype, other.dtype)
        wide = common.compute if common is not None and common.is_inexact else DType.F64
        x, y = self.to_dtype(wide), other.to_dtype(wide)
        if argument.boolean("allclose", "equal_nan", equal_nan):
            close = close | (x.isnan() & y.isnan())
        size = y.abs()
        near = (x - y).abs() <= size * rtol + atol
        return bool((close | (near & (size < math.inf))).all())

    def round(self, decimals: int = 0) -> Self:
        """Round to a number of decimals, ties away from zero; with -2 decimals the nearest hundred.

        `UnsupportedDType` for integers and decimals below 0.

        >>> tl.Tensor([0.5, 1.5, -2.5]).round()
        Tensor([1., 2., -3.], dtype=f32)
        >>> tl.Tensor([3.14159]).round(2)
        Tensor([3.14], dtype=f32)
        """
        decimals = argument.integer("round", "decimals", decimals)
        if decimals == 0 or (decimals > 0 and self.dtype.is_integer):
            return self._unary(ROUND)
        numerator, denominator = _power_of_ten(-decimals), _power_of_ten(decimals)
        return self._preserved(self._storage.round_to(self._layout.ordered, numerator, denominator))

    def round_to(self, decimals: int) -> Self:
        """Round to a number of decimals: `round`.

        >>> tl.Tensor([3.14159]).round_to(2)
        Tensor([3.14], dtype=f32)
        """
        return self.round(decimals)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Replace NaN by a number and of both infinities, which without one become the largest of the dtype.

        Integers, which have neither, are copied.

        >>> tl.Tensor([1.0, float("nan"), float("inf")]).nan_to_num(posinf=9.0)
        Tensor([1., 0., 9.], dtype=f32)
        """
        if not self.dtype.is_inexact:
            return self.copy()
        largest = self.dtype.real.format.max
        nan = argument.real("nan_to_num", "nan", nan)
        highest = largest if posinf is None else argument.real("nan_to_num", "posinf", posinf)
        lowest = -largest if neginf is None else argument.real("nan_to_num", "neginf", neginf)
        return self._preserved(self._storage.nan_to_num(self._layout.ordered, nan, highest, lowest))

    def clamp(self, min: float | None = None, max: float | None = None) -> Self:
        """Limit the elements to the range from `min` to `max`, of which one may be left out; NaN stays.

        Where `min` is above `max` the result is `max`. For integers the bounds are rounded inwards: `clamp(0.5, 2.5)`
        is `clamp(1, 2)`, and NaN is `InvalidArgument`.

        >>> tl.Tensor([-2.0, 0.5, 3.0]).clamp(0.0, 1.0)
        Tensor([0.0, 0.5, 1.0], dtype=f32)
        >>> tl.Tensor([-2.0, 0.5, 3.0]).clamp(min=0.0)
        Tensor([0.0, 0.5, 3.0], dtype=f32)
        """
        if min is None and max is None:
            raise InvalidArgument("clamp", "give min, max or both")
        if type(min) is not float:
            min = _bound("min", min, -math.inf)
        if type(max) is not float:
            max = _bound("max", max, math.inf)
        if self._storage.inner.dtype.is_integer:
            min, max = _whole("min", min, math.ceil), _whole("max", max, math.floor)
        return self._preserved(self._storage.clamp(self._layout.ordered, min, max))

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Self:
        """Convert the elements: `to_dtype`. With `copy` a tensor that has the dtype is copied, as in NumPy.

        >>> tl.Tensor([1.5, 2.5]).astype("i64")
        Tensor([1, 2], dtype=i64)
        """
        converted = self.to_dtype(dtype)
        return converted.copy() if argument.boolean("astype", "copy", copy) and converted is self else converted

    def half(self) -> Self:
        """Convert the elements to f16, as `to_dtype` does.

        >>> tl.Tensor([1.0, 2.0]).half()
        Tensor([1., 2.], dtype=f16)
        """
        return self.to_dtype(DType.F16)

    # Last, because the annotations of what follows would mean this.
    def float(self) -> Self:
        """Convert the elements to f32, as `to_dtype` does.

        >>> tl.Tensor([1, 2]).float()
        Tensor([1., 2.], dtype=f32)
        """
        return self.to_dtype(DType.F32)


def _power_of_ten(exponent: int) -> float:
    """10 to the power of a number of decimals: 1 below 0, infinite beyond every float."""
    return 10.0 ** max(exponent, 0) if exponent <= 308 else math.inf


def _bound(name: str, bound: float | None, otherwise: float) -> float:
    if bound is None:
        return otherwise
    return bound if isinstance(bound, NumberLike) else argument.number("clamp", name, bound)


def _whole(name: str, bound: float, rounded: Callable[[float], int]) -> float:
    """Round a bound of integers inwards; infinities stay."""
    if bound != bound:
        raise InvalidArgument("clamp", f"{name} is NaN, which bounds no integer; leave it out")
    return bound if abs(bound) == math.inf else rounded(bound)
