"""Convolutions by the kernels for the host, as products of weights and what lies under them.

A 1-d convolution is a 2-d one of height 1. A transposed one of a stride is `stride` convolutions for each dim, of which
each makes every so-manieth element of the result by some of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .....dtype import DType
from .....kernels import constants, host_arguments
from .....op import BinaryOp, UnaryOp
from ....core.conv import Params, ParamsConvolution
from ....core.layout import Layout, channels_last_order, layout_of
from ....core.shape import Shape
from ....host.array import bits
from ....program.builder import ProgramBuilder
from ....program.program import Results
from ....program.values import Address, Buffer, Constant, Operand, along_channels, dense
from ..values import PRODUCTS, RUN_PARTS, THREADS
from . import conv
from .epilogue import NO_EPILOGUE, Epilogue, converted, in_memory_order
from .native import contiguous, launch_map
from .pointwise import Product

if TYPE_CHECKING:
    from ..kernels import HostKernels

# The rows of the result in a tile, where its columns fill it.
_ROWS: Final = 8
# The columns of a tile are computed in strips of this width, or of a part of it.
_STRIP: Final = 32
# With more channels on both sides, or one tap, products of matrices by NumPy are quicker.
_FEW_CHANNELS: Final = 16
# The sums of a channel's weights fit into a tile.
_MAX_TAPS: Final = constants.TILE_SUMS // 16


class _Axis(NamedTuple):
    """A dim of a convolution: which lines of the source are read, from where, and where in them each weight begins."""

    size: int
    begins: tuple[int, ...]
    # The line of each weight, and its offset in that.
    weights: tuple[tuple[int, int], ...]

    @classmethod
    def convolved(cls, size: int, taps: int, padding: int, stride: int, dilation: int) -> _Axis:
        """Return the axis of a result with this many elements."""
        begins = sorted({tap * dilation % stride for tap in range(taps)})
        weights = tuple((begins.index(tap * dilation % stride), tap * dilation // stride) for tap in range(taps))
        return cls(size, tuple(begin - padding for begin in begins), weights)

    @property
    def reach(self) -> int:
        """The largest offset of a weight from the first element of its line."""
        return max(offset for _, offset in self.weights)


class _Phase(NamedTuple):
    """Every `stride`-th element of a dim of a transposed result, and the weights that make it.

    `taps` says which these are: the first one, their number, and their stride.
    """

    first: int
    taps: tuple[int, int, int]
    axis: _Axis


def by_numpy(build: ProgramBuilder, function: Callable[..., Any], arguments: Sequence[Any]) -> Results:
    """The op that a function of NumPy's is."""
    return build.host(function, *arguments)


def are_finite(x: Operand) -> bool:
    """Whether none of the floats that an operand reaches in a storage is infinite or NaN."""
    array = x.storage.view(x.layout)
    if x.dtype in (DType.F32, DType.F64):
        return bool(np.isfinite(array).all())
    # NumPy is slow at types that are not the processor's.
    of, patterns = x.dtype.format, bits(array)
    sign = 1 << of.bits - 1
    if of.specials == "fnuz":
        return not (patterns == sign).any()
    return patterns.size == 0 or int((patterns & sign - 1).max()) < of.highest + (of.specials == "fn")


