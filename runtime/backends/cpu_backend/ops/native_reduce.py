"""Reductions by the kernels for the host."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from .....kernels import host_arguments
from .....kernels.constants import FOLD_COLUMNS, FOLD_LENGTH
from .....op import BinaryOp, MethodOp, ReduceOp, UnaryOp
from ....program.builder import ProgramBuilder
from ....program.values import NOWHERE, Buffer, Operand, Parameter, dense, filled
from ..values import RUN_PARTS, THREADS, number_bits
from .native import contiguous, elementwise

if TYPE_CHECKING:
    from ..kernels import HostKernels

# Of a number of a state, and of a state that is a rank and a place.
_NUMBER_BYTES: Final = 8
_PLACED_BYTES: Final = 16
# Columns are split into so many parts where there are fewer, each of no fewer elements.
_PARTS: Final = 128
_LEAST_ELEMENTS: Final = 1 << 16


def reduce(
    build: ProgramBuilder,
    kernels: HostKernels,
    op: ReduceOp | MethodOp,
    x: Operand,
    dims: tuple[int, ...],
    *parameters: float | Parameter,
) -> Buffer | None:
    """As `reduce.reduce`; None where NumPy does it."""
    dtype, count = x.dtype, x.layout.elem_count
    if count == 0 or not dims or not kernels.has("fold", f"{op.value}_{dtype.value}_rows"):
        return None
    x, dims = _adjacent(build, x, dims)
    shape = x.shape
    length, inner = math.prod(shape[dim] for dim in dims), math.prod(shape[max(dims) + 1 :])
    outputs = count // length
    if inner == 1:
        parts, pack = -(-length // FOLD_LENGTH), host_arguments.fold_rows
    else:
        columns = outputs // inner * -(-inner // FOLD_COLUMNS)
        split = -(-length // max(min(_PARTS // columns, count // _LEAST_ELEMENTS), 1))
        parts, pack = -(-length // split), partial(host_arguments.fold_columns, inner=inner, split=split)
    states = build.allocate(outputs * parts * max(_PLACED_BYTES, _NUMBER_BYTES * op.numbers)) if parts > 1 else None
    result = build.empty(op.result_of(dtype), outputs)
    bits = [number_bits(number, dtype.compute) for number in parameters]
    packed = pack(
        result=result.address, source=x.address, states=NOWHERE if states is None else states.address,
        run_parts=RUN_PARTS, outputs=outputs, length=length, threads=THREADS,
        parameters=filled(bits, host_arguments.PARAMETERS["fold"], 0),
    )  # fmt: skip
    build.launch("fold", f"{op.value}_{dtype.value}_{'rows' if inner == 1 else 'columns'}", 1, packed, work=count)
    return result


def _adjacent(build: ProgramBuilder, x: Operand, dims: tuple[int, ...]) -> tuple[Operand, tuple[int, ...]]:
    """Contiguous elements whose dims follow each other: those of an operand, or a copy whose dims come last."""
    if x.layout.is_contiguous and max(dims) - min(dims) + 1 == len(dims):
        return x, dims
    rank = len(x.shape)
    order = [*(dim for dim in range(rank) if dim not in dims), *sorted(dims)]
    return contiguous(build, Operand(x.storage, x.layout.permute(order))), tuple(range(rank - len(dims), rank))


def ratio_of_sums(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, divisor: Operand
) -> tuple[Buffer, ...] | None:
    """As `loss.ratio_of_sums`; None where NumPy does it."""
    sums = []
    for operand in (x, divisor):
        total = reduce(build, kernels, ReduceOp.SUM, operand, tuple(range(len(operand.shape))))
        if total is None:
            return None
        sums.append(dense(total, ()))
    quotient = elementwise(build, kernels, BinaryOp.DIV, *sums)
    reciprocal = elementwise(build, kernels, UnaryOp.RECIP, sums[1])
    if quotient is None or reciprocal is None:
        return None
    return quotient, sums[1].storage, reciprocal
