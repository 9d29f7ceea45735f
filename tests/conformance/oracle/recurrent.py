"""Recurrent cells and sequences in extended precision, with gradients by complex-step derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from .formats import EXTENDED, Array, decode, encode

# Complex steps do not cancel (Squire and Trapp 1998).
_STEP: Final = EXTENDED(1e-30)
_IMAGINARY: Final = np.clongdouble(1j) * _STEP


class Cell(NamedTuple):
    """The number of gates, and the new states from both parts of the gates and the last states, hidden states first."""

    gates: int
    step: Callable[[Sequence[Array], Sequence[Array], Sequence[Array]], list[Array]]


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def _lstm(x: Sequence[Array], h: Sequence[Array], last: Sequence[Array]) -> list[Array]:
    i, f, g, o = (one + other for one, other in zip(x, h, strict=True))
    cell = _sigmoid(f) * last[-1] + _sigmoid(i) * np.tanh(g)
    return [_sigmoid(o) * np.tanh(cell), cell]


def _gru(x: Sequence[Array], h: Sequence[Array], last: Sequence[Array]) -> list[Array]:
    reset, update = _sigmoid(x[0] + h[0]), _sigmoid(x[1] + h[1])
    candidate = np.tanh(x[2] + reset * h[2])
    return [(1 - update) * candidate + update * last[0]]


CELLS: Final[Mapping[str, Cell]] = {"lstm": Cell(4, _lstm), "gru": Cell(3, _gru)}


def step(kind: str, gates: Array, products: Array, bias: Array, last: Sequence[Array]) -> list[Array]:
    """The states after a step."""
    cell = CELLS[kind]
    with np.errstate(all="ignore"):
        return cell.step(np.split(gates, cell.gates, -1), np.split(products + bias, cell.gates, -1), last)


def step_gradient(
    kind: str, gates: Array, products: Array, bias: Array, last: Sequence[Array], upstream: Sequence[Array]
) -> tuple[Array, Array, list[Array]]:
    """The gradients of both parts of the gates, and the direct ones of the last states."""
    cell = CELLS[kind]
    x = [part.astype(np.clongdouble) for part in np.split(gates, cell.gates, -1)]
    h = [part.astype(np.clongdouble) for part in np.split(products + bias, cell.gates, -1)]
    states = [state.astype(np.clongdouble) for state in last]

    def derivative(operands: list[Array], number: int) -> Array:
        before = operands[number]
        operands[number] = before + _IMAGINARY
        new = cell.step(x, h, states)
        operands[number] = before
        total: Array = sum(g * state.imag / _STEP for g, state in zip(upstream, new, strict=True))
        return total

    with np.errstate(all="ignore"):
        parts = [np.concatenate([derivative(each, number) for number in range(cell.gates)], -1) for each in (x, h)]
        return parts[0], parts[1], [derivative(states, number) for number in range(len(states))]


class Steps(NamedTuple):
    """The operands of a sequence in extended precision."""

    kind: str
    gates: Array
    weight: Array
    bias: Array
    initial: Array
    lengths: Array | None
    reverse: bool

    def order(self) -> list[int]:
        """The positions in the order of the steps."""
        positions = list(range(self.gates.shape[0]))
        return positions[::-1] if self.reverse else positions

    def runs(self, position: int) -> Array:
        """A column of which sequences have a step."""
        rows = self.gates.shape[1]
        return np.ones((rows, 1), bool) if self.lengths is None else (self.lengths > position)[:, None]


def states(name: str, sequence: Steps) -> tuple[Array, Array]:
    """The states after each step and the products, both rounded to a dtype in each step."""
    last = list(sequence.initial)
    after: dict[int, list[Array]] = {}
    products: dict[int, Array] = {}
    for position in sequence.order():
        products[position] = _rounded(name, last[0] @ sequence.weight.T)
        new = step(sequence.kind, sequence.gates[position], products[position], sequence.bias, last)
        runs = sequence.runs(position)
        last = [np.where(runs, _rounded(name, one), other) for one, other in zip(new, last, strict=True)]
        after[position] = last
    shape = len(sequence.initial), len(sequence.gates), *sequence.initial.shape[1:]
    states_after, all_products = np.zeros(shape, EXTENDED), np.zeros(sequence.gates.shape, EXTENDED)
    for position in range(shape[1]):
        states_after[:, position], all_products[position] = after[position], products[position]
    return states_after, all_products


def gradients(
    name: str, sequence: Steps, states: Array, products: Array, upstream: Array
) -> tuple[Array, Array, Array]:
    """The gradients of both parts of the gates, those of each step rounded to a dtype, and of the initial states."""
    order = sequence.order()
    parts = np.zeros((2, *sequence.gates.shape), EXTENDED)
    carried = np.zeros(sequence.initial.shape, EXTENDED)
    for number, position in reversed(list(enumerate(order))):
        last = states[:, order[number - 1]] if number else sequence.initial
        of_states = upstream[:, position] + carried
        operands = sequence.gates[position], products[position], sequence.bias
        of_x, of_h, direct = step_gradient(sequence.kind, *operands, list(last), list(of_states))
        runs = sequence.runs(position)
        parts[:, position] = [np.where(runs, _rounded(name, each), 0) for each in (of_x, of_h)]
        carried = np.where(runs, np.stack(direct), of_states)
        carried[0] += parts[1, position] @ sequence.weight
    return parts[0], parts[1], carried


def _rounded(name: str, x: Array) -> Array:
    return decode(name, encode(name, x))
