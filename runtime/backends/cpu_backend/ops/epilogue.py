"""Epilogues of matrix products and convolutions, before the sums are rounded."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

from .....dtype import DType
from .....op import MethodOp, UnaryOp
from ....core.conv import ParamsConvolution
from ....core.layout import layout_of
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Operand, address_of, dense
from ..values import Function
from .native import contiguous, launch_map


class Epilogue(NamedTuple):
    """activation(sums * scale + shift + residual), of what is there.

    The scale and the shift have a number of the compute dtype for each channel, and the elements of the residual are in
    the order of the result's. The activation is the name of a kernel.
    """

    scale: Operand | None = None
    shift: Operand | None = None
    residual: Operand | None = None
    activation: str | None = None

    @classmethod
    def of(
        cls,
        build: ProgramBuilder,
        scale: Operand | None,
        shift: Operand | None,
        residual: Operand | None,
        activation: str | None,
        wide: DType,
    ) -> Self:
        """Return that of any operands, which are copied where kernels do not take them."""
        if scale is not None:
            scale = contiguous(build, converted(build, scale, wide))
        if shift is not None:
            shift = contiguous(build, converted(build, shift, wide))
        if residual is not None:
            residual = contiguous(build, residual)
        return cls(scale, shift, residual, None if activation is None else UnaryOp(activation).kernel(wide))

    def fields(self) -> dict[str, Any]:
        """The fields of a kernel's struct."""
        activation = self.activation
        return {
            "scale": address_of(self.scale),
            "shift": address_of(self.shift),
            "residual": address_of(self.residual),
            "activation": NULL if activation is None else Function("span", activation),
            "map_in_place": NULL if activation is None else Function("span", "map_in_place"),
        }


NO_EPILOGUE: Final = Epilogue()


def converted(build: ProgramBuilder, x: Operand, dtype: DType) -> Operand:
    """The elements in a dtype: where they are if they have it, else in a new buffer."""
    if x.dtype is dtype:
        return x
    result = dense(build.empty(dtype, x.layout.elem_count), x.shape)
    launch_map(build, MethodOp.TO_DTYPE.kernel(x.dtype, result=dtype), [result], [x])
    return result


def in_memory_order(x: Operand, params: ParamsConvolution) -> Operand:
    """The elements of (b, c, ..) with their dims as those of a convolution's result follow in memory."""
    order = layout_of(params.out_dims, params.channels_last).memory_order()
    return Operand(x.storage, x.layout.permute(order))
