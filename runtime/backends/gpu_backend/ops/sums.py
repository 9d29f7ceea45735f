"""Elements added at an index, each sum in the order of its positions.

There are three algorithms. Threads walk a line along the chosen dim each: that is quick where lines are very many.
Waves walk a line each, many positions at a time: that is quick where there are enough lines for all waves, and more so
where a line fits into shared memory. Sorting groups the positions of each target: that works for any shape, and
is quick where lines are few and long.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import lru_cache
from typing import Final

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, DIGIT_BITS, SHARED_SUMS, SORT_TILE
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, Memory, Operand, address_of, dense
from ..driver.grid import ceil_divide
from . import copy, elementwise, index
from .geometry import LIMIT, Dims, parts, strided_block
from .index import Rows, without
from .sort import sort_keys

# The keys of the sort are u32.
_KEY_BITS: Final = 32
_KEY_BYTES: Final = 4
# The byte of a target that no key has.
_NOWHERE: Final = 0xFF
# So many comparisons of an element with an index take less time than sorting the indexes.
_FEW_LOOKS: Final = 1 << 26
# More targets than these one block does not mark as free as quickly as the driver does.
_FEW_ROWS: Final = 1 << 14

# The cost model of scatter_add, in microseconds. A multiprocessor holds this many threads that walk a line each, and
# fewer that walk as waves, which keep more in registers or in shared memory. A step is a read, a sum and a write that
# wait for each other, however many threads or waves do it at once.
_THREADS: Final = 2048
_WAVE_THREADS: Final = 1024
_NEAR_THREADS: Final = 512
_THREAD_STEP: Final = 1.0
_WAVE_STEP: Final = 0.5
# The same in shared memory, and of as many elements of a line that go there and back.
_NEAR_STEP: Final = 0.15
_NEAR_ROWS: Final = 0.05
# A step of a wave whose lanes read far from each other, and of a thread whose neighbour in the wave reads far from it.
_APART: Final = 3.0
# A pass of the sort, and of each key in it. One block takes longer for a key, but it is one launch.
_SORT_PASS: Final = 9.0
_SORT_KEY: Final = 1.1e-5
_BLOCK_SORT_PASS: Final = 2.0
_BLOCK_SORT_KEY: Final = 2e-3
# The time before and after the passes, where keys are computed and positions are read in another order.
_SORTED: Final = 10.0
_SORTED_KEY: Final = 4e-5
# A look at all indexes before, and of each of them.
_CHECK: Final = 2.0
_CHECK_INDEX: Final = 2e-6
# Two casts, and of each element of the target.
_WIDEN: Final = 5.0
_WIDEN_ELEMENT: Final = 4e-6
# If the order may vary, blocks read and write all elements of a line, where it has at most this many for each that is
# added, and look at all positions of a line this many times at most.
_MAX_APART: Final = 4
_MAX_PARTS: Final = 8
# Waves walk no more lines at once than whose targets stay near in a cache, but always this many on a multiprocessor.
_CACHE_BYTES: Final = 32 << 20
_MIN_WAVES: Final = 8


class _Algorithm(Enum):
    """How to add; where that is by lines, by what gets one. The value is in the kernel's name."""

    THREADS = "lines"
    WAVES = "waves"
    NEAR = "near"
    SORT = "sorted"
    # These two in any order.
    SHARED = "shared"
    ATOMIC = "atomic"


