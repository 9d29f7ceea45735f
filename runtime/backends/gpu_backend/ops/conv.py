"""Convolutions and their gradients: by a library of images, as matrix products, and directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .....dtype import HALF, INTEGER, DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, CONV_CHANNELS, MATMUL_SIDE
from .....op import MethodOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import channels_last_order, layout_of
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from ..driver.grid import ceil_divide
from ..libraries.library import ConvolutionKind
from . import copy, depthwise, elementwise, implicit_gemm, matmul
from .geometry import Part, plane_parts

if TYPE_CHECKING:
    from ..libraries.library import Convolution

AnyParams = Params | ParamsConvolution
_Function = Callable[[ProgramBuilder, str, Operand, Operand, ParamsConvolution], Buffer]

# With fewer rows of channels, tiles of matrix products stay too empty to pay.
_MIN_CHANNELS: Final = 16
# Kernels take volumes (b, c, d, h, w).
_RANK: Final = 5


def by_library(
    build: ProgramBuilder,
    library: Convolution,
    x: Operand,
    kernel: Operand,
    params: AnyParams,
    *,
    otherwise: partial[Buffer] | None = None,
) -> Buffer | None:
    """The convolution by a library of images; None where there is nothing to do or it refuses.

    Where it does not multiply the zeros of the padding, it gets them as elements. `otherwise` is what runs if the
    library refuses at a run, where that is more than the convolution.
    """
    otherwise, params = otherwise or partial(convolve, x=x, kernel=kernel, params=params), params.general
    kind = ConvolutionKind.FORWARD
    result = _library_call(build, library, kind, x, kernel, params, otherwise)
    if result is None and params.is_padded and not _prefers_own(build, kind, x.dtype, params):
        # In the order of memory in which the library takes them.
        order = params._replace(channels_last=params.channels_last or _is_quicker_last(x, params))
        x, padded = with_padding(build, x, order)
        params = padded._replace(channels_last=params.channels_last)
        result = _library_call(build, library, kind, x, kernel, params, otherwise)
    return result


def transposed_by_library(
    build: ProgramBuilder, library: Convolution, g: Operand, kernel: Operand, params: AnyParams
) -> Buffer | None:
    """The gradient of the input by a library of images; None where there is nothing to do or it refuses."""
    otherwise, params = partial(convolve_transposed, x=g, kernel=kernel, params=params), params.general
    is_spread = params.taps == 1 and not any(params.padding) and set(params.stride) != {1}
    if not is_spread or g.dtype.compute is not g.dtype or is_own(params):
        return _library_call(build, library, ConvolutionKind.INPUT, g, kernel, params, otherwise)
    # Of f32 cuDNN multiplies the zeros between: 14 times the time of the products, between which they are set here.
    ones, dims = (1,) * len(params.stride), (*params.input_dims[:2], *params.result_sizes)
    dense_params = params._replace(input_dims=dims, stride=ones)
    otherwise = partial(convolve_transposed, x=g, kernel=kernel, params=dense_params)
    product = _library_call(build, library, ConvolutionKind.INPUT, g, kernel, dense_params, otherwise)
    if product is None:
        return None
    result = build.empty(g.dtype, math.prod(params.input_dims))
    build.zero(result)
    target = layout_of(params.input_dims, params.channels_last)
    for dim, (count, step) in enumerate(zip(params.result_sizes, params.stride, strict=True), 2):
        target = target.narrow(dim, 0, count, step)
    copy.copy(build, Operand(product, layout_of(dims, params.channels_last)), Operand(result, target))
    return result


def weight_by_library(
    build: ProgramBuilder, library: Convolution, x: Operand, g: Operand, params: ParamsConvolution
) -> Buffer | None:
    """The gradient of the kernel by a library of images; None where there is nothing to do or it refuses."""
    otherwise = partial(gradient_weight, x=x, g=g, params=params)
    return _library_call(build, library, ConvolutionKind.WEIGHT, x, g, params, otherwise)


def _library_call(
    build: ProgramBuilder,
    library: Convolution,
    kind: ConvolutionKind,
    first: Operand,
    second: Operand,
    params: ParamsConvolution,
    otherwise: partial[Buffer],
) -> Buffer | None:
    if _prefers_own(build, kind, first.dtype, params):
        return None
    is_last = first.layout.is_channels_last if kind is ConvolutionKind.WEIGHT else params.channels_last
    # In the order that the images have, and in row-major order where the library lacks that one.
    for channels_last in [True, False] if is_last or _is_quicker_last(first, params) else [False]:
        problem = params._replace(channels_last=channels_last)
        product: Any = build.attempt(_in_one_order, library, kind, first, second, problem, otherwise)
        if product is not None:
            dims = kind.result_dims(params)
            result = Operand(product, layout_of(dims, channels_last))
            ordered: Buffer = in_order(build, result, params.channels_last).storage
            return ordered
    return None


def _is_quicker_last(x: Operand, params: ParamsConvolution) -> bool:
    """Whether row-major images of 16 bits are worth a copy with channels last, which libraries are slower to make.

    They multiply pixels as they lie, where accesses are aligned.
    """
    is_product = params.taps == 1 and set(params.stride) == {1} and math.prod(params.result_sizes) % 8 == 0
    return x.dtype in HALF and not is_product


def _in_one_order(
    build: ProgramBuilder,
    library: Convolution,
    kind: ConvolutionKind,
    first: Operand,
    second: Operand,
    params: ParamsConvolution,
    otherwise: partial[Buffer],
) -> Buffer | None:
    """A call of a library, of operands in the order of memory of the parameters; None where it refuses."""
    result = build.empty(first.dtype, math.prod(kind.result_dims(params)))
    one, other = [in_order(build, each, params.channels_last) for each in (first, second)]
    call = library.convolution(kind, first.dtype, params, one.address, other.address, result.address)
    return result if build.append(call, otherwise) else None


def in_order(build: ProgramBuilder, x: Operand, channels_last: bool) -> Operand:
    """The elements of (b, c, ..) in the order (b, .., c) or (b, c, ..) of memory."""
    if not channels_last:
        return copy.contiguous(build, x)
    return copy.contiguous(build, Operand(x.storage, x.layout.permute(channels_last_order(x.layout.rank))))


def _stored(build: ProgramBuilder, result: Buffer, dims: tuple[int, ...], params: ParamsConvolution) -> Buffer:
    """A row-major result in the order that the parameters ask for."""
    if not params.channels_last:
        return result
    stored: Buffer = in_order(build, dense(result, dims), channels_last=True).storage
    return stored


def is_own(params: ParamsConvolution) -> bool:
    """Whether kernels of this package are quicker than libraries, or there is nothing to do."""
    return params.is_empty or depthwise.is_depthwise(params)


def _prefers_own(build: ProgramBuilder, kind: ConvolutionKind, dtype: DType, params: ParamsConvolution) -> bool:
    """Return True where own kernels come before a library's: where `is_own`, and where they are faster.

    Of f32 the engines of cuDNN that keep infinities to their windows take 1.1 to 1.3 times the time of large tiles on
    an H200, 2 to 3 times that of images of a few kilobytes, and up to 17 times for gradients of inputs with strides.
    Of gradients of kernels it has faster ones.
    """
    has_tiles = dtype is DType.F32 and build.facts.has_kernels("conv_floats")
    is_large = params.taps > 1 and min(params.channels) >= _MIN_CHANNELS
    return is_own(params) or (has_tiles and is_large and kind is not ConvolutionKind.WEIGHT)


def with_padding(build: ProgramBuilder, x: Operand, params: ParamsConvolution) -> tuple[Operand, ParamsConvolution]:
    """The input as far as windows reach, with the zeros around it as elements, and the parameters for that."""
    reach = zip(params.padding, params.sizes, params.padding_after, strict=True)
    dims = (*params.input_dims[:2], *(sum(each) for each in reach))
    padded = Operand(build.empty(x.dtype, math.prod(dims)), layout_of(dims, params.channels_last))
    build.zero(padded.storage)
    source, target = x.layout, padded.layout
    for dim, (before, size, length) in enumerate(zip(params.padding, params.sizes, dims[2:], strict=True), 2):
        count = max(min(size, length - before), 0)
        source, target = source.narrow(dim, 0, count), target.narrow(dim, before if count else 0, count)
    copy.copy(build, Operand(x.storage, source), Operand(padded.storage, target))
    return padded, params._replace(input_dims=dims, padding=(0,) * len(params.padding))


def convolve(build: ProgramBuilder, x: Operand, kernel: Operand, params: AnyParams) -> Buffer:
    """The convolution of (b, c, ..)."""
    op, params = _op(params), params.general
    return _by_kernels(build, _convolved, op, x, kernel, params, params.out_dims)


def convolve_transposed(build: ProgramBuilder, x: Operand, kernel: Operand, params: AnyParams) -> Buffer:
    """The gradient of the input, which is the transposed convolution of (b, c, ..)."""
    op, params = _op(params), params.general
    return _by_kernels(build, _transposed, op, x, kernel, params, params.input_dims)


def gradient_weight(build: ProgramBuilder, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer:
    """The gradient of the kernel, by kernels of this package."""
    return _by_kernels(build, _weight, "convolution_gradient_weight", x, g, params, params.kernel_dims)


def _op(params: AnyParams) -> str:
    return "convolution" if isinstance(params, ParamsConvolution) else params.op


def _by_kernels(
    build: ProgramBuilder,
    function: _Function,
    op: str,
    x: Operand,
    other: Operand,
    params: ParamsConvolution,
    dims: tuple[int, ...],
) -> Buffer:
    """A result of some dims by a function of what has terms; floats of 8 bits are multiplied as f32."""
    dtype, count = x.dtype, math.prod(dims)
    if count == 0 or params.is_empty:
        result = build.empty(dtype, count)
        if count:
            build.zero(result)
        return result
    if not dtype.is_narrow:
        return function(build, op, x, other, params)
    x, other = (elementwise.converted(build, operand, dtype.compute) for operand in (x, other))
    return elementwise.cast(build, MethodOp.TO_DTYPE, dense(function(build, op, x, other, params), dims), result=dtype)


def is_product(dtype: DType, params: ParamsConvolution) -> bool:
    """Whether kernels of this package make a convolution of floats as a matrix product."""
    has_kernels = not dtype.is_narrow and dtype not in INTEGER
    return has_kernels and not is_own(params) and params.channels[1] >= _MIN_CHANNELS


def product_and_epilogue(
    build: ProgramBuilder, x: Operand, kernel: Operand, params: ParamsConvolution, epilogue: implicit_gemm.Epilogue
) -> tuple[Buffer, bool]:
    """Such a convolution, and whether it has its epilogue: see `implicit_gemm.convolve_and_finish`."""
    volumes = x.as_rank(_RANK), kernel.as_rank(_RANK), params.as_volumes
    return implicit_gemm.convolve_and_finish(build, "convolution", *volumes, epilogue)


def _by_matmul(
    build: ProgramBuilder, x: Operand, kernel: Operand, params: ParamsConvolution, *, transposed: bool
) -> Buffer | None:
    """A convolution with windows of one element, or its transpose, as products of matrices; None of any other.

    Shapes alone decide, so that layouts do not change the bits.
    """
    is_pointwise = params.taps == 1 and {*params.stride} == {1} and params.result_sizes == params.sizes
    if not is_pointwise or params.is_padded or params.groups > 1:
        return None
    batch, channels, *sizes = x.shape
    rows, pixels = kernel.shape[1 if transposed else 0], math.prod(sizes)
    if not matmul.fills_tiles(build.facts, x.dtype, (batch * pixels, rows, channels)):
        return None
    weights = copy.reshaped(build, kernel, kernel.shape[:2])
    weights = Operand(weights.storage, weights.layout.transpose(0, 1)) if transposed else weights
    if not params.channels_last and pixels % (ACCESS_BYTES // x.itemsize) == 0 and pixels > MATMUL_SIDE:
        image = copy.reshaped(build, x, (batch, channels, pixels))
        stretched = Operand(weights.storage, weights.layout.broadcast_as((batch, rows, channels)))
        return matmul.by_tiles(build, stretched, image, (batch, rows, pixels, channels))
    last = Operand(x.storage, x.layout.permute(channels_last_order(x.layout.rank)))
    pair = (
        copy.reshaped(build, last, (batch * pixels, channels)),
        Operand(weights.storage, weights.layout.transpose(0, 1)),
    )
    product = matmul.by_tiles(build, *pair, (1, batch * pixels, rows, channels))
    result = Operand(product, layout_of((batch, rows, *sizes), channels_last=True))
    ordered: Buffer = in_order(build, result, params.channels_last).storage
    return ordered


def _convolved(build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer:
    product = _by_matmul(build, x, kernel, params, transposed=False)
    if product is not None:
        return product
    if depthwise.is_depthwise(params):
        last = depthwise.convolve_last(build, op, x, kernel, params, transposed=False)
        if last is not None:
            return last
        return _stored(build, depthwise.convolve(build, op, x, kernel, params), params.out_dims, params)
    by = implicit_gemm.convolve if params.channels[1] >= _MIN_CHANNELS else partial(_directly, transposed=False)
    return by(build, op, x.as_rank(_RANK), kernel.as_rank(_RANK), params.as_volumes)


def _transposed(build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer:
    product = _by_matmul(build, x, kernel, params, transposed=True)
    if product is not None:
        return product
    if depthwise.is_depthwise(params) and set(params.dilation) == {1}:
        last = depthwise.convolve_last(build, op, x, kernel, params, transposed=True)
        if last is not None:
            return last
        return _stored(build, depthwise.convolve_transposed(build, op, x, kernel, params), params.input_dims, params)
    if params.channels[0] < _MIN_CHANNELS:
        return _directly(build, op, x.as_rank(_RANK), kernel.as_rank(_RANK), params.as_volumes, transposed=True)
    # Elements that a block computes have a stride: aligned accesses write them where channels are last.
    is_spread = x.itemsize == 2 and {*params.stride} != {1}
    written = params._replace(channels_last=params.channels_last or is_spread)
    volumes = x.as_rank(_RANK), kernel.as_rank(_RANK), written.as_volumes
    result = Operand(
        implicit_gemm.convolve_transposed(build, op, *volumes), layout_of(params.input_dims, written.channels_last)
    )
    ordered: Buffer = in_order(build, result, params.channels_last).storage
    return ordered


def _weight(build: ProgramBuilder, op: str, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer:
    own = depthwise.gradient_weight(build, op, x, g, params) if depthwise.is_depthwise(params) else None
    if own is not None:
        return _stored(build, own, params.kernel_dims, params)
    return implicit_gemm.gradient_weight(build, op, x.as_rank(_RANK), g.as_rank(_RANK), params.as_volumes)


def _axis_strides(outer: int, steps: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Strides of operands that are positions along depth, height and width, after `outer` other dims."""
    return tuple((*(0,) * outer, *(step if axis == own else 0 for axis in range(3))) for own, step in enumerate(steps))


