"""`checkpoint`: what a function computed is dropped, and computed again when gradients go back through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from ..base.error import GradientError, InvalidArgument, describe
from ..core.drawing import Tape
from ..core.layout import Layout
from ..helpers.nested import leaves, mapped
from ..storage.calls import ElementCalls
from ..tensor import Tensor
from .node import Contributions, Node, Use, next_number, record_each, rule, tracked, unwrap
from .recording import mode, set_mode

if TYPE_CHECKING:
    from ...storage import Storage

P = ParamSpec("P")
R = TypeVar("R")


class _Segment(NamedTuple):
    """A function that was called, and what it takes to call it again."""

    run: Callable[[], Any]
    context: Context
    """The context variables of the call: what it computes also depends on `autocast`, for example."""
    draws: Tape
    layouts: Sequence[Layout]
    """Those of the results that are recorded."""
    positions: Sequence[int]
    """The positions of these results among the leaves of what the function returns."""
    read: Sequence[Storage]
    """Storages that existed before the function read them, and that must not be overwritten."""

    def again(self) -> list[Tensor]:
        """Compute the results once more, with the same random numbers, and record how."""
        around = mode()
        inside = around.inside(records=True, is_inner=around.is_inner)

        def run() -> list[Any]:
            set_mode(inside)
            with self.draws.again().running():
                return list(leaves(self.run()))

        # A context is entered once at a time, and walks of several threads may come by here.
        again = self.context.copy().run(run)
        results: list[Any] = [again[position] if position < len(again) else None for position in self.positions]
        shapes = [it.shape if isinstance(it, Tensor) else None for it in results]
        if shapes != [layout.shape for layout in self.layouts]:
            reason = f"gives results of other shapes in backward, {shapes}, than before"
            raise GradientError("checkpoint", f"the function {reason}; let it depend on its arguments alone")
        return results


def checkpoint(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function keep its arguments alone for gradients: backward calls it again for what else it needs.

        @tl.checkpoint
        def block(x, weights): ...

    A model of n such blocks keeps n arguments and what one block computes, for the time of one forward pass more. The
    second call repeats random draws, as those of dropout. Gradients may be summed up in another order. They reach every
    variable that the function uses, also those that are no arguments.

    The function is called twice, so it must not write to what it did not make; a running statistic is updated twice.
    `GradientError` where something that it read was overwritten in between, or where it draws or gives something else
    the second time. Functions may be nested, and are captured in a graph if forward and backward are both in it.

    >>> w = tl.Var(tl.Tensor([1.0, 2.0]))
    >>> loss = tl.checkpoint(lambda x: x.exp().sum())(w)
    >>> loss.backward()[w]
    Tensor([2.7183, 7.3891], dtype=f32)
    """
    if not callable(function):
        raise InvalidArgument("checkpoint", f"function must be a function, not {describe(function)}")

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if not mode().records:
            return function(*arguments, **named)
        context, draws, start = copy_context(), Tape(), next_number()
        with draws.running():
            results = function(*arguments, **named)
        new = [
            (number, it) for number, it in enumerate(leaves(results)) if isinstance(it, Tensor) and _number(it) > start
        ]
        if not new:
            return results
        before, read = _sources([unwrap(it._storage)[1] for _, it in new], start)
        read += [unwrap(it._storage)[0] for it in leaves((arguments, named)) if isinstance(it, Tensor)]
        segment = _Segment(
            lambda: function(*arguments, **named),
            context,
            draws,
            [it._layout for _, it in new],
            [position for position, _ in new],
            [tracked(it) for it in read],
        )
        inputs = [part for node in before for part in (node, None)]
        values = [unwrap(it._storage)[0] for _, it in new]
        recorded = iter(record_each(values, _checkpoint, tuple(inputs), (segment,)))
        numbers = iter(range(len(list(leaves(results)))))
        chosen = set(segment.positions)
        copied: R = mapped(
            lambda it: Tensor._new(next(recorded), it._layout) if next(numbers) in chosen else it, results
        )
        return copied

    return call


def _number(tensor: Tensor) -> int:
    """The number of the call that computed a tensor; -1 if it is not recorded."""
    node = unwrap(tensor._storage)[1]
    return -1 if node is None else node.number


def _sources(results: Sequence[Node | None], start: int) -> tuple[list[Node], list[Any]]:
    """The nodes from before a number on which results depend, and the storages that calls since read of these."""
    waiting, seen = [node for node in results if node is not None], set(results)
    before: dict[Node, None] = {}
    read: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        for index, source in enumerate(node.inputs[::2]):
            if source is None:
                continue
            if source.number < start:
                before[source] = None
                value = node.saved[index] if index < len(node.saved) else None
                if isinstance(value, ElementCalls):
                    read[id(value)] = value
            elif source not in seen:
                seen.add(source)
                waiting.append(source)
    return list(before), list(read.values())


@rule
def _checkpoint(node: Node, gradients: Any) -> Contributions:
    segment: _Segment = node.saved[0]
    for value in segment.read:
        node.require_unchanged(value)
    for position, result in enumerate(segment.again()):
        gradient, source = gradients.get(position), unwrap(result._storage)[1]
        if gradient is not None and source is not None:
            yield Use(source, None), gradient
