"""Attention."""

from __future__ import annotations

import math
from typing import Self, TypeAlias

from ...base.bounded_cache import BoundedCache
from ...base.error import DTypeMismatch, ShapeMismatch
from ...core.argument import boolean, real
from ...core.extensions import extensions
from ...core.layout import Layout
from ...core.shape import Shape
from ...storage.calls import live_autocasts
from ..base import TensorBase, parts, require_tensors
from ..promotion import DTYPE_ERRORS, promote

_OP = "scaled_dot_product_attention"


class AttentionMethods(TensorBase):
    """Attention."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        mask: Self | None = None,
        *,
        causal: bool = False,
        scale: float | None = None,
        lengths: Self | None = None,
    ) -> Self:
        """Attend from these queries (.., heads, n, size) to keys and values (.., key heads, m, size).

        The result is softmax(self @ key^T * scale + mask) @ value, of shape (.., heads, n, size); the scores are never
        stored at once. At most one dim comes before the heads, and it broadcasts, as does the mask to (.., heads, n,
        m). Of a mask of bool, True is a key that is seen; it is not for f8e4m3, which has no infinity. The key heads
        divide the heads: each serves several in a row. `scale` is 1 / sqrt(size) where it is None. `lengths`, one
        integer or one for each batch, on the device of the other operands, say how many keys are valid: a cache may
        hold more, which are not read. With `causal`, query i sees key j where j <= i + (length - n). A query that sees
        nothing gives 0. bf16 and f16 have f32 scores and sums. GPUs may round their weights to 16 bits before they
        multiply values: this changes a result by at most one unit in the last place of the sum of the magnitudes of its
        terms. `ShapeMismatch` where shapes do not fit; `InvalidIndex` for a length that is negative or above m.

        >>> query = key = value = tl.randn((1, 8, 16, 64))
        >>> query.scaled_dot_product_attention(key, value, causal=True).shape
        (1, 8, 16, 64)
        >>> mask, lengths = tl.zeros((1, 8, 16, 16)), tl.Tensor([12])
        >>> query.scaled_dot_product_attention(key, value, mask, scale=0.125, lengths=lengths).shape
        (1, 8, 16, 64)
        """
        if not (isinstance(key, TensorBase) and isinstance(value, TensorBase)):
            require_tensors(_OP, key=key, value=value)
        if live_autocasts:
            self, key, value, mask = extensions.narrowed(self, key, value, mask)
        is_of_bool = isinstance(mask, TensorBase) and mask.dtype.kind == "bool"
        if is_of_bool and self.dtype.is_float and not self.dtype.format.specials:
            added: Self | None = self._added_where_seen(mask)  # type: ignore[arg-type]
        else:
            added = mask
        mask_storage, mask_layout = parts(_OP, "mask", added)
        query_layout, key_layout, value_layout = self._layout, key._layout, value._layout
        mask_number = None if mask_layout is None else mask_layout.number
        numbers = query_layout.number, key_layout.number, value_layout.number, mask_number
        arguments = _attentions.get(numbers)
        if arguments is None:
            arguments = _attentions.put(numbers, _attention(query_layout, key_layout, value_layout, mask_layout))
        query_layout, key_layout, value_layout, mask_layout, layout, usual_scale = arguments
        try:
            storage = self._storage.scaled_dot_product_attention(
                query_layout,
                key._storage,
                key_layout,
                value._storage,
                value_layout,
                mask_storage,
                mask_layout,
                *parts(_OP, "lengths", lengths),
                causal if type(causal) is bool else boolean(_OP, "causal", causal),
                usual_scale if scale is None else real(_OP, "scale", scale),
            )
        except DTYPE_ERRORS as error:
            summands = [] if mask is None or is_of_bool else [mask]
            operands = promote(error, self, key, value, *summands)
            for mask in summands:
                if mask.dtype.is_integer:
                    # Zeros and ones that are added to scores would pass for a mask.
                    raise DTypeMismatch(_OP, (self.dtype, mask.dtype)) from None
        else:
            return self._new(storage, layout)
        query, key, value = operands[:3]
        mask = operands[-1] if summands else mask
        return query.scaled_dot_product_attention(key, value, mask, causal=causal, scale=scale, lengths=lengths)

    def _added_where_seen(self, seen: Self) -> Self:
        """Return the term that is added to scores: 0 where a key is seen, elsewhere -infinity."""
        layout, repeated = seen._layout, seen._layout.repeated
        numbers = self._number(_OP, 0), repeated, self._number(_OP, -math.inf), repeated
        return self._new(seen._storage.where_cond(layout, *numbers), layout.dense)


_Attention: TypeAlias = tuple[Layout, Layout, Layout, Layout | None, Layout, float]

# By the numbers of the layouts.
_attentions: BoundedCache[tuple[int | None, ...], _Attention] = BoundedCache(1 << 12)


def _attention(query: Layout, key: Layout, value: Layout, mask: Layout | None) -> _Attention:
    """Return the operands' layouts with all four dims, the result's layout, and the default scale."""
    layouts = query, key, value
    shapes = tuple(layout.shape for layout in layouts)
    if any(not 2 <= layout.rank <= 4 for layout in layouts):
        raise ShapeMismatch(_OP, shapes, "queries, keys and values are (heads, n, size), with at most one dim before")
    if key.shape != value.shape:
        raise ShapeMismatch(_OP, shapes, "keys and values must have one shape; reshape one of them")
    operands = [_with_rank_4(layout) for layout in layouts]
    (batch,) = Shape.broadcast(_OP, *(Shape._trusted(layout.shape[:1]) for layout in operands[:2]))
    operands = [layout.broadcast_as((batch, *layout.shape[1:])) for layout in operands]
    heads, queries, size = operands[0].shape[1:]
    result = Layout.contiguous((batch, heads, queries, size) if max(query.rank, key.rank) == 4 else query.shape)
    if mask is not None:
        try:
            mask = mask.broadcast_as((batch, heads, queries, operands[1].shape[2]))
        except ShapeMismatch as error:
            error.rename(_OP)
            raise
    return operands[0], operands[1], operands[2], mask, result, 1 / math.sqrt(max(size, 1))


def _with_rank_4(layout: Layout) -> Layout:
    while layout.rank < 4:
        layout = layout.unsqueeze(0)
    return layout
