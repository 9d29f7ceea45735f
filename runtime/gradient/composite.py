"""Methods of tensors that are recorded as one call, and not by the calls of storages that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...tensor_ops import DIV
from ..core.layout import Layout
from ..tensor import Tensor
from .node import Contributions, Node, record, rule, unwrap
from .recording import mode
from .rules import one_of

if TYPE_CHECKING:
    from ...device import Device


_ONE: Final = Layout.contiguous(())


def moved(tensor: Any, target: Device) -> Any:
    """A recorded tensor on another device: its gradient moves back."""
    plain, node = unwrap(tensor._storage)
    moved = Tensor._new(plain, tensor._layout)._moved(target)
    storage = record(moved._storage, _to, (node, tensor._layout), (None, plain.device), None, False)
    return Tensor._new(storage, moved._layout)


@rule
def _to(node: Node, g: Tensor) -> Contributions:
    yield 0, g.reshape(node.inputs[1].shape).to(node.saved[-1])


def mean_of_counted(losses: Any, counted: Any) -> Any:
    """The mean of recorded losses that count: each of them has the same gradient, also those that do not."""
    storage, layout = losses._storage, losses._layout
    mean, total, slope = storage.value.ratio_of_sums(layout, counted._storage, counted._layout, True)
    saved = None, Tensor._new(total, _ONE), Tensor._new(slope, _ONE)
    return Tensor._new(record(mean, _mean, (storage.inner, layout), saved, None, False), _ONE)


@rule
def _mean(node: Node, g: Tensor) -> Contributions:
    _, total, slope = node.saved
    if g._storage is not one_of(g):
        slope = g.reshape(())._binary(DIV, total)
    elif not mode().frees:
        slope = slope.copy()
    yield 0, slope.broadcast_as(node.inputs[1].shape)
