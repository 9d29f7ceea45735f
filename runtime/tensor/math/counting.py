"""How often there is what: results whose shapes depend on elements, for which the host waits."""

from __future__ import annotations

from typing import Self

import numpy as np

from ....dtype import INTEGER, Array, DType
from ...base.error import InvalidArgument, ShapeMismatch, UnsupportedDType
from ...core import argument
from ...core.conversion import conversion
from ...helpers.host_memory import raises_out_of_memory
from ..base import named, require_tensors
from ..layouts import broadcast
from ..shape.joining import cat, stack
from .composed import ComposedMethods


class CountingMethods(ComposedMethods):
    """Different elements, and how many there are of each."""

    __slots__ = ()

    @named
    def unique(
        self, return_indices: bool = False, return_inverse: bool = False, return_counts: bool = False
    ) -> Self | tuple[Self, ...]:
        """Return the different elements in ascending order, a vector.

        Each NaN is different from all others. Complex numbers are in the order of their real parts, and of their
        imaginary parts where these are equal. If requested, in this order and in i64: the position of the first of each
        in row-major order; the index of each element in the result, in the shape of the tensor; and how many there are
        of each. The host waits for the number of different elements.

        >>> tl.Tensor([3, 1, 3]).unique()
        Tensor([1, 3], dtype=i64)
        >>> values, counts = tl.Tensor([3, 1, 3]).unique(return_counts=True)
        >>> counts
        Tensor([1, 2], dtype=i64)
        """
        wants = [
            argument.boolean("unique", name, flag)
            for name, flag in (
                ("return_indices", return_indices),
                ("return_inverse", return_inverse),
                ("return_counts", return_counts),
            )
        ]
        flat, length = self.flatten(), self.elem_count
        if self.dtype.is_complex:
            by_imag = flat.imag().argsort()
            order = by_imag.gather(flat.real().gather(by_imag, 0).argsort(), 0)
        else:
            order = flat.argsort()
        ordered = flat.gather(order, 0)
        # For each element, the number of its value in the result.
        steps = ordered[1:].ne(ordered[:-1]).to_dtype(DType.I64)
        numbers = cat([self.zeros(min(length, 1), dtype=DType.I64, device=self.device), steps]).cumsum(0)
        count = int(numbers[-1].item()) + 1 if length else 0
        starts = numbers.searchsorted(self.arange(count, device=self.device))
        results = [ordered.index_select(starts, 0)]
        if wants[0]:
            results.append(order.index_select(starts, 0).to_dtype(DType.I64))
        if wants[1]:
            results.append(numbers.zeros_like().scatter_(order, numbers, 0).reshape(self.shape))
        if wants[2]:
            results.append(starts.diff(append=self.full(1, length, device=self.device)))
        return tuple(results) if any(wants) else results[0]

    @named
    def nonzero(self) -> Self:
        """Return the indexes of the elements that are not 0: a matrix (count, rank) of i64, in row-major order.

        The host waits for the count.

        >>> tl.Tensor([[0, 5], [7, 0]]).nonzero()
        Tensor([[0, 1],
                [1, 0]], dtype=i64)
        """
        host = self._host_view()
        if host is not None:
            return self.from_numpy(_nonzero_indexes(host), device=self.device)
        flags = self.ne(0).flatten() if self.dtype.kind != "bool" else self.flatten()
        numbers = flags.cumsum(0)
        count = int(numbers[-1].item()) if self.elem_count else 0
        # An element that is 0 has no row: its index is out of range.
        rows = flags.where(numbers - 1, 2**63 - 1)
        positions = self.zeros(count, dtype=DType.I64, device=self.device)
        if count:
            positions.scatter_(rows, self.arange(self.elem_count, device=self.device), 0)
        columns = []
        for size in reversed(self.shape):
            columns.append(positions.remainder(size))
            positions = positions.floor_divide(size)
        if not columns:
            return self.zeros((count, 0), dtype=DType.I64, device=self.device)
        return stack(columns[::-1], 1)

    @named
    def masked_select(self, mask: Self) -> Self:
        """Return the elements where a mask is True, as a vector in row-major order.

        The mask broadcasts with the tensor. The size depends on its values, so the host waits for the device.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.masked_select(x > 2)
        Tensor([3, 4, 5, 6], dtype=i64)
        """
        require_tensors("masked_select", mask=mask)
        tensor, selected = broadcast("masked_select", self._layout, mask._layout)
        chosen: Self = self._view(tensor)[mask._view(selected)]
        return chosen

    @named
    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """Count the occurrences of each number from 0 on in a vector of integers, in i64, or sum their weights.

        The result has one element for each number up to the largest, for which the host waits, and at least
        `minlength`. `InvalidArgument` for a negative number.

        >>> tl.Tensor([0, 2, 2, 3]).bincount()
        Tensor([1, 0, 2, 1], dtype=i64)
        >>> tl.Tensor([0, 2, 2]).bincount(weights=tl.Tensor([0.5, 1.0, 2.0]), minlength=4)
        Tensor([0.5, 0.0, 3.0, 0.0], dtype=f32)
        """
        least = argument.integer("bincount", "minlength", minlength)
        if self.rank != 1:
            raise ShapeMismatch("bincount", (self.shape,), "what is counted is a vector; flatten the tensor first")
        if not self.dtype.is_integer:
            reason, fix = "integers are counted", conversion(self.dtype, INTEGER)
            raise UnsupportedDType("bincount", self.dtype, self.device.backend, reason, fix)
        if least < 0:
            raise InvalidArgument("bincount", f"minlength is 0 or more, not {least}")
        if weights is not None:
            require_tensors("bincount", weights=weights)
        numbers = self.to_dtype(DType.I64)
        if self.elem_count:
            first, last = cat([numbers.min(0, keepdim=True), numbers.max(0, keepdim=True)]).tolist()
            if first < 0:
                raise InvalidArgument("bincount", f"the numbers are 0 or more, not {first}")
            least = max(least, last + 1)
        terms = (
            self.ones(1, dtype=DType.I64, device=self.device).broadcast_as(self.shape) if weights is None else weights
        )
        return self.zeros(least, dtype=terms.dtype, device=self.device).scatter_add_(numbers, terms, 0)


@raises_out_of_memory
def _nonzero_indexes(array: Array) -> Array:
    """The indexes of the elements that are not 0, a row for each. OutOfMemory before they are looked for.

    A stretched array may have more elements than memory holds, all of them equal along the stretched dims.
    """
    different = array[tuple([slice(0, 1 if stride == 0 else None) for stride in array.strides])]
    count = np.count_nonzero(different) * (array.size // max(different.size, 1))
    if count == 0:
        return np.empty((0, array.ndim), np.int64)
    np.empty((count, array.ndim), np.int64)
    return np.argwhere(array)