def _volume_parts(
    op: str, per_block: int, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[Part, ...]:
    """The launches over the elements of volumes, without dims of size 1 but the last, which cost divisions."""
    last = len(shape) - 1
    dims = [dim for dim, size in enumerate(shape) if size != 1 or dim == last]
    steps = tuple(tuple(operand[dim] for dim in dims) for operand in strides)
    return plane_parts(op, per_block, tuple(shape[dim] for dim in dims), steps, 3)


def _directly(
    build: ProgramBuilder,
    op: str,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    *,
    transposed: bool,
) -> Buffer:
    """Each element of the result by itself, some channels of it in a thread."""
    result_dims = params.input_dims if transposed else params.out_dims
    result = build.empty(x.dtype, math.prod(result_dims))
    b, _, *sizes = x.shape
    stride_b, stride_c, stride_d, stride_h, stride_w = x.strides
    kernel_outer, kernel_inner, kernel_stride_d, kernel_stride_h, kernel_stride_w = kernel.strides
    inner, outer = params.channels
    outputs, read = (inner, outer) if transposed else (outer, inner)
    out, in_ = (kernel_inner, kernel_outer) if transposed else (kernel_outer, kernel_inner)
    dims, steps = (params.sizes, (1, 1, 1)) if transposed else (params.result_sizes, params.stride)
    volume, groups = math.prod(dims), params.groups
    shape = (b, groups, ceil_divide(outputs, CONV_CHANNELS), *dims)
    # The slice, the row, the column, the source, the kernel, the result, and the output channel.
    strides = (
        *_axis_strides(3, steps),
        (stride_b, read * stride_c, 0, 0, 0, 0),
        (0, outer * kernel_outer, CONV_CHANNELS * out, 0, 0, 0),
        (groups * outputs * volume, outputs * volume, CONV_CHANNELS * volume, *copy.row_major(dims)),
        (0, 0, CONV_CHANNELS, 0, 0, 0),
    )
    name = f"conv{'_transpose' if transposed else ''}_{depthwise.multiplied_as(x.dtype)}_direct"
    for blocks, _, offsets, count, geometry in _volume_parts(op, BLOCK_SIZE, shape, strides):
        # A part that begins at a later channel has fewer of them.
        left = outputs - offsets[6]
        packed = arguments.convolve(
            result=result.address + offsets[5] * x.itemsize, source=x.address + offsets[3] * x.itemsize,
            kernel=kernel.address + offsets[4] * x.itemsize, source_stride_c=stride_c, source_stride_d=stride_d,
            source_stride_h=stride_h, source_stride_w=stride_w, kernel_stride_out=out, kernel_stride_in=in_,
            kernel_stride_d=kernel_stride_d, kernel_stride_h=kernel_stride_h, kernel_stride_w=kernel_stride_w,
            result_stride_c=volume, channels_in=read, channels_out=left, source_d=sizes[0], source_h=sizes[1],
            source_w=sizes[2], window=depthwise.window(params), stride_d=params.stride[0], stride_h=params.stride[1],
            stride_w=params.stride[2], period_d=params.periods[0], period_h=params.periods[1],
            period_w=params.periods[2], count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("conv", name, blocks, packed)
    return _stored(build, result, result_dims, params)
