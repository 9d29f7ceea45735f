"""Gradients of ops of rows: the calls of their gradient ops, and the same op by op, which has gradients itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...gradients.functors import ROW_DERIVATIVES
from ...op import MethodOp
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.base import parts as parts_of
from .node import Contribution, Contributions, Node, Rule, opened, record, rule, watched
from .walk import owns

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
    *arguments: float,
    adds: bool,
) -> Iterator[Contribution]:
    """Those of the operands of an op of rows: results of its gradient op by their places, or what is given as it is.

    The last results are sums over all rows, which are asked for by the flags among the arguments. An op that adds a
    residual adds what the first operand has of its other uses.
    """
    asked = [argument for argument in arguments if isinstance(argument, bool)]
    count = sum(isinstance(source, int) for source in sources) - len(asked)
    results: list[Tensor | None] = []

    def compute(residual: Tensor | None = None) -> None:
        tensors = [*others, residual] if adds else others
        parts = [part for tensor in tensors for part in parts_of(name, "operand", tensor)]
        made = getattr(g._storage, name)(g._layout, *parts, *arguments)
        storages = iter(made if isinstance(made, tuple) else (made,))
        results[:] = [g._like(next(storages)) for _ in range(count)]
        results.extend([_vector(next(storages)) if is_asked else None for is_asked in asked])

    def of_first(source: int, residual: Tensor | None) -> Tensor:
        compute(residual)
        first = results[source]
        assert first is not None
        return first

    for place, source in enumerate(sources):
        if not isinstance(source, int):
            yield source
        elif adds and place == 0:
            yield partial(of_first, source)
        else:
            if not results:
                compute()
            yield results[source]


def row_numbers(
    g: Tensor,
    name: str,
    x: Tensor,
    others: Sequence[Storage | Tensor],
    where: Sequence[int],
    parameters: Sequence[float],
    node: Node,
    handle: Callable[[], object] | None,
) -> Tensor:
    """That of an op with a number for each row, in the memory of the elements if nobody else needs them.

    Its gradient op takes numbers that the op saved, and the index of each row.
    """
    rows = Layout.contiguous(g._layout.shape)
    parts: list[Any] = []
    for other in (g, *others):
        parts += (other._storage, other._layout) if isinstance(other, Tensor) else (other, rows)
    made = getattr(x._storage, name)(x._layout, *parts, *where, owns(node, 0, handle), *parameters)
    return x._like(made)


def row_numbers_gradient(
    g: Tensor,
    op: MethodOp,
    tensors: Mapping[str, Tensor],
    index: tuple[str, Tensor, int] | None,
    dim: int,
    parameters: Mapping[str, float],
) -> tuple[Tensor, Tensor]:
    """Those of the gradient op of an op with a number for each row: of the elements, and of the numbers' gradient."""
    (first, x), (second, gradient) = tensors.items()
    shape, device = x.shape, x.device
    along = [shape[dim] if axis == dim else 1 for axis in range(len(shape))]
    known: dict[str, Any] = {**parameters, "dims": (dim,), "count": shape[dim]}
    known |= {first: widened(x), second: gradient.unsqueeze(dim)}
    known["position"] = Tensor.arange(shape[dim], dtype=gradient.dtype, device=device).reshape(along)
    wide = widened(g)
    if index is not None:
        name, targets, ignored = index
        chosen = targets.unsqueeze(dim)
        places = chosen.to_dtype("i64")
        counts = places.ne(ignored)
        if chosen.dtype.index_mark is not None:
            counts = counts & chosen.ne(chosen.dtype.index_mark)
        # Rows that do not count may have NaN.
        wide, known[first], known[second] = (counts.where(each, 0) for each in (wide, known[first], known[second]))
        known[name] = Tensor.arange(shape[dim], dtype="i64", device=device).reshape(along).eq(places)
    of_x, of_gradient = (it.function(wide, *[known[name] for name in it.takes]) for it in ROW_DERIVATIVES[op].values())
    return of_x.broadcast_as(shape).to_dtype(x.dtype), of_gradient.squeeze(dim)


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
    """What an op of rows makes of a sum, and the sum: one call, recorded as two.

    Its rule reads some of the operands, of which the sum is the first, and the numbers that are saved.
    """
    (plain, node), layout = opened(x[0]), x[1]
    (plain_residual, residual_node), residual_layout = opened(residual[0]), residual[1]
    assert residual_layout is not None
    opened_others = [(None, None) if other is None else opened(other) for other, _ in others]
    given: list[Any] = []
    inputs: list[Any] = []
    for (other, other_node), (_, other_layout) in zip(opened_others, others, strict=True):
        given += other, other_layout
        inputs += other_node, other_layout
    made, total = getattr(plain, norm.name)(layout, *given, plain_residual, residual_layout, *arguments)
    summed = total
    if node is not None or residual_node is not None:
        of_sum = node, layout, residual_node, residual_layout
        summed = record(total, _add, of_sum, (layout.shape,), needs_site=False)
    operands = total, *[other for other, _ in opened_others]
    kept = [watched(operand) if place in read else None for place, operand in enumerate(operands)]
    return record(made, norm, (opened(summed)[1], layout.dense, *inputs), (*kept, *saved)), summed


def row_by_ops(
    op: MethodOp,
    tensors: Mapping[str, tuple[Storage | None, Layout | None, float | None]],
    dim: int,
    parameters: Mapping[str, float],
    asked: Sequence[bool] = (),
) -> tuple[Storage, ...]:
    """What the gradient op of an op of rows gives, op by op, each of which is recorded.

    An operand has a number where it may be left out. The last results are the sums over all rows that are `asked` for.
    """
    storage, layout, _ = tensors["g"]
    assert storage is not None
    assert layout is not None
    g = widened(Tensor._new(storage, layout))
    dtype, shape = storage.dtype, layout.shape
    along = [shape[dim] if axis == dim else 1 for axis in range(len(shape))]

    def operand(storage: Storage | None, layout: Layout | None, number: float | None) -> Tensor:
        if storage is None:
            assert number is not None
            return Tensor._new(g._number("backward", number), Layout.contiguous(()))
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
    count = len(derivatives) - len(asked)
    found = [
        it.function(g, *[known[name] for name in it.takes]).broadcast_as(shape)
        for it, is_asked in zip(derivatives, (*[True] * count, *asked), strict=True)
        if is_asked
    ]
    if "residual" in known:
        found[0] = found[0] + known["residual"]
    others = [axis for axis in range(len(shape)) if axis != dim]
    results = [*found[:count], *[each.sum(others) for each in found[count:]]]
    return tuple([each.to_dtype(dtype).contiguous()._storage for each in results])


@rule
def _add(node: Node, g: Tensor) -> Contributions:
    g = g.reshape(*node.saved)
    return enumerate((g, g))
