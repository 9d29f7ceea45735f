"""Depthwise convolutions and their gradients, by kernels of their own."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from .....dtype import HALF, INTEGER, DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, DEPTHWISE_ROWS, DEPTHWISE_TAPS
from .....op import MethodOp, ReduceOp
from ....core.conv import ParamsConvolution
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, address_of, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from . import elementwise, reduce
from .geometry import LIMIT, Part, plane_parts

# With as many channels of the result for each of the input, matrix products are quicker.
_MANY_CHANNELS: Final = 8
# Blocks that fill a large GPU, and the fewest elements that a thread of them sums.
_MANY_BLOCKS: Final = 1024
_MIN_LENGTH: Final = 16
# Those that kernels with an epilogue compute, as they number them.
ACTIVATIONS: Final = None, "relu", "relu6", "hardswish", "silu"
# The fewest subgroups of a block that each sum the gradients of all its taps, with channels last.
_SUBGROUPS: Final = 4


def is_depthwise(params: ParamsConvolution) -> bool:
    """Whether each channel of lines or images makes a few channels of the result."""
    inner, outer = params.channels
    return inner == 1 and params.groups > 1 and outer < _MANY_CHANNELS and len(params.sizes) <= 2


def convolve(build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer:
    """The row-major convolution of (b, c, ..), which is not empty."""
    params, x, kernel = params.as_images, x.as_rank(4), kernel.as_rank(4)
    result = build.empty(x.dtype, math.prod(params.out_dims))
    height, width = params.result_sizes
    plane, groups, (_, outer) = height * width, params.groups, params.channels
    stride_b, stride_c, *_ = x.strides
    channel = kernel.strides[0]
    shape = (params.input_dims[0], groups, outer, ceil_divide(height, DEPTHWISE_ROWS), width)
    # The row, the column, the source, the kernel and the result.
    strides = (
        (0, 0, 0, DEPTHWISE_ROWS, 0),
        (0, 0, 0, 0, 1),
        (stride_b, stride_c, 0, 0, 0),
        (0, outer * channel, channel, 0, 0),
        (groups * outer * plane, outer * plane, plane, DEPTHWISE_ROWS * width, 1),
    )
    _launch(
        build,
        op,
        f"conv_{multiplied_as(x.dtype)}_depthwise",
        x,
        kernel,
        result,
        params,
        (height, width),
        shape,
        strides,
    )
    return result


def convolve_transposed(
    build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution
) -> Buffer:
    """The row-major gradient of the input, which is not empty, of a convolution with a dilation of 1."""
    params, x, kernel = params.as_images, x.as_rank(4), kernel.as_rank(4)
    result = build.empty(x.dtype, math.prod(params.input_dims))
    (height, width), phases = params.sizes, params.stride[0]
    rows, plane, groups, (_, outer) = DEPTHWISE_ROWS * phases, height * width, params.groups, params.channels
    stride_b, stride_c, *_ = x.strides
    shape = (params.input_dims[0], groups, ceil_divide(height, rows), phases, width)
    strides = (
        (0, 0, rows, 1, 0),
        (0, 0, 0, 0, 1),
        (stride_b, outer * stride_c, 0, 0, 0),
        (0, outer * kernel.strides[0], 0, 0, 0),
        (groups * plane, plane, rows * width, width, 1),
    )
    name = f"conv_transpose_{multiplied_as(x.dtype)}_depthwise"
    _launch(build, op, name, x, kernel, result, params, (height, width), shape, strides)
    return result


def _launch(
    build: ProgramBuilder,
    op: str,
    name: str,
    x: Operand,
    kernel: Operand,
    result: Buffer,
    params: ParamsConvolution,
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
) -> None:
    for blocks, _, offsets, count, geometry in _parts(op, shape, strides):
        packed = arguments.depthwise(
            result=result.address + offsets[4] * x.itemsize, source=x.address + offsets[2] * x.itemsize,
            kernel=kernel.address + offsets[3] * x.itemsize, source_stride_c=x.strides[1], source_stride_h=x.strides[2],
            source_stride_w=x.strides[3], kernel_stride_c=kernel.strides[0], kernel_stride_h=kernel.strides[2],
            kernel_stride_w=kernel.strides[3], result_stride_h=sizes[1], channels=params.channels[1],
            source_h=x.shape[2], source_w=x.shape[3], rows=sizes[0], window=window(params), stride_h=params.stride[0],
            stride_w=params.stride[1], count=count, geometry=geometry,
        )  # fmt: skip
        build.launch("conv", name, blocks, packed)


class Epilogue(NamedTuple):
    """Compute activation(x * scale + bias), of those present: vectors in the compute dtype, contiguous and aligned."""

    scale: Operand | None
    bias: Operand | None
    activation: str | None


def convolve_last(
    build: ProgramBuilder,
    op: str,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    *,
    transposed: bool = False,
    epilogue: Epilogue | None = None,
) -> Buffer | None:
    """The convolution, or the gradient of the input, of (b, c, ..) with channels last in memory and so the result.

    None where that is not needed, or threads cannot read channels in aligned accesses, or kernels lack the epilogue.
    """
    params, x, kernel = params.as_images, x.as_rank(4), kernel.as_rank(4)
    packs = _packs_of_a_block(params, params.taps, x)
    if not packs or not params.channels_last or (epilogue and not _has_kernel(x.dtype, epilogue)):
        return None
    (height, width), phases = (params.sizes, params.stride[0]) if transposed else (params.result_sizes, 1)
    length, rows, channels = ACCESS_BYTES // x.itemsize, DEPTHWISE_ROWS * phases, params.groups
    batch, line = params.input_dims[0], width * channels
    result = build.empty(x.dtype, batch * height * line)
    shape = (batch, ceil_divide(height, rows), phases, width, packs)
    # The row, the column, the source, the pack of the block and the result.
    strides = (
        (0, rows, 1, 0, 0),
        (0, 0, 0, 1, 0),
        (x.strides[0], 0, 0, 0, length),
        (0, 0, 0, 0, 1),
        (height * line, rows * line, line, channels, length),
    )
    kind = "last" if epilogue is None else "fused"
    name = f"conv_{'transpose_' if transposed else ''}{x.dtype.value}_depthwise_{kind}"
    for blocks, _, offsets, count, geometry in _parts(op, shape, strides):
        fields: dict[str, Any] = {
            "result": result.address + offsets[4] * x.itemsize, "source": x.address + offsets[2] * x.itemsize,
            "kernel": kernel.address, "source_stride_h": x.strides[2], "source_stride_w": x.strides[3],
            "kernel_stride_c": kernel.strides[0], "kernel_stride_h": kernel.strides[2],
            "kernel_stride_w": kernel.strides[3], "result_stride_h": line, "channels": channels, "packs": packs,
            "source_h": x.shape[2], "source_w": x.shape[3], "rows": height, "window": window(params),
            "stride_h": params.stride[0], "stride_w": params.stride[1], "count": count, "geometry": geometry,
        }  # fmt: skip
        if epilogue is None:
            packed = arguments.depthwise_last(**fields)
        else:
            scale, bias = address_of(epilogue.scale), address_of(epilogue.bias)
            activation = ACTIVATIONS.index(epilogue.activation)
            packed = arguments.depthwise_fused(scale=scale, bias=bias, activation=activation, **fields)
        chunks = ceil_divide(channels, packs * length)
        build.launch("conv", name, chunks * min(blocks, MAX_BLOCKS // chunks), packed)
    return result


def _has_kernel(dtype: DType, epilogue: Epilogue) -> bool:
    return dtype in (*HALF, DType.F32) and epilogue.activation in ACTIVATIONS


def _packs_of_a_block(params: ParamsConvolution, threads: int, *operands: Operand) -> int:
    """Return the adjacent packs of channels of a block, with `threads` for each, the channels split evenly.

    0 where operands do not have as many channels, of floats, in aligned accesses, or the block is too small for one.
    """
    length, most = ACCESS_BYTES // operands[0].itemsize, BLOCK_SIZE // threads
    if params.channels != (1, 1) or params.groups % length or operands[0].dtype in INTEGER or not most:
        return 0
    for operand in operands:
        steps = [step for dim, step in enumerate(operand.strides) if dim != 1 and operand.shape[dim] > 1]
        if operand.strides[1] != 1 or any(step % length for step in steps) or not operand.address.is_aligned():
            return 0
    packs = params.groups // length
    return ceil_divide(packs, ceil_divide(packs, most))


def gradient_weight(build: ProgramBuilder, op: str, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer | None:
    """The gradient of the kernel, which is not empty; None of more elements than 32 bits number.

    Blocks for each channel and row of the kernel may be few: then they sum parts of the elements, which are added up.
    """
    params, x, g = params.as_images, x.as_rank(4), g.as_rank(4)
    batch, channels, *_ = params.out_dims
    shape = (batch, *params.result_sizes)
    elements, taps = math.prod(shape), math.prod(params.kernel_dims)
    if elements >= LIMIT:
        return None
    lines = params.kernel[0] * ceil_divide(params.kernel[1], DEPTHWISE_TAPS)
    # Blocks take several subgroups at least, which share what they read.
    packs = _packs_of_a_block(params, _SUBGROUPS * lines, x, g)
    if packs:
        blocks, together = ceil_divide(channels, packs * (ACCESS_BYTES // x.itemsize)), BLOCK_SIZE // (packs * lines)
    else:
        blocks, together = channels * lines, BLOCK_SIZE
    most = min(ceil_divide(_MANY_BLOCKS, blocks), elements // (together * _MIN_LENGTH))
    length = ceil_divide(elements, max(most, 1))
    splits = ceil_divide(elements, length)
    compute = x.dtype.compute
    sums = build.empty(compute, splits * taps)
    # The row, the column, the source and the gradient.
    strides = (
        (0, params.stride[0], 0),
        (0, 0, params.stride[1]),
        (x.strides[0], 0, 0),
        (g.strides[0], g.strides[2], g.strides[3]),
    )
    for _, _, _, count, geometry in _parts(op, shape, strides):
        fields: dict[str, Any] = {
            "result": sums.address, "source": x.address, "gradient": g.address, "source_stride_h": x.strides[2],
            "source_stride_w": x.strides[3], "source_h": x.shape[2], "source_w": x.shape[3], "window": window(params),
            "channels": channels, "part": length, "count": count, "geometry": geometry,
        }  # fmt: skip
        if packs:
            name = f"conv_weight_{x.dtype.value}_depthwise_last"
            packed = arguments.depthwise_weight_last(packs=packs, **fields)
        else:
            name = f"conv_weight_{multiplied_as(x.dtype)}_depthwise"
            packed = arguments.depthwise_weight(
                source_stride_c=x.strides[1], gradient_stride_c=g.strides[1], multiplier=params.channels[1], **fields
            )
        build.launch("conv", name, splits * blocks, packed)
    if splits > 1:
        sums = reduce.reduce(build, ReduceOp.SUM, dense(sums, (splits, taps)), (0,))
    if x.dtype is compute:
        return sums
    return elementwise.cast(build, MethodOp.TO_DTYPE, dense(sums, (taps,)), result=x.dtype)


def multiplied_as(dtype: DType) -> str:
    """Return the name of a dtype in kernels: for integers the width, since products wrap to the same bits in both."""
    return f"b{8 * dtype.itemsize}" if dtype in INTEGER else dtype.value


def window(params: ParamsConvolution) -> arguments.Window:
    """The fields of a window, of images or volumes."""
    volumes = params.as_volumes
    return arguments.Window(*volumes.kernel, *volumes.padding, *volumes.dilation)


def _parts(op: str, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Part, ...]:
    """The launches, without dims of size 1 but the last, which cost divisions."""
    last = len(shape) - 1
    dims = [dim for dim, size in enumerate(shape) if size != 1 or dim == last]
    steps = tuple(tuple(operand[dim] for dim in dims) for operand in strides)
    return plane_parts(op, BLOCK_SIZE, tuple(shape[dim] for dim in dims), steps, 2)
