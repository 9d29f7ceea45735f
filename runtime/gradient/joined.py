"""Methods of tensors that are recorded as one call, and not by the calls of storages that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...tensor_ops import DIV
from ..core.layout import Layout
from ..tensor import Tensor
from .node import Contributions, Node, opened, record, rule, watched
from .recording import mode
from .rules import largest, one_of

if TYPE_CHECKING:
    from ...device import Device


_ONE: Final = Layout.contiguous(())


def moved(tensor: Any, target: Device) -> Any:
    """A recorded tensor on another device: its gradient moves back."""
    plain, node = opened(tensor._storage)
    made = Tensor._new(plain, tensor._layout)._moved(target)
    storage = record(made._storage, _to, (node, tensor._layout), (None, plain.device), None, False)
    return Tensor._new(storage, made._layout)


@rule
def _to(node: Node, g: Tensor) -> Contributions:
    yield 0, g.reshape(node.inputs[1].shape).to(node.saved[-1])


def joined_mean(losses: Any, counted: Any) -> Any:
    """The mean of recorded losses that count: each of them has the same gradient, also those that do not."""
    storage, layout = losses._storage, losses._layout
    mean, total, slope = storage.value.ratio_of_sums(layout, counted._storage, counted._layout)
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


def padded_max_pool(tensor: Any, window: tuple[int, int], step: tuple[int, int], pads: tuple[int, int]) -> Any:
    """The largest elements of windows of a recorded tensor, with padding: that takes no gradient."""
    plain, node = opened(tensor._storage)
    made = Tensor._new(plain, tensor._layout).max_pool2d(window, step, pads)
    saved = watched(plain), window, step, pads, made._layout
    result = made._storage
    return Tensor._new(record(result, _max_pool, (node, tensor._layout), saved, result), made._layout)


@rule
def _max_pool(node: Node, g: Tensor) -> Contributions:
    _, window, step, pads, layout = node.saved
    x, (down, right) = node.operand(0), pads
    sizes = [(pad, pad) for pad in pads]
    is_element = Tensor.ones(x.shape, dtype="bool", device=x.device)._padded(sizes)
    g, result = g.reshape(layout.shape), node.made(layout.shape)
    gradient = largest(g, x._padded(sizes), result, window, step, is_element)
    yield 0, gradient.narrow(2, down, x.shape[2]).narrow(3, right, x.shape[3])
