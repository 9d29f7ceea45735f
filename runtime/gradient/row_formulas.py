"""Gradients of ops of rows: the calls of their gradient ops, and the same op by op, which has gradients itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...gradients.functors import ROW_DERIVATIVES
from ...op import MethodOp
from ..core.layout import Layout
from ..tensor import Tensor
from .node import Contribution, Contributions, Node, Rule, arguments_of, record, rule, tracked, unwrap

if TYPE_CHECKING:
    from ...storage import Storage


def widened(x: Tensor) -> Tensor:
    """A tensor in the dtype in which its elements are computed."""
    return x.to_dtype(x.dtype.compute)


def row_gradients(
    g: Tensor,
    name: str,
    sources: Sequence[int | Tensor | None],
    others: Sequence[Tensor | None],
    dims: Sequence[int],
    wanted: Sequence[bool],
    parameters: Sequence[float],
    *,
    adds: bool,
) -> Iterator[Contribution]:
    """Yield the gradients of a row op's operands: results of its gradient op by position, or others as they are.

    The last results are sums over all rows, those that are `wanted`. An op that adds a residual adds what the first
    operand has of its other uses.
    """
    results: list[Tensor | None] = []

    def compute(source: int, residual: Tensor | None = None) -> Any:
        operands = arguments_of(*others, residual) if adds else arguments_of(*others)
        storages = getattr(g._storage, name)(g._layout, *operands, *dims, *wanted, *parameters)
        if not isinstance(storages, tuple):
            storages = (storages,)
        first_sum = len(storages) - sum(wanted)
        results[:] = map(g._like, storages[:first_sum])
        sums = iter(storages[first_sum:])
        for is_wanted in wanted:
            results.append(_vector(next(sums)) if is_wanted else None)
        return results[source]

    for position, source in enumerate(sources):
        if not isinstance(source, int):
            yield source
        elif adds and position == 0:
            yield partial(compute, source)
        else:
            yield results[source] if results else compute(source)


_Vector: TypeAlias = "tuple[Tensor | None, float | None]"
"""A vector along the rows, and the number that stands for it if it may be left out."""


def _absent(x: Tensor, number: float | None, along: Sequence[int]) -> Tensor:
    """The number that stands for a vector, in the vector's shape: sums along the row are of as many numbers."""
    assert number is not None
    return Tensor._new(x._number("backward", number), Layout.contiguous(())).broadcast_as(along)


class _Rows:
    """The operands of an op with a number for each row, as tensors that keep the dim of the rows."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor | _Vector],
        index: tuple[str, Tensor, int] | None,
        dim: int,
        parameters: Mapping[str, float],
    ) -> None:
        x = next(iter(tensors.values()))
        assert isinstance(x, Tensor)
        self.shape = x.shape
        self._along = [self.shape[dim] if axis == dim else 1 for axis in range(len(self.shape))]
        self._counts: Tensor | None = None
        """Whether the index of each row counts; others may have NaN."""
        positions = self.vector(Tensor.arange(self.shape[dim], dtype="i64", device=x.device))
        if index is not None:
            name, targets, ignored = index
            chosen = targets.unsqueeze(dim)
            columns = chosen.to_dtype("i64")
            self._counts = columns.ne(ignored)
            if chosen.dtype.index_mark is not None:
                self._counts = self._counts & chosen.ne(chosen.dtype.index_mark)
        self.known: dict[str, Any] = {**parameters, "dims": (dim,), "count": self.shape[dim]}
        self.known["position"] = positions.to_dtype(x.dtype.compute)
        for each, operand in tensors.items():
            if isinstance(operand, tuple):
                vector, absent = operand
                full = _absent(x, absent, self._along) if vector is None else self.vector(vector)
                self.known[each] = widened(full)
            else:
                self.known[each] = self.counted(operand if operand.rank == x.rank else operand.unsqueeze(dim))
        if index is not None:
            self.known[name] = positions.eq(columns)

    def vector(self, vector: Tensor) -> Tensor:
        """A vector along the rows."""
        return vector.reshape(self._along)

    def counted(self, tensor: Tensor) -> Tensor:
        """Elements in the compute dtype, 0 in rows whose index does not count."""
        wide = widened(tensor)
        return wide if self._counts is None else self._counts.where(wide, 0)

    def gradient(self, op: MethodOp, name: str, operand: Tensor | _Vector, g: Tensor, dim: int) -> Tensor | None:
        """The gradient of an operand, in its shape and dtype; None where it is 0 or the operand is left out."""
        tensor = operand[0] if isinstance(operand, tuple) else operand
        derivative = ROW_DERIVATIVES[op].get(name)
        if tensor is None or derivative is None:
            return None
        gradient: Tensor = derivative.function(g, *[self.known[each] for each in derivative.takes])
        if isinstance(operand, tuple):
            gradient = gradient.broadcast_as(self.shape)
            others = [axis for axis in range(gradient.rank) if axis != dim]
            return gradient.sum(others).to_dtype(tensor.dtype)
        if tensor.shape == self.shape:
            return gradient.broadcast_as(self.shape).to_dtype(tensor.dtype)
        return gradient.squeeze(dim)


def row_vector(
    g: Tensor,
    op: MethodOp,
    name: str,
    tensors: Mapping[str, Tensor | _Vector],
    index: tuple[str, Tensor, int] | None,
    dim: int,
    parameters: Mapping[str, float],
) -> Tensor | None:
    """That of a vector along the rows of an op with a number for each row, op by op."""
    rows = _Rows(tensors, index, dim, parameters)
    return rows.gradient(op, name, tensors[name], rows.counted(g.unsqueeze(dim)), dim)


def row_numbers_gradient(
    g: Tensor,
    op: MethodOp,
    tensors: Mapping[str, Tensor | _Vector],
    index: tuple[str, Tensor, int] | None,
    dim: int,
    parameters: Mapping[str, float],
) -> Iterator[Tensor | None]:
    """Those of the gradient op of an op with a number for each row: of elements, vectors and the numbers' gradient."""
    rows = _Rows(tensors, index, dim, parameters)
    wide = rows.counted(g)
    for name, operand in tensors.items():
        yield rows.gradient(op, name, operand, wide, dim)


