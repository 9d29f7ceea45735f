"""Recurrent layers and cells, whose weights have the names of PyTorch's state dicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...base.error import InvalidArgument, ShapeMismatch, describe
from ...core import argument
from ...core.extensions import extensions
from ...core.layout import Layout
from ...storage.calls import live_autocasts
from ..base import parts, require_tensors
from ..promotion import common_dtype
from ..shape.joining import cat, stack
from ..tensor import Tensor

_NAME: Final = re.compile(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
_PARTS: Final = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


class _Weights(NamedTuple):
    """The weights of a layer in one direction."""

    of_input: Tensor
    of_hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None


def lstm(
    x: Tensor,
    weights: Mapping[str, Tensor],
    state: tuple[Tensor, Tensor] | None = None,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    batch_first: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run LSTM layers over sequences x (t, b, features): the output (t, b, directions * h), and the last hidden and
    cell states (layers * directions, b, h).

    `weights` is the state dict of PyTorch's `nn.LSTM`: `weight_ih_l0` (4 h, features), `weight_hh_l0` (4 h, h) and,
    optionally, `bias_ih_l0` and `bias_hh_l0` (4 h), which concatenate the input gate i, the forget gate f, the
    candidate g and the output gate o. Further layers are `_l1` and so on; the reverse direction of a layer adds
    `_reverse` to each name. A step is c = sigmoid(f) * c + sigmoid(i) * tanh(g) and h = sigmoid(o) * tanh(c). It is
    computed in f32, or in f64 for f64; c, h and the product of the recurrent weights with h are rounded to the dtype of
    x. Operands are promoted to one dtype. With `batch_first`, x and the output are (b, t, ..). Without a batch they are
    (t, ..), and states are (layers * directions, h). The initial states are zeros, or `state`.

    `lengths` has the number of steps of each sequence, from 0 to t. Beyond it the output is 0, and the reverse
    direction starts at the last step of the sequence. The last states are those after its last step; with a length of
    0, or if t is 0, they are the initial states. `dropout` is for training: `Tensor.dropout` is applied to the output
    of each layer but the last.

    >>> weights = {"weight_ih_l0": tl.ones((4, 1)), "weight_hh_l0": tl.ones((4, 1))}
    >>> output, (hidden, cell) = tl.lstm(tl.ones((2, 1, 1)), weights)
    >>> output[:, 0, 0]
    Tensor([0.3696, 0.6505], dtype=f32)
    >>> cell.shape
    (1, 1, 1)
    """
    if live_autocasts:
        x, weights, state = _narrowed(x, weights, state)
    output, (hidden, cell) = _Layers("lstm", weights, 4, 2).run(x, state, lengths, batch_first, dropout)
    return output, (hidden, cell)


