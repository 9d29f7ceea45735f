"""Recurrent layers by host kernels: a matrix product and a cell kernel per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .....dtype import DType
from .....kernels import host_arguments
from .....op import BinaryOp
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, Operand, address_of
from ... import recurrent as shared
from ...recurrent import Gradient, Results, Step
from ..values import RUN_PARTS, THREADS
from . import native, native_copy, native_few_rows, native_matmul

if TYPE_CHECKING:
    from ..kernels import HostKernels

# From this many steps on, products with a packed matrix save more time than packing takes.
_MANY_STEPS: Final = 8
# The most columns of a vector, and rows of a tile.
_LANES: Final = 16


def cell(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, products: Operand, bias: Operand | None, last: Operand
) -> Buffer | None:
    """As `recurrent.cell`; None if NumPy computes it."""
    own = _of(build, kernels, gates)
    return None if own is None else shared.cell_step(build, own, gates, products, bias, last)


def cell_gradient(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, products: Operand, bias: Operand | None,
    last: Operand, gradient: Operand,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """As `recurrent.cell_gradient`; None if NumPy computes it."""
    own = _of(build, kernels, gates)
    return None if own is None else shared.cell_gradient(build, own, gates, products, bias, last, gradient)


def sequence(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, weight: Operand, bias: Operand | None,
    initial: Operand, lengths: Operand | None, reverse: bool,
) -> Buffer | None:  # fmt: skip
    """As `recurrent.sequence`; None if NumPy computes it."""
    results = _sequence(build, kernels, gates, weight, bias, initial, lengths, reverse, keep_products=False)
    return None if results is None else results[0]


def sequence_with_products(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, weight: Operand, bias: Operand | None,
    initial: Operand, lengths: Operand | None, reverse: bool,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """As `recurrent.sequence_with_products`; None if NumPy computes it."""
    return _sequence(build, kernels, gates, weight, bias, initial, lengths, reverse, keep_products=True)


def sequence_gradient(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, weight: Operand, bias: Operand | None,
    initial: Operand, states: Operand, products: Operand, lengths: Operand | None, gradient: Operand, reverse: bool,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """As `recurrent.sequence_gradient`; None if NumPy computes it."""
    own = _of(build, kernels, gates)
    if own is None:
        return None
    steps, rows, units = (*gates.shape[:2], initial.shape[2])
    kind, dtype, work = shared.kind_of(initial), gates.dtype, gates.layout.elem_count
    if steps < _MANY_STEPS or 0 in (rows, units):
        operands = gates, weight, bias, initial, states, products, lengths, gradient
        return shared.sequence_gradient(build, own, *operands, reverse)
    of_gates, of_initial = build.empty(dtype, work), build.empty(dtype, kind.states * rows * units)
    of_products = build.empty(dtype, work) if kind.states == 1 else None
    has_direct = kind.states == 1 or lengths is not None
    has_tiles = dtype is DType.BF16 and kernels.has_tiles
    gates = shared.contiguous_rows(own, gates)
    packed = host_arguments.recurrent_sequence_gradient(
        of_gates=of_gates.address, of_products=NULL if of_products is None else of_products.address,
        of_initial=of_initial.address, direct=build.empty(dtype, rows * units).address if has_direct else NULL,
        products=own.contiguous(products).address, states=own.contiguous(states).address,
        gradient=own.contiguous(gradient).address,
        packed=_packed(build, dtype, rows, _rounded(units, kind.gates * _LANES), kind.gates * units, has_tiles),
        has_tiles=has_tiles, **_fields(own, gates, weight, bias, initial, lengths, reverse),
    )  # fmt: skip
    build.launch("host_recurrent", f"{kind.name}_sequence_gradient_{dtype.value}", 1, packed, work=work)
    return (of_gates, of_initial) if of_products is None else (of_gates, of_products, of_initial)


def _sequence(
    build: ProgramBuilder, kernels: HostKernels, gates: Operand, weight: Operand, bias: Operand | None,
    initial: Operand, lengths: Operand | None, reverse: bool, keep_products: bool,
) -> tuple[Buffer, ...] | None:  # fmt: skip
    """The states after each step, and the products; None if NumPy computes them."""
    own = _of(build, kernels, gates)
    if own is None:
        return None
    steps, rows, units = (*gates.shape[:2], initial.shape[2])
    kind, dtype, work = shared.kind_of(initial), gates.dtype, gates.layout.elem_count
    if steps < _MANY_STEPS or 0 in (rows, units):
        return shared.sequence(build, own, gates, weight, bias, initial, lengths, reverse, keep_products)
    has_tiles = dtype is DType.BF16 and kernels.has_tiles
    states = build.empty(dtype, kind.states * steps * rows * units)
    products = build.empty(dtype, work) if keep_products else None
    gates = shared.contiguous_rows(own, gates)
    packed = host_arguments.recurrent_sequence(
        states=states.address, products=NULL if products is None else products.address,
        packed=_packed(build, dtype, rows, kind.gates * _rounded(units, _LANES), units, has_tiles),
        has_tiles=has_tiles, **_fields(own, gates, weight, bias, initial, lengths, reverse),
    )  # fmt: skip
    build.launch("host_recurrent", f"{kind.name}_sequence_{dtype.value}", 1, packed, work=work)
    return (states,) if products is None else (states, products)


def _fields(
    own: _Kernels, gates: Operand, weight: Operand, bias: Operand | None, initial: Operand, lengths: Operand | None,
    reverse: bool,
) -> dict[str, Any]:  # fmt: skip
    """The fields that a sequence and its gradient share, for gates with contiguous rows."""
    return {
        "gates": gates.address, "weight": own.contiguous(weight).address,
        "bias": address_of(shared.optional_contiguous(own, bias)), "initial": own.contiguous(initial).address,
        "lengths": address_of(shared.optional_contiguous(own, lengths)), "run_parts": RUN_PARTS,
        "gates_step": gates.strides[0], "gates_stride": gates.strides[1], "steps": gates.shape[0],
        "rows": gates.shape[1], "length": initial.shape[2], "reverse": reverse, "threads": THREADS,
    }  # fmt: skip


def _packed(build: ProgramBuilder, dtype: DType, rows: int, columns: int, terms: int, has_tiles: bool) -> Address:
    """Memory for a weight of `columns` columns, and for rows, as panel_product.hpp has them."""
    if has_tiles:
        return build.empty(dtype, (columns + rows + -(-rows // _LANES)) * _rounded(terms, 2 * _LANES)).address
    return build.empty(dtype.compute, (columns + (0 if dtype.compute is dtype else rows)) * terms).address


def _rounded(count: int, step: int) -> int:
    """A count, rounded up to full steps."""
    return -(-count // step) * step


class _Kernels:
    """The host kernels for cells and matrix products."""

    def __init__(self, build: ProgramBuilder, kernels: HostKernels) -> None:
        self._build = build
        self._kernels = kernels

    def contiguous(self, operand: Operand) -> Operand:
        return native.contiguous(self._build, operand)

    def zero(self, operand: Operand) -> None:
        native_copy.fill(self._build, self._kernels, operand, 0)

    def multiply(self, lhs: Operand, rhs: Operand, result: Address) -> None:
        (m, k), n = lhs.shape, rhs.shape[1]
        columns = rhs.as_strided((n, k), rhs.strides[::-1])
        if native_few_rows.supports(self._kernels, lhs, columns, None):
            native_few_rows.multiply(self._build, lhs, columns, None, result)
        else:
            native_matmul.multiply(self._build, lhs, rhs, (1, m, n, k), None, result)

    def step(self, step: Step, last: Sequence[Operand], new: Sequence[Operand]) -> None:
        self._launch("step", step, host_arguments.recurrent_rows, shared.step_fields(step, last, new))

    def gradient(self, step: Step, last: Operand, gradient: Gradient, results: Results) -> None:
        fields = shared.gradient_fields(step, last, gradient, results)
        self._launch("gradient", step, host_arguments.recurrent_gradient_rows, fields)

    def add(self, target: Operand, source: Operand) -> None:
        native_copy.binary_assign(self._build, self._kernels, BinaryOp.ADD, target, source)

    def _launch(self, kind: str, step: Step, pack: Any, fields: dict[str, Any]) -> None:
        packed = pack(run_parts=RUN_PARTS, length=step.units, threads=THREADS, **fields)
        work = step.gates.layout.elem_count
        self._build.launch("host_recurrent", f"{step.cell.name}_{kind}_{step.gates.dtype.value}", 1, packed, work=work)


def _of(build: ProgramBuilder, kernels: HostKernels, gates: Operand) -> _Kernels | None:
    """The kernels for the dtype of gates; None if one is missing."""
    dtype = gates.dtype.value
    needed = (
        ("host_recurrent", f"lstm_step_{dtype}"),
        ("host_product", f"matmul_{dtype}"),
        ("span", f"fill_b{8 * gates.itemsize}"),
        ("span", BinaryOp.ADD.kernel(gates.dtype)),
    )
    return _Kernels(build, kernels) if all(kernels.has(*each) for each in needed) else None
