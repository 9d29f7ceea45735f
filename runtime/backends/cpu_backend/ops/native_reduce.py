"""Reductions by the kernels for the host."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from .....kernels import host_arguments
from .....kernels.constants import FOLD_COLUMNS, FOLD_LENGTH
from .....op import BinaryOp, MethodOp, ReduceOp, UnaryOp
from ....core.layout import collapse
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, Parameter, dense, filled
from ...numbers import element_bits
from ..values import RUN_PARTS, THREADS
from .native import copied, elementwise, runs_of

if TYPE_CHECKING:
    from ..kernels import HostKernels

# Of a number of a state, and of a state that is a rank and an index.
_NUMBER_BYTES: Final = 8
_PLACED_BYTES: Final = 16
# Columns are split into at least this many parts, each of no fewer elements.
_PARTS: Final = 128
_MIN_ELEMENTS: Final = 1 << 16
# Rows of columns are added one after the other, which for more of them would make sums inaccurate.
_MAX_ROWS: Final = 1 << 11


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
    length = prod([x.layout.shape[dim] for dim in dims])
    outputs = count // length
    rows = _contiguous_rows(x, dims, length, outputs) if x.layout.is_contiguous else None
    if rows is None:
        order = [*(dim for dim in range(len(x.shape)) if dim not in dims), *sorted(dims)]
        shape, strides = x.shape, x.strides
        x = x.as_strided([shape[dim] for dim in order], [strides[dim] for dim in order])
        rank = len(order) - len(dims)
        rows = _rows(x, rank)
        if rows is None:
            x = copied(build, x)
            rows = _rows(x, rank)
            assert rows is not None, "a copy is dense"
    if rows.inner == 0:
        parts, pack = -(-length // FOLD_LENGTH), host_arguments.fold_rows
    else:
        columns = outputs // rows.inner * -(-rows.inner // FOLD_COLUMNS)
        split_length = min(-(-length // max(min(_PARTS // columns, count // _MIN_ELEMENTS), 1)), _MAX_ROWS)
        parts = -(-length // split_length)
        pack = partial(host_arguments.fold_columns, inner=rows.inner, split=split_length)
    states = build.allocate(outputs * parts * max(_PLACED_BYTES, _NUMBER_BYTES * op.numbers)) if parts > 1 else None
    result = build.empty(op.result_of(dtype), outputs)
    bits = [element_bits(number, dtype.compute) for number in parameters]
    run, run_stride, step = rows.runs
    outer_run, outer_run_stride, outer_stride = rows.outer
    packed = pack(
        result=result.address, source=x.address, states=NULL if states is None else states.address,
        run_parts=RUN_PARTS, outputs=outputs, length=length, run=run, run_stride=run_stride, step=step,
        outer_run=outer_run, outer_run_stride=outer_run_stride, outer_stride=outer_stride,
        threads=THREADS, parameters=filled(bits, host_arguments.PARAMETERS["fold"], 0),
    )  # fmt: skip
    kind = "columns" if rows.inner else "rows"
    build.launch("fold", f"{op.value}_{dtype.value}_{kind}", 1, packed, work=count)
    return result


class _Rows(NamedTuple):
    """Where the elements that are reduced to one are, as the kernels take them."""

    runs: tuple[int, int, int]
    # The same of rows, or of groups of columns, which are never none.
    outer: tuple[int, int, int]
    # The columns side by side; 0 where the elements of a row are.
    inner: int


def _contiguous_rows(x: Operand, dims: tuple[int, ...], length: int, outputs: int) -> _Rows | None:
    """As `_rows` of contiguous elements, most of which are reduced along the last dims or the first ones; else None."""
    rank = len(x.layout.shape)
    first, last = min(dims), max(dims)
    if last - first >= len(dims):
        return None
    if last == rank - 1:
        return _Rows((0, 0, 0), (outputs, 0, length * x.itemsize) if outputs > 1 else (1, 0, 0), 0)
    if first == 0 and length > 1 and outputs > 1:
        return _Rows((length, 0, outputs * x.itemsize), (1, 0, 0), outputs)
    return None


def _rows(x: Operand, rank: int) -> _Rows | None:
    """Rows, or columns, of the dims of an operand from one on; None if they have more strides than the kernels."""
    shape, strides, itemsize = x.shape, x.strides, x.itemsize
    runs = runs_of(shape[rank:], strides[rank:], itemsize)
    counts, (strides,) = collapse(shape[:rank], (strides[:rank],))
    # Elements of a row are read side by side where they are, or else those of several rows.
    inner = counts[-1] if strides[-1:] == (1,) and runs is not None and runs[2] not in (0, itemsize) else 0
    if inner:
        counts, strides = counts[:-1], strides[:-1]
    if runs is None or len(counts) > 2:
        return None
    *outer, last = [0, *[stride * itemsize for stride in strides]]
    return _Rows(runs, (counts[-1] if counts else 1, sum(outer), last), inner)


def ratio_of_sums(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, divisor: Operand, saves: bool = True
) -> tuple[Buffer, ...] | None:
    """As `loss.ratio_of_sums`; None where NumPy does it."""
    sums = []
    for operand in (x, divisor):
        total = reduce(build, kernels, ReduceOp.SUM, operand, tuple(range(len(operand.shape))))
        if total is None:
            return None
        sums.append(dense(total, ()))
    quotient = elementwise(build, kernels, BinaryOp.DIV, *sums)
    if quotient is None or not saves:
        return None if quotient is None else (quotient,)
    reciprocal = elementwise(build, kernels, UnaryOp.RECIP, sums[1])
    return None if reciprocal is None else (quotient, sums[1].storage, reciprocal)
