"""Padding: elements added before and after those of some dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeAlias

from ...base.error import InvalidArgument, describe
from ...core import argument
from ...core.argument import REQUIRED
from ...core.check import require_enough
from ...core.padding import MODES
from ...core.shape import Shape
from ..base import named
from ..layouts import Ends
from ..number import as_number
from ..shape.indexing import IndexMethods

Pairs: TypeAlias = tuple[tuple[int, int], ...]


class PaddingMethods(IndexMethods):
    """Padding of any dims."""

    __slots__ = ()

    @named
    def pad(self, padding: Sequence[Sequence[int]], mode: str = "constant", value: float = 0) -> Self:
        """Pad the last dims: `padding` has a pair for each of them, the numbers of elements before and after it.

        `mode` says what the new elements are:

        - "constant": `value`, cast to the tensor's dtype
        - "reflect": those next to the first and the last one, mirrored; fewer than the dim has
        - "replicate": the first one and the last one again
        - "circular": those of the other end; at most as many as the dim has

        `InvalidArgument` for a negative number, and if a dim has too few elements for its padding.

        >>> x = tl.Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.pad([(0, 1), (2, 0)])
        Tensor([[0, 0, 1, 2, 3],
                [0, 0, 4, 5, 6],
                [0, 0, 0, 0, 0]], dtype=i64)
        >>> x.pad([(2, 1)], mode="reflect")
        Tensor([[3, 2, 1, 2, 3, 2],
                [6, 5, 4, 5, 6, 5]], dtype=i64)
        >>> x.pad([(1, 1)], mode="circular")
        Tensor([[3, 1, 2, 3, 1],
                [6, 4, 5, 6, 4]], dtype=i64)
        """
        if argument.text("pad", "mode", mode) not in MODES:
            raise InvalidArgument("pad", f"mode is {', '.join(map(repr, MODES))}, not {describe(mode)}")
        if mode != "constant" and value != 0:
            raise InvalidArgument("pad", f"only mode 'constant' takes a value, not {mode!r}")
        pairs = _pairs(padding)
        if len(pairs) > self.rank:
            reason = f"padding has {len(pairs)} pairs, more than the {self.rank} dims of the tensor"
            raise InvalidArgument("pad", reason)
        number: complex = value
        if type(value) is int and not value:
            number = 0.0
        elif type(value) is not float or not self.dtype.is_float:
            number = as_number("pad", argument.complex_number("pad", "value", value), self.dtype, "use a {} dtype")
        return self._padded(_padded_dims, "pad", mode, self.rank - len(pairs), pairs, value=number)

    @named
    def pad_with_zeros(
        self, dim: int = REQUIRED, left: int = REQUIRED, right: int = REQUIRED, *, axis: int | None = None
    ) -> Self:
        """Pad the tensor along a dim with `left` zeros before it and `right` zeros after it; see `pad`.

        >>> tl.Tensor([1, 2]).pad_with_zeros(0, 1, 2)
        Tensor([0, 1, 2, 0, 0], dtype=i64)
        """
        return self._padded_along("pad_with_zeros", dim, left, right, axis, "constant")

    @named
    def pad_with_same(
        self, dim: int = REQUIRED, left: int = REQUIRED, right: int = REQUIRED, *, axis: int | None = None
    ) -> Self:
        """Pad the tensor along a dim by repeating its first element `left` times and its last one `right` times.

        >>> tl.Tensor([1, 2]).pad_with_same(0, 1, 2)
        Tensor([1, 1, 2, 2, 2], dtype=i64)
        """
        return self._padded_along("pad_with_same", dim, left, right, axis, "replicate")

    def _padded_along(self, op: str, dim: int, left: int, right: int, axis: int | None, mode: str) -> Self:
        if axis is not None:
            dim = argument.dim_of(op, dim, axis)
        dim = self.shape.dim(op, dim)
        before, after = (argument.integer(op, name, n) for name, n in (("left", left), ("right", right)))
        if min(before, after) < 0:
            raise InvalidArgument(op, f"left and right are 0 or more, not {before} and {after}")
        return self._padded(_padded_dims, op, mode, dim, ((before, after),))


def _padded_dims(shape: Shape, op: str, mode: str, first: int, pairs: Pairs) -> tuple[str, Ends]:
    """Pad dim `first` and those after it."""
    ends = [(dim, *pair) for dim, pair in enumerate(pairs, first)]
    for dim, *pair in ends:
        require_enough(op, mode, dim, shape[dim], max(pair))
    return mode, ends


def _pairs(padding: Sequence[Sequence[int]]) -> Pairs:
    form = "a pair of integers for each of the last dims, such as [(1, 1), (0, 2)]"
    if isinstance(padding, str) or not isinstance(padding, Sequence):
        raise InvalidArgument("pad", f"padding must be {form}, not {describe(padding)}")
    pairs = []
    for pair in padding:
        before, after = argument.integers("pad", "padding", pair, 2, form)
        if min(before, after) < 0:
            raise InvalidArgument(
                "pad", f"padding is 0 or more, not {before} and {after}; x.narrow() cuts off elements"
            )
        pairs.append((before, after))
    return tuple(pairs)
