"""Recurrent layers: all steps in one launch where its blocks can run at once, else a product and a kernel per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE
from .....op import BinaryOp
from ....base.error import InvalidArgument
from ....program.builder import Facts, ProgramBuilder
from ....program.values import NULL, Address, Buffer, KernelArguments, Operand, address_of, dense
from ... import recurrent as shared
from ...recurrent import Gradient, Results, Step
from ..driver.grid import ceil_divide
from . import copy, elementwise, matmul
from .geometry import LIMIT

if TYPE_CHECKING:
    from ..libraries.library import Blas

# Consecutive units per thread, by the bytes of an element.
_UNITS: Final = {2: 4, 4: 4, 8: 2}
# The terms of a product that a thread of a sequence has: as many as registers hold weights. The units of a block, and
# the most sequences that it computes.
_KEYS: Final = (8, 16)
_SUBGROUP_LANES: Final = 32
_SEQUENCE_UNITS: Final = 16
_SEQUENCE_ROWS: Final = 16
# The most units of which one block computes all, and the most sequences that it does one after another.
_BLOCK_UNITS: Final = BLOCK_SIZE // 2
_SEQUENCES_OF_BLOCK: Final = 8
# Its weights in shared memory on NVIDIA, of which each thread has 22 accesses at most.
_BLOCK_SHARED: Final = 22 * BLOCK_SIZE * ACCESS_BYTES


def cell(build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, last: Operand) -> Buffer:
    """The new states of a cell."""
    return shared.cell_step(build, _Kernels(build), gates, products, bias, last)


def cell_gradient(
    build: ProgramBuilder, gates: Operand, products: Operand, bias: Operand | None, last: Operand, gradient: Operand
) -> tuple[Buffer, ...]:
    """The gradients of the gates, of the products of a GRU, and of the last state."""
    return shared.cell_gradient(build, _Kernels(build), gates, products, bias, last, gradient)


def sequence(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer:  # fmt: skip
    """The states after each step."""
    operands, grid = (gates, weight, bias, initial, lengths, reverse), _grid(build.facts, gates, initial)
    if grid is None:
        return shared.sequence(build, _Kernels(build), *operands, keep_products=False)[0]
    return _together(build, grid, *operands, keep_products=False)[0]


def sequence_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> Buffer | None:  # fmt: skip
    """Compute the steps with products by a library; None where one launch computes all steps."""
    if _grid(build.facts, gates, initial) is not None:
        return None
    operands = gates, weight, bias, initial, lengths, reverse
    return shared.sequence(build, _Kernels(build, library), *operands, keep_products=False)[0]


def sequence_with_products(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The states after each step, and the products."""
    operands, grid = (gates, weight, bias, initial, lengths, reverse), _grid(build.facts, gates, initial)
    if grid is None:
        return shared.sequence(build, _Kernels(build), *operands, keep_products=True)
    return _together(build, grid, *operands, keep_products=True)


def sequence_with_products_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """Compute the steps with products by a library; None where one launch computes all steps."""
    if _grid(build.facts, gates, initial) is not None:
        return None
    operands = gates, weight, bias, initial, lengths, reverse
    return shared.sequence(build, _Kernels(build, library), *operands, keep_products=True)


