"""Gradients of methods of storages that spec/storage names, where an expression would be long.

`g` is the gradient of the result. Those of operands have the shapes of the operands, or size 1 where an operand is
repeated along a dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...dtype import DType
from ...gradients.functors import DERIVATIVES, JOINT_DERIVATIVES, Op
from ...op import BinaryOp
from ..base.error import GradientError, describe
from ..core import padding
from ..core.layout import Layout
from ..core.pool import ParamsPool, pool_of
from ..core.shape import Shape
from ..custom.user_op import UserOp
from ..tensor import Tensor
from ..tensor.layouts import Ends
from .matrices import cofactors, solved
from .node import (
    Contributions,
    Node,
    arguments_of,
    borrowed,
    require_writable,
    rewritten,
    rule,
    tracked,
    unwrap,
)
from .products import adjoint, conjugated
from .recording import mode
from .row_formulas import widened

if TYPE_CHECKING:
    from ...device import Device
    from ...storage import QStorage, Storage

# By their names those whose gradients of both operands are one kernel.
_OPS: Final = {op.value: op for op in JOINT_DERIVATIVES}


def one_of(tensor: Tensor) -> Storage:
    """Return the number 1 in a tensor's dtype and on its device: no launch, and read-only."""
    return tensor._number("backward", 1)


def view_of(gradient: Tensor, layout: Layout) -> Tensor:
    """View the gradient of a storage by a layout."""
    flat = gradient.contiguous()
    start = flat._layout.start_offset + layout.start_offset
    return Tensor._new(flat._storage, Layout(layout.shape, layout.strides, start))


def overwritten(gradient: Tensor, layout: Layout, inside: Tensor | None = None) -> Tensor | None:
    """The gradient of a storage before what a layout shows was written to: there it is `inside`, or zeros."""
    size = gradient.elem_count
    if inside is None and layout.elem_count == size and not layout.overlaps_itself:
        return None
    before = gradient.copy()
    part = Tensor._new(before._storage, layout)
    if inside is None:
        part.zero_()
    else:
        part.copy_(inside)
    return before


def product_left(g: Tensor, rhs: Tensor, layout: Layout) -> Tensor:
    """That of the left operand, which `layout` shows, of a product."""
    m, k, n = layout.shape[-2], *rhs.shape[-2:]
    rhs = conjugated(rhs)
    if _is_repeated(layout):
        count = math.prod(layout.shape[:-2])
        columns = g.reshape(count, m, n).transpose(0, 1).reshape(m, count * n)
        return columns.matmul(rhs.mT.reshape(count * n, k)).reshape(*_ones(layout), m, k)
    return g.matmul(rhs.mT)


def product_right(g: Tensor, lhs: Tensor, layout: Layout) -> Tensor:
    """That of the right operand, which `layout` shows, of a product."""
    k, n = layout.shape[-2:]
    lhs = conjugated(lhs)
    if _is_repeated(layout):
        # As one product, which needs no memory for each of the matrices.
        rows = math.prod(lhs.shape[:-1])
        lhs, g = lhs.reshape(rows, k), g.reshape(rows, n)
    # In the order in which the operand has its elements.
    is_transposed = layout.strides[-2] == 1 and layout.strides[-1] != 1
    product = g.mT.matmul(lhs).mT if is_transposed else lhs.mT.matmul(g)
    return product.reshape(*_ones(layout), k, n) if _is_repeated(layout) else product


def _is_repeated(layout: Layout) -> bool:
    """Whether a layout shows one matrix several times."""
    batch = range(layout.rank - 2)
    return layout.rank > 2 and all(layout.strides[dim] == 0 or layout.shape[dim] == 1 for dim in batch)


def _ones(layout: Layout) -> list[int]:
    return [1] * (layout.rank - 2)


def padded(g: Tensor, layout: Layout, border: str, before: tuple[int, ...], after: tuple[int, ...]) -> Tensor:
    """That of what was padded: each run of a dim is a part of the gradient of the elements that it shows."""
    for dim, (size, front, back) in enumerate(zip(layout.shape, before, after, strict=True)):
        if not front and not back:
            continue
        if border == padding.CIRCULAR and front + back == 0:
            g = g.roll(-front, dim)
        else:
            parts = [_of_run(g, run, dim, size) for run in padding.runs(size, border, front, back) if not run.is_filled]
            g = sum(parts[1:], parts[0]) if parts else _zeros_along(g, dim, size)
    return g


