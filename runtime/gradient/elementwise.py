"""How elementwise ops and reductions are recorded: what the gradients of each op need is in a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...dtype import DType
from ...gradients.functors import (
    COMPLEX_DERIVATIVES,
    DERIVATIVES,
    JOINT_DERIVATIVES,
    ROW_GRADIENTS,
    Derivative,
    Op,
)
from ...gradients.second import SECOND_DERIVATIVES
from ...op import BinaryOp, MethodOp, ReduceOp
from ...storage import Storage
from ..base.bounded_cache import BoundedCache
from ..core.layout import Layout
from ..core.result_shapes import reduced
from ..core.shape import Shape
from ..tensor import Tensor
from .node import Contributions, Node, Rule, require_writable, rewritten, tracked, unwrap
from .products import conjugated, product_of_others
from .recording import mode
from .row_formulas import widened
from .rules import overwritten, view_of, zeros

NO_PARAMETERS: Final[Mapping[str, float]] = {}


class _Functor(Rule):
    """The gradients of an op, each with what it needs."""

    __slots__ = (
        "_complex",
        "_derivatives",
        "_joint",
        "_only",
        "_op",
        "_operands",
        "keeps_result",
        "keeps_x",
        "needs_site",
        "saves",
    )

    def __init__(self, op: Op, derivatives: Mapping[str, Derivative | None]) -> None:
        super().__init__(op.value, self._gradients)
        self._op = op
        has_complex = any(dtype.is_complex for dtype in op.dtypes)
        self._complex = [*(COMPLEX_DERIVATIVES.get(op) or derivatives).values()] if has_complex else None
        """The gradients of complex numbers, by operand; None of an op without these."""
        self._operands = {name: position for position, name in enumerate(derivatives)}
        self._derivatives = [(position, it) for position, it in enumerate(derivatives.values()) if it is not None]
        self._joint = JOINT_DERIVATIVES.get(op)
        self._only = self._derivatives[0] if len(derivatives) == 1 and self._derivatives else None
        needs = [() if it is None else it.takes for it in derivatives.values()]
        if self._complex is not None:
            # A result that only complex numbers need is computed again.
            also = [() if it is None else it.takes for it in self._complex]
            needs = [
                (*own, *[name for name in more if name != "result"]) for own, more in zip(needs, also, strict=True)
            ]
        self.keeps_x, self.keeps_result = "x" in needs[0], "result" in needs[0]
        """Whether the gradient of the first operand needs its elements, and the result's."""
        self.needs_site = self.keeps_x or self.keeps_result
        self.saves = self._saves_by(needs)
        """Which operands are saved, whether the result is, and whether any is, by which operands need gradients.

        `saves[1][0]` is for the gradient of the first operand of two; indexing a tuple is faster than a dict.
        """

    def _saves_by(self, needs: Sequence[tuple[str, ...]], *wanted: bool) -> Any:
        if len(wanted) == len(needs):
            if self._joint is not None and all(wanted[position] for position, _ in self._derivatives):
                return self._saves_for([self._joint.takes])
            return self._saves_for(itertools.compress(needs, wanted))
        return tuple([self._saves_by(needs, *wanted, is_wanted) for is_wanted in (False, True)])

    def _saves_for(self, needs: Iterable[tuple[str, ...]]) -> tuple[bool, ...]:
        needed = {name for names in needs for name in names}
        saves = [name in needed for name in (*self._operands, "result")]
        return *saves, any(saves)

    def _gradients(self, node: Node, g: Tensor) -> Contributions:
        shape = node.inputs[1].shape
        if g._layout.shape != shape:
            g = g.reshape(shape)
        if self._only is None or (self._complex is not None and _is_of_complex(node)):
            return self.contributions(node, g, shape, node.saved[-1])
        # Of one operand, without a generator: that would double the time.
        position, (takes, function) = self._only
        return ((position, function(g, *[self._part(node, name, shape, node.saved[-1]) for name in takes])),)

    def contributions(
        self, node: Node, g: Tensor, shape: Shape, parameters: Mapping[str, Any]
    ) -> Iterator[tuple[int, Tensor | None]]:
        """Yield the gradients of the operands by position; `shape` is that of the result."""
        inputs = node.inputs
        if self._complex is not None and _is_of_complex(node):
            for position, derivative in enumerate(self._complex):
                source = inputs[2 * position]
                if source is not None and derivative is not None:
                    known = [conjugated(self._part(node, name, shape, parameters)) for name in derivative.takes]
                    yield position, derivative.function(g, *known).to_dtype(source.dtype)
            return
        if self._joint is not None:
            (first, _), (second, _) = self._derivatives
            if inputs[2 * first] is not None and inputs[2 * second] is not None:
                takes, function = self._joint
                both = function(g, *[self._part(node, name, shape, parameters) for name in takes])
                yield from zip((first, second), both, strict=True)
                return
        for position, (takes, function) in self._derivatives:
            if inputs[2 * position] is not None:
                parts = [self._part(node, name, shape, parameters) for name in takes] if takes else ()
                yield position, function(g, *parts)

    def _part(self, node: Node, name: str, shape: Shape, parameters: Mapping[str, Any]) -> Any:
        position = self._operands.get(name)
        if position is not None:
            return node.operand(position)
        if name != "result":
            return parameters[name]
        return node.result_as(shape) if node.result is not None else self._computed_again(node)

    def _computed_again(self, node: Node) -> Tensor:
        x = node.operand(0)
        op: Any = self._op
        return x._binary(op, node.operand(1)) if isinstance(op, BinaryOp) else x._unary(op)


