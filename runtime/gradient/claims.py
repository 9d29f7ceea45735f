"""Which node each thread works out gradients of, so that no other frees or overwrites what they need meanwhile."""

from __future__ import annotations

import threading
from typing import Final, Self

from ..base.error import GradientError
from .node import Node

active: Final[dict[Claim, None]] = {}
"""The claims of traversals under way."""
_lock: Final = threading.Lock()


class Claim:
    """The claim of one traversal of a graph: the node that it is at.

    A traversal sets `node`, and then calls `require_alone` if it is not the only one. In this order, one of two
    traversals that meet sees the other.
    """

    __slots__ = ("_keeps", "node")

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self.node: Node | None = None

    def __enter__(self) -> Self:
        with _lock:
            active[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            del active[self]

    def require_alone(self) -> None:
        """Raise GradientError if another traversal is at the node, unless both keep what gradients need."""
        with _lock:
            node = self.node
            others = [other for other in active if other is not self and other.node is node]
            if node is None or not others or (self._keeps and all(other._keeps for other in others)):
                return
            self.node = None
        raise GradientError(
            "backward",
            f"another thread goes back through {node.name} now; write backward(keep=True) in both threads, or compute"
            " a loss in each",
        )
