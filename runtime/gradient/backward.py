"""Gradients of a result, worked out from the last recorded call to the first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..base.error import DeviceMismatch, DTypeMismatch, GradientError, InvalidArgument, ShapeMismatch, shown
from ..base.unpicklable import Unpicklable
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.base import TensorBase, require_tensors
from .claims import Claim, active
from .node import Node, opened
from .recording import Mode, mode, set_mode
from .rules import one_of
from .sums import Sum, alone, flat, share_elements, ways

if TYPE_CHECKING:
    from .variable import Var


class Gradients(Unpicklable):
    """The gradients of variables, which `backward` gives: `grads[w]` is that of w, in its shape and dtype.

    Each has memory of its own, so that `grads[w] += others[w]` sums up those of several losses.

    >>> w, unused = tl.Var(tl.ones(2)), tl.Var(tl.ones(2))
    >>> grads = (w * 3).sum().backward()
    >>> grads[w]
    Tensor([3., 3.], dtype=f32)
    >>> grads.get(unused) is None
    True
    """

    __slots__ = ("_of",)

    _copy_advice = "copy the tensor that grads[w] gives"

    def __init__(self, of: Mapping[Node, Tensor]) -> None:
        if type(of) is not dict and not isinstance(of, Mapping):
            raise InvalidArgument("Gradients", f"of must be a mapping, not {shown(of)}; x.backward() gives gradients")
        self._of: dict[Node, Tensor] = of if type(of) is dict else dict(of)

    def get(self, variable: Var) -> Tensor | None:
        """Return the gradient of a variable; None of one on which the result does not depend."""
        node = _variable_node(variable)
        found = self._of.get(node)
        if found is None:
            return None
        if found.shape != variable.shape:
            # What is written to it shall be found the next time, also where a reshape takes a copy.
            found = self._of[node] = found.reshape(variable.shape)
        return found

    def __getitem__(self, variable: Var) -> Tensor:
        """Return the gradient of a variable; GradientError for one on which the result does not depend."""
        found = self.get(variable)
        if found is None:
            reason = f"the result does not depend on this Var of shape {variable.shape}"
            raise GradientError("grads", f"{reason}, or does so by ops without a gradient; grads.get(w) gives None")
        return found

    def __setitem__(self, variable: Var, gradient: Tensor) -> None:
        """Set the gradient of a variable, as `grads[w] += other` and `grads[w] = clipped` do."""
        require_tensors("grads", gradient=gradient)
        node = _variable_node(variable)
        if gradient.shape != variable.shape:
            shapes = variable.shape, gradient.shape
            raise ShapeMismatch("grads", shapes, "the gradient has the shape of the variable")
        if gradient.dtype is not variable.dtype:
            dtypes = variable.dtype, gradient.dtype
            reason = f"a gradient has the dtype of its variable, {dtypes[0].value}, not {dtypes[1].value}"
            raise DTypeMismatch("grads", dtypes, reason)
        if gradient.device != variable.device:
            raise DeviceMismatch("grads", (variable.device.label, gradient.device.label))
        self._of[node] = gradient

    def __contains__(self, variable: Var) -> bool:
        return self.get(variable) is not None

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return f"<gradients of {len(self._of)} variables>"


def _variable_node(variable: Any) -> Node:
    """Return the node of a variable, or of a tensor that shows all its elements in their order."""
    node = opened(variable._storage)[1] if isinstance(variable, TensorBase) else None
    if node is None or node.rule is not None:
        raise GradientError("grads", f"variable must be a Var, whose gradient was asked for, not {shown(variable)}")
    if not variable._layout.is_contiguous or variable.elem_count != node.length:
        raise GradientError("grads", "variable must be a Var, not a view of it; take the view of the gradient")
    return node


class Watch(NamedTuple):
    """Somebody who wants the gradients of variables as soon as each is final, while others are worked out."""

    variables: Sequence[Node]
    tell: Callable[[Node, Tensor | None], object]
    """Called once for each variable, and with None for one on which the result does not depend."""


_NOBODY: Final = Watch((), lambda _node, _gradient: None)


def backward(
    tensor: Tensor, gradient: Tensor | None, keep: bool, create_graph: bool, watch: Watch = _NOBODY
) -> Gradients:
    """What `Tensor.backward` does."""
    op = "backward"
    if gradient is not None:
        require_tensors(op, gradient=gradient)
    root: Any = tensor._storage.node
    if root is None:
        raise GradientError(
            op,
            "this tensor does not depend on a Var by ops that have a gradient; make its operands with tallow.Var,"
            " outside of no_grad",
        )
    if gradient is None:
        count = tensor._layout.shape.elem_count
        if count != 1:
            reason = f"the gradient of {count} elements must be given"
            raise ShapeMismatch(op, (tensor.shape,), f"{reason}; write x.sum().backward(), or x.backward(gradient)")
        gradient = Tensor._new(one_of(tensor), tensor._layout.dense)
    else:
        if gradient.shape != tensor.shape:
            shapes = tensor.shape, gradient.shape
            raise ShapeMismatch(op, shapes, "the gradient has the shape of the tensor; broadcast it with broadcast_as")
        gradient = gradient.to_dtype(tensor.dtype)
        if not create_graph:
            gradient = Tensor._new(opened(gradient._storage)[0], gradient._layout)
    before = mode()
    try:
        set_mode(_MODES[create_graph, keep])
        with Claim(keeps=keep) as claim:
            return Gradients(_back(root, gradient, tensor._layout, keep, watch, claim))
    finally:
        set_mode(before)


_MODES: Final = {
    (records, keep): Mode(records=records, keeps_graph=records, frees=not keep)
    for records in (False, True)
    for keep in (False, True)
}


def _back(root: Node, gradient: Tensor, layout: Layout, keep: bool, watch: Watch, claim: Claim) -> dict[Node, Tensor]:
    """The gradients of the variables on which a node depends."""
    # Nearly all nodes have one gradient, of which no sum is made.
    sums: dict[Node, Sum | tuple[Tensor, Layout]] = {root: (gradient, layout)}
    # The last call first: when a node's turn comes, all that depends on it is done.
    waiting: list[tuple[float, Node]] = [(-root.number, root)]
    found: dict[Node, Tensor] = {}
    taken: dict[int, list[Layout] | None] = {id(opened(gradient._storage)[0].inner): None}
    turns = _turns(root, watch.variables) if watch.variables else {}
    for variable in watch.variables:
        if variable not in turns:
            watch.tell(variable, None)
    while waiting:
        node = heappop(waiting)[1]
        given = sums.pop(node)
        total: Tensor | None
        if isinstance(given, tuple):
            total, layout = given
            # Nearly all of these are plain, for which no function is called.
            way = ways.get((layout.number, node.length))
            if way is None or not way.is_plain:
                total = alone(total, layout, node.length)
        else:
            total = given.total
        if total is None:
            continue
        if node.rule is None:
            found[node] = _owned(total, taken)
            if node in turns:
                watch.tell(node, found[node])
            continue
        claim.node = node
        if len(active) > 1:
            claim.require_alone()
        # Another thread may have freed the node before that, and its rule then raises.
        operands = node.operands
        for place, contribution in node.rule(node, total):
            source = operands[3 * place]
            if source is None or contribution is None:
                continue
            shown = operands[3 * place + 1]
            if shown is None:
                shown = flat(source.length)
            before = sums.get(source)
            if before is None:
                sums[source] = contribution(None) if callable(contribution) else contribution, shown
                heappush(waiting, (turns.get(source, -source.number), source))
                continue
            if isinstance(before, tuple):
                first, before = before, Sum(source.length)
                before.add(*first)
                sums[source] = before
            if callable(contribution):
                before.join(contribution, shown)
            else:
                before.add(contribution, shown)
        if keep:
            claim.node = None
        else:
            node.free()
    for variable in turns:
        if variable not in found:
            watch.tell(variable, None)
    return found


def _owned(gradient: Tensor, taken: dict[int, list[Layout] | None]) -> Tensor:
    """Return a gradient in memory that no other result has and that can be written to: itself, or a copy of it.

    By the ids of storages `taken` says what results show of them, and None of the seed, which is another's. No rule
    gives memory that a call keeps for its gradients.
    """
    storage: Any = gradient._storage
    key = id(storage.value.inner if storage.is_recorded else storage.inner)
    layout = gradient._layout
    if layout.is_contiguous and key not in taken:
        taken[key] = [layout]
        return gradient
    others = taken.setdefault(key, [])
    if others is None or layout.overlaps_itself or any(share_elements(layout, other) for other in others):
        return gradient.copy()
    others.append(layout)
    return gradient


def depends_on_others(tensor: Tensor, variables: Collection[Node]) -> bool:
    """Tell whether a tensor depends on another variable than these."""
    return any(node.rule is None and node not in variables for node in _nodes(opened(tensor._storage)[1]))


def _nodes(root: Node | None) -> Iterator[Node]:
    """The calls on which a result depends, and their variables."""
    if root is None:
        return
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        sources = {source for source in node.operands if type(source) is Node} - seen
        seen |= sources
        waiting += sources


def _turns(root: Node, variables: Sequence[Node]) -> dict[Node, float]:
    """When the gradients of variables are final: each behind the last call that is gone back through and uses it.

    That call has the lowest number of all that use the variable. No two turns are the same.
    """
    places = {variable: place for place, variable in enumerate(variables, 1)}
    last: dict[Node, int] = {root: root.number} if root in places else {}
    for node in _nodes(root):
        for source in node.operands:
            if isinstance(source, Node) and source in places:
                last[source] = min(last.get(source, node.number), node.number)
    return {variable: places[variable] / (len(places) + 1) - number for variable, number in last.items()}