def scatter_add(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in row-major order, in the compute dtype."""
    count = indexes.layout.elem_count
    if count == 0:
        return
    indexes, source = copy.copy_if_aliasing(build, x, indexes), copy.copy_if_aliasing(build, x, source)
    reach = x.layout.end - x.layout.start_offset if x.layout.end else 0
    facts = build.facts
    gpu = facts.multiprocessors, facts.wave_size
    algorithm = _best_algorithm(
        gpu, x.dtype, x.shape, reach, indexes.shape, (indexes.strides[dim], source.strides[dim]), dim
    )
    if algorithm is _Algorithm.SORT:
        _add_sorted(build, x, indexes, source, dim, reach)
    else:
        _add_by_lines(build, algorithm, "scatter_add", x, indexes, source, dim)


def scatter_add_in_any_order(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Add each element of `source` to its index along `dim`, in any order, in the compute dtype."""
    if indexes.layout.elem_count == 0:
        return
    indexes, source = copy.copy_if_aliasing(build, x, indexes), copy.copy_if_aliasing(build, x, source)
    steps = indexes.strides[dim], source.strides[dim], x.strides[dim]
    if _fits_blocks(build.facts.multiprocessors, x.dtype, x.shape[dim], indexes.shape, steps, dim):
        _add_by_lines(build, _Algorithm.SHARED, "scatter_add", x, indexes, source, dim)
    else:
        _add_atomically(build, x, indexes, source, dim)


@lru_cache(maxsize=4096)
def _fits_blocks(
    multiprocessors: int, dtype: DType, size: int, shape: Dims, steps: tuple[int, int, int], dim: int
) -> bool:
    """Whether blocks that have a part of a line of `size` elements each are enough, and none too long."""
    count, length = math.prod(shape), shape[dim]
    parts_of_line = ceil_divide(size, SHARED_SUMS // dtype.compute.itemsize)
    blocks = count // length * parts_of_line
    is_short = count <= index.FEW and parts_of_line == 1
    is_even = size <= _MAX_APART * length and multiprocessors <= 2 * blocks < LIMIT
    return is_short or (is_even and parts_of_line <= _MAX_PARTS and all(step in (0, 1) for step in steps))


@lru_cache(maxsize=4096)
def _best_algorithm(
    gpu: tuple[int, int], dtype: DType, target: Dims, reach: int, shape: Dims, steps: tuple[int, int], dim: int
) -> _Algorithm:
    """Return the fastest algorithm by the cost model, for `target` dims, `shape` indexes and the operands' steps.

    `gpu` is how many multiprocessors there are and how large a wave is.
    """
    multiprocessors, wave = gpu
    count, length = math.prod(shape), shape[dim]
    lines = count // length
    # Positions along a line are adjacent in memory, or lines are; a broadcast source is near in both cases.
    is_dense = all(step in (0, 1) for step in steps)
    threads = ceil_divide(lines, multiprocessors * _THREADS) * length * _THREAD_STEP
    waves = ceil_divide(lines, _waves_at_once(gpu, dtype, target[dim])) * ceil_divide(length, wave) * _WAVE_STEP
    line_near = ceil_divide(length, wave) * _NEAR_STEP + ceil_divide(target[dim], wave) * _NEAR_ROWS
    near = ceil_divide(lines, multiprocessors * _NEAR_THREADS // wave) * line_near
    if is_dense and length > 1:
        threads *= _APART
    elif not is_dense:
        waves, near = waves * _APART, near * _APART
    is_by_waves = waves < threads and target[dim] < LIMIT
    algorithm, cost = (_Algorithm.WAVES, waves) if is_by_waves else (_Algorithm.THREADS, threads)
    if dtype is not dtype.compute:
        cost += _WIDEN + _WIDEN_ELEMENT * math.prod(target)
    if near < cost and target[dim] * dtype.compute.itemsize <= SHARED_SUMS * wave // BLOCK_SIZE:
        algorithm, cost = _Algorithm.NEAR, near
    if count > index.FEW:
        cost += _CHECK + _CHECK_INDEX * count
    is_sortable = count < LIMIT and reach < 1 << _KEY_BITS
    return _Algorithm.SORT if is_sortable and _sort_cost(count, reach) < cost else algorithm


def _waves_at_once(gpu: tuple[int, int], dtype: DType, length: int) -> int:
    """How many waves walk lines of a target of `length` rows at the same time."""
    multiprocessors, wave = gpu
    near = _CACHE_BYTES // max(length * dtype.compute.itemsize, 1)
    return min(max(near, multiprocessors * _MIN_WAVES), multiprocessors * _WAVE_THREADS // wave)


def _sort_cost(count: int, reach: int) -> float:
    passes = ceil_divide(reach.bit_length(), DIGIT_BITS)
    each, key = (_BLOCK_SORT_PASS, _BLOCK_SORT_KEY) if count <= SORT_TILE else (_SORT_PASS, _SORT_KEY)
    return passes * (each + count * key) + _SORTED + count * _SORTED_KEY


def index_add(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int) -> Buffer:
    """A copy of `x` with row i of `source` along `dim` added to row indexes[i], in the compute dtype."""
    count = indexes.layout.elem_count
    rows = Rows.of(build, "index_add", indexes, x.shape[dim])
    if count == 0 or x.layout.elem_count == 0:
        index.check(build, rows)
        return copy.fresh(build, x)
    if max(count, x.shape[dim]) >= LIMIT:
        result, each = copy.fresh(build, x), index.broadcast(indexes, source.shape, dim)
        _add_by_lines(build, _Algorithm.THREADS, "index_add", dense(result, x.shape), each, source, dim)
        return result
    if count <= index.FEW and count * x.layout.elem_count <= _FEW_LOOKS:
        return _add_few(build, x, rows, source, dim)
    return _add_rows(build, x, rows, source, dim)


def _add_by_lines(
    build: ProgramBuilder, algorithm: _Algorithm, op: str, x: Operand, indexes: Operand, source: Operand, dim: int
) -> None:
    rows = Rows.of(build, op, indexes, x.shape[dim])
    # Of few indexes the kernel looks at all before it writes.
    is_small = indexes.layout.elem_count <= index.FEW
    if not is_small:
        index.check(build, rows)
    # In shared memory sums are in the compute dtype anyway.
    is_rounded = algorithm in (_Algorithm.SHARED, _Algorithm.NEAR)
    target = x if is_rounded else elementwise.converted(build, x, x.dtype.compute)
    per_block, max_blocks, parts_of_line = BLOCK_SIZE, LIMIT, 1
    if algorithm is _Algorithm.SHARED:
        per_block, parts_of_line = 1, ceil_divide(x.shape[dim], SHARED_SUMS // x.dtype.compute.itemsize)
    if algorithm is _Algorithm.NEAR:
        per_block = BLOCK_SIZE // build.facts.wave_size
    if algorithm is _Algorithm.WAVES:
        gpu = build.facts.multiprocessors, build.facts.wave_size
        per_block = BLOCK_SIZE // gpu[1]
        max_blocks = ceil_divide(_waves_at_once(gpu, x.dtype, x.shape[dim]), per_block)
    size = target.itemsize
    shape = (*indexes.shape[:dim], *indexes.shape[dim + 1 :])
    operands = indexes.strides, target.strides, source.strides
    strides = tuple([(*operand[:dim], *operand[dim + 1 :]) for operand in operands])
    steps = indexes.strides[dim], source.strides[dim]
    for blocks, _, offsets, lines, geometry in parts(per_block, shape, strides):
        for start in range(0, indexes.shape[dim], LIMIT):
            of_index, of_source = [offset + start * step for offset, step in zip(offsets[::2], steps, strict=True)]
            packed = arguments.scatter_lines(
                destination=target.address + offsets[1] * size, source=source.address + of_source * source.itemsize,
                indexes=indexes.address + of_index * indexes.itemsize, index=rows.fields,
                row_stride=target.strides[dim], index_stride=indexes.strides[dim], source_stride=source.strides[dim],
                is_unchecked=is_small, lines=lines, length=min(LIMIT, indexes.shape[dim] - start), geometry=geometry,
            )  # fmt: skip
            name = f"scatter_add_{x.dtype.value}_{algorithm.value}"
            index.launch(build, name, min(blocks * parts_of_line, max_blocks), packed)
    _narrow(build, target, x)


def _add_atomically(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    rows = Rows.of(build, "scatter_add", indexes, x.shape[dim])
    index.check(build, rows)
    target = elementwise.converted(build, x, x.dtype.compute)
    strides = indexes.strides, without(target.strides, dim), source.strides
    for blocks, _, offsets, count, geometry in parts(BLOCK_SIZE, indexes.shape, strides):
        packed = arguments.scatter(
            destination=target.address + offsets[1] * target.itemsize,
            source=source.address + offsets[2] * source.itemsize,
            indexes=indexes.address + offsets[0] * indexes.itemsize, winners=NULL, index=rows.fields,
            row_stride=target.strides[dim], count=count, geometry=geometry,
        )  # fmt: skip
        index.launch(build, f"scatter_add_{x.dtype.value}_{_Algorithm.ATOMIC.value}", blocks, packed)
    _narrow(build, target, x)


def _narrow(build: ProgramBuilder, target: Operand, x: Operand) -> None:
    """Write the elements in the compute dtype back to where they come from."""
    if target is not x:
        copy.copy(build, elementwise.converted(build, target, x.dtype), x)


def _add_sorted(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int, reach: int) -> None:
    rows = Rows.of(build, "scatter_add", indexes, x.shape[dim])
    keys, positions = _sorted(build, rows, x.strides[dim], without(x.strides, dim), reach)
    (part,) = parts(BLOCK_SIZE, source.shape, (source.strides,))
    packed = arguments.scatter_sorted(
        destination=x.address, source=source.address, keys=keys.address, positions=positions.address,
        errors=rows.fields.errors, call=rows.fields.call, count=part.elements, geometry=part.geometry,
    )  # fmt: skip
    build.launch("index", f"scatter_add_{x.dtype.value}_{_Algorithm.SORT.value}", part.blocks, packed)


def _sorted_rows(build: ProgramBuilder, rows: Rows) -> tuple[Memory, Memory, Memory]:
    """The rows that a vector of indexes names, sorted, the positions of the indexes, and where each row begins."""
    (count,), size = rows.indexes.shape, rows.size
    starts = build.allocate(size * _KEY_BYTES)
    if count > SORT_TILE or size > _FEW_ROWS:
        build.fill(starts.address, _NOWHERE, starts.nbytes)
    if count <= SORT_TILE:
        keys, positions = _sorted_by_block(build, rows, 1, (0,), size, starts)
    else:
        keys, positions = _sorted(build, rows, 1, (0,), size)
        packed = arguments.index_starts(starts=starts.address, keys=keys.address, count=count)
        build.launch("index", "index_starts", ceil_divide(count, BLOCK_SIZE), packed)
    return keys, positions, starts


def _sorted(build: ProgramBuilder, rows: Rows, stride: int, others: Dims, reach: int) -> tuple[Memory, Memory]:
    """Keys below `reach`, or ~0 for nowhere, and their positions, sorted by key and then by position.

    `stride` is the stride of rows in elements, and `others` are the strides of positions along the dims.
    """
    indexes = rows.indexes
    count = indexes.layout.elem_count
    if count <= SORT_TILE:
        return _sorted_by_block(build, rows, stride, others, reach, None)
    keys = build.allocate(count * _KEY_BYTES)
    # The sort numbers all keys in 32 bits, so that their launch is one.
    (part,) = parts(BLOCK_SIZE, indexes.shape, (indexes.strides, others))
    packed = arguments.index_keys(
        keys=keys.address, indexes=indexes.address, index=rows.fields, row_stride=stride, count=part.elements,
        geometry=part.geometry,
    )  # fmt: skip
    index.launch(build, "index_keys", part.blocks, packed)
    # One number more than there are keys: sorted by their last digits, those without a target come last.
    return sort_keys(build, keys, count, reach.bit_length())


def _sorted_by_block(
    build: ProgramBuilder, rows: Rows, stride: int, others: Dims, reach: int, starts: Memory | None
) -> tuple[Memory, Memory]:
    """As `_sorted`, in one launch, which also notes where each key begins in `starts`, where there is one."""
    indexes = rows.indexes
    keys, positions = [build.allocate(indexes.layout.elem_count * _KEY_BYTES) for _ in range(2)]
    (part,) = parts(BLOCK_SIZE, indexes.shape, (indexes.strides, others))
    packed = arguments.sort_keys(
        keys=keys.address, positions=positions.address, starts=address_of(starts),
        indexes=indexes.address, index=rows.fields, row_stride=stride,
        rows=rows.size if starts and rows.size <= _FEW_ROWS else 0,
        bits=reach.bit_length(), count=part.elements, geometry=part.geometry,
    )  # fmt: skip
    index.launch(build, "sort_keys", 1, packed)
    return keys, positions


def _add_rows(build: ProgramBuilder, x: Operand, rows: Rows, source: Operand, dim: int) -> Buffer:
    dtype, itemsize = x.dtype, x.itemsize
    (count,) = rows.indexes.shape
    keys, positions, starts = _sorted_rows(build, rows)
    result = build.empty(dtype, x.layout.elem_count)
    strides = x.strides, without(source.strides, dim), index.along(len(x.shape), dim, 1)
    for blocks, first, offsets, elements, geometry in parts(strided_block(itemsize), x.shape, strides):
        packed = arguments.index_add(
            result=result.address + first * itemsize, source=x.address + offsets[0] * itemsize,
            added=source.address + offsets[1] * itemsize, keys=keys.address, positions=positions.address,
            starts=starts.address + offsets[2] * _KEY_BYTES, added_stride=source.strides[dim], count=elements,
            entries=count, geometry=geometry,
        )  # fmt: skip
        build.launch("index", f"index_add_{dtype.value}", blocks, packed)
    return result


def _add_few(build: ProgramBuilder, x: Operand, rows: Rows, source: Operand, dim: int) -> Buffer:
    """As `_add_rows`, in one launch in which each element looks for the indexes of its row."""
    dtype, itemsize = x.dtype, x.itemsize
    result = build.empty(dtype, x.layout.elem_count)
    strides = x.strides, without(source.strides, dim), index.along(len(x.shape), dim, 1)
    for blocks, first, offsets, count, geometry in parts(BLOCK_SIZE, x.shape, strides):
        packed = arguments.index_add_few(
            result=result.address + first * itemsize, source=x.address + offsets[0] * itemsize,
            added=source.address + offsets[1] * itemsize, indexes=rows.indexes.address, index=rows.fields,
            index_stride=rows.indexes.strides[0], added_stride=source.strides[dim], entries=source.shape[dim],
            first_row=offsets[2], count=count, geometry=geometry,
        )  # fmt: skip
        index.launch(build, f"index_add_{dtype.value}_few", blocks, packed)
    return result