def _vector(storage: Storage) -> Tensor:
    return Tensor._new(storage, Layout.contiguous((storage.length,)))


def row_of_sum(
    norm: Rule,
    x: tuple[Storage, Layout],
    residual: tuple[Storage, Layout | None],
    others: Sequence[tuple[Storage | None, Layout | None]],
    read: Sequence[int],
    arguments: Sequence[float],
    saved: Sequence[float],
) -> tuple[Storage, ...]:
    """Apply a row op to a sum, and return both: one call, recorded as two.

    Its rule reads some of the operands, of which the sum is the first, and the numbers that are saved.
    """
    (plain, node), layout = unwrap(x[0]), x[1]
    (plain_residual, residual_node), residual_layout = unwrap(residual[0]), residual[1]
    assert residual_layout is not None
    opened_others = [(None, None) if other is None else unwrap(other) for other, _ in others]
    operands_of: list[Any] = []
    inputs: list[Any] = []
    for (other, other_node), (_, other_layout) in zip(opened_others, others, strict=True):
        operands_of += other, other_layout
        inputs += other_node, other_layout
    normed, total = getattr(plain, norm.name)(layout, *operands_of, plain_residual, residual_layout, *arguments)
    summed = total
    if node is not None or residual_node is not None:
        of_sum = node, layout, residual_node, residual_layout
        summed = record(total, _add, of_sum, (layout.shape,), needs_site=False)
    operands = total, *[other for other, _ in opened_others]
    saved_operands = [tracked(operand) if position in read else None for position, operand in enumerate(operands)]
    return record(normed, norm, (unwrap(summed)[1], layout.dense, *inputs), (*saved_operands, *saved)), summed


def row_by_ops(
    op: MethodOp,
    tensors: Mapping[str, tuple[Storage | None, Layout | None, float | None]],
    dim: int,
    parameters: Mapping[str, float],
    wanted: Sequence[bool] = (),
) -> tuple[Storage, ...]:
    """Compute the gradient op of a row op by other ops, each of which is recorded.

    An operand has a number where it may be left out. The last results are the sums over all rows that `wanted` selects.
    """
    storage, layout, _ = tensors["g"]
    assert storage is not None
    assert layout is not None
    g = widened(Tensor._new(storage, layout))
    dtype, shape = storage.dtype, layout.shape
    along = [shape[dim] if axis == dim else 1 for axis in range(len(shape))]

    def operand(storage: Storage | None, layout: Layout | None, number: float | None) -> Tensor:
        if storage is None:
            return _absent(g, number, along)
        assert layout is not None
        tensor = Tensor._new(storage, layout)
        return widened(tensor if layout.shape == shape else tensor.reshape(along))

    known: dict[str, Any] = {name: operand(*parts) for name, parts in tensors.items()}
    known |= {
        **parameters,
        "dims": (dim,),
        "count": shape[dim],
        "position": Tensor.arange(shape[dim], dtype=g.dtype, device=g.device).reshape(along),
    }
    derivatives = ROW_DERIVATIVES[op].values()
    count = len(derivatives) - len(wanted)
    gradients = [
        it.function(g, *[known[name] for name in it.takes]).broadcast_as(shape)
        for it, is_wanted in zip(derivatives, (*[True] * count, *wanted), strict=True)
        if is_wanted
    ]
    if "residual" in known:
        gradients[0] = gradients[0] + known["residual"]
    others = [axis for axis in range(len(shape)) if axis != dim]
    results = [*gradients[:count], *[each.sum(others) for each in gradients[count:]]]
    return tuple([each.to_dtype(dtype).contiguous()._storage for each in results])


@rule
def _add(node: Node, g: Tensor) -> Contributions:
    g = g.reshape(*node.saved)
    return enumerate((g, g))
