"""Block-quantized weights on a GPU: decoding, and products with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from .....dtype import HALF, Array, DType
from .....ggml_dtype import GgmlDType
from .....kernels import arguments
from .....kernels.constants import (
    ACCESS_BYTES,
    BLOCK_ROWS,
    BLOCK_SIZE,
    DECODED_PACKS,
    EXACT_PLANES,
    EXACT_PRODUCT_BITS,
    EXACT_PRODUCT_ROWS,
    GROUP_ROWS_OF_BLOCKS,
    GROUP_ROWS_OF_X,
    INTERLEAVED_TILES,
    MIN_BLOCKS_BYTES,
    PRODUCT_ROWS,
    PRODUCT_WAVES,
    TILE_ROWS_OF_BLOCKS,
    TILE_ROWS_OF_X,
    TILE_SHARED,
    X_ROWS_TOGETHER,
)
from .....op import BinaryOp, MethodOp, ReduceOp
from ....core.layout import Layout
from ....core.tensor_type import TensorType
from ....host.quantize import quantized
from ....program.builder import ProgramBuilder
from ....program.values import (
    NULL,
    Address,
    BlocksBuffer,
    Buffer,
    Memory,
    Operand,
    StorageOrBuffer,
    address_of,
    dense,
)
from ..driver.grid import FEW_ROWS_OF_X, MAX_ROWS_OF_X, ceil_divide
from . import copy, elementwise, index, linear, norm, on_host, reduce, row

if TYPE_CHECKING:
    from ..device import GpuDevice
    from ..libraries.library import Blas
    from ..memory.storage import QGpuStorage

# Products take this many iterations at most where x stays in f32, and by weights that are floats; more rows
# are quicker with weights that are decoded to memory.
_EXACT_TURNS: Final = 32
_FLOAT_TURNS: Final = 4
# More rows of 16-bit x, or of x that may be rounded, are multiplied on matrix cores by weights that are decoded in
# registers; still more are quicker by a library, with weights that are decoded to memory.
_MAX_TILED: Final = 32
# Where groups of waves multiply, these decode weights themselves for this many rows, but those of grids, and of
# Q3K, whose scales and quants begin anywhere, in more time than it takes to decode them to memory.
_MAX_GROUPED: Final = 512
_DECODED_FIRST: Final = frozenset(format for format in GgmlDType if format.has_grid or format is GgmlDType.Q3K)
# The depth of x goes to these in steps of this many numbers.
_GROUP_DEPTH: Final = 64
# Blocks of that kernel share the depth until each multiprocessor has this many of them, in parts of this many weights.
_BLOCKS_AT_ONCE: Final = 2
_PART: Final = 256
_MIN_PARTS: Final = 4
# Others decode weights to this many bytes at a time at most.
_MAX_DECODED: Final = 1 << 27
# The weights of a row that a lane takes at a time if they are floats.
_LANE_FLOATS: Final = 8
# Kernels count the bytes of their rows of weights and of x in 32 bits.
_MAX_HIDDEN: Final = 1 << 25
# The waves of a block, or twice those.
_WAVES: Final = BLOCK_SIZE // 32
# x is multiplied as integers, of which as many as a lane takes, or half of them, have a step and a sum in f32.
_LANE_WEIGHTS: Final = 32
_STEP_BYTES: Final = 8
# Rows of this many weights are shared by two waves, which then have 4 parts of a row each, of 32 weights for each lane.
_MIN_SHARED: Final = 2 * 4 * 32 * 32
# The numbers of x that a lane converts to integers, in rows of full parts of waves of up to 64 lanes.
_LANE_MAKES: Final = 4
_MAX_PART: Final = 64 * _LANE_WEIGHTS


def zeros(device: GpuDevice, elem_count: int, dtype: GgmlDType) -> QGpuStorage:
    """Blocks of zero bytes."""
    memory = device.allocate(elem_count // dtype.block_size * dtype.type_size)
    device.driver.zero(memory.address, memory.nbytes)
    return device.blocks_class(device, dtype, elem_count, memory)


def from_data(device: GpuDevice, data: Array, dtype: GgmlDType) -> QGpuStorage:
    """A copy of blocks."""
    memory = device.allocate(data.size)
    device.driver.copy_to_device(memory.address, data.reshape(-1))
    return device.blocks_class(device, dtype, data.size // dtype.type_size * dtype.block_size, memory)


def quantize(build: ProgramBuilder, blocks: StorageOrBuffer, source: Operand) -> None:
    """Replace the weights with those of the source, which the host rounds."""
    build.host(_quantize, blocks, copy.contiguous(build, source))


def _quantize(blocks: QGpuStorage, source: Operand) -> None:
    blocks.device.write(blocks.memory.address, quantized(on_host.read(source).reshape(-1), blocks.dtype))


def dequantize(build: ProgramBuilder, blocks: StorageOrBuffer, _elem_count: int) -> Buffer:
    """The weights in f32."""
    return _decoded(build, blocks.dtype, blocks.address, blocks.length, DType.F32)


def dequantize_f16(build: ProgramBuilder, blocks: StorageOrBuffer, _elem_count: int) -> Buffer:
    """The weights in f16."""
    return _decoded(build, blocks.dtype, blocks.address, blocks.length, DType.F16)


def _decoded(build: ProgramBuilder, format: GgmlDType, address: Address, count: int, dtype: DType) -> Buffer:
    result = build.empty(dtype, count)
    packed = arguments.dequantize(result=result.address, blocks=address, count=count)
    needed = ceil_divide(count, BLOCK_SIZE * DECODED_PACKS * (ACCESS_BYTES // dtype.itemsize))
    build.launch("quantized", f"dequantize_{format.value}_{dtype.value}", needed, packed)
    return result


def embedding(build: ProgramBuilder, blocks: StorageOrBuffer, ids: Operand, rows: int, hidden: int) -> Buffer:
    """The rows that the vector `ids` names; at a mark those of zero bytes."""
    size = hidden // blocks.block_size * blocks.dtype.type_size
    selected = TensorType(DType.U8, (ids.layout.elem_count, size))
    chosen = index.select(build, "embedding", dense(blocks.bytes(), (rows, size)), ids, selected, 0)
    count = ids.layout.elem_count * hidden
    return _decoded(build, blocks.dtype, chosen.address, count, DType.F32)


class _Weights(NamedTuple):
    """Block-quantized weights (rows, hidden), and how the activations may be rounded that they are multiplied with."""

    blocks: BlocksBuffer
    rows: int
    hidden: int
    activations: str | None

    def has_whole_lanes(self, x: Operand) -> bool:
        """Whether lanes take the same numbers of each row, of which there are some."""
        lane = max(self.blocks.block_size, _LANE_FLOATS)
        return x.shape[0] > 0 and self.rows > 0 and 0 < self.hidden <= _MAX_HIDDEN and self.hidden % lane == 0

    def rounds(self, x: Operand) -> bool:
        """Whether the activations may be rounded, or are f16 or bf16."""
        return x.dtype in HALF or self.activations is not None

    def is_small(self, x: Operand) -> bool:
        """Whether the kernel multiplies the activation rows; with an empty sum it has nothing to write."""
        many = self.blocks.block_size > 1
        at_once, turns = (MAX_ROWS_OF_X, _EXACT_TURNS) if many else (FEW_ROWS_OF_X, _FLOAT_TURNS)
        return x.shape[0] <= (at_once if self.rounds(x) else turns * at_once) and self.has_whole_lanes(x)

    def are_tiled(self, x: Operand) -> bool:
        """Whether the kernel that decodes weights for matrix cores multiplies the activation rows, if they are more."""
        return self.rounds(x) and self.blocks.block_size > 1 and self.has_whole_lanes(x)

    def are_grouped(self, build: ProgramBuilder, x: Operand) -> bool:
        """Whether groups of waves multiply the activation rows by weights that they decode themselves."""
        is_between = _MAX_TILED < x.shape[0] <= _MAX_GROUPED and self.blocks.dtype not in _DECODED_FIRST
        return is_between and self.are_tiled(x) and build.facts.has_kernels("block_groups")

    def decoded(self, build: ProgramBuilder, dtype: DType, begin: int, rows: int) -> Operand:
        """Rows from one on as numbers."""
        blocks, hidden = self.blocks, self.hidden
        address = blocks.address + begin * hidden // blocks.block_size * blocks.dtype.type_size
        return dense(_decoded(build, blocks.dtype, address, rows * hidden, dtype), (rows, hidden))


def forward_by_library(
    build: ProgramBuilder,
    library: Blas,
    blocks: StorageOrBuffer,
    x: Operand,
    rows: int,
    hidden: int,
    activations: str | None,
) -> Buffer | None:
    """Multiply more rows than the kernels take, by a library; None for fewer, and as of `linear.by_library`."""
    weights, dtype = _Weights(blocks, rows, hidden, activations), x.dtype
    is_tiled = x.shape[0] <= _MAX_TILED and weights.are_tiled(x)
    if weights.is_small(x) or weights.are_grouped(build, x) or is_tiled:
        return None
    x = _in_halves(build, x, weights)

    def product(decoded: Operand) -> Buffer | None:
        return linear.by_library(build, library, x, decoded, None, result=dtype)

    return _decoded_product(build, weights, x, dtype, product)


def forward(
    build: ProgramBuilder, blocks: StorageOrBuffer, x: Operand, rows: int, hidden: int, activations: str | None
) -> Buffer:
    """The product of x (m, hidden) and the transpose of the weights (rows, hidden), in the dtype of x."""
    weights, count, dtype = _Weights(blocks, rows, hidden, activations), x.shape[0], x.dtype
    if weights.is_small(x):
        x = _aligned(build, x)
        result = build.empty(DType.F32, count * rows)
        at_once = MAX_ROWS_OF_X if blocks.block_size > 1 else FEW_ROWS_OF_X
        for begin in range(0, count, at_once):
            part = Operand(x.storage, x.layout.narrow(0, begin, min(at_once, count - begin)))
            address = result.address + begin * rows * result.dtype.itemsize
            _multiply_few(build, weights, part, address)
    elif weights.are_grouped(build, x):
        result = _grouped_product(build, weights, _in_halves(build, x, weights), dtype)
    elif weights.are_tiled(x):
        result = _tiled_product(build, weights, _in_halves(build, x, weights))
    else:
        product = _decoded_product(build, weights, x, dtype, lambda decoded: linear.by_kernel(build, x, decoded, None))
        assert product is not None
        return product
    return _converted(build, dense(result, (count * rows,)), dtype)


def _in_halves(build: ProgramBuilder, x: Operand, weights: _Weights) -> Operand:
    """x that may be rounded in bf16, which has the range of f32; else as it is."""
    return dense(_converted(build, x, DType.BF16), x.shape) if weights.rounds(x) and x.dtype is DType.F32 else x


def _tiled_product(build: ProgramBuilder, weights: _Weights, x: Operand) -> Buffer:
    """Multiply 16-bit activations, in f32, by the kernel that decodes weights for matrix cores."""
    x, (blocks, rows, hidden, _) = _in_accesses(build, x), weights
    count = x.shape[0]
    tiles = ceil_divide(count, TILE_ROWS_OF_X) * ceil_divide(rows, TILE_ROWS_OF_BLOCKS)
    wanted = _BLOCKS_AT_ONCE * build.facts.multiprocessors // tiles
    split_k = max(min(wanted, hidden // (_PART * _MIN_PARTS)), 1)
    sums = build.empty(DType.F32, split_k * count * rows)
    packed = arguments.block_tiles(
        result=sums.address, blocks=blocks.address, readable=blocks.nbytes, x=x.address,
        x_stride=x.strides[0], x_rows=count, rows=rows, hidden=hidden, split_k=split_k,
    )  # fmt: skip
    name = f"block_tiles_{blocks.dtype.value}_{x.dtype.value}"
    build.launch("block_tiles", name, tiles * split_k, packed, TILE_SHARED)
    return sums if split_k == 1 else reduce.reduce(build, ReduceOp.SUM, dense(sums, (split_k, count * rows)), (0,))


def _grouped_product(build: ProgramBuilder, weights: _Weights, x: Operand, dtype: DType) -> Buffer:
    """Multiply 16-bit activations, in their dtype or in f32."""
    x, (blocks, rows, hidden, _) = _in_accesses(build, x), weights
    count = x.shape[0]
    tiles_of_x, steps = ceil_divide(count, GROUP_ROWS_OF_X), ceil_divide(hidden, _PART) * (_PART // _GROUP_DEPTH)
    tiles = tiles_of_x * ceil_divide(rows, GROUP_ROWS_OF_BLOCKS)
    arranged = build.empty(x.dtype, tiles_of_x * GROUP_ROWS_OF_X * steps * _GROUP_DEPTH)
    packed = arguments.arrange_x(
        result=arranged.address, x=x.address, x_stride=x.strides[0], x_rows=count,
        padded_rows=tiles_of_x * GROUP_ROWS_OF_X, hidden=hidden, steps=steps,
    )  # fmt: skip
    accesses = arranged.length * x.itemsize // ACCESS_BYTES
    build.launch("block_groups", f"arrange_x_{blocks.dtype.value}", ceil_divide(accesses, BLOCK_SIZE), packed)
    # A block has a multiprocessor for itself. Blocks of fewer tiles share the depth.
    split_k = max(min(build.facts.multiprocessors // tiles, hidden // (_PART * _MIN_PARTS)), 1)
    rounds = dtype is x.dtype
    result = build.empty(dtype, count * rows)
    parts = build.empty(DType.F32, split_k * tiles * GROUP_ROWS_OF_X * GROUP_ROWS_OF_BLOCKS) if split_k > 1 else None
    packed = arguments.block_groups(
        result=result.address, blocks=blocks.address, readable=blocks.nbytes,
        x=arranged.address, x_rows=count, rows=rows, hidden=hidden, split_k=split_k, rounds=rounds,
        parts=address_of(parts),
        counters=NULL if parts is None else build.facts.counters,
    )  # fmt: skip
    name = f"block_groups_{blocks.dtype.value}_{x.dtype.value}"
    build.launch("block_groups", name, tiles * split_k, packed, build.facts.shared_bytes)
    return result


def fwd_rms_norm(
    build: ProgramBuilder,
    blocks: StorageOrBuffer,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    rows: int,
    hidden: int,
    activations: str | None,
    eps: float,
) -> tuple[Buffer, ...]:
    """The product of what rms_norm makes of x, and the sum of x and the residual where there is one."""
    weights = _Weights(blocks, rows, hidden, activations)
    if _makes_rows(weights, x):
        kernel, activations_of, together = _activation_rows(build, weights, x)
        sums = norm.rms_norm_by(build, kernel, x, weight, residual, eps, activations_of.address, together)
        if sums is not None:
            return _product_of_made(build, weights, activations_of.address, x.shape[0]), *sums
    normed, *others = row.row(build, MethodOp.RMS_NORM, x, weight, residual, eps)
    return forward(build, blocks, dense(normed, x.shape), rows, hidden, activations), *others


def fwd_silu_mul(
    build: ProgramBuilder,
    blocks: StorageOrBuffer,
    x: Operand,
    y: Operand,
    rows: int,
    hidden: int,
    activations: str | None,
) -> Buffer:
    """The product of silu(x) * y."""
    weights = _Weights(blocks, rows, hidden, activations)
    if not _makes_rows(weights, x):
        gated = elementwise.binary(build, BinaryOp.SILU_MUL, x, y)
        return forward(build, blocks, dense(gated, x.shape), rows, hidden, activations)
    x, y = _in_accesses(build, x), _in_accesses(build, y)
    kernel, quantized, together = _activation_rows(build, weights, x)
    packed = arguments.make_gated_x(
        result=quantized.address, x=x.address, x_stride=x.strides[0], y=y.address, y_stride=y.strides[0],
        x_rows=x.shape[0], hidden=hidden, together=together,
    )  # fmt: skip
    build.launch("make_x", f"silu_mul_{kernel}", _blocks_that_make(x), packed)
    return _product_of_made(build, weights, quantized.address, x.shape[0])


def _makes_rows(weights: _Weights, x: Operand) -> bool:
    """Whether what makes x can write the rows that the kernel reads, all at once."""
    return weights.blocks.block_size > 1 and x.shape[0] <= MAX_ROWS_OF_X and weights.has_whole_lanes(x)


def _product_of_made(build: ProgramBuilder, weights: _Weights, quantized: Address, count: int) -> Buffer:
    result = build.empty(DType.F32, count * weights.rows)
    _multiply_rows(build, weights, quantized, 0, count, result.address)
    return result


def _multiply_few(build: ProgramBuilder, weights: _Weights, x: Operand, result: Address) -> None:
    """Write the product of as many activation rows as the kernel takes at once to the address `result`."""
    stride, count = x.strides[0], x.shape[0]
    if weights.blocks.block_size == 1:
        _multiply_rows(build, weights, x.address, stride, count, result)
        return
    kernel, quantized, together = _activation_rows(build, weights, x)
    packed = arguments.make_x(
        result=quantized.address, x=x.address, x_stride=stride, x_rows=count, hidden=weights.hidden, together=together
    )
    build.launch("make_x", f"x_{kernel}", _blocks_that_make(x), packed)
    _multiply_rows(build, weights, quantized.address, 0, count, result)


def _multiply_rows(
    build: ProgramBuilder, weights: _Weights, x: Address, stride: int, x_rows: int, result: Address
) -> None:
    """Multiply rows as the kernel reads them: of integers, or of floats for weights that are."""
    blocks, rows, hidden, activations = weights
    kernel = "block_product" if activations is None else "rounded_product"
    memory, split_bits = blocks.memory, 0
    if blocks.block_size > 1:
        memory, split_bits = _roomy(build, blocks), _split_bits(rows, hidden)
    readable = max(blocks.nbytes, MIN_BLOCKS_BYTES)
    packed = arguments.block_product(
        result=result, blocks=memory.address, readable=readable, x=x, x_stride=stride, x_rows=x_rows, rows=rows,
        hidden=hidden, split_bits=split_bits,
    )  # fmt: skip
    if blocks.block_size == 1:
        count = ceil_divide(rows, _WAVES)
    elif x_rows > 1:
        count = ceil_divide(rows, BLOCK_ROWS)
    else:
        padded_rows = ceil_divide(rows, BLOCK_ROWS * INTERLEAVED_TILES) * BLOCK_ROWS * INTERLEAVED_TILES
        count = ceil_divide(padded_rows << split_bits, _WAVES * _rows_at_once(blocks, activations))
    name = f"{kernel}_{blocks.dtype.value}_{_max_rows(x_rows)}"
    build.launch("block_product", name, count, packed)


def _max_rows(count: int) -> int:
    """Return the most activation rows that the kernel for `count` of them takes."""
    return next(limit for limit in (1, FEW_ROWS_OF_X, MAX_ROWS_OF_X) if count <= limit)


def _rows_at_once(blocks: BlocksBuffer, activations: str | None) -> int:
    """The rows of weights that a wave multiplies at a time by a row of x."""
    if blocks.dtype.type_size >= blocks.block_size:
        return 1
    has_few_bits = 8 * blocks.dtype.type_size < EXACT_PRODUCT_BITS * blocks.block_size
    return EXACT_PRODUCT_ROWS if activations is None and has_few_bits else PRODUCT_ROWS


def _split_bits(rows: int, hidden: int) -> int:
    """The logarithm of how many waves of a block share a row of weights: of few rows, if each has enough parts."""
    bits = 0
    while (2 << bits) <= _WAVES // 2 and rows << bits < PRODUCT_WAVES and _MIN_SHARED << bits <= hidden:
        bits += 1
    return bits


def _roomy(build: ProgramBuilder, blocks: BlocksBuffer) -> Memory:
    """Return the memory of the weights; if they are few, a copy of the size that products read in aligned accesses."""
    count = blocks.nbytes
    if count >= MIN_BLOCKS_BYTES:
        return blocks.memory
    padded = build.empty(DType.U8, MIN_BLOCKS_BYTES)
    layout = Layout.contiguous((count,))
    copy.copy(build, Operand(blocks.bytes(), layout), Operand(padded, layout))
    return padded.memory


def _activation_rows(build: ProgramBuilder, weights: _Weights, x: Operand) -> tuple[str, Buffer, int]:
    """Return the suffix of kernels that quantize activations for these weights, memory, and how many are interleaved.

    See rows_of_x.hpp.
    """
    count, hidden = x.shape
    planes = EXACT_PLANES if weights.activations is None else 1
    group = min(weights.blocks.dtype.group_size, _LANE_WEIGHTS)
    row_bytes = ceil_divide(hidden, _MAX_PART) * (_MAX_PART * planes + _MAX_PART // group * _STEP_BYTES)
    quantized = build.empty(DType.U8, _max_rows(count) * row_bytes)
    return f"{planes}_{group}", quantized, 1 if count == 1 else X_ROWS_TOGETHER


def _blocks_that_make(x: Operand) -> int:
    return ceil_divide(x.layout.elem_count, BLOCK_SIZE * _LANE_MAKES)


def _decoded_product(
    build: ProgramBuilder, weights: _Weights, x: Operand, dtype: DType, product: Callable[[Operand], Buffer | None]
) -> Buffer | None:
    """The products, in `dtype`, with rows of weights in x's, decoded in parts of at most `_MAX_DECODED` bytes."""
    rows = weights.rows
    limit = max(_MAX_DECODED // (max(weights.hidden, 1) * x.itemsize), 1)
    if rows <= limit:
        return product(weights.decoded(build, x.dtype, 0, rows))
    # Parts of one size share their memory.
    limit = ceil_divide(rows, ceil_divide(rows, limit))
    x_rows = x.shape[0]
    result = build.empty(dtype, x_rows * rows)
    view = dense(result, (x_rows, rows))
    for begin in range(0, rows, limit):
        count = min(limit, rows - begin)
        part = product(weights.decoded(build, x.dtype, begin, count))
        if part is None:
            return None
        copy.copy(build, dense(part, (x_rows, count)), Operand(result, view.layout.narrow(1, begin, count, 1)))
    return result


def _aligned(build: ProgramBuilder, x: Operand) -> Operand:
    """Return rows in f32 that lanes load in aligned accesses."""
    return _in_accesses(build, x) if x.dtype is DType.F32 else dense(_converted(build, x, DType.F32), x.shape)


def _in_accesses(build: ProgramBuilder, x: Operand) -> Operand:
    """Rows that begin with an access and are dense."""
    is_aligned = x.address.is_aligned() and x.strides[0] * x.itemsize % ACCESS_BYTES == 0
    return x if is_aligned and x.strides[1] == 1 else copy.copied(build, x)


def _converted(build: ProgramBuilder, x: Operand, dtype: DType) -> Buffer:
    return x.storage if x.dtype is dtype else elementwise.cast(build, MethodOp.TO_DTYPE, x, result=dtype)
