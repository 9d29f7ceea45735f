"""Reductions by the kernels for the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import FOLD_COLUMNS, FOLD_LENGTH
from .....op import BinaryOp, MethodOp, ReduceOp, UnaryOp
from ....core.layout import Layout
from ....helpers.host_memory import tells_lack_of_memory
from ....host.array import contiguous
from ....program.values import NOWHERE
from ...array_backend.ops.operand import Operand
from ...plan import Call, planned_by
from ..kernels import THREADS, Number, Result, Scratch, bits_of
from .native import by_plan, elementwise, filled, source_of

if TYPE_CHECKING:
    from ..kernels import HostKernels
    from ..storage import CpuStorage

# Of a number of a state, and of a state that is a rank and a place.
_NUMBER_BYTES: Final = 8
_PLACED_BYTES: Final = 16
# Columns are split into so many parts where there are fewer, each of no fewer elements.
_PARTS: Final = 128
_LEAST_ELEMENTS: Final = 1 << 16


def _plan(
    kernels: HostKernels, op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...], *parameters: float
) -> Callable[..., CpuStorage] | None:
    """What does as `reduce` with other storages and numbers; None where elements do not lie as kernels take them."""
    layout, dtype = operand.layout, operand.dtype
    shape = layout.shape
    if layout.elem_count == 0 or not dims or not layout.is_contiguous or max(dims) - min(dims) + 1 != len(dims):
        return None
    last = max(dims)
    inner = math.prod(shape[last + 1 :])
    length = math.prod(shape[dim] for dim in dims)
    outputs = layout.elem_count // length
    kernel = kernels.address("fold", f"{op.value}_{dtype.value}_{'rows' if inner == 1 else 'columns'}")
    if kernel is None:
        return None
    bits = [Number(bits_of(number, dtype.compute)) for number in parameters]
    if inner == 1:
        parts, pack = -(-length // FOLD_LENGTH), host_arguments.fold_rows
    else:
        columns = outputs // inner * -(-inner // FOLD_COLUMNS)
        split = -(-length // max(min(_PARTS // columns, layout.elem_count // _LEAST_ELEMENTS), 1))
        parts, pack = -(-length // split), partial(host_arguments.fold_columns, inner=inner, split=split)
    state = max(_PLACED_BYTES, _NUMBER_BYTES * op.numbers)
    packed = pack(
        result=Result(outputs, op.result_of(dtype)), source=source_of(operand, 0),
        states=Scratch(outputs * parts * state, DType.U8) if parts > 1 else NOWHERE, run_parts=kernels.run_parts,
        outputs=outputs, length=length, threads=THREADS, parameters=filled(bits, host_arguments.PARAMETERS["fold"], 0),
    )  # fmt: skip
    run: Callable[..., CpuStorage] = kernels.call(kernel, packed, operand.storage, compute=dtype.compute)
    return run


@planned_by(_plan)
@tells_lack_of_memory
def reduce(
    kernels: HostKernels, op: ReduceOp | MethodOp, operand: Operand, dims: tuple[int, ...], *parameters: float
) -> CpuStorage | None:
    """As `reduce.reduce`; None where NumPy does it."""
    run = _plan(kernels, op, operand, dims, *parameters)
    if run is not None:
        return run(operand.storage)
    is_there = kernels.address("fold", f"{op.value}_{operand.dtype.value}_rows") is not None
    if operand.layout.elem_count == 0 or not dims or not is_there:
        return None
    # The reduced dims come last, and their elements side by side.
    shape = operand.layout.shape
    order = [*(dim for dim in range(len(shape)) if dim not in dims), *sorted(dims)]
    held = contiguous(operand.array.reshape(shape).transpose(order))
    rank = len(shape) - len(dims)
    transposed = Operand(operand.result(held), Layout.contiguous(held.shape))
    return reduce(kernels, op, transposed, tuple(range(rank, len(shape))), *parameters)


@by_plan
def ratio_of_sums(kernels: HostKernels, x: Operand, divisor: Operand) -> Callable[..., tuple[CpuStorage, ...]] | None:
    """As `loss.ratio_of_sums`; None where NumPy does it."""
    of_x, of_divisor = (_plan(kernels, ReduceOp.SUM, it, tuple(range(len(it.layout.shape)))) for it in (x, divisor))
    if of_x is None or of_divisor is None:
        return None
    sums = [Operand(of(it.storage), Layout.contiguous(())) for of, it in ((of_x, x), (of_divisor, divisor))]
    quotient = Call(0, elementwise, (kernels, BinaryOp.DIV, *sums), {}).quicker
    reciprocal = Call(0, elementwise, (kernels, UnaryOp.RECIP, sums[1]), {}).quicker
    if quotient is None or reciprocal is None:
        return None

    def run(own: CpuStorage, other: CpuStorage) -> tuple[CpuStorage, ...]:
        total, below = of_x(own), of_divisor(other)
        return quotient(total, below), below, reciprocal(below)

    return run
