"""A walk over the graph of recorded calls, from the last one to the first, which works out gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ..base.error import GradientError
from ..core.layout import Layout
from ..tensor import Tensor
from .node import BORROWED, Node, Part, Parts, Use, note_write, unwrap
from .recording import mode
from .sums import Sum, alone, flat, placements, share_elements

if TYPE_CHECKING:
    from ...storage import Storage


class Watch(NamedTuple):
    """Somebody who wants the gradients of variables as soon as each is final, while others are worked out."""

    variables: Sequence[Node]
    notify: Callable[[Node, Tensor | None], object]
    """Called once for each variable, and with None for one on which the result does not depend."""


NO_WATCH: Final = Watch((), lambda _node, _gradient: None)


_active: Final[dict[Walk, None]] = {}
"""The walks in progress, of all threads."""
_lock: Final = threading.Lock()


class Walk:
    """One walk. When a node is visited, all nodes that depend on it are done: their numbers are higher.

    No other thread may drop or overwrite what a node's gradients need while this one works them out. So a walk sets
    `_node`, and then calls `_require_alone` if it is not the only one. In this order, one of two walks that meet sees
    the other.
    """

    __slots__ = ("_exposed", "_keeps", "_node", "_sums", "_turns", "_waiting", "_watch")

    def __init__(self, root: Node, gradient: Tensor, layout: Layout, keeps: bool, watch: Watch) -> None:
        self._keeps = keeps
        """Whether nodes keep what their gradients need, for another walk."""
        self._watch = watch
        self._node: Node | None = None
        # Nearly all nodes have one gradient, which needs no sum.
        self._sums: dict[Node, Any] = {root: (gradient, layout)}
        self._waiting: list[tuple[float, Node]] = [(-root.number, root)]
        """A heap: the last call is first."""
        self._exposed: dict[int, list[Layout] | None] = {id(unwrap(gradient._storage)[0].inner): None}
        """By the id of a storage the layouts of variables' gradients in it; None for the seed, which the caller has."""
        self._turns = _turns(root, watch.variables) if watch.variables else {}

    def __enter__(self) -> Self:
        with _lock:
            _active[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            del _active[self]

    def gradients(self) -> dict[Node, Tensor]:
        """Work out the gradients of the variables on which the result depends."""
        sums, waiting, turns, keeps, watch = self._sums, self._waiting, self._turns, self._keeps, self._watch
        gradients: dict[Node, Tensor] = {}
        for variable in watch.variables:
            if variable not in turns:
                watch.notify(variable, None)
        while waiting:
            node = heappop(waiting)[1]
            entry = sums.pop(node)
            total: Tensor | None
            if isinstance(entry, tuple):
                total, layout = entry
                # Nearly all of these are plain, for which no function is called.
                placement = placements.get((layout.number, node.length))
                if placement is None or not placement.is_plain:
                    total = alone(total, layout, node.length)
            else:
                total = entry.total
            if total is None:
                continue
            if node.rule is None:
                gradients[node] = self._owned(node.in_shape(total) if node.saved else total)
                if node in turns:
                    watch.notify(node, gradients[node])
                continue
            self._node = node
            if len(_active) > 1:
                self._require_alone()
            # Another thread may have freed the node before that, and its rule then raises.
            inputs = node.inputs
            for target, contribution in node.rule.gradients(node, total):
                if isinstance(target, Use):
                    source, layout_of_use = target
                else:
                    source, layout_of_use = inputs[2 * target], inputs[2 * target + 1]
                if source is None or contribution is None:
                    continue
                if layout_of_use is None:
                    layout_of_use = flat(source.length)
                before: Any = sums.get(source)
                if before is None and type(contribution) is Part:
                    sums[source] = before = Parts()
                    heappush(waiting, (turns.get(source, -source.number), source))
                if before is None:
                    sums[source] = contribution(None) if callable(contribution) else contribution, layout_of_use
                    heappush(waiting, (turns.get(source, -source.number), source))
                    continue
                if isinstance(before, tuple):
                    first, before = before, Sum(source.length)
                    before.add(*first)
                    sums[source] = before
                if callable(contribution):
                    before.join(contribution, layout_of_use)
                else:
                    before.add(contribution, layout_of_use)
            if keeps:
                self._node = None
            else:
                node.free()
        for variable in turns:
            if variable not in gradients:
                watch.notify(variable, None)
        return gradients

    def _require_alone(self) -> None:
        """Raise GradientError if another walk is at the node, unless both keep what gradients need."""
        with _lock:
            node = self._node
            others = [other for other in _active if other is not self and other._node is node]
            if node is None or not others or (self._keeps and all(other._keeps for other in others)):
                return
            self._node = None
        raise GradientError(
            "backward",
            f"another thread goes back through {node.name} now; write backward(keep=True) in both threads, or compute"
            " a loss in each",
        )

    def is_last_to_need(self, value: Storage, source: Node) -> bool:
        """Return True if, of this graph, only the node being visited still needs a storage that `source` returned."""
        if self._keeps:
            return False
        nodes, seen = [source, *(node for _, node in self._waiting)], {source}
        while nodes:
            node = nodes.pop()
            if node.result is value or any(saved is value for saved in node.saved):
                return False
            # What came before the source has not seen the storage.
            later = {it for it in node.inputs[::2] if it is not None and it.number > source.number} - seen
            seen |= later
            nodes += later
        return True

    def _owned(self, gradient: Tensor) -> Tensor:
        """Return a gradient in memory that is not shared, unless it may be, and can be written to: itself or a copy.

        No rule gives memory that a call keeps for its gradients.
        """
        value = unwrap(gradient._storage)[0]
        layout, key = gradient._layout, id(value.inner)
        if value.written is BORROWED:
            return gradient.copy()
        if mode().shares and not layout.overlaps_itself:
            return gradient
        if layout.is_contiguous and key not in self._exposed:
            self._exposed[key] = [layout]
            return gradient
        others = self._exposed.setdefault(key, [])
        if others is None or layout.overlaps_itself or any(share_elements(layout, other) for other in others):
            return gradient.copy()
        others.append(layout)
        return gradient


def owns(node: Node, operand: int, handle: Callable[[], object] | None) -> bool:
    """Return True if only the node being visited still needs the elements of an operand.

    Then it may write to them. `handle` is that of the storage that tensors showed, see `handle_of`.
    """
    source, value = node.inputs[2 * operand], node.saved[operand]
    if source is None or source.rule is None or handle is None or handle() is not None:
        return False
    if getattr(value, "is_shown", False) or not value.inner.owns_memory():
        return False
    walk = next((walk for walk in list(_active) if walk._node is node), None)
    if walk is None or not walk.is_last_to_need(value, source):
        return False
    # Nodes of other graphs may have saved it.
    note_write(value)
    return True


def is_seed(node: Node, gradient: Tensor) -> bool:
    """Return True for the gradient that a walk began with, which its caller has too, at the node being visited."""
    key = id(unwrap(gradient._storage)[0].inner)
    return any(walk._node is node and walk._exposed.get(key, ()) is None for walk in list(_active))


def depends_on_others(root: Node | None, variables: Collection[Node]) -> bool:
    """Tell whether what a node stands for depends on another variable than these."""
    return any(node.rule is None and node not in variables for node in _nodes(root))


def _nodes(root: Node | None) -> Iterator[Node]:
    """The calls on which a result depends, and their variables."""
    if root is None:
        return
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        sources = {source for source in node.inputs[::2] if source is not None} - seen
        seen |= sources
        waiting += sources


def _turns(root: Node, variables: Sequence[Node]) -> dict[Node, float]:
    """Return when the gradients of variables are final: each after the last call of the walk that uses it.

    That call has the lowest number of all that use the variable. No two turns are the same.
    """
    ranks = {variable: rank for rank, variable in enumerate(variables, 1)}
    last: dict[Node, int] = {root: root.number} if root in ranks else {}
    for node in _nodes(root):
        for source in node.inputs[::2]:
            if source is not None and source in ranks:
                last[source] = min(last.get(source, node.number), node.number)
    return {variable: ranks[variable] / (len(ranks) + 1) - number for variable, number in last.items()}
