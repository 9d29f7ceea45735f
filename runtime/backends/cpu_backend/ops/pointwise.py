"""Convolutions whose windows are one element, as products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....core.conv import ParamsConvolution
from ....core.layout import channels_last_order
from ....host.weights import FEW_ROWS
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from . import native_few_rows, native_matmul
from .epilogue import NO_EPILOGUE, Epilogue
from .native import copied

if TYPE_CHECKING:
    from ..kernels import HostKernels


class Product(NamedTuple):
    """The arguments of a product of matrices, whose result has the elements of a convolution in their order."""

    lhs: Operand
    rhs: Operand
    bmnk: tuple[int, int, int, int]
    channels_are_columns: bool

    @classmethod
    def of(cls, build: ProgramBuilder, x: Operand, kernel: Operand, params: ParamsConvolution) -> Product | None:
        """That of a convolution; None where windows are longer, reach beyond the input, or channels have groups."""
        if params.taps > 1 or params.groups > 1 or params.is_padded or params.is_empty:
            return None
        batches, positions = params.out_dims[0], math.prod(params.result_sizes)
        (inner, outer), (first, second, *steps) = params.channels, x.strides
        strides = [step * stride for step, stride in zip(params.stride, steps, strict=True)]
        seen = x.as_strided((batches, inner, *params.result_sizes), (first, second, *strides))
        (by_outer, by_inner), batch = kernel.strides[:2], (batches, outer, positions, inner)
        if params.channels_last or positions == 1:
            last = Operand(seen.storage, seen.layout.permute(channels_last_order(len(x.shape))))
            rows = _reshaped(build, last, (batches * positions, inner))
            columns = kernel.as_strided((inner, outer), (by_inner, by_outer))
            return cls(rows, columns, (1, batches * positions, outer, inner), channels_are_columns=True)
        weights = kernel.as_strided((batches, outer, inner), (0, by_outer, by_inner))
        return cls(weights, _reshaped(build, seen, (batches, inner, positions)), batch, channels_are_columns=False)

    @property
    def has_few_rows(self) -> bool:
        """Whether kernels read the matrix of the other side once for all rows."""
        batches, rows, _, _ = self.bmnk
        return batches == 1 and rows <= FEW_ROWS

    def by_kernels(
        self, build: ProgramBuilder, kernels: HostKernels, epilogue: Epilogue = NO_EPILOGUE
    ) -> Buffer | None:
        """The result; None where BLAS computes it."""
        sides = self.lhs, self.rhs, self.bmnk
        few = native_few_rows.matmul(build, kernels, *sides) if epilogue is NO_EPILOGUE else None
        if few is not None:
            return few
        return native_matmul.matmul(build, kernels, *sides, None, epilogue, self.channels_are_columns)


def _reshaped(build: ProgramBuilder, x: Operand, shape: Sequence[int]) -> Operand:
    """The elements with other dims: where they are, or in a copy."""
    layout = x.layout.reshape(shape)
    return dense(copied(build, x).storage, shape) if layout is None else Operand(x.storage, layout)
