"""Recurrent layers as a matrix product and a cell kernel per step, for every backend that has cell kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ..core.layout import Layout
from ..program.builder import ProgramBuilder
from ..program.values import Address, Buffer, Operand, address_of, dense


class Cell(NamedTuple):
    """A kind of cell."""

    name: str
    gates: int
    states: int
    """1 if the hidden state is the only one, 2 if there is a cell state too."""


_LSTM: Final = Cell("lstm", 4, 2)
_GRU: Final = Cell("gru", 3, 1)


def kind_of_step(gates: Operand, state: Operand) -> Cell:
    """The kind of cell whose gates (b, gates * h) and state (b, h) have these shapes."""
    return _LSTM if gates.shape[-1] == _LSTM.gates * state.shape[-1] else _GRU


def kind_of(initial: Operand) -> Cell:
    """The kind of cell that has these states (states, b, h)."""
    return _LSTM if initial.shape[0] == _LSTM.states else _GRU


class Step(NamedTuple):
    """The operands of a step, all contiguous except for the stride between rows of `gates`, and its position."""

    cell: Cell
    gates: Operand
    products: Operand
    bias: Operand | None
    lengths: Operand | None = None
    position: int = 0

    @property
    def rows(self) -> int:
        """The number of sequences."""
        return self.gates.shape[0]

    @property
    def units(self) -> int:
        """The size of a state."""
        return self.gates.shape[1] // self.cell.gates


class Gradient(NamedTuple):
    """The gradients of the states after a step: as results, through the products of the next step, and directly."""

    results: Sequence[Operand]
    by_products: Operand | None = None
    direct: Sequence[Operand | None] = (None, None)


class Results(NamedTuple):
    """The outputs of the gradient of a step: for both parts of the gates, and the direct ones of the last states."""

    of_gates: Operand
    of_products: Operand
    direct: Sequence[Operand | None]


class Kernels(Protocol):
    """The kernels of a backend, which append steps to a program."""

    def contiguous(self, operand: Operand) -> Operand:
        """Return the operand itself if it is contiguous, else a contiguous copy."""

    def zero(self, operand: Operand) -> None:
        """Set a contiguous operand to 0."""

    def multiply(self, lhs: Operand, rhs: Operand, result: Address) -> None:
        """Write the product of nonempty matrices (m, k) and (k, n) to an address."""

    def step(self, step: Step, last: Sequence[Operand], new: Sequence[Operand]) -> None:
        """Compute the new states from the last ones."""

    def gradient(self, step: Step, last: Operand, gradient: Gradient, results: Results) -> None:
        """Compute the gradients of a step from the last cell state, or from the last hidden state of a GRU."""

    def add(self, target: Operand, source: Operand) -> None:
        """Add an operand to another one in place."""


def select(operand: Operand, *indexes: int) -> Operand:
    """The view of an operand at indexes of its first dims."""
    count, layout = len(indexes), operand.layout
    offset = sum([index * stride for index, stride in zip(indexes, layout.strides, strict=False)])
    shape, strides = layout.shape[count:], layout.strides[count:]
    return Operand(operand.storage, Layout(type(layout.shape)(shape), strides, layout.start_offset + offset))


def states_of(operand: Operand) -> tuple[Operand, Operand | None]:
    """The hidden states, and the cell states of an LSTM, along the first dim of an operand."""
    return select(operand, 0), select(operand, 1) if operand.shape[0] > 1 else None


def cell_step(
    build: ProgramBuilder,
    kernels: Kernels,
    gates: Operand,
    products: Operand,
    bias: Operand | None,
    last: Operand,
) -> Buffer:
    """The states after one step from the last cell state, or from the last hidden state of a GRU."""
    cell = kind_of_step(gates, last)
    result = _new(build, last, (cell.states, *last.shape))
    if last.layout.elem_count:
        states = [kernels.contiguous(last)] * cell.states
        new = [select(result, kind) for kind in range(cell.states)]
        kernels.step(_step(kernels, cell, gates, products, bias), states, new)
    buffer: Buffer = result.storage
    return buffer


def cell_gradient(
    build: ProgramBuilder,
    kernels: Kernels,
    gates: Operand,
    products: Operand,
    bias: Operand | None,
    last: Operand,
    gradient: Operand,
) -> tuple[Buffer, ...]:
    """The gradients of the gates, of the products of a GRU, and of the last state."""
    # That of both states of an LSTM has one more dim.
    cell = _LSTM if len(gradient.shape) > len(last.shape) else _GRU
    has_cell, of_last, of_gates = cell.states > 1, _new(build, last, last.shape), _new(build, gates, gates.shape)
    of_products = of_gates if has_cell else _new(build, gates, gates.shape)
    if last.layout.elem_count:
        upstream = kernels.contiguous(gradient)
        results = [select(upstream, kind) for kind in range(cell.states)] if has_cell else [upstream]
        direct = (None, of_last) if has_cell else (of_last, None)
        step = _step(kernels, cell, gates, products, bias)
        kernels.gradient(step, kernels.contiguous(last), Gradient(results), Results(of_gates, of_products, direct))
    return _storages(of_gates, of_products, of_last)


def sequence(
    build: ProgramBuilder,
    kernels: Kernels,
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    lengths: Operand | None,
    reverse: bool,
    keep_products: bool,
) -> tuple[Buffer, ...]:
    """The states after each step, and the products of all steps or, unless all are needed, of the last one."""
    cell = kind_of(initial)
    states = _new(build, gates, (cell.states, gates.shape[0], *initial.shape[1:]))
    products = _new(build, gates, gates.shape[0 if keep_products else 1 :])
    if states.layout.elem_count:
        gates, steps = contiguous_rows(kernels, gates), gates.shape[0]
        columns = _transposed(kernels.contiguous(weight))
        initial, bias, lengths = (
            kernels.contiguous(initial),
            optional_contiguous(kernels, bias),
            optional_contiguous(kernels, lengths),
        )
        last = [select(initial, kind) for kind in range(cell.states)]
        for position in reversed(range(steps)) if reverse else range(steps):
            product = select(products, position) if keep_products else products
            kernels.multiply(last[0], columns, product.address)
            new = [select(states, kind, position) for kind in range(cell.states)]
            kernels.step(Step(cell, select(gates, position), product, bias, lengths, position), last, new)
            last = new
    return states.storage, products.storage


def sequence_gradient(
    build: ProgramBuilder,
    kernels: Kernels,
    gates: Operand,
    weight: Operand,
    bias: Operand | None,
    initial: Operand,
    states: Operand,
    products: Operand,
    lengths: Operand | None,
    gradient: Operand,
    reverse: bool,
) -> tuple[Buffer, ...]:
    """The gradients of the gates, of the products of a GRU, and of the initial states."""
    cell = kind_of(initial)
    has_cell, of_initial, of_gates = cell.states > 1, _new(build, gates, initial.shape), _new(build, gates, gates.shape)
    of_products = of_gates if has_cell else _new(build, gates, gates.shape)
    if not states.layout.elem_count:
        kernels.zero(of_initial)
        return _storages(of_gates, of_products, of_initial)
    gates, bias, lengths = (
        contiguous_rows(kernels, gates),
        optional_contiguous(kernels, bias),
        optional_contiguous(kernels, lengths),
    )
    weight, initial, states, products, gradient = map(kernels.contiguous, (weight, initial, states, products, gradient))
    # The gradient of a hidden state through products, and the direct one, which is added at the end.
    by_products = select(of_initial, 0)
    direct_hidden = None if has_cell and lengths is None else _new(build, gates, initial.shape[1:])
    direct = direct_hidden, select(of_initial, 1) if has_cell else None
    carried, count = Gradient(()), gates.shape[0]
    for position in range(count) if reverse else reversed(range(count)):
        previous, kind = position + 1 if reverse else position - 1, cell.states - 1
        last = select(states, kind, previous) if 0 <= previous < count else select(initial, kind)
        step = Step(cell, select(gates, position), select(products, position), bias, lengths, position)
        upstream = carried._replace(results=[select(gradient, kind, position) for kind in range(cell.states)])
        of_step = select(of_gates, position)
        of_product = of_step if has_cell else select(of_products, position)
        kernels.gradient(step, last, upstream, Results(of_step, of_product, direct))
        kernels.multiply(of_product, weight, by_products.address)
        carried = Gradient((), by_products, direct)
    if direct_hidden is not None:
        kernels.add(by_products, direct_hidden)
    return _storages(of_gates, of_products, of_initial)


def _new(build: ProgramBuilder, like: Operand, shape: Sequence[int]) -> Operand:
    return dense(build.empty(like.dtype, math.prod(shape)), shape)


def _storages(of_gates: Operand, of_products: Operand, of_state: Operand) -> tuple[Buffer, ...]:
    """The storages of results, without the products if their gradients are those of the gates."""
    gradients = (of_gates,) if of_products is of_gates else (of_gates, of_products)
    return (*[each.storage for each in gradients], of_state.storage)


def _step(kernels: Kernels, cell: Cell, gates: Operand, products: Operand, bias: Operand | None) -> Step:
    return Step(cell, contiguous_rows(kernels, gates), kernels.contiguous(products), optional_contiguous(kernels, bias))


def optional_contiguous(kernels: Kernels, operand: Operand | None) -> Operand | None:
    """A contiguous operand; None if it is missing."""
    return None if operand is None else kernels.contiguous(operand)


def contiguous_rows(kernels: Kernels, gates: Operand) -> Operand:
    """The gates with contiguous rows."""
    return gates if gates.shape[-1] < 2 or gates.strides[-1] == 1 else kernels.contiguous(gates)


def _transposed(matrix: Operand) -> Operand:
    return matrix.as_strided(matrix.shape[::-1], matrix.strides[::-1])


def step_fields(step: Step, last: Sequence[Operand], new: Sequence[Operand]) -> dict[str, object]:
    """The fields of a step that the kernels of every backend take."""
    hidden, cell = (*new, None)[:2]
    last_hidden, last_cell = (*last, None)[:2]
    return {
        "hidden": address_of(hidden), "cell": address_of(cell), "last_hidden": address_of(last_hidden),
        "last_cell": address_of(last_cell), **_fields(step),
    }  # fmt: skip


def gradient_fields(step: Step, last: Operand, gradient: Gradient, results: Results) -> dict[str, object]:
    """The fields of the gradient of a step that the kernels of every backend take."""
    of_results = (*gradient.results, None)[:2]
    return {
        "of_gates": address_of(results.of_gates),
        "of_products": address_of(None if results.of_products is results.of_gates else results.of_products),
        "of_hidden": address_of(results.direct[0]), "of_cell": address_of(results.direct[1]),
        "state": address_of(last), "gradient": address_of(of_results[0]),
        "by_products": address_of(gradient.by_products), "direct": address_of(gradient.direct[0]),
        "cell_gradient": address_of(of_results[1]), "direct_cell": address_of(gradient.direct[1]),
        **_fields(step),
    }  # fmt: skip


def _fields(step: Step) -> dict[str, object]:
    return {
        "gates": step.gates.address, "products": step.products.address, "bias": address_of(step.bias),
        "lengths": address_of(step.lengths), "gates_stride": step.gates.strides[0], "position": step.position,
        "rows": step.rows,
    }  # fmt: skip
