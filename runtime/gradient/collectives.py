"""Gradients of calls that all ranks make together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import results
from ..base.error import GradientError
from ..core.layout import Layout
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..ranks.group import Group


def _called(g: Tensor, method: str, shape: Sequence[int], *arguments: object) -> Tensor:
    """Call all ranks with a gradient, and return the result."""
    storage = getattr(g._storage, method)(g._layout, *arguments)
    return Tensor._new(storage, Layout.contiguous(shape))


def _require_sum(op: str, reduction: str) -> None:
    if reduction not in ("sum", "mean"):
        raise GradientError(op, f"there is no gradient of '{reduction}' over ranks; take the sum or the mean")


def all_reduced(g: Tensor, reduction: str, group: Group) -> Tensor:
    """That of what each rank gave to all_reduce: each rank's result depends on it."""
    _require_sum("all_reduce", reduction)
    return _called(g, "all_reduce", g.shape, reduction, group)


def reduce_scattered(g: Tensor, group: Group) -> Tensor:
    """That of what each rank gave to all_gather."""
    return _called(g, "reduce_scatter", results.reduce_scatter(g, group).shape, "sum", group)


def gathered_again(g: Tensor, reduction: str, group: Group) -> Tensor:
    """That of what each rank gave to reduce_scatter."""
    _require_sum("reduce_scatter", reduction)
    every = _called(g, "all_gather", results.all_gather(g, group).shape, group)
    return every / group.size if reduction == "mean" else every


def collected(g: Tensor, root: int, group: Group) -> Tensor:
    """That of what each rank gave to broadcast: zeros, except on the rank whose elements all have."""
    return _called(g, "reduce", g.shape, "sum", root, group)


def reduced(g: Tensor, reduction: str, root: int, group: Group) -> Tensor:
    """That of what each rank gave to reduce, of which one rank has the result."""
    _require_sum("reduce", reduction)
    shared = _called(g, "broadcast", g.shape, root, group)
    return shared / group.size if reduction == "mean" else shared


def exchanged(g: Tensor, group: Group) -> Tensor:
    """That of what each rank gave to all_to_all."""
    return _called(g, "all_to_all", g.shape, group)