def _zeros_along(g: Tensor, dim: int, size: int) -> Tensor:
    """Zeros in the shape of a gradient, but for the size of a dim."""
    return g._new_full((*g.shape[:dim], size, *g.shape[dim + 1 :]))


def _of_run(g: Tensor, run: padding.Run, dim: int, size: int) -> Tensor:
    """The gradient of a dim of which a run shows some elements."""
    part = g.narrow(dim, run.begin, run.end - run.begin)
    first = run.element(run.begin)
    if run.step == 0:
        part = part.sum(dim, keepdim=True)
    elif run.step == -1:
        part, first = part.flip(dim), run.element(run.end - 1)
    return part._padded(_embedded, dim, first, size)


def _embedded(shape: Shape, dim: int, first: int, size: int) -> tuple[str, Ends]:
    """Embed the elements of a dim in zeros, so that the first one is at position `first` of `size`."""
    return padding.CONSTANT, [(dim, first, size - first - shape[dim])]


def average(x: Tensor, params: ParamsPool) -> Tensor:
    """The means of windows, which are the gradient of the gradient of what they averaged."""
    return x._new(x._storage.avg_pool(x._layout, params), Layout.contiguous(params.out_dims))


def averaged(g: Tensor, params: ParamsPool) -> Tensor:
    """That of what windows averaged."""
    return g._new(g._storage.avg_pool_gradient(g._layout, params), Layout.contiguous(params.input_dims))


def largest(g: Tensor, x: Tensor, result: Tensor, params: ParamsPool) -> Tensor:
    """That of elements of which each window took the largest: those that are equal share it."""
    storage = x._storage.max_pool_gradient(x._layout, result._storage, result._layout, g._storage, g._layout, params)
    return g._new(storage, Layout.contiguous(params.input_dims))


def largest_of(x: Tensor, params: ParamsPool) -> Tensor:
    """The largest element of each window."""
    return x._new(x._storage.max_pool(x._layout, params), Layout.contiguous(params.out_dims))


def largest_tangents(x: Tensor, tangent: Tensor, params: ParamsPool) -> Tensor:
    """The gradient of the gradient that `largest` gives, which is a derivative in the direction of a tangent."""
    storage = x._storage.max_pool_tangent(x._layout, tangent._storage, tangent._layout, params)
    return x._new(storage, Layout.contiguous(params.out_dims))


def image_pool(layout: Layout, kernel_size: tuple[int, int], stride: tuple[int, int]) -> ParamsPool:
    """The parameters of a pool of images without padding."""
    return pool_of(layout.shape, kernel_size, stride)


def stretched(g: Tensor, shape: Sequence[int]) -> Tensor:
    """That of what was stretched along its last dims to the nearest elements."""
    for dim in range(2, len(shape)):
        size, new = shape[dim], g.shape[dim]
        if size != new:
            sources = Tensor.arange(new, device=g.device) * size // new
            g = _zeros_along(g, dim, size).index_add(sources, g, dim)
    return g


def interpolated(
    g: Tensor,
    shape: Sequence[int],
    method: str,
    align_corners: bool,
    scale_h: float | None,
    scale_w: float | None,
) -> Tensor:
    """That of what was interpolated: the transposes of the matrices that interpolate rows and columns."""
    if not g.elem_count:
        return g._new_full(shape)
    wide = widened(g)
    if shape[2] != g.shape[2]:
        wide = _interpolation(method, wide, shape[2], g.shape[2], align_corners, scale_h).t().matmul(wide)
    if shape[3] != g.shape[3]:
        wide = wide.matmul(_interpolation(method, wide, shape[3], g.shape[3], align_corners, scale_w))
    return wide.to_dtype(g.dtype)


def _interpolation(method: str, like: Tensor, old: int, new: int, align_corners: bool, factor: float | None) -> Tensor:
    """The matrix (new, old) of an interpolation, which is what it makes of the columns of the identity."""
    identity = Tensor.eye(old, dtype=like.dtype, device=like.device).reshape(1, 1, old, old)
    columns: Tensor = getattr(identity, method)(new, old, align_corners, factor)
    return columns.reshape(new, old)


