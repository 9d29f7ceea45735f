"""Convolutions and their gradients as matrix products whose operands are gathered where they lie: implicit GEMM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .....dtype import HALF, DType
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, MATMUL_SIDE
from .....op import MethodOp, ReduceOp
from ....base.error import InvalidArgument
from ....core.conv import ParamsConvolution
from ....core.layout import Layout, channels_last_order, layout_of
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Operand, address_of, dense
from ..driver.grid import MAX_BLOCKS, ceil_divide
from . import copy, depthwise, elementwise, reduce
from .geometry import LIMIT


class _Tile(NamedTuple):
    """A tile that a block computes."""

    rows: int
    columns: int
    rate: int
    """The multiply-adds per cycle of a multiprocessor that has all the blocks it holds."""
    alone: float
    """The time of a block that has a multiprocessor for itself, where those that share one take 1."""
    overhead: int = 2000
    """The overhead of the blocks of a multiprocessor before and after their steps, in cycles."""
    resident: int = 2
    """The blocks that a multiprocessor holds."""
    family: str = "conv"
    kernel: str = "implicit_gemm"
    shared_bytes: int | None = 0
    """None for all that a block may have."""
    is_of_few_taps: bool = False
    """Whether its kernel has a bit for each tap along an axis."""


# As measured on an H200.
_SMALL: Final = _Tile(MATMUL_SIDE, MATMUL_SIDE, 66, 1, 7500)
_FLOAT_TILES: Final = _Tile(MATMUL_SIDE, 2 * MATMUL_SIDE, 72, 0.5, 9400, is_of_few_taps=True), _SMALL


def _large(rows: int, columns: int, rate: int, alone: float, overhead: int, resident: int = 1) -> _Tile:
    # Two blocks that share a multiprocessor have 113 KiB each.
    shared_bytes = None if resident == 1 else 113 << 10
    kernel = f"{rows}x{columns}"
    return _Tile(rows, columns, rate, alone, overhead, resident, "conv_floats", kernel, shared_bytes, True)


# The larger ones of floats, where the device has their kernels.
_LARGE_TILES: Final = (
    _large(128, 256, 86, 1, 22000),
    _large(128, 128, 85, 1, 18000),
    _large(64, 256, 81, 1, 17000),
    _large(32, 256, 71, 0.6, 13700, 2),
)
_LARGE_WEIGHT_TILES: Final = (
    _large(128, 256, 78, 1, 22000),
    _large(128, 128, 78, 0.6, 16000, 2),
    _large(64, 256, 76, 0.6, 16000, 2),
    _large(32, 256, 69, 0.6, 12000, 2),
)
# The taps along all axes for which masks have bits.
_MAX_TAPS: Final = 30
_HALF_TILES: Final = (_Tile(2 * MATMUL_SIDE, MATMUL_SIDE, 234, 0.8),)
# By groups of waves, where the device has their kernels. Two blocks that share a multiprocessor have 113 KiB each.
_PAIR: Final = 2, "conv_groups", "groups128", 113 << 10
_SINGLE: Final = 1, "conv_groups", "groups256", None
_GROUP_TILES: Final = (
    _Tile(2 * MATMUL_SIDE, 2 * MATMUL_SIDE, 1110, 0.7, 10500, *_PAIR),
    _Tile(MATMUL_SIDE, 2 * MATMUL_SIDE, 740, 0.7, 6700, *_PAIR),
    _Tile(2 * MATMUL_SIDE, 4 * MATMUL_SIDE, 1180, 1, 14000, *_SINGLE),
    _Tile(MATMUL_SIDE, 4 * MATMUL_SIDE, 950, 1, 8000, *_SINGLE),
)
# What a further launch takes, in cycles, and the bytes that a device moves in one.
_LAUNCH_CYCLES: Final = 5000
_BYTES_PER_CYCLE: Final = 1536
# Parts of the depth are complete steps of every tile.
_STEP: Final = 64
# The parts that are considered: more of them is more to add up.
_PART_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


_PACKERS: Final = {
    "conv": arguments.implicit_gemm,
    "conv_floats": arguments.implicit_gemm_of_floats,
    "conv_groups": arguments.implicit_gemm_by_groups,
}


class _Strides(NamedTuple):
    """The strides of a tensor in a product: of groups, rows, of images or channels, and along the axes."""

    group: int
    row: int
    outer: int
    axes: tuple[int, ...]


class _Product(NamedTuple):
    """The product that `arguments.implicit_gemm` describes, of all images."""

    op: str
    params: ParamsConvolution
    image: Operand
    """(b, d, h, w, groups, channels)."""
    factors: Operand
    factors_strides: _Strides
    rows: int
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
    def channels(self) -> int:
        """The channels of a group of the image, with those that are zeros."""
        return self.image.shape[-1]

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
    def image_positions(self) -> int:
        """The most positions of a residue, in an image."""
        return math.prod(map(ceil_divide, self.positions, self.residues))


class Epilogue(NamedTuple):
    """The ops of kernels on the sums of a convolution, in their compute dtype, before rounding, if any.

    The residual lies in memory as the result, and scale and bias are dense, with a number for each channel.
    """

    scale: Operand | None
    bias: Operand | None
    residual: Operand | None
    activation: str | None
    """One of `depthwise.ACTIVATIONS`."""
    result: DType


def convolve(build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution) -> Buffer:
    """The convolution, which is not empty, of volumes."""
    return _multiply(build, _of_channels(build, op, x, kernel, params, is_transposed=False), params.out_dims)


def convolve_and_finish(
    build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution, epilogue: Epilogue
) -> tuple[Buffer, bool]:
    """The convolution with an epilogue, or in the compute dtype without, and whether it has one.

    Sums over several parts of the depth get none.
    """
    product = _of_channels(build, op, x, kernel, params, is_transposed=False)
    launches = list(_launches(build, product))
    if any(launch.parts > 1 for launch in launches):
        return _sum_parts(build, product, launches, params.out_dims), False
    written = layout_of(params.out_dims, params.channels_last)
    target = build.empty(epilogue.result, written.elem_count)
    for launch in launches:
        _launch(build, product, launch, target, written, 0, 0, epilogue)
    return target, True


def convolve_transposed(
    build: ProgramBuilder, op: str, g: Operand, kernel: Operand, params: ParamsConvolution
) -> Buffer:
    """The gradient of the input, which is not empty, of volumes."""
    return _multiply(build, _of_channels(build, op, g, kernel, params, is_transposed=True), params.input_dims)


def gradient_weight(build: ProgramBuilder, op: str, x: Operand, g: Operand, params: ParamsConvolution) -> Buffer:
    """The gradient of the kernel, which is not empty, of volumes."""
    image, factors = [_packed_image(build, each, params.groups) for each in (x, g)]
    outer, *image_strides, group, row = factors.strides
    axes = _Strides(group, row, outer, tuple(image_strides))
    sizes = params.channels[1], params.result_sizes
    product = _Product(op, params, image, factors, axes, *sizes, is_transposed=False, sums_positions=True)
    return _multiply(build, product, params.kernel_dims)


def _of_channels(
    build: ProgramBuilder, op: str, x: Operand, kernel: Operand, params: ParamsConvolution, *, is_transposed: bool
) -> _Product:
    """The product whose depth is the channels of x, for each tap."""
    (inner, outer), groups = params.channels, params.groups
    out, channel, *taps = kernel.strides
    (rows, row), (summed, step) = (outer, out), (inner, channel)
    if is_transposed:
        (rows, row), (summed, step) = (summed, step), (rows, row)
    factors = kernel.as_strided((groups, rows, *params.kernel, summed), (outer * out, row, *taps, step))
    factors = _packed(build, factors)
    group, row, *taps, step = factors.strides
    axes = _Strides(group, row, step, tuple(taps))
    sizes = rows, params.sizes if is_transposed else params.result_sizes
    image = _packed_image(build, x, groups)
    return _Product(op, params, image, factors, axes, *sizes, is_transposed=is_transposed, sums_positions=False)


def _packed_image(build: ProgramBuilder, x: Operand, groups: int) -> Operand:
    """(b, c, d, h, w) as kernels read it: (b, d, h, w, groups, channels)."""
    (b, c, *sizes), (stride_b, stride_c, *axes) = x.shape, x.strides
    channels = c // groups
    shape, strides = (b, *sizes, groups, channels), (stride_b, *axes, channels * stride_c, stride_c)
    return _packed(build, x.as_strided(shape, strides))


def _packed(build: ProgramBuilder, x: Operand) -> Operand:
    """Return an operand whose innermost dim is aligned accesses: itself if possible, else a copy padded with zeros."""
    *outer, count = x.shape
    *others, step = x.strides
    length = ACCESS_BYTES // x.itemsize
    are_whole = all(stride % length == 0 for size, stride in zip(outer, others, strict=True) if size > 1)
    if step == 1 and count % length == 0 and are_whole and x.address.is_aligned():
        return x
    padded = (*outer, ceil_divide(count, length) * length)
    result = dense(build.empty(x.dtype, math.prod(padded)), padded)
    target = result.layout.narrow(len(outer), 0, count)
    if padded[-1] != count:
        build.zero(result.storage)
    copy.copy(build, x, Operand(result.storage, target))
    return result


def _multiply(build: ProgramBuilder, product: _Product, dims: tuple[int, ...]) -> Buffer:
    """The product, whose sums over parts of the depth are added up and rounded by further launches."""
    dtype, launches = product.image.dtype, list(_launches(build, product))
    result = _sum_parts(build, product, launches, dims)
    if result.dtype is dtype:
        return result
    return elementwise.cast(build, MethodOp.TO_DTYPE, dense(result, (result.length,)), result=dtype)


def _sum_parts(build: ProgramBuilder, product: _Product, launches: Sequence[_Launch], dims: tuple[int, ...]) -> Buffer:
    """The product, in the compute dtype where parts are added up."""
    dtype, channels_last = product.image.dtype, product.params.channels_last
    parts = sum(launch.parts for launch in launches) if product.sums_positions else launches[0].parts
    written = layout_of(dims, channels_last)
    if product.sums_positions and (parts > 1 or product.channels != dims[1]):
        # Blocks write channels of a tap side by side, which are the columns of their tiles.
        written = layout_of((dims[0], product.channels, *dims[2:]), channels_last=True)
    count = written.elem_count
    target = build.empty(dtype if parts == 1 else dtype.compute, parts * count)
    number = 0
    for launch in launches:
        _launch(build, product, launch, target, written, number, count if parts > 1 else 0)
        number += launch.parts if product.sums_positions else 0
    result = written.narrow(1, 0, dims[1])
    if channels_last:
        result = result.permute(channels_last_order(len(dims)))
    if parts == 1:
        stored: Buffer = copy.contiguous(build, Operand(target, result)).storage
        return stored
    sums = dense(target, (parts, count)).as_strided((parts, *result.shape), (count, *result.strides))
    return reduce.reduce(build, ReduceOp.SUM, sums, (0,))


class _Launch(NamedTuple):
    """Some images, the tile that blocks make of them, and in how many parts of which length they sum the depth."""

    first: int
    images: int
    tile: _Tile
    parts: int
    length: int


def _launches(build: ProgramBuilder, product: _Product) -> Iterator[_Launch]:
    """As many images at a time as kernels number positions of."""
    length = ACCESS_BYTES // product.image.itemsize
    # Offsets of accesses have 31 bits too.
    stride = max(product.image.strides[0], product.factors.strides[0] if product.sums_positions else 0, 1)
    limit = min((LIMIT - 1) // product.image_positions, (LIMIT - 1) * length // stride)
    if limit == 0 or product.terms >= LIMIT:
        raise InvalidArgument(product.op, f"one image has more than {LIMIT - 1} positions; use smaller images")
    for first in range(0, product.images, limit):
        images = min(limit, product.images - first)
        positions = images * product.image_positions
        depth, columns = (positions, product.terms) if product.sums_positions else (product.terms, positions)
        # Images that are too many for one launch are enough for all multiprocessors.
        splits = images == product.images or product.sums_positions
        counts = _PART_COUNTS if splits else _PART_COUNTS[:1]
        yield _Launch(first, images, *_tiling(build, product, columns, depth, counts))


def _tiling(
    build: ProgramBuilder, product: _Product, columns: int, depth: int, part_counts: Sequence[int]
) -> tuple[_Tile, int, int]:
    """The tile, the parts of the depth, and their length, for which blocks are expected to be done first."""
    dtype, multiprocessors = product.image.dtype, build.facts.multiprocessors
    tiles: Sequence[_Tile] = (_SMALL,)
    if dtype is DType.F32:
        large = _LARGE_WEIGHT_TILES if product.sums_positions else _LARGE_TILES
        tiles = (*large, *_FLOAT_TILES) if build.facts.has_kernels("conv_floats") else _FLOAT_TILES
        tiles = [tile for tile in tiles if not tile.is_of_few_taps or sum(product.params.kernel) <= _MAX_TAPS]
    elif dtype in HALF:
        tiles = _GROUP_TILES if build.facts.has_kernels("conv_groups") else _HALF_TILES
    rows, products = product.rows, product.params.groups * math.prod(product.residues)
    by_cost: dict[float, tuple[_Tile, int, int]] = {}
    for tile in tiles:
        blocks = ceil_divide(rows, tile.rows) * ceil_divide(columns, tile.columns) * products
        for wanted in part_counts:
            length = ceil_divide(ceil_divide(depth, wanted), _STEP) * _STEP
            parts = ceil_divide(depth, length)
            waves, remainder = divmod(blocks * parts, tile.resident * multiprocessors)
            last = (tile.alone if remainder <= multiprocessors else 1) if remainder else 0
            products_together = tile.resident * tile.rows * tile.columns * length
            cycles = (waves + last) * (products_together / tile.rate + tile.overhead)
            if parts > 1:
                nbytes = 2 * parts * rows * columns * products * dtype.compute.itemsize
                launches = 1 if dtype is dtype.compute else 2
                cycles += launches * _LAUNCH_CYCLES + nbytes / _BYTES_PER_CYCLE
            by_cost.setdefault(cycles, (tile, parts, length))
    return by_cost[min(by_cost)]


def _launch(
    build: ProgramBuilder,
    product: _Product,
    launch: _Launch,
    target: Buffer,
    written: Layout,
    number: int,
    part_stride: int,
    epilogue: Epilogue | None = None,
) -> None:
    """Multiply some images; sums go to the target from part `number` on, each part as the layout says."""
    params, image, factors = product.params, product.image, product.factors
    strides, residues = product.factors_strides, product.residues
    itemsize, tile = image.itemsize, launch.tile
    columns = product.terms if product.sums_positions else launch.images * product.image_positions
    down, across = ceil_divide(product.rows, tile.rows), ceil_divide(columns, tile.columns)
    blocks = down * across * math.prod(residues) * params.groups * launch.parts
    if blocks > MAX_BLOCKS:
        raise InvalidArgument(product.op, f"a result of {blocks} tiles is more than a launch has; use smaller images")
    outer, row, *axes = written.strides
    if product.sums_positions:
        outer, row = row, outer
    _, *sizes, _, _ = image.shape
    stride_b, *steps, image_group, stride_c = image.strides
    first_result = part_stride * number + (0 if product.sums_positions else launch.first * outer)
    first_factor = launch.first * strides.outer if product.sums_positions else 0
    scale, bias, residual, activation = epilogue[:4] if epilogue else (None,) * 4
    gathered = arguments.Gathered(
        result=target.address + first_result * target.dtype.itemsize, scale=address_of(scale), bias=address_of(bias),
        residual=residual.address + first_result * itemsize if residual else NULL,
        image=image.address + launch.first * stride_b * itemsize, factors=factors.address + first_factor * itemsize,
        result_stride_part=part_stride, result_stride_group=product.rows * row, result_stride_row=row,
        result_stride_outer=outer, result_stride_d=axes[0], result_stride_h=axes[1], result_stride_w=axes[2],
        image_stride_group=image_group, image_stride_b=stride_b, image_stride_c=stride_c, image_stride_d=steps[0],
        image_stride_h=steps[1], image_stride_w=steps[2], factors_stride_group=strides.group,
        factors_stride_row=strides.row, factors_stride_outer=strides.outer, factors_stride_d=strides.axes[0],
        factors_stride_h=strides.axes[1], factors_stride_w=strides.axes[2],
        rows=product.rows, channels=product.channels,
        images=launch.images, groups=params.groups, image_d=sizes[0], image_h=sizes[1], image_w=sizes[2],
        positions_d=product.positions[0], positions_h=product.positions[1], positions_w=product.positions[2],
        stride_d=params.stride[0], stride_h=params.stride[1], stride_w=params.stride[2], period_d=params.periods[0],
        period_h=params.periods[1], period_w=params.periods[2], residues_d=residues[0], residues_h=residues[1],
        residues_w=residues[2], is_transposed=product.is_transposed, tile_rows=tile.rows, tile_columns=tile.columns,
        tiles_across=across, part=launch.length, is_rounded=target.dtype is image.dtype,
        has_epilogue=epilogue is not None, activation=depthwise.ACTIVATIONS.index(activation),
    )  # fmt: skip
    packed = _PACKERS[tile.family](gathered=gathered, window=depthwise.window(params))
    dtype = depthwise.multiplied_as(image.dtype)
    name = f"conv{'_weight' if product.sums_positions else ''}_{dtype}_{tile.kernel}"
    shared_bytes = build.facts.shared_bytes if tile.shared_bytes is None else tile.shared_bytes
    build.launch(tile.family, name, blocks, packed, shared_bytes)