def sequence_gradient(
    build: ProgramBuilder, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand, states: Operand,
    products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The gradients of the gates, of the products of a GRU, and of the initial states."""
    operands = gates, weight, bias, initial, states, products, lengths, gradient, reverse
    grid = _grid(build.facts, gates, initial)
    if grid is None:
        return shared.sequence_gradient(build, _Kernels(build), *operands)
    return _gradient_together(build, grid, *operands)


def sequence_gradient_by_library(
    build: ProgramBuilder, library: Blas, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    states: Operand, products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """Compute the steps with products by a library; None where one launch computes all steps."""
    if _grid(build.facts, gates, initial) is not None:
        return None
    operands = gates, weight, bias, initial, states, products, lengths, gradient, reverse
    return shared.sequence_gradient(build, _Kernels(build, library), *operands)


def _together(
    build: ProgramBuilder, grid: _Grid, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    lengths: Operand | None, reverse: bool, *, keep_products: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """Compute the states after each step, and the products if they are saved, by one launch."""
    kernels = _Kernels(build)
    kind, (steps, rows, units) = shared.kind_of(initial), (gates.shape[0], *initial.shape[1:])
    result = dense(build.empty(gates.dtype, steps * initial.layout.elem_count), (kind.states, steps, rows, units))
    hidden, cells = shared.states_of(result)
    products = build.empty(gates.dtype, gates.layout.elem_count if keep_products else 0)
    last_hidden, last_cell = shared.states_of(kernels.contiguous(initial))
    gates = shared.contiguous_rows(kernels, gates)
    packed = arguments.recurrent_sequence(
        hidden=hidden.address, cell=address_of(cells), products=products.address if keep_products else NULL,
        gates=gates.address, weight=kernels.contiguous(weight).address,
        bias=address_of(shared.optional_contiguous(kernels, bias)), last_hidden=last_hidden.address,
        last_cell=address_of(last_cell), lengths=address_of(shared.optional_contiguous(kernels, lengths)),
        gates_step=gates.strides[0], gates_stride=gates.strides[1], steps=steps,
        rows=rows, units=units, group_rows=grid.rows, reverse=reverse,
    )  # fmt: skip
    _launch(build, grid, f"{kind.name}_{{}}_{gates.dtype.value}", packed, hidden)
    return result.storage, products


def _gradient_together(
    build: ProgramBuilder, grid: _Grid, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand,
    states: Operand, products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...]:  # fmt: skip
    """The gradients of the gates, of the products of a GRU, and of the initial states, by one launch."""
    kernels = _Kernels(build)
    kind, (steps, rows, units) = shared.kind_of(initial), (gates.shape[0], *initial.shape[1:])
    of_gates, of_initial = (build.empty(gates.dtype, each.layout.elem_count) for each in (gates, initial))
    of_products = of_gates if kind.states > 1 else build.empty(gates.dtype, gates.layout.elem_count)
    of_hidden, of_cell = shared.states_of(kernels.contiguous(gradient))
    gates = shared.contiguous_rows(kernels, gates)
    last, after = (shared.select(kernels.contiguous(each), kind.states - 1) for each in (initial, states))
    packed = arguments.recurrent_sequence_gradient(
        of_gates=of_gates.address, of_products=of_products.address, of_initial=of_initial.address,
        gates=gates.address, weight=kernels.contiguous(weight).address,
        bias=address_of(shared.optional_contiguous(kernels, bias)), initial=last.address, states=after.address,
        products=kernels.contiguous(products).address,
        lengths=address_of(shared.optional_contiguous(kernels, lengths)), gradient=of_hidden.address,
        cell_gradient=address_of(of_cell), gates_step=gates.strides[0],
        gates_stride=gates.strides[1], steps=steps, rows=rows, units=units, group_rows=grid.rows, reverse=reverse,
    )  # fmt: skip
    exchanged = dense(of_products, gates.shape)
    _launch(build, grid, f"{kind.name}_{{}}_gradient_{gates.dtype.value}", packed, exchanged)
    return (of_gates, of_initial) if of_products is of_gates else (of_gates, of_products, of_initial)


class _Grid(NamedTuple):
    """How a layer is divided into blocks: each has some units of up to `rows` sequences; all units if `keys` is 0."""

    blocks: int
    rows: int
    keys: int


def _launch(build: ProgramBuilder, grid: _Grid, name: str, packed: KernelArguments, exchanged: Operand) -> None:
    """Launch all steps. Blocks exchange elements of a result, which the kernel expects to have no value yet."""
    if grid.keys:
        build.fill(exchanged.address, 255, exchanged.layout.elem_count * exchanged.itemsize)
        build.launch("recurrent_sequence", f"{name.format('sequence')}_{grid.keys}", grid.blocks, packed)
    else:
        build.launch("recurrent_sequence", name.format("block"), grid.blocks, packed, _BLOCK_SHARED)


def _grid(facts: Facts, gates: Operand, initial: Operand) -> _Grid | None:
    """The grid of a launch of all steps; None if registers cannot hold the weight, or too few blocks run at once."""
    steps, (rows, units) = gates.shape[0], initial.shape[1:]
    keys = next((keys for keys in _KEYS if units <= keys * _SUBGROUP_LANES), None)
    across = ceil_divide(units, _SEQUENCE_UNITS)
    if keys is None or gates.dtype is DType.F64 or 0 in (steps, rows, units):
        return None
    if units <= _BLOCK_UNITS and rows <= _SEQUENCES_OF_BLOCK * facts.concurrent_blocks and steps < LIMIT:
        return _Grid(min(rows, facts.concurrent_blocks), ceil_divide(rows, facts.concurrent_blocks), 0)
    if facts.concurrent_blocks < across:
        return None
    of_group = ceil_divide(rows, facts.concurrent_blocks // across)
    if of_group > _SEQUENCE_ROWS or steps >= LIMIT:
        return None
    return _Grid(across * ceil_divide(rows, of_group), of_group, keys)


class _Kernels:
    """The kernels for cells, and a library or kernels for matrix products."""

    def __init__(self, build: ProgramBuilder, library: Blas | None = None) -> None:
        self.build = build
        self._library = library

    def contiguous(self, operand: Operand) -> Operand:
        return copy.contiguous(self.build, operand)

    def zero(self, operand: Operand) -> None:
        self.build.zero(operand.storage)

    def multiply(self, lhs: Operand, rhs: Operand, result: Address) -> None:
        (m, k), n = lhs.shape, rhs.shape[1]
        sizes = 1, m, n, k
        if self._library is None:
            matmul.multiply_by_kernel(self.build, lhs, rhs, sizes, result)
        else:
            matmul.multiply(self.build, self._library, lhs, rhs, sizes, result)

    def step(self, step: Step, last: Sequence[Operand], new: Sequence[Operand]) -> None:
        self._launch("step", step, arguments.recurrent_step, shared.step_fields(step, last, new))

    def gradient(self, step: Step, last: Operand, gradient: Gradient, results: Results) -> None:
        fields = shared.gradient_fields(step, last, gradient, results)
        self._launch("gradient", step, arguments.recurrent_gradient, fields)

    def add(self, target: Operand, source: Operand) -> None:
        elementwise.binary_assign(self.build, BinaryOp.ADD, target, source)

    def _launch(self, kind: str, step: Step, pack: Any, fields: dict[str, Any]) -> None:
        count, dtype = step.rows * step.units, step.gates.dtype
        if max(count, step.position) >= LIMIT:
            raise InvalidArgument(step.cell.name, f"{count} units are more than a kernel can number; divide the batch")
        units, bytes_together = _UNITS[dtype.itemsize], _UNITS[dtype.itemsize] * dtype.itemsize
        addresses = [value for value in fields.values() if isinstance(value, Address)]
        if (
            count <= self.build.facts.few_elements
            or step.units % units
            or step.gates.strides[0] % units
            or not all(address.is_aligned(bytes_together) for address in addresses)
        ):
            units = 1
        packed = pack(units=step.units, **fields)
        name = f"{step.cell.name}_{kind}_{dtype.value}_{units}"
        self.build.launch("recurrent", name, ceil_divide(count // units, BLOCK_SIZE), packed)