def parts(g: Tensor, first: Layout, others: Sequence[Layout], dim: int) -> list[Tensor]:
    """Split the gradient of a concatenation along a dim into those of all tensors but the first."""
    gradients, start = [], first.shape[dim]
    for layout in others:
        gradients.append(g.narrow(dim, start, layout.shape[dim]))
        start += layout.shape[dim]
    return gradients


def zeros(g: Tensor, layout: Layout) -> Tensor:
    """Zeros in the shape of a layout."""
    return g._new_full(layout.shape)


def in_order(g: Tensor, positions: Storage, layout: Layout) -> Tensor:
    """That of elements of which some, at these positions, were put in order along the last dim."""
    lines = zeros(g, layout).reshape(layout.shape or (1,))
    return lines.scatter_add(Tensor._new(positions, g._layout.dense), g, -1).reshape(layout.shape)


def put(g: Tensor, layout: Layout, indexes: Tensor, dim: int) -> Tensor | None:
    """That of a storage before a scatter wrote to it: zeros where it did."""
    inside = view_of(g, layout)
    return overwritten(g, layout, inside.scatter(indexes, zeros(g, indexes._layout), dim))


def last_put(g: Tensor, layout: Layout, indexes: Tensor, dim: int) -> Tensor:
    """Return the gradient of a source that a scatter wrote: where several elements have one index, the last counts."""
    order = Tensor.arange(indexes.elem_count, device=g.device).reshape(indexes.shape)
    winners = indexes._new_full(layout.shape, dtype=DType.I64)
    is_last = winners.scatter(indexes, order, dim).gather(indexes, dim).eq(order)
    return is_last.where(view_of(g, layout).gather(indexes, dim), 0)


def at_positions(g: Tensor, positions: Storage, layout: Layout, dim: int) -> Tensor:
    """Return the gradient of elements of which those at positions along a dim were selected, perhaps more than once."""
    sums = zeros(widened(g), layout).reshape(layout.shape)
    return sums.scatter_add(Tensor._new(positions, g._layout.dense), widened(g), dim).to_dtype(g.dtype)


def det(g: Tensor, x: Tensor, result: Tensor) -> Tensor:
    """That of matrices, singular ones too: the cofactors."""
    return g.unsqueeze(-1).unsqueeze(-1) * cofactors(conjugated(x), conjugated(result))