def gru(
    x: Tensor,
    weights: Mapping[str, Tensor],
    state: Tensor | None = None,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    batch_first: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Run GRU layers over sequences x (t, b, features): the output (t, b, directions * h), and the last hidden states
    (layers * directions, b, h).

    `weights` is the state dict of PyTorch's `nn.GRU`, which concatenates the reset gate r, the update gate z and the
    candidate. A step is n = tanh(a + sigmoid(r) * p) and h = (1 - sigmoid(z)) * n + sigmoid(z) * h, where a and p are
    the candidate's products with the input and with h, each with its bias. All other arguments are those of `lstm`.

    >>> weights = {"weight_ih_l0": tl.ones((3, 1)), "weight_hh_l0": tl.ones((3, 1))}
    >>> output, hidden = tl.gru(tl.ones((2, 1, 1)), weights)
    >>> output[:, 0, 0]
    Tensor([0.2048, 0.3468], dtype=f32)
    """
    state = None if state is None else (state,)  # type: ignore[assignment]
    if live_autocasts:
        x, weights, state = _narrowed(x, weights, state)
    output, (hidden,) = _Layers("gru", weights, 3, 1).run(x, state, lengths, batch_first, dropout)
    return output, hidden


def lstm_cell(
    x: Tensor, weights: Mapping[str, Tensor], state: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Run one step of an LSTM on x (b, features): the hidden and the cell state (b, h).

    `weights` is the state dict of PyTorch's `nn.LSTMCell`: `weight_ih`, `weight_hh` and, optionally, `bias_ih` and
    `bias_hh`. The last state is zeros, or `state`. The formulas are those of `lstm`.

    >>> weights = {"weight_ih": tl.ones((4, 1)), "weight_hh": tl.ones((4, 1))}
    >>> hidden, cell = tl.lstm_cell(tl.ones((1, 1)), weights)
    >>> hidden
    Tensor([[0.3696]], dtype=f32)
    """
    own, gates, products, last = _step("lstm_cell", x, weights, state, 4, 2)
    bias = parts("lstm_cell", "bias_hh", own.hidden_bias)
    storage = gates._storage.lstm_cell(
        gates._layout, products._storage, products._layout, *bias, last[1]._storage, last[1]._layout
    )
    states = Tensor._new(storage, Layout.contiguous((2, *last[1].shape)))
    return states[0], states[1]


def gru_cell(x: Tensor, weights: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
    """Run one step of a GRU on x (b, features): the hidden state (b, h).

    `weights` is the state dict of PyTorch's `nn.GRUCell`, as for `lstm_cell`. The formulas are those of `gru`.

    >>> weights = {"weight_ih": tl.ones((3, 1)), "weight_hh": tl.ones((3, 1))}
    >>> tl.gru_cell(tl.ones((1, 1)), weights)
    Tensor([[0.2048]], dtype=f32)
    """
    own, gates, products, (last,) = _step("gru_cell", x, weights, None if state is None else (state,), 3, 1)
    bias = parts("gru_cell", "bias_hh", own.hidden_bias)
    storage = gates._storage.gru_cell(
        gates._layout, products._storage, products._layout, *bias, last._storage, last._layout
    )
    return Tensor._new(storage, last._layout.dense)


def _narrowed(x: Tensor, weights: Any, state: Any) -> tuple[Tensor, Any, Any]:
    """The input, the weights and the last states in the dtype of `autocast`."""
    names = [*weights] if isinstance(weights, Mapping) else []
    states = [*state] if isinstance(state, tuple | list) else []
    x, *others = extensions.narrowed(x, *[weights[name] for name in names], *states)
    narrowed = dict(zip(names, others, strict=False)) if names else weights
    return x, narrowed, tuple(others[len(names) :]) if states else state


def _step(
    op: str, x: Tensor, weights: Mapping[str, Tensor], state: Any, gates: int, states: int
) -> tuple[_Weights, Tensor, Tensor, Sequence[Tensor]]:
    """The weights of a cell, both parts of the gates, and the last states."""
    require_tensors(op, x=x)
    if live_autocasts:
        x, weights, state = _narrowed(x, weights, state)
    own = _of_direction(op, weights, "", gates)
    if x.rank != 2:
        raise ShapeMismatch(op, (x.shape,), "x is (b, features); unsqueeze or flatten it")
    shape = x.shape[0], own.of_hidden.shape[1]
    state = None if state is None else _pair(op, state, states)
    x, ((own,),), state = _in_one_dtype(op, x, [[own]], state)
    last = _states(op, state, states, shape, x)
    return own, _gates(op, x, own), last[0].linear(own.of_hidden), last


class _Layers:
    """Layers of one kind of cell."""

    def __init__(self, op: str, weights: Mapping[str, Tensor], gates: int, states: int) -> None:
        self._op, self._gates, self._states = op, gates, states
        self._layers = self._read(weights)

    def _read(self, weights: Mapping[str, Tensor]) -> list[list[_Weights]]:
        """The weights of each layer, for one or both directions."""
        op = self._op
        _require_mapping(op, weights)
        numbers, reversed_ = set(), False
        for name in weights:
            match = _NAME.fullmatch(name) if isinstance(name, str) else None
            if match is None:
                reason = f"weights are named weight_ih_l0, weight_hh_l0, bias_ih_l0 and so on, not {describe(name)}"
                raise InvalidArgument(op, f"{reason}; select those of this layer")
            numbers.add(int(match[3]))
            reversed_ = reversed_ or match[4] is not None
        endings = ["", "_reverse"] if reversed_ else [""]
        return [
            [_of_direction(op, weights, f"_l{number}{ending}", self._gates) for ending in endings]
            for number in range(max(numbers, default=0) + 1)
        ]

    def run(
        self, x: Tensor, state: Any, lengths: Tensor | Sequence[int] | None, batch_first: bool, dropout: float
    ) -> tuple[Tensor, list[Tensor]]:
        """The output, and the last states of each kind."""
        op, probability = self._op, argument.real(self._op, "dropout", dropout)
        require_tensors(op, x=x)
        if x.rank not in (2, 3):
            raise ShapeMismatch(op, (x.shape,), "x is (t, b, features), or (t, features) of one sequence")
        is_batched, is_transposed = x.rank == 3, argument.boolean(op, "batch_first", batch_first) and x.rank == 3
        state = None if state is None else _pair(op, state, self._states)
        x, layers, state = _in_one_dtype(op, x, self._layers, state)
        if not is_batched:
            x = x.unsqueeze(1)
            state = None if state is None else [each.unsqueeze(1) for each in state]
        batch = x.shape[0 if is_transposed else 1]
        directions = len(self._layers[0])
        count = len(self._layers) * directions
        units = self._layers[0][0].of_hidden.shape[1]
        initial = None if state is None else stack(_states(op, state, self._states, (count, batch, units), x), 1)
        ends = None if lengths is None else self._lengths(lengths, x.shape[1 if is_transposed else 0], x)
        last: list[Tensor] = []
        for number, layer in enumerate(layers):
            if number and probability:
                x = x.dropout(probability)
            outputs = []
            for direction, weights in enumerate(layer):
                start = None if initial is None else initial[number * directions + direction]
                output, states = self._direction(x, weights, start, ends, is_transposed and not number, bool(direction))
                outputs.append(output)
                last.append(states)
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
        stacked = stack(last, 1)
        finals = [stacked[kind] for kind in range(self._states)]
        if not is_batched:
            return x.squeeze(1), [each.squeeze(1) for each in finals]
        return x.transpose(0, 1) if is_transposed else x, finals

    def _lengths(self, lengths: Any, count: int, x: Tensor) -> Tensor:
        """The lengths as i64 on the device, from 0 to the number of steps."""
        op = self._op
        if not isinstance(lengths, Tensor):
            numbers = argument.integers(op, "lengths", lengths)
            if any(not 0 <= number <= count for number in numbers):
                raise InvalidArgument(
                    op, f"lengths are from 0 to {count}, the number of steps, not {describe(numbers)}"
                )
            return Tensor(list(numbers), dtype="i64", device=x.device)
        if not lengths.dtype.is_integer:
            raise InvalidArgument(op, f"lengths are integers, not {lengths.dtype}; convert them with to_dtype")
        # Selecting from all valid lengths converts the dtype, and checks the range without waiting for the device.
        return Tensor.arange(count + 1, device=x.device).index_select(lengths, 0)

    def _direction(
        self,
        x: Tensor,
        weights: _Weights,
        start: Tensor | None,
        ends: Tensor | None,
        is_transposed: bool,
        reverse: bool,
    ) -> tuple[Tensor, Tensor]:
        """The output (t, b, h) of one direction, and the last states."""
        op = self._op
        gates = _gates(op, x, weights)
        gates = gates.transpose(0, 1) if is_transposed else gates
        count, batch, _ = gates.shape
        shape = self._states, batch, weights.of_hidden.shape[1]
        initial = Tensor.zeros(shape, dtype=gates.dtype, device=gates.device) if start is None else start
        operands = weights.of_hidden, weights.hidden_bias, initial, ends
        arguments = [part for operand in operands for part in parts(op, "operand", operand)]
        storage = getattr(gates._storage, op)(gates._layout, *arguments, reverse)
        states = Tensor._new(storage, Layout.contiguous((self._states, count, *shape[1:])))
        output = states[0]
        if ends is not None:
            steps = Tensor.arange(count, device=x.device).reshape(-1, 1, 1)
            output = steps.lt(ends.reshape(1, -1, 1)).where(output, 0)
        if not count:
            return output, initial
        return output, states[:, 0 if reverse else count - 1]


def _require_mapping(op: str, weights: object) -> None:
    if not isinstance(weights, Mapping):
        reason = f"weights are a dict of tensors, with the names of PyTorch's modules, not {describe(weights)}"
        raise InvalidArgument(op, reason)


def _gates(op: str, x: Tensor, own: _Weights) -> Tensor:
    """The product of the input with its weight, with the bias: the part of the gates before the state's."""
    if x.shape[-1] != own.of_input.shape[1]:
        reason = f"x has {x.shape[-1]} features, and weight_ih is for {own.of_input.shape[1]}"
        raise ShapeMismatch(op, (x.shape, own.of_input.shape), reason)
    return x.linear(own.of_input, own.input_bias)


def _of_direction(op: str, weights: Mapping[str, Tensor], ending: str, gates: int) -> _Weights:
    """The weights of one direction of a layer, whose names have the same suffix."""
    _require_mapping(op, weights)
    names = [f"{part}{ending}" for part in _PARTS]
    tensors = [weights.get(name) for name in names]
    missing = [name for name, tensor in zip(names[:2], tensors, strict=False) if tensor is None]
    if missing:
        raise InvalidArgument(op, f"there is no {' and no '.join(missing)} among the weights")
    require_tensors(op, **{name: tensor for name, tensor in zip(names, tensors, strict=True) if tensor is not None})
    own = _Weights(*tensors)  # type: ignore[arg-type]
    units = own.of_hidden.shape[-1] if own.of_hidden.rank else 0
    if own.of_hidden.shape != (gates * units, units) or own.of_input.shape[:-1] != (gates * units,):
        reason = f"{names[0]} is ({gates} h, features) and {names[1]} is ({gates} h, h)"
        raise ShapeMismatch(op, (own.of_input.shape, own.of_hidden.shape), reason)
    for bias in (own.input_bias, own.hidden_bias):
        if bias is not None and bias.shape != (gates * units,):
            raise ShapeMismatch(op, (bias.shape,), f"a bias is ({gates} h), and h is {units}")
    return own


def _in_one_dtype(
    op: str, x: Tensor, layers: list[list[_Weights]], state: Sequence[Tensor] | None
) -> tuple[Tensor, list[list[_Weights]], Sequence[Tensor] | None]:
    """The operands in the dtype that they have together."""
    weights = [each for layer in layers for own in layer for each in own if each is not None]
    dtypes = [each._storage.dtype for each in (x, *weights, *(state or ()))]
    if dtypes.count(dtypes[0]) == len(dtypes):
        return x, layers, state
    dtype = common_dtype(op, *dtypes)
    converted = [
        [_Weights(*[None if each is None else each.to_dtype(dtype) for each in own]) for own in layer]  # type: ignore[arg-type]
        for layer in layers
    ]
    return x.to_dtype(dtype), converted, None if state is None else [each.to_dtype(dtype) for each in state]


def _states(op: str, state: Sequence[Tensor] | None, count: int, shape: tuple[int, ...], x: Tensor) -> Sequence[Tensor]:
    """The states of each kind, all of one shape: zeros if there is no argument."""
    if state is None:
        return [Tensor.zeros(shape, dtype=x.dtype, device=x.device)] * count
    for each in state:
        if each.shape != shape:
            raise ShapeMismatch(op, (x.shape, each.shape), f"the shape of a state must be {shape}")
    return state


def _pair(op: str, state: Any, count: int) -> Sequence[Tensor]:
    """The states of each kind."""
    if not isinstance(state, (tuple, list)) or len(state) != count:
        reason = f"state is a pair of tensors, the hidden state and the cell state, not {describe(state)}"
        raise InvalidArgument(op, reason)
    require_tensors(op, **{f"state[{kind}]" if count > 1 else "state": each for kind, each in enumerate(state)})
    return tuple(state)
