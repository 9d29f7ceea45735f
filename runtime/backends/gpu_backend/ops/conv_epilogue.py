"""Convolutions with an epilogue: scale and bias of each channel, a residual, and an activation, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .....dtype import DType
from .....op import BinaryOp, UnaryOp
from ....core.conv import ParamsConvolution
from ....core.layout import layout_of
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, along_channels, dense
from ..libraries.library import EpilogueParams
from . import conv, copy, elementwise

if TYPE_CHECKING:
    from ..libraries.library import Convolution, FusedConvolution


_CLIPS: Final = "relu", "relu6"


class _Epilogue(NamedTuple):
    """activation(x * scale + bias + residual)."""

    scale: Operand | None
    bias: Operand | None
    residual: Operand | None
    activation: str | None


def by_fused_library(
    build: ProgramBuilder,
    library: FusedConvolution,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer | None:
    """By a library that has epilogues; what it lacks follows by kernels of this package. None where it refuses.

    Libraries fuse 16-bit convolutions of channels last; of f32 the fused ones are far slower than the others.
    """
    epilogue = _Epilogue(scale, bias, residual, activation)
    otherwise = partial(convolve, x=x, kernel=kernel, params=params, **epilogue._asdict())
    # Products of single places, as in squeeze-and-excitation, are too short for a library to gain by fusing them.
    if conv.is_own(params) or (x.dtype.compute is not x.dtype and math.prod(params.result_sizes) == 1):
        return None
    if x.dtype.compute is x.dtype:
        product = conv.by_library(build, library, x, kernel, params, otherwise=otherwise)
        return None if product is None else _finished(build, x.dtype, product, epilogue, params)
    nothing, dims = _Epilogue(None, None, None, None), params.out_dims
    last = params._replace(channels_last=True)
    # Rounding first gives the same, and libraries may lose NaN.
    clip = activation if activation in _CLIPS else None
    fused = epilogue._replace(activation=None) if clip else epilogue
    # Zeros around the input are the library's, else elements; either with all of the epilogue, else with none of it.
    for is_padded in (False, True) if params.is_padded else (False,):
        source, problem = conv.with_padding(build, x, last) if is_padded else (x, last)
        for attempted, dtype in ((fused, x.dtype), (nothing, x.dtype.compute)):
            made: Any = build.attempt(_by_fused_library, library, source, kernel, attempted, problem, dtype, otherwise)
            if made is not None:
                if attempted is nothing:
                    made = _finished(build, x.dtype, made, epilogue, last)
                elif clip:
                    made = elementwise.unary(build, UnaryOp(clip), dense(made, (made.length,)))
                result: Buffer = made
                shown = Operand(result, layout_of(dims, channels_last=True))
                ordered: Buffer = conv.in_order(build, shown, params.channels_last).storage
                return ordered
    return None


def _by_fused_library(
    build: ProgramBuilder,
    library: FusedConvolution,
    x: Operand,
    kernel: Operand,
    epilogue: _Epilogue,
    params: ParamsConvolution,
    dtype: DType,
    otherwise: partial[Buffer],
) -> Buffer | None:
    """A convolution with an epilogue in one call, and a result of a dtype; None where the library refuses."""
    vectors = [
        each and copy.contiguous(build, elementwise.converted(build, each, x.dtype.compute)) for each in epilogue[:2]
    ]
    images = [each and conv.in_order(build, each, params.channels_last) for each in (x, kernel, epilogue.residual)]
    operands = [*images[:2], *vectors, images[2]]
    has_scale, has_bias, has_residual = [each is not None for each in operands[2:]]
    has = EpilogueParams(has_scale, has_bias, has_residual, epilogue.activation, dtype)
    result = build.empty(dtype, math.prod(params.out_dims))
    addresses = [each.address for each in operands if each is not None]
    call = library.fused_convolution(x.dtype, params, has, *addresses, result.address)
    return result if build.append(call, otherwise) else None


def by_images(
    build: ProgramBuilder,
    library: Convolution,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer | None:
    """By a library of images in the compute dtype; None where it refuses the convolution."""
    epilogue = _Epilogue(scale, bias, residual, activation)
    otherwise = partial(convolve, x=x, kernel=kernel, params=params, **epilogue._asdict())

    def product(build: ProgramBuilder, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer | None:
        return conv.by_library(build, library, x, kernel, params, otherwise=otherwise)

    return _composed(build, product, x, kernel, epilogue, params)


def convolve(
    build: ProgramBuilder,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer:
    """By kernels of this package: the convolution and each step of the epilogue, in the compute dtype."""
    epilogue = _Epilogue(scale, bias, residual, activation)
    result = _composed(build, conv.convolve, x, kernel, epilogue, params)
    assert result is not None, "own kernels take any convolution"
    return result


def _composed(
    build: ProgramBuilder,
    product: Callable[[ProgramBuilder, Operand, Operand, ParamsConvolution], Buffer | None],
    x: Operand,
    kernel: Operand,
    epilogue: _Epilogue,
    params: ParamsConvolution,
) -> Buffer | None:
    wide = x.dtype.compute
    result = product(build, elementwise.converted(build, x, wide), elementwise.converted(build, kernel, wide), params)
    return None if result is None else _finished(build, x.dtype, result, epilogue, params)


def _finished(
    build: ProgramBuilder, dtype: DType, product: Buffer, epilogue: _Epilogue, params: ParamsConvolution
) -> Buffer:
    """The epilogue of a convolution in the compute dtype, whose elements are in the order of the parameters."""
    dims = params.out_dims
    made = Operand(product, layout_of(dims, params.channels_last))

    def in_memory(x: Operand) -> Operand:
        """The elements as the dims of the result follow in memory."""
        return Operand(x.storage, x.layout.permute(made.layout.memory_order()))

    steps = [(BinaryOp.MUL, epilogue.scale), (BinaryOp.ADD, epilogue.bias), (BinaryOp.ADD, epilogue.residual)]
    result = in_memory(made)
    for op, operand in steps:
        if operand is not None:
            if operand is epilogue.residual:
                other = elementwise.converted(build, in_memory(operand), product.dtype)
            else:
                other = in_memory(along_channels(elementwise.converted(build, operand, product.dtype), dims))
            result = elementwise.applied(build, op, result, other)
    if epilogue.activation is not None:
        result = elementwise.applied(build, UnaryOp(epilogue.activation), result)
    rounded: Buffer = elementwise.converted(build, result, dtype).storage
    return rounded
