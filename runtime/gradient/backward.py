"""Gradients of a result, worked out from the last recorded call to the first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.error import GradientError, InvalidArgument, ShapeMismatch, shown
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.base import TensorBase, require_tensors
from .node import Node, RecordedInner
from .recording import graph_kept
from .sums import Sum, flat

if TYPE_CHECKING:
    from .variable import Var


class Gradients:
    """The gradients of variables, which `backward` gives: `grads[w]` is that of w, in its shape and dtype."""

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[Node, Tensor]) -> None:
        if not isinstance(of, Mapping):
            raise InvalidArgument("Gradients", f"of must be a mapping, not {shown(of)}; x.backward() gives gradients")
        self._of = of

    def get(self, variable: Var) -> Tensor | None:
        """Return the gradient of a variable; None of one on which the result does not depend."""
        node = _node_of(variable)
        if node is None or node.rule is not None:
            raise GradientError("grads", f"variable must be a Var, whose gradient was asked for, not {shown(variable)}")
        found = self._of.get(node)
        return None if found is None else found.reshape(variable.shape)

    def __getitem__(self, variable: Var) -> Tensor:
        """Return the gradient of a variable; GradientError for one on which the result does not depend."""
        found = self.get(variable)
        if found is None:
            reason = f"the result does not depend on this Var of shape {variable.shape}"
            raise GradientError("grads", f"{reason}, or does so by ops without a gradient; grads.get(w) gives None")
        return found

    def __contains__(self, variable: Var) -> bool:
        return self.get(variable) is not None

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return f"<gradients of {len(self._of)} variables>"


def _node_of(tensor: Any) -> Node | None:
    inner = tensor._storage.inner if isinstance(tensor, TensorBase) else None
    return inner.node if isinstance(inner, RecordedInner) else None


def backward(tensor: Tensor, gradient: Tensor | None, keep: bool, create_graph: bool) -> Gradients:
    """What `Tensor.backward` does."""
    op = "backward"
    if gradient is not None:
        require_tensors(op, gradient=gradient)
    root = _node_of(tensor)
    if root is None:
        raise GradientError(
            op,
            "this tensor does not depend on a Var by ops that have a gradient; make its operands with tallow.Var,"
            " outside of no_grad",
        )
    if gradient is None:
        if tensor.elem_count != 1:
            reason = f"the gradient of {tensor.elem_count} elements must be given"
            raise ShapeMismatch(op, (tensor.shape,), f"{reason}; write x.sum().backward(), or x.backward(gradient)")
        gradient = Tensor.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    else:
        if gradient.shape != tensor.shape:
            shapes = tensor.shape, gradient.shape
            raise ShapeMismatch(op, shapes, "the gradient has the shape of the tensor; broadcast it with broadcast_as")
        gradient = gradient.to_dtype(tensor.dtype)
    with graph_kept(create_graph):
        return Gradients(_back(root, gradient, tensor._layout, keep))


def _back(root: Node, gradient: Tensor, layout: Layout, keep: bool) -> dict[Node, Tensor]:
    """The gradients of the variables on which a node depends."""
    sums = {root: Sum(root.length)}
    sums[root].add(gradient, layout)
    # The last call first: when a node's turn comes, all that depends on it is done.
    waiting = [(-root.number, root)]
    found = {}
    while waiting:
        node = heapq.heappop(waiting)[1]
        total = sums.pop(node).total
        if total is None:
            continue
        if node.rule is None:
            found[node] = total
            continue
        for place, contribution in node.rule(node, total):
            source = node.nodes[place]
            if source is None or contribution is None:
                continue
            if source not in sums:
                sums[source] = Sum(source.length)
                heapq.heappush(waiting, (-source.number, source))
            shape = node.layouts[place]
            sums[source].add(contribution, flat(source.length) if shape is None else shape)
        if not keep:
            node.free()
    return found
