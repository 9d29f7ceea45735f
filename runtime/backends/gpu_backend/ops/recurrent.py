"""Recurrent layers: a matrix product and the launch of a cell kernel per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE
from .....op import BinaryOp
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.values import Address, Buffer, Operand
from ... import recurrent as shared
from ...recurrent import GRU, LSTM, Gradient, Results, Step
from ..driver.grid import are_few, ceil_divide
from . import copy, elementwise, matmul
from .geometry import LIMIT

if TYPE_CHECKING:
    from ..libraries.library import Blas

# Consecutive units per thread, by the bytes of an element.
_UNITS: Final = {2: 4, 4: 4, 8: 2}


def lstm_cell(build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, cell: Operand) -> Buffer:
    """The hidden state and the cell state."""
    return shared.cell_step(build, _Kernels(build), LSTM, gates, products, bias, cell)


def lstm_cell_gradient(
    build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, cell: Operand, gradient: Operand
) -> tuple[Buffer, ...]:
    """The gradients of the gates and of the last cell state."""
    return shared.cell_gradient(build, _Kernels(build), LSTM, gates, products, bias, cell, gradient)


def gru_cell(build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, hidden: Operand) -> Buffer:
    """The hidden state."""
    return shared.cell_step(build, _Kernels(build), GRU, gates, products, bias, hidden)


def gru_cell_gradient(
    build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, hidden: Operand, gradient: Operand
) -> tuple[Buffer, ...]:
    """The gradients of the gates of the input, of the products and of the last hidden state."""
    return shared.cell_gradient(build, _Kernels(build), GRU, gates, products, bias, hidden, gradient)


def lstm(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer:  # fmt: skip
    """The states after each step."""
    return shared.sequence(
        build, _Kernels(build), LSTM, gates, weight, bias, initial, lengths, reverse, keep_products=False
    )[0]


def lstm_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer:  # fmt: skip
    """As `lstm`, with products by a library."""
    return shared.sequence(
        build, _Kernels(build, library), LSTM, gates, weight, bias, initial, lengths, reverse, keep_products=False
    )[0]


def lstm_with_products(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The states after each step, and the products."""
    return shared.sequence(build, _Kernels(build), LSTM, gates, weight, bias, initial, lengths, reverse)


def lstm_with_products_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """As `lstm_with_products`, with products by a library."""
    return shared.sequence(build, _Kernels(build, library), LSTM, gates, weight, bias, initial, lengths, reverse)


def lstm_gradient(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand, states: Operand,
    products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The gradients of the gates and of the initial states."""
    operands = gates, weight, bias, initial, states, products, lengths, gradient
    return shared.sequence_gradient(build, _Kernels(build), LSTM, *operands, reverse)


def lstm_gradient_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    states: Operand, products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """As `lstm_gradient`, with products by a library."""
    operands = gates, weight, bias, initial, states, products, lengths, gradient
    return shared.sequence_gradient(build, _Kernels(build, library), LSTM, *operands, reverse)


def gru(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer:  # fmt: skip
    """The states after each step."""
    return shared.sequence(
        build, _Kernels(build), GRU, gates, weight, bias, initial, lengths, reverse, keep_products=False
    )[0]


def gru_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer:  # fmt: skip
    """As `gru`, with products by a library."""
    return shared.sequence(
        build, _Kernels(build, library), GRU, gates, weight, bias, initial, lengths, reverse, keep_products=False
    )[0]


def gru_with_products(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The states after each step, and the products."""
    return shared.sequence(build, _Kernels(build), GRU, gates, weight, bias, initial, lengths, reverse)


def gru_with_products_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """As `gru_with_products`, with products by a library."""
    return shared.sequence(build, _Kernels(build, library), GRU, gates, weight, bias, initial, lengths, reverse)


def gru_gradient(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand, states: Operand,
    products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The gradients of the gates of the input, of the products and of the initial state."""
    operands = gates, weight, bias, initial, states, products, lengths, gradient
    return shared.sequence_gradient(build, _Kernels(build), GRU, *operands, reverse)


def gru_gradient_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    states: Operand, products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """As `gru_gradient`, with products by a library."""
    operands = gates, weight, bias, initial, states, products, lengths, gradient
    return shared.sequence_gradient(build, _Kernels(build, library), GRU, *operands, reverse)


class _Kernels:
    """The kernels for cells, and a library or kernels for matrix products."""

    def __init__(self, build: ProgramBuilder, library: Blas | None = None) -> None:
        self._build = build
        self._library = library

    def contiguous(self, operand: Operand) -> Operand:
        return copy.contiguous(self._build, operand)

    def zero(self, operand: Operand) -> None:
        self._build.zero(operand.storage)

    def prepare(self, matrix: Operand, *_: int) -> Operand:
        return matrix

    def multiply(self, lhs: Operand, rhs: Operand, result: Address) -> None:
        (m, k), n = lhs.shape, rhs.shape[1]
        sizes = 1, m, n, k
        if self._library is None:
            matmul.multiply_by_kernel(self._build, lhs, rhs, sizes, result)
        else:
            matmul.multiply(self._build, self._library, lhs, rhs, sizes, result)

    def step(self, step: Step, last: Sequence[Operand], new: Sequence[Operand]) -> None:
        self._launch("step", step, arguments.recurrent_step, shared.step_fields(step, last, new))

    def gradient(self, step: Step, last: Operand, gradient: Gradient, results: Results) -> None:
        fields = shared.gradient_fields(step, last, gradient, results)
        self._launch("gradient", step, arguments.recurrent_gradient, fields)

    def add(self, target: Operand, source: Operand) -> None:
        elementwise.binary_assign(self._build, BinaryOp.ADD, target, source)

    def _launch(self, kind: str, step: Step, pack: Any, fields: dict[str, Any]) -> None:
        count, dtype = step.rows * step.units, step.gates.dtype
        if max(count, step.position) >= LIMIT:
            raise InvalidArgument(step.cell.name, f"{count} units are more than a kernel can number; divide the batch")
        units, bytes_together = _UNITS[dtype.itemsize], _UNITS[dtype.itemsize] * dtype.itemsize
        addresses = [value for value in fields.values() if isinstance(value, Address)]
        if (
            are_few(count, self._build.facts.multiprocessors)
            or step.units % units
            or step.gates.strides[0] % units
            or not all(address.is_aligned(bytes_together) for address in addresses)
        ):
            units = 1
        packed = pack(units=step.units, **fields)
        name = f"{step.cell.name}_{kind}_{dtype.value}_{units}"
        self._build.launch("recurrent", name, ceil_divide(count // units, BLOCK_SIZE), packed)
