"""Recurrent layers, computed in f64 if the library has it, else in f32, and rounded once per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .....array_functors import functors
from .....dtype import DType
from .....op import UnaryOp
from . import cast
from .operand import Operand

LSTM_GATES = 4
GRU_GATES = 3


class _Gates(NamedTuple):
    """Both parts of each gate, in the dtype in which they are computed."""

    of_input: list[Any]
    of_hidden: list[Any]

    @property
    def sums(self) -> list[Any]:
        return [x + h for x, h in zip(self.of_input, self.of_hidden, strict=True)]


class _Functions(NamedTuple):
    """The functions of a library that cells use."""

    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]

    def slope(self, x: Any) -> Any:
        """The derivative of the sigmoid, without cancellation."""
        return self.sigmoid(x) * self.sigmoid(-x)

    def tanh_slope(self, x: Any) -> Any:
        """The derivative of tanh."""
        return 4 * self.slope(2 * x)


def lstm_cell(gates: Operand, products: Operand, bias: Operand | None, cell: Operand) -> Any:
    """The hidden state and the cell state."""
    library = gates.library
    hidden, state = _lstm_step(library, _gates(gates, products, bias, LSTM_GATES), _wide(cell))
    shape = (1, *cell.layout.shape)
    both = library.concat([library.reshape(each, shape) for each in (hidden, state)], 0)
    return gates.result(cast.narrow(library, both, gates.dtype))


def lstm_cell_gradient(
    gates: Operand, products: Operand, bias: Operand | None, cell: Operand, gradient: Operand
) -> tuple[Any, ...]:
    """The gradients of the gates and of the last cell state."""
    library = gates.library
    both = _lstm_gradient(library, _gates(gates, products, bias, LSTM_GATES), _wide(cell), *_each(_wide(gradient)))
    return tuple([gates.result(cast.narrow(library, each, gates.dtype)) for each in both])


def gru_cell(gates: Operand, products: Operand, bias: Operand | None, hidden: Operand) -> Any:
    """The hidden state."""
    library = gates.library
    new = _gru_step(library, _gates(gates, products, bias, GRU_GATES), _wide(hidden))
    return gates.result(cast.narrow(library, new, gates.dtype))


def gru_cell_gradient(
    gates: Operand, products: Operand, bias: Operand | None, hidden: Operand, gradient: Operand
) -> tuple[Any, ...]:
    """The gradients of the gates of the input, of the products and of the last hidden state."""
    library = gates.library
    all_three = _gru_gradient(library, _gates(gates, products, bias, GRU_GATES), _wide(hidden), _wide(gradient))
    return tuple([gates.result(cast.narrow(library, each, gates.dtype)) for each in all_three])


def lstm(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> Any:
    """The states after each step."""
    return _sequence(_lstm_states, LSTM_GATES, gates, weight, bias, initial, lengths, reverse)[0]


def lstm_with_products(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> tuple[Any, ...]:
    """The states after each step, and the products."""
    return _sequence(_lstm_states, LSTM_GATES, gates, weight, bias, initial, lengths, reverse)


def lstm_gradient(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    states: Operand,
    products: Operand,
    lengths: Operand | None,
    gradient: Operand,
    reverse: bool,
) -> tuple[Any, ...]:
    """The gradients of the gates and of the initial states."""
    inputs = _Inputs(gates, weight, bias, initial, states, products, lengths)
    of_gates, _, of_initial = _sequence_gradient(_lstm_parts, LSTM_GATES, inputs, gradient, reverse)
    return of_gates, of_initial


def gru(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> Any:
    """The states after each step."""
    return _sequence(_gru_states, GRU_GATES, gates, weight, bias, initial, lengths, reverse)[0]


def gru_with_products(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> tuple[Any, ...]:
    """The states after each step, and the products."""
    return _sequence(_gru_states, GRU_GATES, gates, weight, bias, initial, lengths, reverse)


def gru_gradient(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    states: Operand,
    products: Operand,
    lengths: Operand | None,
    gradient: Operand,
    reverse: bool,
) -> tuple[Any, ...]:
    """The gradients of the gates of the input, of the products and of the initial state."""
    inputs = _Inputs(gates, weight, bias, initial, states, products, lengths)
    return _sequence_gradient(_gru_parts, GRU_GATES, inputs, gradient, reverse)


class _Inputs(NamedTuple):
    """The operands of the gradient of a sequence."""

    gates: Operand
    weight: Operand
    bias: Operand | None
    initial: Operand
    states: Operand
    products: Operand
    lengths: Operand | None


def _lstm_states(library: Any, gates: _Gates, last: list[Any]) -> list[Any]:
    return [*_lstm_step(library, gates, last[1])]


def _gru_states(library: Any, gates: _Gates, last: list[Any]) -> list[Any]:
    return [_gru_step(library, gates, last[0])]


def _lstm_parts(library: Any, gates: _Gates, last: list[Any], upstream: list[Any]) -> tuple[Any, Any, list[Any]]:
    """The gradients of both parts of the gates, and the direct gradients of the last states."""
    of_gates, of_cell = _lstm_gradient(library, gates, last[1], upstream[0], upstream[1])
    return of_gates, of_gates, [0 * of_cell, of_cell]


def _gru_parts(library: Any, gates: _Gates, last: list[Any], upstream: list[Any]) -> tuple[Any, Any, list[Any]]:
    of_gates, of_products, of_hidden = _gru_gradient(library, gates, last[0], upstream[0])
    return of_gates, of_products, [of_hidden]


def _sequence(
    step: Callable[..., list[Any]],
    count: int,
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> tuple[Any, ...]:
    """Run steps one after another, each of which rounds its products and states."""
    library, dtype, x = gates.library, gates.dtype, _wide(gates)
    steps, shape = gates.layout.shape[0], tuple(initial.layout.shape)
    if 0 in (steps, *shape):
        states = library.full((shape[0], steps, *shape[1:]), 0, library.DTYPES[dtype], gates.device.handle)
        return gates.result(states), gates.result(gates.array)

    columns = library.permute_dims(cast.widen(library, weight.array, dtype), (1, 0))
    wide_bias, start = None if bias is None else _wide(bias), _wide(initial)
    last = _each(start)
    results: list[tuple[Any, list[Any]]] = []
    for position in reversed(range(steps)) if reverse else range(steps):
        hidden = library.astype(last[0], columns.dtype)
        products = cast.narrow(library, library.matmul(hidden, columns), dtype)
        own = cast.widest(library, products, dtype)
        own = own if wide_bias is None else own + wide_bias
        new = [
            _rounded(library, state, dtype)
            for state in step(library, _Gates(_split(x[position, ...], count), _split(own, count)), last)
        ]
        last = _where(library, _runs(lengths, position), new, last)
        results.append((products, last))
    ordered = results[::-1] if reverse else results
    every = [_stacked(library, [states[kind] for _, states in ordered]) for kind in range(shape[0])]
    states = cast.narrow(library, _stacked(library, every), dtype)
    return gates.result(states), gates.result(_stacked(library, [products for products, _ in ordered]))


def _sequence_gradient(
    parts: Callable[..., tuple[Any, Any, list[Any]]], count: int, inputs: _Inputs, gradient: Operand, reverse: bool
) -> tuple[Any, Any, Any]:
    """The gradients of both parts of gates, and of the initial states."""
    gates, library, dtype = inputs.gates, inputs.gates.library, inputs.gates.dtype
    steps, shape = gates.layout.shape[0], tuple(inputs.initial.layout.shape)
    if 0 in (steps, *shape):
        zeros = library.full(shape, 0, library.DTYPES[dtype], gates.device.handle)
        return gates.result(gates.array), gates.result(gates.array), gates.result(zeros)

    x, h, upstream, states, initial, weight = (
        _wide(each) for each in (gates, inputs.products, gradient, inputs.states, inputs.initial, inputs.weight)
    )
    bias = None if inputs.bias is None else _wide(inputs.bias)
    carried = _each(0 * initial)
    results = []
    for position in range(steps) if reverse else reversed(range(steps)):
        previous = position + 1 if reverse else position - 1
        last = _each(states[:, previous, ...] if 0 <= previous < steps else initial)
        own = h[position, ...] if bias is None else h[position, ...] + bias
        of_states = [one + other for one, other in zip(_each(upstream[:, position, ...]), carried, strict=True)]
        both = _Gates(_split(x[position, ...], count), _split(own, count))
        of_gates, of_products, direct = parts(library, both, last, of_states)
        runs = _runs(inputs.lengths, position)
        of_gates, of_products = (
            _rounded(library, each, dtype)
            for each in _where(library, runs, [of_gates, of_products], [0 * of_gates, 0 * of_products])
        )
        direct = _where(library, runs, direct, of_states)
        carried = [direct[0] + library.matmul(of_products, weight), *direct[1:]]
        results.append((of_gates, of_products))
    ordered = results if reverse else results[::-1]
    every = [_stacked(library, [step[part] for step in ordered]) for part in (0, 1)]
    of_gates, of_products, of_initial = (
        gates.result(cast.narrow(library, each, dtype)) for each in (*every, _stacked(library, carried))
    )
    return of_gates, of_products, of_initial


def _runs(lengths: Operand | None, position: int) -> Any:
    """A column of which sequences have a step; None if all have."""
    return None if lengths is None else lengths.library.reshape(lengths.array > position, (-1, 1))


def _where(library: Any, runs: Any, new: list[Any], others: list[Any]) -> list[Any]:
    if runs is None:
        return new
    return [library.where(runs, one, other) for one, other in zip(new, others, strict=True)]


def _stacked(library: Any, arrays: list[Any]) -> Any:
    return library.concat([library.reshape(each, (1, *each.shape)) for each in arrays], 0)


def _lstm_step(library: Any, gates: _Gates, cell: Any) -> tuple[Any, Any]:
    """The hidden state and the cell state from the last cell state."""
    own, (i, f, g, o) = _functions(library), gates.sums
    cell = own.sigmoid(f) * cell + own.sigmoid(i) * own.tanh(g)
    return own.sigmoid(o) * own.tanh(cell), cell


def _lstm_gradient(library: Any, gates: _Gates, cell: Any, of_hidden: Any, of_cell: Any) -> tuple[Any, Any]:
    """The gradients of the sums of the gates, and of the last cell state."""
    own, (i, f, g, o) = _functions(library), gates.sums
    new = own.sigmoid(f) * cell + own.sigmoid(i) * own.tanh(g)
    of_new = of_hidden * own.sigmoid(o) * own.tanh_slope(new) + of_cell
    of_gates = [
        of_new * own.tanh(g) * own.slope(i),
        of_new * cell * own.slope(f),
        of_new * own.sigmoid(i) * own.tanh_slope(g),
        of_hidden * own.tanh(new) * own.slope(o),
    ]
    return library.concat(of_gates, len(cell.shape) - 1), of_new * own.sigmoid(f)


def _gru_step(library: Any, gates: _Gates, hidden: Any) -> Any:
    """The hidden state from the last one."""
    own, (x, h) = _functions(library), gates
    candidate = own.tanh(x[2] + own.sigmoid(x[0] + h[0]) * h[2])
    return candidate + own.sigmoid(x[1] + h[1]) * (hidden - candidate)


def _gru_gradient(library: Any, gates: _Gates, hidden: Any, of_hidden: Any) -> tuple[Any, Any, Any]:
    """The gradients of the gates of the input, of the products, and the direct one of the last hidden state."""
    own, (x, h), (r, z, _) = _functions(library), gates, gates.sums
    total = x[2] + own.sigmoid(r) * h[2]
    of_total = of_hidden * own.sigmoid(-z) * own.tanh_slope(total)
    both = [of_total * h[2] * own.slope(r), of_hidden * (hidden - own.tanh(total)) * own.slope(z)]
    axis = len(hidden.shape) - 1
    of_gates, of_products = (library.concat([*both, each], axis) for each in (of_total, of_total * own.sigmoid(r)))
    return of_gates, of_products, of_hidden * own.sigmoid(z)


def _functions(library: Any) -> _Functions:
    elementwise = functors(library).elementwise
    return _Functions(elementwise[UnaryOp.SIGMOID].compute, elementwise[UnaryOp.TANH].compute)


def _wide(operand: Operand) -> Any:
    return cast.widest(operand.library, operand.array, operand.dtype)


def _rounded(library: Any, x: Any, dtype: DType) -> Any:
    """Numbers as they are computed, rounded to a dtype."""
    return cast.widest(library, cast.narrow(library, x, dtype), dtype)


def _gates(gates: Operand, products: Operand, bias: Operand | None, count: int) -> _Gates:
    of_hidden = _wide(products) if bias is None else _wide(products) + _wide(bias)
    return _Gates(_split(_wide(gates), count), _split(of_hidden, count))


def _each(x: Any) -> list[Any]:
    """What is along the first axis. The array API has an ellipsis for the other axes, and may require it."""
    return [x[k, ...] for k in range(x.shape[0])]


def _split(x: Any, count: int) -> list[Any]:
    """Equal parts along the last axis."""
    size = x.shape[-1] // count
    return [x[..., k * size : (k + 1) * size] for k in range(count)]
