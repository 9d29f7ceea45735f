"""Recurrent layers, computed in f64 if the library has it, else in f32, and rounded once per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .....array_functors import functors
from .....dtype import DType
from .....op import UnaryOp
from . import cast
from .operand import Operand


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


def cell(gates: Operand, products: Operand, bias: Operand | None, last: Operand) -> Any:
    """The new states of a cell from the last cell state, or from the last hidden state of a GRU."""
    library = gates.library
    kind = _LSTM if gates.layout.shape[-1] == _LSTM.gates * last.layout.shape[-1] else _GRU
    new = kind.step(library, _gates(gates, products, bias, kind.gates), _wide(last))
    return gates.result(cast.narrow(library, _stacked(library, new) if len(new) > 1 else new[0], gates.dtype))


def cell_gradient(
    gates: Operand, products: Operand, bias: Operand | None, last: Operand, gradient: Operand
) -> tuple[Any, ...]:
    """The gradients of the gates, of the products of a GRU, and of the last state."""
    library, upstream = gates.library, _wide(gradient)
    # That of both states of an LSTM has one more dim.
    is_lstm = gradient.layout.rank > last.layout.rank
    kind, of_states = (_LSTM, _each(upstream)) if is_lstm else (_GRU, [upstream])
    of_gates, of_products, of_last = kind.gradient(
        library, _gates(gates, products, bias, kind.gates), _wide(last), of_states
    )
    results = (of_gates, of_last[-1]) if is_lstm else (of_gates, of_products, of_last[-1])
    return tuple([gates.result(cast.narrow(library, each, gates.dtype)) for each in results])


def sequence(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> Any:
    """The states after each step."""
    return sequence_with_products(gates, weight, bias, initial, lengths, reverse)[0]


def sequence_with_products(
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
) -> tuple[Any, ...]:
    """The states after each step, and the products. Each step rounds both."""
    kind = _kind_of(initial)
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
            for state in kind.step(
                library, _Gates(_split(x[position, ...], kind.gates), _split(own, kind.gates)), last[-1]
            )
        ]
        last = _where(library, _runs(lengths, position), new, last)
        results.append((products, last))
    ordered = results[::-1] if reverse else results
    every = [_stacked(library, [states[kind] for _, states in ordered]) for kind in range(shape[0])]
    states = cast.narrow(library, _stacked(library, every), dtype)
    return gates.result(states), gates.result(_stacked(library, [products for products, _ in ordered]))


def sequence_gradient(
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
    """The gradients of the gates, of the products of a GRU, and of the initial states."""
    kind, library, dtype = _kind_of(initial), gates.library, gates.dtype
    steps, shape = gates.layout.shape[0], tuple(initial.layout.shape)
    if 0 in (steps, *shape):
        zeros = library.full(shape, 0, library.DTYPES[dtype], gates.device.handle)
        return (*[gates.result(gates.array) for _ in range(3 - kind.states)], gates.result(zeros))

    x, h, upstream, after, start, matrix = map(_wide, (gates, products, gradient, states, initial, weight))
    wide_bias = None if bias is None else _wide(bias)
    carried = _each(0 * start)
    results = []
    for position in range(steps) if reverse else reversed(range(steps)):
        previous = position + 1 if reverse else position - 1
        last = after[-1, previous, ...] if 0 <= previous < steps else start[-1, ...]
        own = h[position, ...] if wide_bias is None else h[position, ...] + wide_bias
        of_states = [one + other for one, other in zip(_each(upstream[:, position, ...]), carried, strict=True)]
        both = _Gates(_split(x[position, ...], kind.gates), _split(own, kind.gates))
        of_gates, of_products, direct = kind.gradient(library, both, last, of_states)
        runs = _runs(lengths, position)
        of_gates, of_products = (
            _rounded(library, each, dtype)
            for each in _where(library, runs, [of_gates, of_products], [0 * of_gates, 0 * of_products])
        )
        direct = _where(library, runs, direct, of_states)
        carried = [direct[0] + library.matmul(of_products, matrix), *direct[1:]]
        results.append((of_gates, of_products))
    ordered = results if reverse else results[::-1]
    every = [_stacked(library, [step[part] for step in ordered]) for part in (0, 1)]
    of_gates, of_products, of_initial = (
        gates.result(cast.narrow(library, each, dtype)) for each in (*every, _stacked(library, carried))
    )
    return (of_gates, of_initial) if kind.states > 1 else (of_gates, of_products, of_initial)


def _runs(lengths: Operand | None, position: int) -> Any:
    """A column of which sequences have a step; None if all have."""
    return None if lengths is None else lengths.library.reshape(lengths.array > position, (-1, 1))


def _where(library: Any, runs: Any, new: list[Any], others: list[Any]) -> list[Any]:
    if runs is None:
        return new
    return [library.where(runs, one, other) for one, other in zip(new, others, strict=True)]


def _stacked(library: Any, arrays: list[Any]) -> Any:
    return library.concat([library.reshape(each, (1, *each.shape)) for each in arrays], 0)


def _lstm_step(library: Any, gates: _Gates, cell: Any) -> list[Any]:
    own, (i, f, g, o) = _functions(library), gates.sums
    cell = own.sigmoid(f) * cell + own.sigmoid(i) * own.tanh(g)
    return [own.sigmoid(o) * own.tanh(cell), cell]


def _lstm_gradient(library: Any, gates: _Gates, cell: Any, of_states: list[Any]) -> tuple[Any, Any, list[Any]]:
    own, (i, f, g, o), (of_hidden, of_cell) = _functions(library), gates.sums, of_states
    new = own.sigmoid(f) * cell + own.sigmoid(i) * own.tanh(g)
    of_new = of_hidden * own.sigmoid(o) * own.tanh_slope(new) + of_cell
    of_each = [
        of_new * own.tanh(g) * own.slope(i),
        of_new * cell * own.slope(f),
        of_new * own.sigmoid(i) * own.tanh_slope(g),
        of_hidden * own.tanh(new) * own.slope(o),
    ]
    of_gates = library.concat(of_each, len(cell.shape) - 1)
    return of_gates, of_gates, [0 * of_new, of_new * own.sigmoid(f)]


def _gru_step(library: Any, gates: _Gates, hidden: Any) -> list[Any]:
    own, (x, h) = _functions(library), gates
    candidate = own.tanh(x[2] + own.sigmoid(x[0] + h[0]) * h[2])
    return [candidate + own.sigmoid(x[1] + h[1]) * (hidden - candidate)]


def _gru_gradient(library: Any, gates: _Gates, hidden: Any, of_states: list[Any]) -> tuple[Any, Any, list[Any]]:
    own, (x, h), (r, z, _), (of_hidden,) = _functions(library), gates, gates.sums, of_states
    total = x[2] + own.sigmoid(r) * h[2]
    of_total = of_hidden * own.sigmoid(-z) * own.tanh_slope(total)
    both = [of_total * h[2] * own.slope(r), of_hidden * (hidden - own.tanh(total)) * own.slope(z)]
    axis = len(hidden.shape) - 1
    of_gates, of_products = (library.concat([*both, each], axis) for each in (of_total, of_total * own.sigmoid(r)))
    return of_gates, of_products, [of_hidden * own.sigmoid(z)]


class _Kind(NamedTuple):
    """A kind of cell."""

    gates: int
    states: int
    step: Callable[..., list[Any]]
    """The new states from the gates and the last state: the cell state of an LSTM."""
    gradient: Callable[..., tuple[Any, Any, list[Any]]]
    """The gradients of both parts of the gates and the direct ones of the last states, from those of the new states."""


_LSTM: Final = _Kind(4, 2, _lstm_step, _lstm_gradient)
_GRU: Final = _Kind(3, 1, _gru_step, _gru_gradient)


def _kind_of(initial: Operand) -> _Kind:
    """The kind of cell that has these states (states, b, h)."""
    return _LSTM if initial.layout.shape[0] == _LSTM.states else _GRU


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
    """Split along the first axis. The array API has an ellipsis for the other axes, and may require it."""
    return [x[k, ...] for k in range(x.shape[0])]


def _split(x: Any, count: int) -> list[Any]:
    """Equal parts along the last axis."""
    size = x.shape[-1] // count
    return [x[..., k * size : (k + 1) * size] for k in range(count)]
