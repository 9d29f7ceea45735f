"""`backward`, and the gradients that it gives."""

from __future__ import annotations

import itertools
from typing import Final

from ..base.error import GradientError, ShapeMismatch
from ..core.extensions import extensions
from ..storage.calls import live_autocasts, live_batches
from ..tensor import Gradients, Tensor
from ..tensor.base import require_tensors
from ..tensor.batch import copy_per_example, levels_of
from .node import Node
from .recording import Mode, mode, set_mode
from .rules import one_of
from .walk import NO_WATCH, Walk, Watch


def backward(
    tensor: Tensor,
    gradient: Tensor | None,
    keep: bool,
    create_graph: bool,
    share: bool = False,
    watch: Watch = NO_WATCH,
) -> Gradients:
    """Implement `Tensor.backward`."""
    if live_autocasts and extensions.is_cast():
        with extensions.without_autocast():
            return backward(tensor, gradient, keep, create_graph, share, watch)
    op = "backward"
    if gradient is not None and not isinstance(gradient, Tensor):
        require_tensors(op, gradient=gradient)
    root = tensor._storage.inner
    if not isinstance(root, Node):
        raise GradientError(
            op,
            "this tensor does not depend on a Var by ops that have a gradient; make its operands with tallow.Var,"
            " outside of no_grad",
        )
    if gradient is None:
        count = tensor._layout.shape.elem_count
        if count != 1:
            reason = f"the gradient of {count} elements is required"
            raise ShapeMismatch(op, (tensor.shape,), f"{reason}; write x.sum().backward(), or x.backward(gradient)")
        if tensor.dtype.is_complex:
            reason = "a complex number has no direction in which it grows"
            raise GradientError(
                op, f"{reason}; write x.abs().backward() or x.real().backward(), or x.backward(gradient)"
            )
        gradient = Tensor._new(one_of(tensor), tensor._layout.dense)
        if live_batches:
            gradient = copy_per_example(gradient, tensor)
    else:
        if gradient._layout.shape != tensor._layout.shape:
            shapes = tensor.shape, gradient.shape
            raise ShapeMismatch(op, shapes, "the gradient has the shape of the tensor; broadcast it with broadcast_as")
        if gradient._storage.inner.dtype is not root.dtype:
            gradient = gradient.to_dtype(tensor.dtype)
        if live_batches and {*levels_of(tensor._storage)} - {*levels_of(gradient._storage)}:
            gradient = copy_per_example(gradient, tensor)
        if not create_graph and type(gradient._storage.inner) is Node:
            gradient = Tensor._new(gradient._storage.value, gradient._layout)
    before = mode()
    try:
        set_mode(_MODES[create_graph, keep, share])
        with Walk(root, gradient, tensor._layout, keep, watch) as walk:
            return Gradients(walk.gradients())
    finally:
        set_mode(before)


_MODES: Final = {
    (records, keep, share): Mode(records=records, keeps_graph=records, frees=not keep, shares=share)
    for records, keep, share in itertools.product((False, True), repeat=3)
}
