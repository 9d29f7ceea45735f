"""The layouts of results of storage methods, by the layout of the operand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..base.bounded_cache import BoundedCache
from ..core.layout import Layout
from ..core.tensor_type import TensorType
from ..tensor import Tensor

_layouts: Final[BoundedCache[tuple[object, ...], tuple[Layout, ...]]] = BoundedCache(1 << 12)


def result_layouts(
    find: Callable[..., TensorType | Iterable[TensorType | None]], x: Tensor, *options: object
) -> tuple[Layout, ...]:
    """The layouts of the results that there are, whose types are `find(x, *options)`."""
    key = find, x._layout.number, *options
    layouts = _layouts.get(key)
    if layouts is None:
        types = find(x, *options)
        every = (types,) if isinstance(types, TensorType) else types
        shapes = [each.shape for each in every if each is not None]
        layouts = _layouts.put(key, tuple(map(Layout.contiguous, shapes)))
    return layouts
