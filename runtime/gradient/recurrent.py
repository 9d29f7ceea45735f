"""Gradients of recurrent layers, and their recorded form, which gives gradients of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...storage import Storage
from ..core.layout import Layout
from ..tensor import Tensor
from ..tensor.shape.joining import cat, stack
from .node import arguments_of

_Operand: TypeAlias = tuple[Any, Layout | None]


def cell(
    name: str, g: Tensor, gates: Tensor, products: Tensor, bias: Tensor | None, state: Tensor, *, of_bias: bool
) -> Sequence[Tensor | None]:
    """The gradients of a cell: of the gates, the products, the bias if it is recorded, and the last state."""
    operands = arguments_of(products, bias, state, g)
    storages = getattr(gates._storage, f"{name}_gradient")(gates._layout, *operands)
    of_gates, of_state = gates._like(storages[0]), state._like(storages[-1])
    # Those of the two terms of a sum are equal.
    of_products = products._like(storages[1]) if len(storages) > 2 else of_gates
    return of_gates, of_products, of_products.sum(0) if of_bias else None, of_state


def recurrent(
    name: str,
    g: Tensor,
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    states: Tensor,
    products: Storage,
    lengths: Tensor | None,
    reverse: bool,
    *,
    of_weight: bool,
    of_bias: bool,
) -> Sequence[Tensor | None]:
    """The gradients of a sequence: of the gates, weight and bias if they are recorded, and the initial states."""
    operands = arguments_of(weight, bias, state, states, gates._like(products), lengths, g)
    storages = getattr(gates._storage, f"{name}_gradient")(gates._layout, *operands, reverse)
    of_gates, of_state = gates._like(storages[0]), state._like(storages[-1])
    of_products = gates._like(storages[1]) if len(storages) > 2 else of_gates
    weight_gradient = None
    if of_weight:
        hidden = _before(states[0], state[0], reverse)
        weight_gradient = of_products.flatten(0, 1).mT.matmul(hidden.flatten(0, 1))
    return of_gates, weight_gradient, of_products.sum((0, 1)) if of_bias else None, of_state


def _before(states: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    """The state before each step, from the states after each step and the initial state."""
    count = states.shape[0] - 1
    if count < 0:
        return states
    others = states.narrow(0, int(reverse), count)
    return cat([others, initial.unsqueeze(0)] if reverse else [initial.unsqueeze(0), others])


def lstm_cell_gradient(
    gates: _Operand, products: _Operand, bias: _Operand, cell: _Operand, gradient: _Operand
) -> tuple[Storage, ...]:
    """Compute lstm_cell_gradient by recorded ops."""
    x, h, b, state, g = _widened(gates, products, bias, cell, gradient)
    i, f, c, o = _sum(_sum(x, h), b).chunk(4, -1)
    candidate, output = c.tanh(), o.sigmoid()
    new = f.sigmoid() * state + i.sigmoid() * candidate
    of_cell = g[0] * output * _tanh_slope(new) + g[1]
    of_gates = [
        of_cell * candidate * _slope(i),
        of_cell * state * _slope(f),
        of_cell * i.sigmoid() * _tanh_slope(c),
        g[0] * new.tanh() * _slope(o),
    ]
    return _storages(gates, cat(of_gates, -1), of_cell * f.sigmoid())


def gru_cell_gradient(
    gates: _Operand, products: _Operand, bias: _Operand, hidden: _Operand, gradient: _Operand
) -> tuple[Storage, ...]:
    """Compute gru_cell_gradient by recorded ops."""
    x, h, b, state, g = _widened(gates, products, bias, hidden, gradient)
    (reset, update, candidate), (own_reset, own_update, own) = x.chunk(3, -1), _sum(h, b).chunk(3, -1)
    reset, update = reset + own_reset, update + own_update
    total = candidate + reset.sigmoid() * own
    of_total = g * (-update).sigmoid() * _tanh_slope(total)
    both = [of_total * own * _slope(reset), g * (state - total.tanh()) * _slope(update)]
    of_gates, of_products = cat([*both, of_total], -1), cat([*both, of_total * reset.sigmoid()], -1)
    return _storages(gates, of_gates, of_products, g * update.sigmoid())


def recurrent_gradient(
    name: str,
    gates: _Operand,
    weight: _Operand,
    bias: _Operand,
    state: _Operand,
    states: _Operand,
    lengths: _Operand,
    gradient: _Operand,
    reverse: bool,
) -> tuple[Storage, ...]:
    """Compute the gradient of a sequence by a recorded cell gradient per step.

    The products are computed again, because they depend on the recorded states and weight.
    """
    x, w, initial, after, g = [_tensor(it) for it in (gates, weight, state, states, gradient)]
    b, ends = _optional(bias), _optional(lengths)
    count = x.shape[0]
    before = [_before(each, first, reverse) for each, first in zip(after, initial, strict=True)]
    products = before[0].matmul(w.mT)
    carried = [each.zeros_like() for each in initial]
    of_steps: list[list[Tensor]] = []
    for step in range(count) if reverse else reversed(range(count)):
        upstream = [g[kind, step] + each for kind, each in enumerate(carried)]
        seed = stack(upstream) if len(upstream) > 1 else upstream[0]
        operands = arguments_of(products[step], b, before[-1][step], seed)
        storages = getattr(x[step]._storage, f"{name}_cell_gradient")(x[step]._layout, *operands)
        *of_parts, direct = [Tensor._new(it, of._layout.dense) for it, of in _shaped(storages, x[step], initial[0])]
        # The direct gradient of a step is that of the cell state, or of the hidden state of a GRU.
        by_product = of_parts[-1].matmul(w)
        of_last = [by_product, direct] if len(upstream) > 1 else [by_product + direct]
        if ends is not None:
            runs = (ends > step).unsqueeze(1)
            of_parts = [runs.where(part, 0) for part in of_parts]
            of_last = [runs.where(own, skipped) for own, skipped in zip(of_last, upstream, strict=True)]
        carried = of_last
        of_steps.append(of_parts)
    if not of_steps:
        return _storages(gates, *[x] * (1 if len(carried) > 1 else 2), stack(carried))
    ordered = of_steps if reverse else of_steps[::-1]
    return _storages(gates, *[stack(each) for each in zip(*ordered, strict=True)], stack(carried))


def _shaped(storages: Sequence[Storage], gates: Tensor, state: Tensor) -> list[tuple[Storage, Tensor]]:
    """Each storage of a gradient with a tensor of its shape."""
    return [*((storage, gates) for storage in storages[:-1]), (storages[-1], state)]


def _tensor(operand: Any) -> Tensor:
    return Tensor._new(*operand)


def _optional(operand: _Operand) -> Tensor | None:
    return None if operand[0] is None else _tensor(operand)


def _widened(*operands: _Operand) -> list[Any]:
    """Operands in the dtype in which they are computed; None for those that are missing."""
    tensors = map(_optional, operands)
    return [None if each is None else each.to_dtype(each.dtype.compute) for each in tensors]


def _sum(x: Tensor, other: Tensor | None) -> Tensor:
    return x if other is None else x + other


def _slope(x: Tensor) -> Tensor:
    """The derivative of the sigmoid."""
    return x.sigmoid() * (-x).sigmoid()


def _tanh_slope(x: Tensor) -> Tensor:
    """The derivative of tanh."""
    return 4 * _slope(2 * x)


def _storages(like: Any, *results: Tensor) -> tuple[Storage, ...]:
    """The storages of results, in the dtype of an operand."""
    return tuple([each.to_dtype(like[0].dtype).contiguous()._storage for each in results])