def _is_of_complex(node: Node) -> bool:
    source = node.inputs[0]
    return node.dtype.is_complex or (source is not None and source.dtype.is_complex)


class _Cast(_Functor):
    """The gradient of a conversion."""

    __slots__ = ()

    def _gradients(self, node: Node, g: Tensor) -> Contributions:
        source, layout = node.inputs
        if g.dtype.is_complex and not source.dtype.is_complex:
            g = g.real()
        return ((0, g.reshape(layout.shape).to_dtype(source.dtype)),)


# Threads of the host share rows, but not the elements of a row: fewer long rows would leave threads idle.
_LONG_ROW: Final = 1 << 15
_MIN_LONG_ROWS: Final = 64
# GPUs have rows of f32 up to this length in registers. They read longer ones once more for each reduction, which takes
# longer than ops on tensors; those of short floats convert them first, which takes longer still.
_MAX_WIDE_ROW: Final = 1 << 13


class _Extent(NamedTuple):
    """The elements that a reduction of some dims joins."""

    size: int
    """How many give one result."""
    shape: Shape
    """The shape of the operand, in which the reduced dims have size 1."""
    rows: Layout | None
    """The operand as rows of adjacent elements, each of which gives one result; None where it is not laid out so."""


# By the number of a layout and the dims that are reduced.
_extents: Final[BoundedCache[tuple[int, tuple[int, ...]], _Extent]] = BoundedCache(1 << 12)


def _extent(layout: Layout, dims: tuple[int, ...]) -> _Extent:
    sizes = layout.shape
    counted = {dim % len(sizes) for dim in dims}
    count, shape = math.prod([sizes[dim] for dim in counted]), Shape(reduced(sizes, counted))
    return _Extent(count, shape, _rows(layout, counted, count) if count else None)


def _rows(layout: Layout, dims: Collection[int], count: int) -> Layout | None:
    sizes = layout.shape
    others = [dim for dim, size in enumerate(sizes) if dim not in dims and size != 1]
    outer = [sizes[dim] for dim in others]
    if any(dim < max(others, default=0) for dim in dims if sizes[dim] != 1):
        return None
    if count > _LONG_ROW and math.prod(outer) < _MIN_LONG_ROWS:
        return None
    rows = layout.reshape((*outer, count))
    return rows if rows is not None and rows.strides[-1] == 1 else None


class _Reduction(_Functor):
    """The gradients of a reduction, of short floats in f32: counts and products may leave the dtype."""

    __slots__ = ("_row_op",)

    _op: ReduceOp | MethodOp

    def __init__(self, op: ReduceOp | MethodOp, derivatives: Mapping[str, Derivative | None]) -> None:
        super().__init__(op, derivatives)
        self._row_op = ROW_GRADIENTS.get(op)
        """The op of rows that computes the gradient, for some dtypes; None if there is none."""

    def _gradients(self, node: Node, g: Tensor) -> Contributions:
        layout = node.inputs[1]
        _, dims, parameters = node.saved
        key = layout.number, dims
        count, shape, rows = _extents.get(key) or _extents.put(key, _extent(layout, dims))
        if not self._derivatives:
            return
        if not count:
            yield 0, zeros(g, layout)
            return
        takes, function = self._derivatives[0][1]
        op = self._op_of_rows(g.dtype, count)
        if op is not None and rows is not None and not mode().keeps_graph:
            x = node.operand(0)
            spread = g.reshape((*rows.shape[:-1], 1)).broadcast_as(rows.shape)
            method = getattr(spread._storage, op.value)
            yield 0, x._like(method(spread._layout, x._storage, rows, *parameters.values()))
            return
        g = g.reshape(shape)
        if takes:
            known = {"dims": dims, "count": count, **parameters}
            gradient = function(widened(g), *[self._part(node, name, shape, known) for name in takes]).to_dtype(g.dtype)
        else:
            gradient = function(g)
        yield 0, gradient.broadcast_as(layout.shape)

    def _op_of_rows(self, dtype: DType, length: int) -> MethodOp | None:
        """Return the op of rows that computes the gradient in one launch, where that takes less time."""
        op = self._row_op
        is_fast = length <= _MAX_WIDE_ROW or dtype is not dtype.compute
        return op if op is not None and dtype in op.dtypes and is_fast else None

    def _part(self, node: Node, name: str, shape: Shape, parameters: Mapping[str, Any]) -> Any:
        if name == "x":
            return widened(node.operand(0))
        if name != "result":
            return parameters[name]
        result = node.result_as(shape)
        if result.dtype is result.dtype.compute:
            return result
        # It was rounded, and may have overflowed.
        _, dims, saved = node.saved
        return widened(node.operand(0))._reduce(self._op, dims, True, None, None, *saved.values())


