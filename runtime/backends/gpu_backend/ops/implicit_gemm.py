"""Convolutions and their gradients as matrix products whose operands are gathered where they lie: implicit GEMM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from .....dtype import HALF, DType
from .....kernels import arguments
from .....kernels.constants import MATMUL_SIDE
from .....op import MethodOp, ReduceOp
from ....base.error import InvalidArgument
from ....core.conv import ParamsConvolution
from ....core.layout import layout_of
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from . import copy, depthwise, elementwise, reduce
from .geometry import LIMIT


class _Tile(NamedTuple):
    """A tile that a block makes."""

    rows: int
    columns: int
    rate: int
    """The multiply-adds per cycle of a multiprocessor that has two blocks."""
    alone: float
    """The time of a block that has a multiprocessor for itself, where two that share one take 1."""


# As measured on an H200, whose multiprocessors hold two blocks.
_SMALL: Final = _Tile(MATMUL_SIDE, MATMUL_SIDE, 62, 1)
_TILES: Final = {
    DType.F32: (
        _Tile(MATMUL_SIDE, 2 * MATMUL_SIDE, 69, 0.5),
        _Tile(2 * MATMUL_SIDE, 2 * MATMUL_SIDE, 67, 0.5),
        _SMALL,
    )
}
_HALF_TILE: Final = _Tile(2 * MATMUL_SIDE, MATMUL_SIDE, 234, 0.8)
# What a block takes before and after its steps and what a further launch takes, in cycles, and the bytes that a device
# moves in one.
_BLOCK_CYCLES: Final = 2000
_LAUNCH_CYCLES: Final = 5000
_BYTES_PER_CYCLE: Final = 1536
# Parts of the depth are whole steps of every tile.
_STEP: Final = 32
# The parts that are considered: more of them is more to add up.
_PART_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# The elements side by side along the depth that a thread brings, and those of halves.
_LENGTH: Final = 4
_HALF_LENGTH: Final = 8


class _Chunk(IntEnum):
    """How elements side by side along the depth lie in memory: anyhow, equally far apart, or in whole accesses."""

    SCATTERED = 0
    STRIDED = 1
    DENSE = 2


class _Lines(NamedTuple):
    """Whether threads side by side bring the depth of a line, or lines, and in what chunks."""

    is_deep: bool
    chunk: _Chunk


class _Strides(NamedTuple):
    """The strides of a tensor in a product: of groups, rows, of images or channels, and along the axes."""

    group: int
    row: int
    outer: int
    axes: tuple[int, ...]


class _Product(NamedTuple):
    """What `arguments.implicit_gemm` describes, of all images."""

    op: str
    params: ParamsConvolution
    image: Operand
    factors: Operand
    factors_strides: _Strides
    result_strides: _Strides
    rows: int
    channels: int
    positions: tuple[int, ...]
    """Where windows are, along each axis."""
    is_transposed: bool
    """Whether it is the gradient of the input, for each residue of the positions modulo the strides."""
    sums_positions: bool
    """Whether the depth is the positions, and the columns are the terms."""

    @property
    def images(self) -> int:
        """The images."""
        return self.image.shape[0]

    @property
    def residues(self) -> tuple[int, ...]:
        """The residues along each axis that positions have."""
        if not self.is_transposed:
            return (1, 1, 1)
        return tuple(map(min, self.params.stride, self.positions))

    @property
    def terms(self) -> int:
        """The most taps of a residue, for each channel."""
        periods = self.params.periods if self.is_transposed else (1, 1, 1)
        return self.channels * math.prod(map(ceil_divide, self.params.kernel, periods))

    @property
    def places(self) -> int:
        """The most positions of a residue, in an image."""
        return math.prod(map(ceil_divide, self.positions, self.residues))


def convolve(build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer:
    """The convolution, which is not empty, of volumes."""
    inner, outer = params.channels
    kernel, factors = _kernel(build, kernel, params, is_transposed=False)
    result = _result_strides(params.out_dims, params)
    sizes = outer, inner, params.result_sizes
    product = _Product(op, params, x, kernel, factors, result, *sizes, is_transposed=False, sums_positions=False)
    return _multiply(build, product, params.out_dims)


def convolve_transposed(
    build: ProgramBuilder, op: str, g: Operand, kernel: Operand, params: ParamsConvolution
) -> Buffer:
    """The gradient of the input, which is not empty, of volumes."""
    inner, outer = params.channels
    kernel, factors = _kernel(build, kernel, params, is_transposed=True)
    result = _result_strides(params.input_dims, params)
    sizes = inner, outer, params.sizes
    product = _Product(op, params, g, kernel, factors, result, *sizes, is_transposed=True, sums_positions=False)
    return _multiply(build, product, params.input_dims)


def gradient_weight(build: ProgramBuilder, op: str, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer:
    """The gradient of the kernel, which is not empty, of volumes."""
    inner, outer = params.channels
    image, row, *places = g.strides
    factors = _Strides(outer * row, row, image, tuple(places))
    out, channel, *taps = layout_of(params.kernel_dims, params.channels_last).strides
    result = _Strides(outer * out, out, channel, tuple(taps))
    sizes = outer, inner, params.result_sizes
    product = _Product(op, params, x, g, factors, result, *sizes, is_transposed=False, sums_positions=True)
    return _multiply(build, product, params.kernel_dims)


def _result_strides(dims: tuple[int, ...], params: ParamsConvolution) -> _Strides:
    image, row, *axes = layout_of(dims, params.channels_last).strides
    return _Strides(dims[1] // params.groups * row, row, image, tuple(axes))


def _kernel(
    build: ProgramBuilder, kernel: Operand, params: ParamsConvolution, *, is_transposed: bool
) -> tuple[Operand, _Strides]:
    """The kernel and its strides, copied so that the summed channels are side by side where no channels are."""
    out, channel, *axes = kernel.strides
    (inner, outer), groups, taps = params.channels, params.groups, params.kernel
    row, summed = (channel, out) if is_transposed else (out, channel)
    if 1 in (row, summed) or params.taps == 1:
        return kernel, _Strides(outer * out, row, summed, tuple(axes))
    rows, channels = (inner, outer) if is_transposed else (outer, inner)
    shape, strides = (groups, rows, *taps, channels), (outer * out, row, *axes, summed)
    packed = copy.copied(build, kernel.relaid(shape, strides))
    group, row, *axes, summed = packed.strides
    return packed, _Strides(group, row, summed, tuple(axes))


def _multiply(build: ProgramBuilder, product: _Product, dims: tuple[int, ...]) -> Buffer:
    """The product, whose sums over parts of the depth are added up and rounded by further launches."""
    dtype, count = product.image.dtype, math.prod(dims)
    launches = list(_launches(product, build.facts.multiprocessors))
    parts = sum(launch.parts for launch in launches) if product.sums_positions else launches[0].parts
    target = build.empty(dtype if parts == 1 else dtype.compute, parts * count)
    order = None
    if parts > 1 and product.sums_positions and not product.params.channels_last:
        # Blocks write channels of a tap side by side, which are the columns of their tiles.
        order = layout_of(dims, channels_last=True).strides
        row, channel, *taps = order
        group = dims[0] // product.params.groups * row
        product = product._replace(result_strides=_Strides(group, row, channel, tuple(taps)))
    number = 0
    for launch in launches:
        _launch(build, product, launch, target, number, count if parts > 1 else 0)
        number += launch.parts if product.sums_positions else 0
    if parts == 1:
        return target
    sums = dense(target, (parts, count))
    if order is not None:
        sums = sums.relaid((parts, *dims), (count, *order))
    total = reduce.reduce(build, ReduceOp.SUM, sums, (0,))
    if dtype is total.dtype:
        return total
    return elementwise.cast(build, MethodOp.TO_DTYPE, dense(total, (count,)), result=dtype)


class _Launch(NamedTuple):
    """Some images, the tile that blocks make of them, and in how many parts of which length they sum the depth."""

    first: int
    images: int
    tile: _Tile
    parts: int
    length: int


def _launches(product: _Product, multiprocessors: int) -> Iterator[_Launch]:
    """As many images at a time as kernels number positions of."""
    most = (LIMIT - 1) // product.places
    if most == 0 or product.terms >= LIMIT:
        raise InvalidArgument(product.op, f"one image has more than {LIMIT - 1} places; use smaller images")
    for first in range(0, product.images, most):
        images = min(most, product.images - first)
        positions = images * product.places
        depth, columns = (positions, product.terms) if product.sums_positions else (product.terms, positions)
        # Images that are too many for one launch are enough for all multiprocessors.
        splits = images == product.images or product.sums_positions
        counts = _PART_COUNTS if splits else _PART_COUNTS[:1]
        yield _Launch(first, images, *_tiling(product, columns, depth, multiprocessors, counts))


def _tiling(
    product: _Product, columns: int, depth: int, multiprocessors: int, part_counts: Sequence[int]
) -> tuple[_Tile, int, int]:
    """The tile, the parts of the depth, and their length, for which blocks are expected to be done first."""
    dtype = product.image.dtype
    tiles = (_HALF_TILE,) if dtype in HALF else _TILES.get(dtype, (_SMALL,))
    rows, products = product.rows, product.params.groups * math.prod(product.residues)
    found: dict[float, tuple[_Tile, int, int]] = {}
    for tile in tiles:
        blocks = ceil_divide(rows, tile.rows) * ceil_divide(columns, tile.columns) * products
        for wanted in part_counts:
            length = ceil_divide(ceil_divide(depth, wanted), _STEP) * _STEP
            parts = ceil_divide(depth, length)
            waves, rest = divmod(blocks * parts, 2 * multiprocessors)
            last = (tile.alone if rest <= multiprocessors else 1) if rest else 0
            cycles = (waves + last) * (2 * tile.rows * tile.columns * length / tile.rate + _BLOCK_CYCLES)
            if parts > 1:
                nbytes = 2 * parts * rows * columns * products * dtype.compute.itemsize
                launches = 1 if dtype is dtype.compute else 2
                cycles += launches * _LAUNCH_CYCLES + nbytes / _BYTES_PER_CYCLE
            found.setdefault(cycles, (tile, parts, length))
    return found[min(found)]


def _launch(
    build: ProgramBuilder, product: _Product, launch: _Launch, target: Buffer, number: int, part_stride: int
) -> None:
    """Multiply some images; sums go to the target from part `number` on."""
    params, image, factors = product.params, product.image, product.factors
    beside, result, residues = product.factors_strides, product.result_strides, product.residues
    itemsize, tile = image.itemsize, launch.tile
    columns = product.terms if product.sums_positions else launch.images * product.places
    down, across = ceil_divide(product.rows, tile.rows), ceil_divide(columns, tile.columns)
    blocks = down * across * math.prod(residues) * params.groups * launch.parts
    if blocks > MAX_BLOCKS:
        raise InvalidArgument(product.op, f"a result of {blocks} tiles is more than a launch has; use smaller images")
    image_lines, factor_lines = _gathered(product)
    stride_b, stride_c, *axes = image.strides
    image_group = stride_c * image.shape[1] // params.groups
    first_result = part_stride * number + (0 if product.sums_positions else launch.first * result.outer)
    first_factor = launch.first * beside.outer if product.sums_positions else 0
    packed = arguments.implicit_gemm(
        result=target.address + first_result * target.dtype.itemsize,
        image=image.address + launch.first * stride_b * itemsize, factors=factors.address + first_factor * itemsize,
        result_stride_part=part_stride, result_stride_group=result.group, result_stride_row=result.row,
        result_stride_outer=result.outer, result_stride_d=result.axes[0], result_stride_h=result.axes[1],
        result_stride_w=result.axes[2], image_stride_group=image_group, image_stride_b=stride_b,
        image_stride_c=stride_c, image_stride_d=axes[0], image_stride_h=axes[1], image_stride_w=axes[2],
        factors_stride_group=beside.group, factors_stride_row=beside.row, factors_stride_outer=beside.outer,
        factors_stride_d=beside.axes[0], factors_stride_h=beside.axes[1], factors_stride_w=beside.axes[2],
        rows=product.rows, channels=product.channels, images=launch.images, groups=params.groups,
        image_d=image.shape[2], image_h=image.shape[3], image_w=image.shape[4], positions_d=product.positions[0],
        positions_h=product.positions[1], positions_w=product.positions[2], window=depthwise.window(params),
        stride_d=params.stride[0], stride_h=params.stride[1], stride_w=params.stride[2], period_d=params.periods[0],
        period_h=params.periods[1], period_w=params.periods[2], residues_d=residues[0], residues_h=residues[1],
        residues_w=residues[2], is_transposed=product.is_transposed, sums_positions=product.sums_positions,
        tile_rows=tile.rows, tile_columns=tile.columns, tiles_across=across, part=launch.length,
        image_deep=image_lines.is_deep, image_chunk=image_lines.chunk, factors_deep=factor_lines.is_deep,
        factors_chunk=factor_lines.chunk,
    )  # fmt: skip
    build.launch("conv", f"conv_{depthwise.multiplied_as(image.dtype)}_implicit_gemm", blocks, packed)


def _gathered(product: _Product) -> tuple[_Lines, _Lines]:
    """How threads bring the image, and the factors beside it."""
    params, image, beside = product.params, product.image, product.factors_strides
    (images, _, *sizes), (stride_b, stride_c, *axes) = image.shape, image.strides
    length = _HALF_LENGTH if image.dtype in HALF else _LENGTH
    if product.sums_positions:
        run = _run_of_positions(product.positions, beside.axes)
        outer = (params.groups, beside.group), (product.rows, beside.row), (images, beside.outer)
        is_dense = run % length == 0 and _are_whole(product.factors, outer, length)
        chunk = _Chunk.DENSE if is_dense else _Chunk.SCATTERED
        return _Lines(stride_c != 1, _Chunk.SCATTERED), _Lines(beside.row != 1, chunk)
    channels = product.channels
    of_image = zip((images, *sizes), (stride_b, *axes), strict=True)
    of_factors = zip(
        (params.groups, product.rows, *params.kernel), (beside.group, beside.row, *beside.axes), strict=True
    )
    return (
        _lines_of_channels(image, channels, stride_c, tuple(of_image), length),
        _lines_of_channels(product.factors, channels, beside.outer, tuple(of_factors), length),
    )


def _lines_of_channels(
    operand: Operand, channels: int, step: int, others: tuple[tuple[int, int], ...], length: int
) -> _Lines:
    """The lines of an operand along whose depth are channels, those of a tap one after the other."""
    if channels % length:
        return _Lines(step == 1, _Chunk.SCATTERED)
    is_dense = step == 1 and _are_whole(operand, others, length)
    return _Lines(step == 1, _Chunk.DENSE if is_dense else _Chunk.STRIDED)


def _are_whole(operand: Operand, dims: tuple[tuple[int, int], ...], length: int) -> bool:
    """Whether whole accesses are aligned wherever they begin along dims, which are sizes and strides."""
    return operand.address.is_aligned() and all(stride % length == 0 for size, stride in dims if size > 1)


def _run_of_positions(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many positions are side by side at least from each multiple of this number on."""
    run = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size > 1 and stride != run:
            break
        run *= size
    return run
