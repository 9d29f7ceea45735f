"""How elementwise ops and reductions are recorded: what the gradients of each op need is in a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...gradients.functors import DERIVATIVES, Derivative, Op
from ...gradients.second import SECOND_DERIVATIVES
from ...op import BinaryOp, MethodOp, ReduceOp
from ...storage import Storage
from ..core.layout import Layout
from ..core.shape import Shape
from ..tensor import Tensor
from .node import Contributions, Node, opened, record, require_writable, rewritten, watched
from .recording import state
from .rules import overwritten, shown

_NOTHING: Final[Mapping[str, float]] = {}


class _Functor:
    """The gradients of an op, each with what it needs. As a rule of a node it works them out."""

    def __init__(self, op: Op, derivatives: Mapping[str, Derivative | None]) -> None:
        self.__name__: str = op.value
        self.is_cast = op is MethodOp.TO_DTYPE
        self._operands = tuple(derivatives)
        self._derivatives = list(derivatives.values())
        self._needs = [() if it is None else it.takes for it in self._derivatives]
        self.keeps_x, self.keeps_result = "x" in self._needs[0], "result" in self._needs[0]
        """What the gradient of the first operand needs."""
        # By the operands whose gradients are asked for.
        self.kept: Mapping[tuple[bool, ...], tuple[bool, ...]] = {
            asked: self._find_kept(asked) for asked in itertools.product((False, True), repeat=len(self._operands))
        }
        """Which operands are needed for the gradients that are asked for, and last whether the result is."""

    def _find_kept(self, asked: tuple[bool, ...]) -> tuple[bool, ...]:
        needed = {name for place, is_asked in enumerate(asked) if is_asked for name in self._needs[place]}
        return tuple([name in needed for name in (*self._operands, "result")])

    def __call__(self, node: Node, g: Tensor) -> Contributions:
        shape = _shape_of(node)
        g = g.reshape(shape)
        if self.is_cast:
            return [(0, g.to_dtype(node.arguments[0]))]
        (parameters,) = node.arguments
        return self.contributions(node, g, shape, parameters)

    def contributions(self, node: Node, g: Tensor, shape: Shape, given: Mapping[str, Any]) -> Contributions:
        """The gradients, where `given` are parameters and the like; `shape` is that of the result."""
        for place, derivative in enumerate(self._derivatives):
            if derivative is not None and place < len(node.nodes) and node.nodes[place] is not None:
                parts = [self._part(node, name, shape, given) for name in derivative.takes]
                yield place, derivative.function(g, *parts)

    def _part(self, node: Node, name: str, shape: Shape, given: Mapping[str, Any]) -> Any:
        if name == "result":
            return node.made(shape)
        return node.operand(self._operands.index(name)) if name in self._operands else given[name]


class _Reduction(_Functor):
    """The gradients of a reduction."""

    def __call__(self, node: Node, g: Tensor) -> Contributions:
        dims, parameters = node.arguments
        sizes = _shape_of(node)
        count, shape = 1, list(sizes)
        for dim in dims:
            count *= sizes[dim]
            shape[dim] = 1
        kept = Shape(shape)
        given = {"dims": dims, "count": count, **parameters}
        for place, gradient in self.contributions(node, g.reshape(kept), kept, given):
            assert gradient is not None
            yield place, gradient.broadcast_as(sizes)


class _Write(_Functor):
    """The gradients of an op whose result is written to the first operand, of which there is a copy if they need it."""

    def __init__(self, op: BinaryOp, derivatives: Mapping[str, Derivative | None]) -> None:
        super().__init__(op, derivatives)
        self._op = op

    def _find_kept(self, asked: tuple[bool, ...]) -> tuple[bool, ...]:
        x, y, result = super()._find_kept(asked)
        # The result is worked out once more: what was written may be overwritten.
        return x or result, y or result, False

    def __call__(self, node: Node, g: Tensor) -> Iterator[tuple[int, Tensor | None]]:
        (layout,) = node.arguments
        contributions = dict(self.contributions(node, shown(g, layout), layout.shape, _NOTHING))
        if node.takes(0):
            yield 0, overwritten(g, layout, contributions.get(0))
        if node.takes(1):
            yield 1, contributions.get(1)

    def _part(self, node: Node, name: str, shape: Shape, given: Mapping[str, Any]) -> Any:
        if name == "result":
            return node.operand(2)._binary(self._op, node.operand(1))
        return node.operand(2) if name == "x" else super()._part(node, name, shape, given)


def _shape_of(node: Node) -> Shape:
    layout = node.layouts[0]
    assert layout is not None
    return layout.shape


_FUNCTORS: Final[Mapping[Op, _Functor]] = {
    op: (_Reduction if isinstance(op, ReduceOp) or op in (MethodOp.VAR, MethodOp.STD) else _Functor)(op, derivatives)
    for op, derivatives in (*DERIVATIVES.items(), *SECOND_DERIVATIVES.items())
    if derivatives is not None
}
_WRITES: Final[Mapping[Op, _Write]] = {
    op: _Write(op, derivatives)
    for op, derivatives in DERIVATIVES.items()
    if derivatives is not None and isinstance(op, BinaryOp)
}


NO_PARAMETERS: Final[tuple[Any, ...]] = (_NOTHING,)


def computed_of_one(
    made: Storage, op: Op, node: Node | None, layout: Layout, x: Storage, arguments: tuple[Any, ...] = NO_PARAMETERS
) -> Any:
    """Record what an op made of one operand."""
    functor = _FUNCTORS.get(op)
    if functor is None:
        return made
    if functor.is_cast:
        if not made.inner.dtype.is_float:
            return made
        arguments = (x.inner.dtype,)
    kept = (watched(x),) if functor.keeps_x else ()
    return record(made, functor, (node,), (layout,), kept, arguments, functor.keeps_result, 5)


def computed_of_two(
    made: Storage,
    op: Op,
    node: Node | None,
    other_node: Node | None,
    layout: Layout,
    other_layout: Layout,
    x: Storage,
    y: Storage,
    arguments: tuple[Any, ...] = NO_PARAMETERS,
) -> Any:
    """Record what an op made of two operands."""
    functor = _FUNCTORS.get(op)
    if functor is None:
        return made
    keeps_x, keeps_y, keeps_result = functor.kept[node is not None, other_node is not None]
    kept = (watched(x) if keeps_x else None, watched(y) if keeps_y else None) if keeps_x or keeps_y else ()
    return record(made, functor, (node, other_node), (layout, other_layout), kept, arguments, keeps_result, 5)


def computed_of_three(
    made: Storage,
    op: Op,
    nodes: tuple[Node | None, ...],
    layouts: tuple[Layout, ...],
    operands: tuple[Storage, ...],
    arguments: tuple[Any, ...] = NO_PARAMETERS,
) -> Any:
    """Record what an op made of three operands."""
    functor = _FUNCTORS.get(op)
    if functor is None:
        return made
    *keeps, keeps_result = functor.kept[nodes[0] is not None, nodes[1] is not None, nodes[2] is not None]
    kept = tuple([watched(x) if keep else None for x, keep in zip(operands, keeps, strict=True)])
    return record(made, functor, nodes, layouts, kept, arguments, keeps_result, 5)


def changed(storage: Storage, op: BinaryOp, layout: Layout, source: Storage, source_layout: Layout) -> None:
    """Write what an op makes of elements and of those of a source to the former, one of which is recorded."""
    value, node = opened(storage)
    source_value, source_node = opened(source)
    require_writable(op.value, node)
    write = _WRITES.get(op)
    if write is None or not state.records:
        value.binary_assign(op, layout, source_value, source_layout)
        return
    keeps_x, keeps_source, _ = write.kept[node is not None, source_node is not None]
    if keeps_source and source_value is value:
        # It is overwritten.
        source, source_layout = source.to_dtype(source_layout, source_value.dtype), source_layout.dense
        source_value, source_node = opened(source)
    before, before_node = opened(storage.to_dtype(layout, value.dtype)) if keeps_x else (None, None)
    value.binary_assign(op, layout, source_value, source_layout)
    kept = None, watched(source_value) if keeps_source else None, before
    rewritten(storage, write, (node, source_node, before_node), (None, source_layout, layout.dense), kept, (layout,))