class _Product(_Reduction):
    """The gradient of a product. It is computed without quotients, which have no slope where an element is 0, for
    complex numbers and where it is recorded."""

    __slots__ = ()

    def _gradients(self, node: Node, g: Tensor) -> Contributions:
        if not mode().keeps_graph and not node.dtype.is_complex:
            yield from super()._gradients(node, g)
            return
        x, dims = conjugated(node.operand(0)), node.saved[1]
        if x.elem_count:
            others = product_of_others(widened(x), dims)
            yield 0, (widened(g.reshape(_extent(x._layout, dims).shape)) * others).to_dtype(g.dtype)
        else:
            yield 0, zeros(g, x._layout)


class _Write(_Functor):
    """The gradients of an op whose result is written to the first operand, of which there is a copy if they need it."""

    __slots__ = ()

    _op: BinaryOp

    def _saves_for(self, needs: Iterable[tuple[str, ...]]) -> tuple[bool, ...]:
        x, y, result, _ = super()._saves_for(needs)
        # The result is worked out once more: what was written may be overwritten.
        return x or result, y or result

    def _gradients(self, node: Node, g: Tensor) -> Iterator[tuple[int, Tensor | None]]:
        layout = node.saved[-1]
        contributions = dict(self.contributions(node, view_of(g, layout), layout.shape, NO_PARAMETERS))
        if node.takes(0):
            yield 0, overwritten(g, layout, contributions.get(0))
        if node.takes(1):
            yield 1, contributions.get(1)

    def _part(self, node: Node, name: str, shape: Shape, parameters: Mapping[str, Any]) -> Any:
        if name == "result":
            return node.operand(2)._binary(self._op, node.operand(1))
        return node.operand(2) if name == "x" else super()._part(node, name, shape, parameters)


def _class_of(op: Op) -> type[_Functor]:
    if op is ReduceOp.PROD:
        return _Product
    if isinstance(op, ReduceOp) or op in (MethodOp.VAR, MethodOp.STD):
        return _Reduction
    return _Cast if op is MethodOp.TO_DTYPE else _Functor


_FUNCTORS: Final[Mapping[Op, _Functor]] = {
    op: _class_of(op)(op, derivatives)
    for op, of_floats in (*DERIVATIVES.items(), *SECOND_DERIVATIVES.items())
    # Some ops are of complex numbers alone.
    if (derivatives := of_floats or COMPLEX_DERIVATIVES.get(op)) is not None
}
_WRITES: Final[Mapping[Op, _Write]] = {
    op: _Write(op, derivatives)
    for op, derivatives in DERIVATIVES.items()
    if derivatives is not None and isinstance(op, BinaryOp)
}


def set_rules() -> None:
    """Store in each op that has gradients how it is recorded: an attribute is faster to look up than a table."""
    for op, functor in _FUNCTORS.items():
        op.rule = functor


def changed(storage: Storage, op: BinaryOp, layout: Layout, source: Storage, source_layout: Layout) -> None:
    """Write an op of elements and of those of a source to the former, one of which is recorded."""
    value, node = unwrap(storage)
    source_value, source_node = unwrap(source)
    require_writable(op.value, node)
    write = _WRITES.get(op)
    if write is None or not mode().records:
        value.binary_assign(op, layout, source_value, source_layout)
        return
    keeps_x, keeps_source = write.saves[node is not None][source_node is not None]
    if keeps_source and source_value is value:
        # It is overwritten.
        source, source_layout = source.to_dtype(source_layout, source_value.dtype), source_layout.dense
        source_value, source_node = unwrap(source)
    before, before_node = unwrap(storage.to_dtype(layout, value.dtype)) if keeps_x else (None, None)
    value.binary_assign(op, layout, source_value, source_layout)
    saved = None, tracked(source_value) if keeps_source else None, before, layout
    rewritten(storage, write, (node, None, source_node, source_layout, before_node, layout.dense), saved)