def convolve(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve`; None where NumPy does it."""
    product = Product.of(build, x, kernel, params.general)
    if product is not None:
        return product.by_kernels(build, kernels)
    return _by_tiles(build, kernels, x, kernel, params.general)


def _by_tiles(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    kernel: Operand,
    params: ParamsConvolution,
    epilogue: Epilogue = NO_EPILOGUE,
) -> Buffer | None:
    if params.is_empty or len(params.sizes) > 2:
        return None
    weights = contiguous(build, kernel)
    shape = Shape(_of_groups(params))
    weights = weights.as_strided(shape, shape.contiguous_strides())
    result = build.empty(x.dtype, math.prod(params.out_dims))
    is_done = _launch_convolution(build, kernels, "convolve", x, weights, result.address, params, epilogue)
    return _stored(build, result, params.out_dims, params) if is_done else None


def fused(
    build: ProgramBuilder,
    kernels: HostKernels,
    x: Operand,
    kernel: Operand,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer | None:
    """As `conv.fused`; None where NumPy does it. Each step is in the compute dtype."""
    wide, product = x.dtype.compute, Product.of(build, x, kernel, params)
    if product is not None and product.has_few_rows and x.dtype is wide:
        # The bits of the op alone, whose kernel has no epilogue.
        result = product.by_kernels(build, kernels)
        return None if result is None else finished(build, wide, result, scale, bias, residual, activation, params)
    if product is not None and residual is not None:
        residual = in_memory_order(residual, params)
    epilogue = Epilogue.of(build, scale, bias, residual, activation, wide)
    if product is not None:
        return product.by_kernels(build, kernels, epilogue)
    return _by_tiles(build, kernels, x, kernel, params, epilogue)


def finished(
    build: ProgramBuilder,
    dtype: DType,
    product: Buffer,
    scale: Operand | None,
    bias: Operand | None,
    residual: Operand | None,
    activation: str | None,
    params: ParamsConvolution,
) -> Buffer:
    """The epilogue of a convolution in the compute dtype, which is overwritten."""
    layout, wide = layout_of(params.out_dims, params.channels_last), product.dtype
    # With dims in the order of memory.
    result, order = Operand(product, layout.ordered), layout.memory_order()
    for op, operand in ((BinaryOp.MUL, scale), (BinaryOp.ADD, bias), (BinaryOp.ADD, residual)):
        if operand is not None:
            other = converted(build, operand, wide)
            shown = other if operand is residual else along_channels(other, params.out_dims)
            launch_map(build, op.kernel(wide), [result], [result, Operand(shown.storage, shown.layout.permute(order))])
    if activation is not None:
        launch_map(build, UnaryOp(activation).kernel(wide), [result], [result])
    rounded: Buffer = converted(build, result, dtype).storage
    return rounded


def _stored(build: ProgramBuilder, result: Buffer, dims: tuple[int, ...], params: ParamsConvolution) -> Buffer:
    """A row-major result in the order that the parameters ask for."""
    if not params.channels_last:
        return result
    layout = Layout.contiguous(dims).permute(channels_last_order(len(dims)))
    stored: Buffer = contiguous(build, Operand(result, layout)).storage
    return stored


def gradient_weight(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, gradient: Operand, params: ParamsConvolution
) -> Buffer | None:
    """As `conv.gradient_weight`; None where NumPy does it."""
    if params.is_empty or is_product(params) or len(params.sizes) > 2 or params.taps > _MAX_TAPS:
        return None
    result = build.empty(x.dtype, math.prod(params.kernel_dims))
    weights = dense(result, _of_groups(params))
    if not _launch_convolution(
        build, kernels, "convolve_weight", x, weights, contiguous(build, gradient).address, params
    ):
        return None
    # Between rows the kernel multiplies elements of the source by zeros, where nothing is.
    fallback = partial(by_numpy, function=conv.gradient_weight, arguments=(x, gradient, params))
    build.call(are_finite, dense(result, params.kernel_dims), fallback=fallback)
    return _stored(build, result, params.kernel_dims, params)


def is_product(params: ParamsConvolution) -> bool:
    """Whether matrix products are the fastest algorithm for the gradient of a kernel."""
    return min(params.channels) > _FEW_CHANNELS or params.taps == 1


def _of_groups(params: ParamsConvolution) -> tuple[int, int, int, int]:
    inner, outer = params.channels
    return params.groups, outer, inner, params.taps


def _launch_convolution(
    build: ProgramBuilder,
    kernels: HostKernels,
    kernel: str,
    x: Operand,
    weights: Operand,
    result: Address,
    params: ParamsConvolution,
    epilogue: Epilogue = NO_EPILOGUE,
) -> bool:
    """Launch a kernel of a convolution whose result is at an address; False where it has too little memory."""
    params, x = params.as_images, x.as_rank(4)
    dims = zip(params.result_sizes, params.kernel, params.padding, params.stride, params.dilation, strict=True)
    rows, columns = (_Axis.convolved(*each) for each in dims)
    height, width = params.result_sizes
    strides = height * width, width, 1
    return _launch(build, kernels, kernel, x, weights, result, rows, columns, params.stride, strides, epilogue)


def convolve_transposed(
    build: ProgramBuilder, kernels: HostKernels, x: Operand, kernel: Operand, params: Params | ParamsConvolution
) -> Buffer | None:
    """As `conv.convolve_transposed`; None where NumPy does it."""
    fallback = partial(by_numpy, function=conv.convolve_transposed, arguments=(x, kernel, params))
    general = params = params.general
    if params.is_empty or len(params.sizes) > 2:
        return None
    params, x, kernel = params.as_images, x.as_rank(4), kernel.as_rank(4)
    height, width = params.sizes
    dims = zip(params.sizes, params.kernel, params.padding, params.stride, params.dilation, strict=True)
    down, across = (list(_phases(*each)) for each in dims)
    # Beyond the ends of the source kernels multiply zeros, where nothing is.
    build.call(are_finite, kernel, fallback=fallback)
    result = build.empty(x.dtype, math.prod(params.input_dims))
    if [sum(phase.axis.size for phase in phases) for phases in (down, across)] != [height, width]:
        build.zero(result)
    (inner, outer), (kernel_outer, *kernel_strides) = params.channels, kernel.strides
    grouped = kernel.as_strided(
        (params.groups, inner, outer, *params.kernel),
        (outer * kernel_outer, kernel_strides[0], kernel_outer, *kernel_strides[1:]),
    )
    by_taps = Operand(grouped.storage, grouped.layout.permute((0, 3, 4, 1, 2)))
    # Copies that exchange channels and taps move vectors; one that exchanges channels moves elements.
    has_matrices = min(inner, outer, params.taps) > 1
    if has_matrices:
        by_taps = contiguous(build, by_taps)
    strides = height * width, params.stride[0] * width, params.stride[1]
    for rows in down:
        for columns in across:
            part = Operand(by_taps.storage, by_taps.layout.narrow(1, *rows.taps).narrow(2, *columns.taps))
            if has_matrices:
                part = contiguous(build, part)
                shape = Shape((params.groups, rows.taps[1] * columns.taps[1], 1, inner, outer))
                part = part.as_strided(shape, shape.contiguous_strides())
            part = contiguous(build, Operand(part.storage, part.layout.permute((0, 3, 4, 1, 2))))
            begin = result.address + (rows.first * width + columns.first) * x.itemsize
            if not _launch(build, kernels, "convolve", x, part, begin, rows.axis, columns.axis, (1, 1), strides):
                return None
    return _stored(build, result, general.input_dims, general)


def _phases(size: int, taps: int, padding: int, stride: int, dilation: int) -> Iterator[_Phase]:
    """Those of a dim of a transposed result that some weight makes."""
    for first in range(min(stride, size)):
        chosen = [tap for tap in range(taps) if (first + padding - tap * dilation) % stride == 0]
        if chosen:
            positions = [(first + padding - tap * dilation) // stride for tap in chosen]
            weights = tuple((0, position - min(positions)) for position in positions)
            axis = _Axis((size - first + stride - 1) // stride, (min(positions),), weights)
            between = chosen[1] - chosen[0] if len(chosen) > 1 else 1
            yield _Phase(first, (chosen[0], len(chosen), between), axis)


def _launch(
    build: ProgramBuilder,
    kernels: HostKernels,
    kernel: str,
    x: Operand,
    weights: Operand,
    result: Address,
    rows: _Axis,
    columns: _Axis,
    steps: tuple[int, ...],
    result_strides: tuple[int, int, int],
    epilogue: Epilogue = NO_EPILOGUE,
) -> bool:
    """Launch a kernel for `x` and contiguous weights (groups, c_out / groups, ..); False if memory is too small."""
    name, tile = f"{kernel}_{x.dtype.value}", _Tile.of(rows, columns)
    if not kernels.has("host_product", name) or tile is None:
        return False
    (batches, _, *sizes), strides = x.shape, x.strides
    groups, channels, sources = weights.shape[:3]
    line_width = tile.width + columns.reach
    lines, taps = len(rows.begins) * len(columns.begins), len(rows.weights) * len(columns.weights)
    together = max(min(sources, constants.TILE_TERMS // taps, constants.TILE_NUMBERS // (lines * tile.length)), 1)
    positions = [
        (line * len(columns.begins) + part) * tile.length + row_offset * line_width + column_offset
        for line, row_offset in rows.weights
        for part, column_offset in columns.weights
    ]
    line_rows = np.repeat(np.array(rows.begins, np.int64), len(columns.begins))
    line_columns = np.tile(np.array(columns.begins, np.int64), len(rows.begins))
    packed = host_arguments.convolve(
        result=result, source=x.address, kernel=weights.address, run_parts=RUN_PARTS, threads=THREADS,
        line_rows=Constant(line_rows).address, line_columns=Constant(line_columns).address,
        weight_offsets=Constant(np.array(positions, np.int64)).address,
        batches=batches, groups=groups, result_channels=channels, channels=sources, channels_together=together,
        weights=taps, lines=lines, line_length=tile.length, line_width=line_width, height=sizes[0], width=sizes[1],
        result_height=rows.size, result_width=columns.size, tile_height=tile.height, tile_width=tile.width,
        step_h=steps[0], step_w=steps[1],
        stride_b=strides[0], stride_c=strides[1], stride_h=strides[2], stride_w=strides[3],
        result_plane=result_strides[0], result_stride_h=result_strides[1], result_stride_w=result_strides[2],
        **epilogue.fields(),
    )  # fmt: skip
    products = batches * rows.size * columns.size * weights.layout.elem_count
    build.launch("host_product", name, 1, packed, work=products // PRODUCTS)
    return True


class _Tile(NamedTuple):
    """The part of a plane of the result that is computed at once, and the source's lines that it needs."""

    height: int
    width: int
    length: int

    @classmethod
    def of(cls, rows: _Axis, columns: _Axis) -> _Tile | None:
        """Return one that fits; None where there is none."""
        most = constants.CONVOLUTION_COLUMNS
        lines = len(rows.begins) * len(columns.begins)
        width = _evenly(columns.size, max(most // min(rows.size, _ROWS) - columns.reach, _STRIP))
        while True:
            line_width = width + columns.reach
            height = _evenly(rows.size, max((most - width) // line_width + 1, 1))
            while True:
                outputs = (height - 1) * line_width + width
                length = -(-outputs // _STRIP) * _STRIP + rows.reach * line_width + columns.reach
                if lines * length <= constants.TILE_NUMBERS:
                    return cls(height, width, length)
                if height == 1:
                    break
                height = (height + 1) // 2
            if width <= _STRIP:
                return None
            width = (width + 1) // 2


def _evenly(size: int, most: int) -> int:
    """How long parts of at most `most` are, where they are of one size."""
    parts = -(-size // most)
    return -(-size // parts)
