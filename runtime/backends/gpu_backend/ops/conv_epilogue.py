"""Convolutions with an epilogue: scale and bias of each channel, a residual, and an activation, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .....dtype import HALF, DType
from .....kernels.constants import ACCESS_BYTES
from .....op import BinaryOp, UnaryOp
from ....core.conv import ParamsConvolution
from ....core.layout import layout_of
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, along_channels, dense
from ..driver.grid import ceil_divide
from ..libraries.library import EpilogueParams
from . import conv, copy, depthwise, elementwise, implicit_gemm, linear

if TYPE_CHECKING:
    from ..libraries.library import BiasedBlas, Convolution, FusedConvolution


_CLIPS: Final = "relu", "relu6"
# In so small images libraries split the sums of a plain convolution over more blocks than with an epilogue.
_FEW_PIXELS: Final = 64


class _Epilogue(NamedTuple):
    """activation(x * scale + bias + residual)."""

    scale: Operand | None
    bias: Operand | None
    residual: Operand | None
    activation: str | None


_NOTHING: Final = _Epilogue(None, None, None, None)


def is_one_kernel(
    library: Convolution | None, dtype: DType, params: ParamsConvolution, activation: str | None, has_residual: bool
) -> bool:
    """Return True for epilogues in the kernel of the convolution: others are faster as a kernel of their own."""
    if depthwise.is_depthwise(params):
        return params.channels_last and not has_residual and activation in depthwise.ACTIVATIONS
    if library is None:
        return conv.is_product(dtype, params) and activation in depthwise.ACTIVATIONS
    is_last = params.channels_last or params.taps > 1
    is_aligned = params.channels[0] * dtype.itemsize % ACCESS_BYTES == 0
    is_large = math.prod(params.sizes) > _FEW_PIXELS
    has_kernel = hasattr(library, "fused_convolution") and dtype in HALF and activation in (None, "relu")
    return has_kernel and is_last and is_aligned and is_large


def by_layer_library(
    build: ProgramBuilder,
    library: BiasedBlas,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer | None:
    """A convolution whose only window is the input, as a linear layer; None of any other, and where it refuses."""
    epilogue = _Epilogue(scale, bias, residual, activation)
    if not _is_layer(x, epilogue, params):
        return None
    result = linear.by_fused_library(build, library, *_matrices(build, x, kernel), bias)
    return None if result is None else _clipped(build, result, activation)


def _is_layer(x: Operand, epilogue: _Epilogue, params: ParamsConvolution) -> bool:
    """Return True for the product of two matrices and a bias, as in squeeze-and-excitation: one launch."""
    is_whole = params.kernel == params.sizes and {*params.result_sizes} == {1} and not params.is_padded
    if not is_whole or params.groups > 1 or params.is_empty:
        return False
    scale, bias, residual, activation = epilogue
    is_biased = scale is None and residual is None and bias is not None and bias.dtype is x.dtype
    return is_biased and (activation is None or activation in _CLIPS)


def _matrices(build: ProgramBuilder, x: Operand, kernel: Operand) -> tuple[Operand, Operand]:
    """The operands of a linear layer: (b, c_in * taps) and (c_out, c_in * taps)."""
    one, other = [copy.reshaped(build, each, (each.shape[0], math.prod(each.shape[1:]))) for each in (x, kernel)]
    return one, other


def _clipped(build: ProgramBuilder, result: Buffer, activation: str | None) -> Buffer:
    """A rounded result after a clip, which gives what clipping before rounding gives; libraries may lose NaN there."""
    if activation is None:
        return result
    clipped: Buffer = elementwise.unary(build, UnaryOp(activation), dense(result, (result.length,)))
    return clipped


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
    is_short = x.dtype.compute is not x.dtype
    if conv.is_own(params) or (is_short and _is_layer(x, epilogue, params)):
        return None
    if not is_short:
        product = conv.by_library(build, library, x, kernel, params, otherwise=otherwise)
        return None if product is None else _finished(build, x.dtype, product, epilogue, params)
    fused: Any = build.attempt(_with_channels_last, library, x, kernel, epilogue, params, otherwise)
    if fused is None:
        return by_images(build, library, x, kernel, scale, bias, residual, activation, params)
    result = Operand(fused, layout_of(params.out_dims, channels_last=True))
    ordered: Buffer = conv.in_order(build, result, params.channels_last).storage
    return ordered


def _with_channels_last(
    build: ProgramBuilder,
    library: FusedConvolution,
    x: Operand,
    kernel: Operand,
    epilogue: _Epilogue,
    params: ParamsConvolution,
    otherwise: partial[Buffer],
) -> Buffer | None:
    """A result of 16 bits with channels last: with all of the epilogue, else without the activation, else with none."""
    x, kernel, params = _with_aligned_channels(build, x, kernel, params._replace(channels_last=True))
    dtype, wide = x.dtype, x.dtype.compute
    attempts = [(epilogue, dtype), (_NOTHING, wide)]
    if epilogue.activation is not None:
        # Clipping after rounding gives the same.
        attempts.insert(1, (epilogue._replace(activation=None), dtype if epilogue.activation in _CLIPS else wide))
    # Zeros around the input are the library's, else elements.
    for is_padded in (False, True) if params.is_padded else (False,):
        source, problem = conv.with_padding(build, x, params) if is_padded else (x, params)
        for attempted, result_dtype in attempts:
            operands = library, source, kernel, attempted, problem, result_dtype, otherwise
            product: Any = build.attempt(_by_fused_library, *operands)
            if product is None:
                continue
            if attempted is epilogue:
                fused: Buffer = product
                return fused
            remaining = epilogue if attempted is _NOTHING else _NOTHING._replace(activation=epilogue.activation)
            return _finished(build, dtype, product, remaining, params)
    return None


def _with_aligned_channels(
    build: ProgramBuilder, x: Operand, kernel: Operand, params: ParamsConvolution
) -> tuple[Operand, Operand, ParamsConvolution]:
    """Pad the channels of input and kernel with zeros, so that pixels are aligned accesses, as libraries need them."""
    channels = params.channels[0]
    length = ACCESS_BYTES // x.itemsize
    aligned = length * ceil_divide(channels, length)
    if params.groups > 1 or channels == aligned:
        return x, kernel, params

    def extended(source: Operand) -> Operand:
        dims = source.shape[0], aligned, *source.shape[2:]
        target = Operand(build.empty(source.dtype, math.prod(dims)), layout_of(dims, channels_last=True))
        build.zero(target.storage)
        copy.copy(build, source, Operand(target.storage, target.layout.narrow(1, 0, channels)))
        return target

    x, kernel = extended(x), extended(kernel)
    return x, kernel, params._replace(input_dims=tuple(x.shape), kernel_dims=tuple(kernel.shape))


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
    wide = x.dtype.compute
    vectors = [each and _as_vector(build, each, x.dtype if each.dtype is x.dtype else wide) for each in epilogue[:2]]
    scale, bias = vectors
    images = [each and conv.in_order(build, each, params.channels_last) for each in (x, kernel, epilogue.residual)]
    operands = [*images[:2], scale, bias, images[2]]
    has = EpilogueParams(scale and scale.dtype, bias and bias.dtype, images[2] is not None, epilogue.activation, dtype)
    result = build.empty(dtype, math.prod(params.out_dims))
    addresses = [each.address for each in operands if each is not None]
    call = library.fused_convolution(x.dtype, params, has, *addresses, result.address)
    return result if build.append(call, otherwise) else None


def _as_vector(build: ProgramBuilder, vector: Operand, dtype: DType) -> Operand:
    """A scale or a bias in a dtype, contiguous."""
    return copy.contiguous(build, elementwise.converted(build, vector, dtype))


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
    if _is_layer(x, epilogue, params):
        return None
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
    if _is_layer(x, epilogue, params):
        return _clipped(build, linear.by_kernel(build, *_matrices(build, x, kernel), bias), activation)
    fused: Any = build.attempt(_by_depthwise_kernel, x, kernel, epilogue, params)
    if fused is not None:
        last: Buffer = fused
        return last
    if conv.is_product(x.dtype, params):
        return _in_product(build, x, kernel, epilogue, params)
    result = _composed(build, conv.convolve, x, kernel, epilogue, params)
    assert result is not None, "own kernels take any convolution"
    return result


def _by_depthwise_kernel(
    build: ProgramBuilder, x: Operand, kernel: Operand, epilogue: _Epilogue, params: ParamsConvolution
) -> Buffer | None:
    """A depthwise convolution with channels last; None of any other, and of what its kernels lack."""
    scale, bias, residual, activation = epilogue
    if not depthwise.is_depthwise(params) or residual is not None:
        return None
    scale, bias = [each and _aligned_vector(build, each, x.dtype.compute) for each in (scale, bias)]
    after = depthwise.Epilogue(scale, bias, activation)
    return depthwise.convolve_last(build, "fused_convolution", x, kernel, params, epilogue=after)


def _aligned_vector(build: ProgramBuilder, vector: Operand, dtype: DType) -> Operand:
    vector = _as_vector(build, vector, dtype)
    return vector if vector.address.is_aligned() else copy.copied(build, vector)


def _in_product(
    build: ProgramBuilder, x: Operand, kernel: Operand, epilogue: _Epilogue, params: ParamsConvolution
) -> Buffer:
    """By the kernel of products in the dtype, which adds the epilogue before it rounds, but for rare activations."""
    wide, activation = x.dtype.compute, epilogue.activation
    is_all = activation in depthwise.ACTIVATIONS
    scale, bias = [each and _as_vector(build, each, wide) for each in epilogue[:2]]
    residual = epilogue.residual and conv.in_order(build, epilogue.residual, params.channels_last)
    after = scale, bias, residual, activation if is_all else None
    fused = implicit_gemm.Epilogue(*after, x.dtype if is_all else wide)
    product, is_finished = conv.product_and_epilogue(build, x, kernel, params, fused)
    if is_finished and is_all:
        return product
    left = _NOTHING._replace(activation=activation) if is_finished else epilogue
    return _finished(build, x.dtype, product, left, params)


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
    output = Operand(product, layout_of(dims, params.channels_last))

    def in_memory(x: Operand) -> Operand:
        """The elements as the dims of the result follow in memory."""
        return Operand(x.storage, x.layout.permute(output.layout.memory_order()))

    steps = [(BinaryOp.MUL, epilogue.scale), (BinaryOp.ADD, epilogue.bias), (BinaryOp.ADD, epilogue.residual)]
    result = in_memory(output)
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
