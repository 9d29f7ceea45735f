"""The ops of fused functions on the CPU: kernels for the host, and functions of NumPy where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .....dtype import DType
from .....op import ElementwiseOp
from ....program.builder import ProgramBuilder
from ....program.fused_function import IndexOp
from ....program.program import HostCall
from ....program.values import Buffer, Parameter, dense
from ...array_backend.ops.fused import FusedOps, row_arguments
from . import elementwise, native, native_copy, native_index, native_reduce, native_row

if TYPE_CHECKING:
    from ..kernels import HostKernels


class HostOps(FusedOps):
    """The ops of the CPU, with the kernels of this machine if there are any."""

    def __init__(self, kernels: HostKernels | None) -> None:
        self._kernels = kernels

    def elementwise(
        self, build: ProgramBuilder, op: ElementwiseOp, *parts: Any, result: DType | None
    ) -> Buffer | HostCall:
        kernels = self._kernels
        outputs = None if kernels is None else native.elementwise(build, kernels, op, *parts, result=result)
        return elementwise.elementwise(build, op, *parts, result=result) if outputs is None else outputs

    def row(
        self,
        build: ProgramBuilder,
        op: Any,
        operands: Sequence[Any],
        dim: int,
        numbers: Sequence[Any],
        requested: Sequence[bool],
    ) -> tuple[Buffer, ...]:
        kernels, arguments = self._kernels, row_arguments(op, operands, dim, numbers, requested)
        outputs = None if kernels is None else native_row.row(build, kernels, op, *arguments)
        if outputs is None:
            return super().row(build, op, operands, dim, numbers, requested)
        return (outputs,) if isinstance(outputs, Buffer) else outputs

    def row_numbers(
        self, build: ProgramBuilder, op: Any, operands: Sequence[Any], others: Sequence[Any]
    ) -> tuple[Buffer, ...]:
        kernels, outputs = self._kernels, None
        if kernels is not None:
            outputs = native_row.row(build, kernels, op, *operands, *others)
        if outputs is None:
            return super().row_numbers(build, op, operands, others)
        return (outputs,) if isinstance(outputs, Buffer) else outputs

    def ratio_of_sums(self, build: ProgramBuilder, x: Any, divisor: Any) -> tuple[Buffer, ...]:
        kernels = self._kernels
        outputs = None if kernels is None else native_reduce.ratio_of_sums(build, kernels, x, divisor)
        return super().ratio_of_sums(build, x, divisor) if outputs is None else outputs

    def reduce(
        self, build: ProgramBuilder, op: Any, x: Any, dims: tuple[int, ...], numbers: Sequence[Any] = ()
    ) -> Buffer | HostCall:
        kernels = self._kernels
        outputs = None if kernels is None else native_reduce.reduce(build, kernels, op, x, dims, *numbers)
        return super().reduce(build, op, x, dims, numbers) if outputs is None else outputs

    def indexed(self, build: ProgramBuilder, op: IndexOp, x: Any, indexes: Any, dim: int, size: int) -> Buffer:
        kernels, outputs = self._kernels, None
        if kernels is not None and op is IndexOp.GATHER:
            outputs = native_index.gather(build, kernels, x, indexes, dim)
        return super().indexed(build, op, x, indexes, dim, size) if outputs is None else outputs

    def element(self, build: ProgramBuilder, like: Buffer, number: Parameter, dtype: DType) -> Buffer:
        outputs, kernels = build.empty(dtype, 1), self._kernels
        is_filled = kernels is not None and native_copy.fill(build, kernels, dense(outputs, (1,)), number) is not None
        return outputs if is_filled else super().element(build, like, number, dtype)
