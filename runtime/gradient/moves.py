"""Moves between devices, which are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from .node import Contributions, Node, opened, record

if TYPE_CHECKING:
    from ...device import Device


def moved(tensor: Any, target: Device) -> Any:
    """A recorded tensor on another device: its gradient moves back."""
    plain, node = opened(tensor._storage)
    made = Tensor._new(plain, tensor._layout)._moved(target)
    storage = record(made._storage, _to, (node,), (tensor._layout,), (), (plain.device,))
    return Tensor._new(storage, made._layout)


def _to(node: Node, g: Tensor) -> Contributions:
    (source,) = node.arguments
    layout = node.layouts[0]
    assert layout is not None
    yield 0, g.reshape(layout.shape).to(source)
