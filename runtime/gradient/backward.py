"""Gradients of a result, worked out from the last recorded call to the first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from ..base.error import GradientError, ShapeMismatch
from ..core.layout import Layout
from ..tensor import Gradients, Tensor
from ..tensor.base import require_tensors
from .claims import Claim, active
from .node import Node, opened
from .recording import Mode, mode, set_mode
from .rules import one_of
from .sums import Sum, alone, flat, share_elements, ways


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