def solve(g: Tensor, x: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
    """Those of matrices and of the values that they make of the result."""
    of_values = solved(adjoint(x), g)
    return -(of_values @ adjoint(result)), of_values


def ratio_of_sums(x: tuple[Storage, Layout], divisor: tuple[Storage, Layout], saves: bool) -> tuple[Storage, ...]:
    """Compute ratio_of_sums by recorded ops."""
    count = Tensor._new(*divisor).sum()
    ratio = (Tensor._new(*x).sum() / count)._storage
    return (ratio, count._storage, count.recip()._storage) if saves else (ratio,)


def both_gradients(
    op: Op, gradient: tuple[Storage, Layout], *others: tuple[Storage, Layout] | float
) -> tuple[Storage, ...]:
    """Compute an op of the gradients of both operands by recorded ops."""
    of = _OPS[op.value.removesuffix("_gradients")]
    g = Tensor._new(*gradient)
    known: dict[str, Any] = {
        name: Tensor._new(*it) if isinstance(it, tuple) else it
        for name, it in zip(JOINT_DERIVATIVES[of].takes, others, strict=True)
    }
    each = [derivative for derivative in (DERIVATIVES[of] or {}).values() if derivative is not None]
    if "result" not in known and any("result" in it.takes for it in each):
        assert isinstance(of, BinaryOp)
        known["result"] = known["x"]._binary(of, known["y"])
    return tuple([it.function(g, *[known[name] for name in it.takes]).contiguous()._storage for it in each])


def _given(storage: Any, layout: Layout | None) -> Tensor | None:
    """An operand that may have been left out."""
    return None if layout is None else Tensor._new(storage, layout)


def rope_table(g: Tensor, x: Tensor, table: Layout, positions: Tensor, interleaved: bool, *, is_sine: bool) -> Tensor:
    """That of a table of cosines or sines."""
    (g_first, g_second), (first, second) = (_pairs(widened(each), interleaved) for each in (g, x))
    part = g_second * first - g_first * second if is_sine else g_first * first + g_second * second
    tokens, half = part.shape[-2:]
    # One position serves the complete batch, or each item has its own.
    batch = positions.elem_count
    others = math.prod(part.shape[:-2]) // max(batch, 1)
    part = part.reshape(batch, others, tokens * half).sum(1).reshape(batch * tokens, half)
    rows = positions.to_dtype("i64").reshape(-1, 1) + Tensor.arange(tokens, device=g.device)
    return zeros(part, table).index_add(rows.reshape(-1), part, 0).to_dtype(DType.F32)


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    if interleaved:
        return x.narrow(-1, 0, half, 2), x.narrow(-1, 1, half, 2)
    return x.narrow(-1, 0, half), x.narrow(-1, half, half)


def attention(
    g: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    result: Tensor,
    logsumexp: Storage,
    mask: Tensor | None,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
    *,
    of_mask: bool,
) -> Sequence[Tensor]:
    """Compute the gradients of queries, keys and values, and of the mask if it needs one."""
    sums = Tensor._new(logsumexp, Layout.contiguous(queries.shape[:3]))
    operands = arguments_of(keys, values, result, g, sums, mask, lengths)
    arguments: list[Any] = [queries._layout, *operands, is_causal, of_mask, scale]
    gradients = queries._storage.scaled_dot_product_attention_gradient(*arguments)
    recorded = (queries, keys, values) if mask is None else (queries, keys, values, mask)
    return [Tensor._new(each, of._layout.dense) for each, of in zip(gradients, recorded, strict=False)]


def attention_by_scores(
    queries: Storage,
    layout: Layout,
    keys: Storage,
    keys_layout: Layout,
    values: Storage,
    values_layout: Layout,
    gradient: Storage,
    gradient_layout: Layout,
    mask: Storage | None,
    mask_layout: Layout | None,
    lengths: Storage | None,
    lengths_layout: Layout | None,
    is_causal: bool,
    of_mask: bool,
    scale: float,
) -> tuple[Storage, ...]:
    """Compute scaled_dot_product_attention_gradient from the scores: each op is recorded."""
    batch, heads, count, size = layout.shape
    key_heads, length = keys_layout.shape[1:3]
    # The heads that share a key head are rows of one matrix.
    rows = heads // max(key_heads, 1) * count
    grouped = batch, key_heads, rows
    q, k, v, g = [
        widened(Tensor._new(*each))
        for each in ((queries, layout), (keys, keys_layout), (values, values_layout), (gradient, gradient_layout))
    ]
    q, g = q.reshape(*grouped, size), g.reshape(*grouped, size)
    scores = q.matmul(k.mT) * scale
    every = batch, heads, count, length
    if (added := _given(mask, mask_layout)) is not None:
        scores = scores + widened(added).reshape(scores.shape)
    seen = _seen(q.device, every, _given(lengths, lengths_layout), is_causal)
    if seen is not None:
        scores = seen.broadcast_as(every).reshape(scores.shape).where(scores, -math.inf)
    # What sees nothing has weights of 0.
    p = scores.eq(-math.inf).where(0.0, scores.softmax(-1))
    of_p = g.matmul(v.mT)
    of_scores = p * (of_p - (of_p * p).sum(-1, keepdim=True))
    gradients = [of_scores.matmul(k) * scale, of_scores.mT.matmul(q) * scale, p.mT.matmul(g)]
    if of_mask:
        gradients.append(of_scores)
    return tuple([each.to_dtype(queries.dtype)._storage for each in gradients])


def _seen(device: Device, shape: Sequence[int], lengths: Tensor | None, is_causal: bool) -> Tensor | None:
    """Where a query sees a key: (batch or 1, 1, queries or 1, keys)."""
    if lengths is None and not is_causal:
        return None
    count, length = shape[2:]
    keys = Tensor.arange(length, device=device)
    known = length if lengths is None else lengths.to_dtype("i64").reshape(-1, 1, 1, 1)
    if not is_causal:
        return keys < known
    # The last query is at the last key.
    return keys <= Tensor.arange(count, device=device).reshape(-1, 1) + (known - count)


def unblocked(g: Tensor, blocks: QStorage, rows: int, hidden: int) -> Tensor:
    """Return the gradient of the activations of a product with block-quantized weights, which have none."""
    matrix = Tensor._new(blocks.dequantize(rows * hidden), Layout.contiguous((rows, hidden)))
    return widened(g).matmul(matrix).to_dtype(g.dtype)


def of_op(op: UserOp, result: Tensor, g: Tensor, *operands: Tensor) -> list[Tensor | None]:
    """Call a user's op for the gradients of its operands."""
    for tensor in (*operands, result):
        # The op may retain it.
        unwrap(tensor._storage)[0].inner.share()
    # The op may change the gradient in place, and those of other calls' operands may be the same tensor.
    return borrowed(_checked(op, op.bwd(*operands, result, g.copy()), operands))


def _checked(op: UserOp, returned: object, operands: Sequence[Tensor]) -> list[Tensor | None]:
    """Check what a user's op returns: a gradient or None for each operand."""
    gradients = returned if isinstance(returned, tuple) else (returned,)
    if len(gradients) != len(operands):
        reason = f"bwd of {type(op).__name__} gives one gradient, or None, for each of {len(operands)} operands"
        raise GradientError(op.name, f"{reason}, not {describe(returned)}")
    for gradient, operand in zip(gradients, operands, strict=True):
        if gradient is not None and (not isinstance(gradient, Tensor) or gradient.shape != operand.shape):
            what = gradient.shape if isinstance(gradient, Tensor) else describe(gradient)
            reason = f"bwd of {type(op).__name__} gives gradients in the shapes of the operands"
            raise GradientError(op.name, f"{reason}, {operand.shape} here, not {what}")
        if gradient is not None and gradient.device != operand.device:
            reason = f"bwd of {type(op).__name__} gives gradients on the devices of the operands"
            raise GradientError(op.name, f"{reason}, {operand.device.label} here, not {gradient.device.label}")
        if gradient is not None and gradient.dtype is not operand.dtype:
            reason = f"bwd of {type(op).__name__} gives gradients in the dtypes of the operands"
            advice = f"end with to_dtype('{operand.dtype}')"
            raise GradientError(op.name, f"{reason}, {operand.dtype} here, not {gradient.dtype}; {advice}")
    return list(gradients)


def changed_by(op: UserOp, first: tuple[Any, Layout], *others: tuple[Any, Layout]) -> None:
    """Have a user's op change the first of some storages in place, one of which is recorded."""
    (storage, layout), (value, node) = first, unwrap(first[0])
    plain = [(unwrap(other)[0], view) for other, view in others]
    call = partial(getattr(value, f"inplace_op{1 + len(others)}"), layout)
    # A plain storage refuses what is no op.
    if not mode().records or not value.inner.dtype.is_inexact or not isinstance(op, UserOp):
        call(*[part for pair in plain for part in pair], op)
        return
    require_writable(op.name, node)
    op.require_bwd(1 + len(others))
    inputs: list[Any] = [node, None]
    saved: list[Any] = [None]
    # Copies of what the op overwrites, which its gradients need.
    copies = [
        (storage, layout),
        *[(other, view) for other, view in others if unwrap(other)[0] is value],
    ]
    copied = {view: (other.to_dtype(view, value.inner.dtype), view.dense) for other, view in copies}
    for (other, view), (source, _) in zip(others, plain, strict=True):
        copy, copy_layout = copied[view] if source is value else (other, view)
        copy_value, copy_node = unwrap(copy)
        inputs += copy_node, copy_layout
        saved.append(tracked(copy_value))
    before, before_node = unwrap(copied[layout][0])
    call(*[part for pair in plain for part in pair], op)
    inputs += before_node, layout.dense
    saved += before, op, layout
    rewritten(storage, _inplace_op, tuple(inputs), tuple(saved), needs_result=True)


@rule
def _inplace_op(node: Node, g: Tensor) -> Contributions:
    op, layout = node.saved[-2:]
    *others, before = [node.operand(position) for position in range(1, len(node.inputs) // 2)]
    inside, *of_others = of_op(op, node.result_view(layout), view_of(g, layout), before, *others)
    yield 0, overwritten(g, layout, inside)
    yield from enumerate(of_others, 1)
