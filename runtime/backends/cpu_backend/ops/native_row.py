"""Row formulas by the kernels for the host: functions of the elements along a dim and of reductions over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from .....kernels import host_arguments
from .....kernels.constants import ROWS
from .....op import MethodOp
from ....program.builder import ProgramBuilder
from ....program.values import NOWHERE, Buffer, Operand, Parameter, filled
from ..values import RUN_PARTS, THREADS, number_bits
from .native import copied

if TYPE_CHECKING:
    from ..kernels import HostKernels

_FAMILY: Final = "host_row"
# The arrays of RowFormula. No array of C++ is empty.
_OPERANDS: Final = 4
_RESULTS: Final = 3
_PARAMETERS: Final = max(host_arguments.PARAMETERS[_FAMILY], 1)


class _Strides(NamedTuple):
    """The strides of an operand whose dims before and after the row's are each collapsed to one."""

    outer: int
    length: int
    inner: int


def row(
    build: ProgramBuilder, kernels: HostKernels, op: MethodOp, *arguments: Operand | float | Parameter
) -> Buffer | tuple[Buffer, ...] | None:
    """As `row.row`; None where NumPy does it."""
    operands = [argument for argument in arguments if isinstance(argument, Operand)]
    dim, *parameters = [argument for argument in arguments if not isinstance(argument, Operand)]
    kernel = op.kernel(operands[0].dtype)
    if not isinstance(dim, int) or not kernels.has(_FAMILY, kernel):
        return None
    results, *_ = ROWS[op.value]
    outputs = along(build, _FAMILY, kernel, results, dim, operands, parameters)
    return outputs if results > 1 else outputs[0]


def along(
    build: ProgramBuilder,
    family: str,
    kernel: str,
    results: int,
    dim: int,
    operands: Sequence[Operand],
    parameters: Sequence[float | Parameter] = (),
) -> tuple[Buffer, ...]:
    """Return the results of a row formula along a dim, contiguous.

    The operands have one dtype and one shape, that of the results; one that lacks a dim has stride 0 there.
    """
    x = operands[0]
    shape, count = x.shape, x.layout.elem_count
    outputs = tuple([build.empty(x.dtype, count) for _ in range(results)])
    if count == 0:
        return outputs
    operands = [each if _strides_around(each, dim) else copied(build, each) for each in operands]
    strides = [_strides_around(each, dim) for each in operands]
    packed = host_arguments.row_formula(
        results=filled([output.address for output in outputs], _RESULTS, NOWHERE),
        operands=filled([each.address for each in operands], _OPERANDS, NOWHERE),
        run_parts=RUN_PARTS,
        parameters=filled([number_bits(number, x.dtype.compute) for number in parameters], _PARAMETERS, 0),
        rows=count // shape[dim], length=shape[dim], inner=math.prod(shape[dim + 1 :]),
        outer_strides=filled([each.outer for each in strides if each], _OPERANDS, 0),
        length_strides=filled([each.length for each in strides if each], _OPERANDS, 0),
        inner_strides=filled([each.inner for each in strides if each], _OPERANDS, 0),
        threads=THREADS,
    )  # fmt: skip
    build.launch(family, kernel, 1, packed, work=count)
    return outputs


def _strides_around(x: Operand, dim: int) -> _Strides | None:
    """Return the strides around a dim, or None where the dims before or after it do not collapse."""
    outer = _collapsed(x.shape[:dim], x.strides[:dim])
    inner = _collapsed(x.shape[dim + 1 :], x.strides[dim + 1 :])
    return None if outer is None or inner is None else _Strides(outer, x.strides[dim], inner)


def _collapsed(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of dims as one dim; None where their elements are not evenly spaced."""
    dims = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for (_, stride), (size, within) in pairwise(dims):
        if stride != size * within:
            return None
    return dims[-1][1] if dims else 0
