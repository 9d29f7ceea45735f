"""Convolutions and their gradients: by a library of images, by a matrix product of columns, and directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, CONV_CHANNELS, MATMUL_SIDE
from .....op import MethodOp, ReduceOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import channels_last_order, layout_of
from ....program.builder import ProgramBuilder
from ....program.values import Address, Buffer, Operand, dense
from ..driver.grid import ceil_divide
from ..libraries.library import ConvolutionKind
from . import copy, depthwise, elementwise, matmul, reduce
from .geometry import LIMIT, Part, plane_parts, strided_block

if TYPE_CHECKING:
    from ..libraries.library import Blas, Convolution

AnyParams = Params | ParamsConvolution
Multiply = Callable[[ProgramBuilder, Operand, Operand, tuple[int, int, int, int], Address], None]

# With fewer channels of the result a matrix product reads each column too few times to pay for writing it.
_LEAST_CHANNELS: Final = 8
# The most memory that columns take at once, in bytes.
_MOST_COLUMNS: Final = 1 << 28
_WEIGHT: Final = "convolution_gradient_weight"
# The gradient of a small kernel is a product of few tiles, whose terms are all positions of all images: these are split
# into so many tiles, of no fewer terms each, where a product would keep less than an eighth of that busy.
_TILES: Final = 256
_LEAST_TERMS: Final = 512
# Kernels take volumes (b, c, d, h, w).
_RANK: Final = 5


def by_library(
    build: ProgramBuilder, library: Convolution, x: Operand, kernel: Operand, params: AnyParams
) -> Buffer | None:
    """The convolution by a library of images; None where there is nothing to do or it refuses.

    Where it does not multiply the zeros of the padding, it gets them as elements.
    """
    otherwise, params = partial(convolve, x=x, kernel=kernel, params=params), params.general
    result = _library_call(build, library, ConvolutionKind.FORWARD, x, kernel, params, otherwise)
    if result is None and params.is_padded and not _is_own(params):
        padded = params._replace(input_dims=_padded_dims(params), padding=(0,) * len(params.padding))
        result = _library_call(
            build, library, ConvolutionKind.FORWARD, _padded(build, x, params), kernel, padded, otherwise
        )
    return result


def transposed_by_library(
    build: ProgramBuilder, library: Convolution, g: Operand, kernel: Operand, params: AnyParams
) -> Buffer | None:
    """The gradient of the input by a library of images; None where there is nothing to do or it refuses."""
    otherwise = partial(convolve_transposed, x=g, kernel=kernel, params=params)
    return _library_call(build, library, ConvolutionKind.INPUT, g, kernel, params.general, otherwise)


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
    if _is_own(params):
        return None
    is_last = first.layout.is_channels_last if kind is ConvolutionKind.WEIGHT else params.channels_last
    dims = kind.result_dims(params)
    # In the order that the images have, and in row-major order where the library lacks that one.
    for channels_last in [True, False] if is_last else [False]:
        problem = params._replace(channels_last=channels_last)
        result = build.empty(first.dtype, math.prod(dims))
        one, other = _in_order(build, first, channels_last), _in_order(build, second, channels_last)
        call = library.convolution(kind, first.dtype, problem, one.address, other.address, result.address)
        if build.append(call, otherwise):
            made = Operand(result, layout_of(dims, problem.channels_last))
            ordered: Buffer = _in_order(build, made, params.channels_last).storage
            return ordered
    return None


def _in_order(build: ProgramBuilder, x: Operand, channels_last: bool) -> Operand:
    """The elements of (b, c, ..) in the order (b, .., c) or (b, c, ..) of memory."""
    if not channels_last:
        return copy.contiguous(build, x)
    return copy.contiguous(build, Operand(x.storage, x.layout.permute(channels_last_order(x.layout.rank))))


def _stored(build: ProgramBuilder, result: Buffer, dims: tuple[int, ...], params: ParamsConvolution) -> Buffer:
    """A row-major result in the order that the parameters ask for."""
    if not params.channels_last:
        return result
    stored: Buffer = _in_order(build, dense(result, dims), channels_last=True).storage
    return stored


def _is_own(params: ParamsConvolution) -> bool:
    """Whether kernels of this package are quicker than libraries, or there is nothing to do."""
    return params.is_empty or depthwise.is_depthwise(params)


def _padded_dims(params: ParamsConvolution) -> tuple[int, ...]:
    """The shape of the input as far as windows reach, with the zeros around it."""
    sizes = zip(params.padding, params.sizes, params.padding_after, strict=True)
    return (*params.input_dims[:2], *(sum(each) for each in sizes))


def _padded(build: ProgramBuilder, x: Operand, params: ParamsConvolution) -> Operand:
    """The input as far as windows reach, with the zeros around it."""
    dims = _padded_dims(params)
    padded = Operand(build.empty(x.dtype, math.prod(dims)), layout_of(dims, params.channels_last))
    build.zero(padded.storage)
    source, target = x.layout, padded.layout
    for dim, (before, size, whole) in enumerate(zip(params.padding, params.sizes, dims[2:], strict=True), 2):
        count = max(min(size, whole - before), 0)
        source, target = source.narrow(dim, 0, count), target.narrow(dim, before if count else 0, count)
    copy.copy(build, Operand(x.storage, source), Operand(padded.storage, target))
    return padded


def convolve(build: ProgramBuilder, x: Operand, kernel: Operand, params: AnyParams) -> Buffer:
    """The convolution of (b, c, ..)."""
    op, params = _op(params), params.general
    result = build.empty(x.dtype, math.prod(params.out_dims))
    if result.length and params.is_empty:
        build.zero(result)
    elif result.length and depthwise.is_depthwise(params):
        result = depthwise.convolve(build, op, x, kernel, params)
    elif result.length:
        _directly(build, op, x, kernel, params.as_volumes, result, transposed=False)
    return _stored(build, result, params.out_dims, params)


def convolve_by_product(
    build: ProgramBuilder, library: Blas, x: Operand, kernel: Operand, params: AnyParams
) -> Buffer | None:
    """The convolution as a matrix product of columns; None where the direct kernel is quicker.

    For each image and group it is that of the kernel, (c_out, c_in * taps), and the columns, (c_in * taps, positions).
    """
    op, params = _op(params), params.general
    groups, (inner, outer), (b, *_) = params.groups, params.channels, params.input_dims
    positions, steps = math.prod(params.result_sizes), inner * params.taps
    if params.is_empty or outer < _LEAST_CHANNELS or groups * steps * positions >= LIMIT:
        return None
    result = build.empty(x.dtype, b * groups * outer * positions)
    weights = copy.reshaped(build, kernel, (groups, outer, steps))
    pixels = _pixels(x, params)
    together = b if pixels is not None else _images_at_once(b, groups * steps * positions * x.itemsize)
    for start in range(0, b, together):
        count = min(together, b - start)
        columns = pixels or dense(
            _columns(build, op, _narrowed(x, start, count), params), (count, groups, steps, positions)
        )
        to = result.address + start * groups * outer * positions * x.itemsize
        bmnk = count * groups, outer, positions, steps
        matmul.multiply(build, library, _repeated(weights, count), columns, bmnk, to)
    return _stored(build, result, params.out_dims, params)


def _op(params: AnyParams) -> str:
    return "convolution" if isinstance(params, ParamsConvolution) else params.op


def _images_at_once(batch: int, nbytes: int) -> int:
    return min(max(_MOST_COLUMNS // nbytes, 1), batch)


def _narrowed(x: Operand, start: int, count: int) -> Operand:
    return Operand(x.storage, x.layout.narrow(0, start, count))


def _repeated(matrices: Operand, count: int) -> Operand:
    return matrices.relaid((count, *matrices.shape), (0, *matrices.strides))


def _pixels(x: Operand, params: ParamsConvolution) -> Operand | None:
    """The image itself, (b, groups, c, positions), where it is its own columns: those of a kernel of one place."""
    is_plain = params.taps == 1 and not any(params.padding) and set(params.stride) == {1}
    if not is_plain or params.sizes != params.result_sizes:
        return None
    layout = x.layout.reshape((x.shape[0], params.groups, params.channels[0], math.prod(params.sizes)))
    return None if layout is None else Operand(x.storage, layout)


def _columns(
    build: ProgramBuilder, op: str, x: Operand, params: ParamsConvolution, *, images_innermost: bool = False
) -> Buffer:
    """The columns (b, c, taps, positions), or with the images innermost (c, taps, b, positions)."""
    x, params = x.as_rank(_RANK), params.as_volumes
    b, c, *sizes = x.shape
    stride_b, stride_c, stride_d, stride_h, stride_w = x.strides
    positions = math.prod(params.result_sizes)
    tap_stride = b * positions if images_innermost else positions
    column = params.taps * tap_stride
    of_images = positions if images_innermost else c * column
    result = build.empty(x.dtype, b * c * params.taps * positions)
    # The slice, the row, the column, the volume, and the first column.
    shape = (b, c, *params.result_sizes)
    moves = (stride_b, stride_c, 0, 0, 0), (of_images, column, *copy.row_major(params.result_sizes))
    strides = (*_axis_strides(2, params.stride), *moves)
    itemsize = x.itemsize
    for blocks, _, (*_, volume, first), count, geometry in _volume_parts(op, strided_block(itemsize), shape, strides):
        packed = arguments.image_to_columns(
            result=result.address + first * itemsize, source=x.address + volume * itemsize,
            source_stride_d=stride_d, source_stride_h=stride_h, source_stride_w=stride_w, source_d=sizes[0],
            source_h=sizes[1], source_w=sizes[2], window=depthwise.window(params), tap_stride=tap_stride, count=count,
            geometry=geometry,
        )  # fmt: skip
        build.launch("conv", f"im2col_b{8 * itemsize}", blocks, packed)
    return result


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


def convolve_transposed(build: ProgramBuilder, x: Operand, kernel: Operand, params: AnyParams) -> Buffer:
    """The gradient of the input, which is the transposed convolution of (b, c, ..)."""
    op, params = _op(params), params.general
    result = build.empty(x.dtype, math.prod(params.input_dims))
    if result.length and params.is_empty:
        build.zero(result)
    elif result.length:
        if depthwise.is_depthwise(params) and set(params.dilation) == {1}:
            result = depthwise.convolve_transposed(build, op, x, kernel, params)
        else:
            _directly(build, op, x, kernel, params.as_volumes, result, transposed=True)
    return _stored(build, result, params.input_dims, params)


def convolve_transposed_by_product(
    build: ProgramBuilder, library: Blas, x: Operand, kernel: Operand, params: AnyParams
) -> Buffer | None:
    """The gradient of the input as a matrix product, and sums of it; None where the direct kernel is quicker.

    The product is, for each image and group, that of the transposed kernel, (c_in * taps, c_out), and the image,
    (c_out, positions).
    """
    op, params = _op(params), params.general
    compute, groups, (inner, outer) = x.dtype.compute, params.groups, params.channels
    b, c, *_ = params.input_dims
    positions, rows, elements = math.prod(params.result_sizes), inner * params.taps, math.prod(params.input_dims[1:])
    if params.is_empty or outer < _LEAST_CHANNELS or elements >= LIMIT:
        return None
    result = build.empty(x.dtype, b * elements)
    weights = copy.reshaped(build, elementwise.converted(build, kernel, compute), (groups, outer, rows))
    transposed = weights.relaid((groups, rows, outer), (weights.strides[0], weights.strides[2], weights.strides[1]))
    together = _images_at_once(b, groups * rows * positions * compute.itemsize)
    volumes = params.as_volumes
    # The slice, the row, the column, and the volume of the first column.
    strides = (*_axis_strides(2, (1, 1, 1)), (c * params.taps * positions, params.taps * positions, 0, 0, 0))
    for start in range(0, b, together):
        count = min(together, b - start)
        images = elementwise.converted(build, _narrowed(x, start, count), compute)
        pixels = copy.reshaped(build, images, (count, groups, outer, positions))
        columns = build.allocate(count * groups * rows * positions * compute.itemsize)
        bmnk = count * groups, rows, positions, outer
        matmul.multiply(build, library, _repeated(transposed, count), pixels, bmnk, columns.address)
        begin, shape = result.address + start * elements * x.itemsize, (count, c, *volumes.sizes)
        for blocks, first, (*_, offset), number, geometry in _volume_parts(op, BLOCK_SIZE, shape, strides):
            packed = arguments.columns_to_image(
                result=begin + first * x.itemsize, source=columns.address + offset * compute.itemsize,
                source_d=volumes.result_sizes[0], source_h=volumes.result_sizes[1], source_w=volumes.result_sizes[2],
                window=depthwise.window(volumes), stride_d=volumes.stride[0], stride_h=volumes.stride[1],
                stride_w=volumes.stride[2], count=number, geometry=geometry,
            )  # fmt: skip
            build.launch("conv", f"col2im_{x.dtype.value}", blocks, packed)
    return _stored(build, result, params.input_dims, params)


def gradient_weight_by_product(
    build: ProgramBuilder, library: Blas, x: Operand, g: Operand, params: ParamsConvolution
) -> Buffer | None:
    """The gradient of the kernel as a matrix product of columns; None of one that is depthwise or empty."""
    if _is_own(params):
        return None
    product = _weight(build, x, g, params, partial(_multiplied, library))
    return _stored(build, product, params.kernel_dims, params)


def gradient_weight(build: ProgramBuilder, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer:
    """The gradient of the kernel, by kernels of this package."""
    if params.is_empty:
        result = build.empty(x.dtype, math.prod(params.kernel_dims))
        if result.length:
            build.zero(result)
        return result
    own = depthwise.gradient_weight(build, _WEIGHT, x, g, params) if depthwise.is_depthwise(params) else None
    result = own or _weight(build, x, g, params, matmul.multiply_by_kernel)
    return _stored(build, result, params.kernel_dims, params)


def _multiplied(
    library: Blas, build: ProgramBuilder, lhs: Operand, rhs: Operand, bmnk: tuple[int, int, int, int], result: Address
) -> None:
    matmul.multiply(build, library, lhs, rhs, bmnk, result)


def _weight(build: ProgramBuilder, x: Operand, g: Operand, params: ParamsConvolution, multiply: Multiply) -> Buffer:
    """For each group the product of the images, (c_out, b * positions), and the columns, (b * positions, c_in * taps).

    Where columns of all images take too much memory, or a product has too few tiles, it is a sum of products of some of
    them, in the compute dtype.
    """
    groups, (inner, outer), (b, *_) = params.groups, params.channels, params.input_dims
    positions, steps = math.prod(params.result_sizes), inner * params.taps
    count = groups * outer * steps
    together = _images_at_once(b, groups * steps * positions * x.itemsize)
    starts = range(0, b, together)
    tiles = groups * ceil_divide(outer, MATMUL_SIDE) * ceil_divide(steps, MATMUL_SIDE)
    pieces = [_pieces(tiles, min(together, b - start) * positions) for start in starts]
    dtype = x.dtype if pieces == [1] else x.dtype.compute
    products = build.empty(dtype, sum(pieces) * count)
    to = products.address
    for start, split in zip(starts, pieces, strict=True):
        images = min(together, b - start)
        part = [elementwise.converted(build, _narrowed(each, start, images), dtype) for each in (x, g)]
        columns = _columns(build, _WEIGHT, part[0], params, images_innermost=True)
        length, terms = images * positions, images * positions // split
        rows = copy.reshaped(build, _channels_first(part[1]), (groups, outer, length))
        across = dense(columns, (groups, steps, length)).relaid((groups, length, steps), (steps * length, 1, length))
        if split == 1:
            multiply(build, rows, across, (groups, outer, steps, length), to)
        else:
            stride_g, stride_m, stride_k = rows.strides
            rows = rows.relaid((split, groups, outer, terms), (terms * stride_k, stride_g, stride_m, stride_k))
            across = across.relaid((split, groups, terms, steps), (terms, *across.strides))
            matmul.multiply_by_kernel(build, rows, across, (split * groups, outer, steps, terms), to)
        to += split * count * dtype.itemsize
    if pieces == [1]:
        return products
    total = reduce.reduce(build, ReduceOp.SUM, dense(products, (sum(pieces), count)), (0,))
    is_short = x.dtype is not dtype
    return elementwise.cast(build, MethodOp.TO_DTYPE, dense(total, (count,)), result=x.dtype) if is_short else total


def _pieces(tiles: int, terms: int) -> int:
    """Into how many pieces of equal length the terms of a product of so many tiles are split."""
    if 8 * tiles > _TILES:
        return 1
    return next(n for n in range(max(min(_TILES // tiles, terms // _LEAST_TERMS), 1), 0, -1) if terms % n == 0)


def _channels_first(x: Operand) -> Operand:
    order = (1, 0, *range(2, x.layout.rank))
    return Operand(x.storage, x.layout.permute(order))


def _directly(
    build: ProgramBuilder,
    op: str,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    result: Buffer,
    *,
    transposed: bool,
) -> None:
    """Each element of the result by itself, some channels of it in a thread."""
    x, kernel = x.as_rank(_RANK), kernel.as_rank(_RANK)
    b, _, *sizes = x.shape
    stride_b, stride_c, stride_d, stride_h, stride_w = x.strides
    kernel_outer, kernel_inner, kernel_stride_d, kernel_stride_h, kernel_stride_w = kernel.strides
    inner, outer = params.channels
    made, read = (inner, outer) if transposed else (outer, inner)
    out, in_ = (kernel_inner, kernel_outer) if transposed else (kernel_outer, kernel_inner)
    dims, steps = (params.sizes, (1, 1, 1)) if transposed else (params.result_sizes, params.stride)
    volume, groups = math.prod(dims), params.groups
    shape = (b, groups, ceil_divide(made, CONV_CHANNELS), *dims)
    # The slice, the row, the column, the source, the kernel, the result, and the output channel.
    strides = (
        *_axis_strides(3, steps),
        (stride_b, read * stride_c, 0, 0, 0, 0),
        (0, outer * kernel_outer, CONV_CHANNELS * out, 0, 0, 0),
        (groups * made * volume, made * volume, CONV_CHANNELS * volume, *copy.row_major(dims)),
        (0, 0, CONV_CHANNELS, 0, 0, 0),
    )
    name = f"conv{'_transpose' if transposed else ''}_{x.dtype.value}_direct"
    for blocks, _, offsets, count, geometry in _volume_parts(op, BLOCK_SIZE, shape, strides):
        # A part that begins at a later channel has so many fewer of them.
        left = made - offsets[6]
        packed = arguments.convolve(
            result=result.address + offsets[5] * x.itemsize, source=x.address + offsets[3] * x.itemsize,
            kernel=kernel.address + offsets[4] * x.itemsize, source_stride_c=stride_c, source_stride_d=stride_d,
            source_stride_h=stride_h, source_stride_w=stride_w, kernel_stride_out=out, kernel_stride_in=in_,
            kernel_stride_d=kernel_stride_d, kernel_stride_h=kernel_stride_h, kernel_stride_w=kernel_stride_w,
            result_stride_c=volume, channels_in=read, channels_out=left, source_d=sizes[0], source_h=sizes[1],
            source_w=sizes[2], window=depthwise.window(params), stride_d=params.stride[0], stride_h=params.stride[1],
            stride_w=params.stride[2], count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("conv", name, blocks, packed)
