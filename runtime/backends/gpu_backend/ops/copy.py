"""Elements moved and filled: only their width counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import mul
from typing import Final, NamedTuple

from ..... import results
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, COPY_ELEMENTS, FILL_PACKS, JOIN_MANY_SOURCES, JOIN_SOURCES
from ....core.layout import Layout, collapse
from ....core.padding import packed_runs, padded_dims
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.dynamic import dynamic
from ....program.values import (
    NULL,
    Address,
    Buffer,
    KernelArguments,
    Number,
    Operand,
    Parameter,
    StorageOrBuffer,
    alignment_of,
    computed,
    dense,
    filled,
    views_of_rows,
)
from ..driver.grid import ceil_divide
from .geometry import LIMIT, Dims, Part, divisor, merged, parts, plane_parts, tiled
from .scalar import element_words, repeated_bits

# Fewer bytes of a source than these a kernel joins with others; more of them, if they are one piece, the driver copies
# as quickly. Kernels number less than 2**31 elements.
_LONG_ROWS: Final = {True: 1 << 24, False: LIMIT}
# A copy concatenates fewer bytes of elements that are not contiguous; one of more of them goes through tiles.
_LONG_STEPS: Final = 1 << 20
# Of narrower elements a tile is larger: to read few of them as they lie takes less time.
_MIN_TILED_BYTES: Final = 4
# The widest element that fill kernels know, in bytes.
_WIDEST_FILL: Final = 8


class _Plan(NamedTuple):
    """How to move or fill elements: a kernel, its launches, and the bytes of the elements that it takes."""

    kernel: str
    is_tiled: bool
    width: int
    parts: tuple[Part, ...]


def row_major(shape: Dims) -> Dims:
    """The strides of contiguous elements."""
    return Shape._trusted(shape).contiguous_strides()


def fresh(build: ProgramBuilder, source: Operand) -> Buffer:
    """A new storage of the elements in row-major order."""
    result = build.empty(source.dtype, build.count(source.layout.elem_count))
    copy(build, source, dense(result, source.shape))
    return result


def copied(build: ProgramBuilder, source: Operand) -> Operand:
    """The elements in row-major order in a new storage."""
    return dense(fresh(build, source), source.shape)


def reshaped(build: ProgramBuilder, source: Operand, shape: tuple[int, ...]) -> Operand:
    """The elements in another shape: where they are if strides can reach them so, else in a new storage."""
    layout = source.layout.reshape(shape)
    return dense(fresh(build, source), shape) if layout is None else Operand(source.storage, layout)


def copy_to(build: ProgramBuilder, source: Operand, result: Buffer) -> None:
    """Copy the elements to a buffer in row-major order; an empty buffer stays so."""
    if result.length:
        copy(build, source, dense(result, source.shape))


def contiguous(build: ProgramBuilder, source: Operand) -> Operand:
    """The elements in row-major order: where they are if they are so, else in a new storage."""
    return source if source.layout.is_contiguous else copied(build, source)


def copy_if_aliasing(build: ProgramBuilder, target: Operand, operand: Operand) -> Operand:
    """An operand that a kernel which writes to `target` may read: copied where they share elements."""
    return copied(build, operand) if build.shares_memory(target, operand) else operand


def to_row_major(build: ProgramBuilder, source: Operand) -> Operand:
    """The elements in row-major order if they are many and transposed, which is slow to read, else where they are."""
    if source.layout.elem_count <= build.facts.few_elements:
        return source
    if is_transposed(source.shape, source.strides, source.itemsize):
        return copied(build, source)
    return source


@lru_cache(maxsize=4096)
def is_transposed(shape: Dims, strides: Dims, itemsize: int) -> bool:
    """Whether neighbours in the innermost dim are far from each other, others adjacent, and none repeated."""
    dims, steps = merged(shape, (row_major(shape), strides))
    return 0 not in steps[1] and tiled(dims, steps, 1, itemsize) is not None


def copy(build: ProgramBuilder, source: Operand, target: Operand) -> None:
    """Move elements between two operands of one shape and dtype; they may overlap."""
    count = source.layout.elem_count
    if count == 0:
        return
    if build.shares_memory(source, target):
        source = copied(build, source)
    itemsize = source.itemsize
    to, from_ = target.address, source.address
    if source.layout.is_contiguous and target.layout.is_contiguous:
        build.copy(to, from_, computed(mul, build.count(count), itemsize))
        return
    few = count <= build.facts.few_elements
    plan = _copy_plan(source.shape, target.strides, source.strides, itemsize, alignment_of(to, from_), few)
    for blocks, _, (to_offset, from_offset), count, geometry in plan.parts:
        result, moved = to + to_offset * plan.width, from_ + from_offset * plan.width
        if plan.is_tiled:
            packed = arguments.copy_transposed(result=result, source=moved, first_tile=count, geometry=geometry)
        else:
            packed = arguments.copy_strided(result=result, source=moved, count=count, geometry=geometry)
        build.launch("copy", plan.kernel, blocks, packed)


def assign(build: ProgramBuilder, target: Operand, source: Operand) -> None:
    """Set every element to that of `source`, which may share memory with it."""
    if source.storage.number is None:
        copy(build, source, target)
    elif target.layout.elem_count:
        fill_with(build, target, source.storage.number)


@lru_cache(maxsize=4096)
def _copy_plan(shape: Dims, to: Dims, from_: Dims, itemsize: int, alignment: int, few: bool) -> _Plan:
    # Moved in the order in which they lie in the target, where a copy may choose.
    order = sorted(range(len(shape)), key=lambda dim: (-to[dim], -from_[dim]))
    sorted_strides = [tuple(strides[dim] for dim in order) for strides in (to, from_)]
    dims, strides = merged(tuple(shape[dim] for dim in order), sorted_strides)
    width, dims, strides = widened(dims, strides, (), itemsize, alignment, ACCESS_BYTES)
    is_apart = few and width < _MIN_TILED_BYTES
    transposed = None if is_apart else tiled(dims, strides, 1, width)
    if transposed is not None:
        return _Plan(f"copy_b{8 * width}_transposed", True, width, transposed)
    launches = parts(BLOCK_SIZE if few else COPY_ELEMENTS * BLOCK_SIZE, dims, strides)
    return _Plan(f"copy_b{8 * width}_strided", False, width, launches)


def widened(
    dims: Dims, moved: Sequence[Dims], still: Sequence[Dims], itemsize: int, alignment: int, widest: int
) -> tuple[int, Dims, tuple[Dims, ...]]:
    """The widest element, in bytes, to which runs of elements can be combined, and the dims and strides in it.

    The operands that are `moved` begin at multiples of `alignment` bytes. Those that stand `still` in the innermost dim
    are counted in elements of their own.
    """
    if not dims or any(operand[-1] != 1 for operand in moved) or any(operand[-1] for operand in still):
        return itemsize, dims, (*moved, *still)
    together = 1
    while 2 * together * itemsize <= widest and alignment % (2 * together * itemsize) == 0:
        sizes = [dims[-1], *(step for operand in moved for step in operand[:-1])]
        if any(size % (2 * together) for size in sizes):
            break
        together *= 2
    steps = [(*(step // together for step in operand[:-1]), 1) for operand in moved]
    return together * itemsize, *merged((*dims[:-1], dims[-1] // together), [*steps, *still])


def clone(build: ProgramBuilder, source: StorageOrBuffer, _layout: Layout) -> Buffer:
    """A new storage of all elements of a storage, wherever the layout reaches."""
    return fresh(build, dense(source, (source.length,)))


def copy_strided_src(build: ProgramBuilder, source: Operand, target: StorageOrBuffer, offset: int) -> None:
    """Move elements, in row-major order, to those of `target` from `offset` on."""
    copy(build, source, Operand(target, Layout.contiguous(source.shape, offset)))


class _Source(NamedTuple):
    """Rows to concatenate, from an offset in those of the result, all numbers in elements."""

    address: Address
    width: int
    offset: int
    stride: int
    """From where a row begins to where the next one does."""
    step: int
    """From an element of a row to the next one."""


class _Join(NamedTuple):
    """One launch that joins sources."""

    kernel: str
    capacity: int
    """The sources that it joins at most."""
    blocks: int
    pack: Callable[..., KernelArguments]


def cat(build: ProgramBuilder, first: Operand, dim: int, *others: Operand) -> Buffer:
    """Concatenate the elements of several operands along `dim`."""
    operands = [first, *others]
    shape, itemsize = first.shape, first.itemsize
    expected = results.cat(first, others, dim)
    result = build.output(expected)
    rows, inner, start = math.prod(shape[:dim]), math.prod(shape[dim + 1 :]), 0
    strides = row_major(expected.shape)
    # From where a row of the result begins to where the next one does: the only row has no next one.
    row = expected.shape[dim] * inner if rows > 1 else 0
    # By whether elements are side by side, which kernels join as wider ones: the sources that a kernel joins.
    together: dict[bool, list[_Source]] = {True: [], False: []}
    for operand in operands:
        width, offset = operand.shape[dim] * inner, start * inner
        start += operand.shape[dim]
        if rows * width == 0:
            continue
        if (source := _source(operand, dim, rows, width, offset)) is not None:
            together[source.step == 1].append(source)
        else:
            copy(build, operand, Operand(result, Layout(operand.shape, strides, offset)))
    for sources in together.values():
        for begin in range(0, len(sources), JOIN_MANY_SOURCES):
            addresses, *parts = zip(*sources[begin : begin + JOIN_MANY_SOURCES], strict=True)
            alignment = alignment_of(*addresses)
            join = _join(rows, row, itemsize, alignment, *parts)
            packed = join.pack(result=result.address, sources=filled(addresses, join.capacity, NULL))
            build.launch("copy", join.kernel, join.blocks, packed)
    return result


def _source(operand: Operand, dim: int, rows: int, width: int, offset: int) -> _Source | None:
    """A source that a kernel joins with others; None where a copy of its own takes less time, or its strides differ."""
    nbytes = rows * width * operand.itemsize
    if operand.layout.is_contiguous:
        return _Source(operand.address, width, offset, width, 1) if nbytes < _LONG_ROWS[rows == 1] else None
    shape, strides = operand.shape, operand.strides
    _, (outer,) = collapse(shape[:dim], (strides[:dim],))
    _, (inner,) = collapse(shape[dim:], (strides[dim:],))
    stride, step = (sum(outer), inner[0] if inner else 1) if len(outer) <= 1 >= len(inner) else (0, 0)
    if step == 0 or operand.layout.end >= LIMIT or nbytes >= (LIMIT if step == 1 else _LONG_STEPS):
        return None
    return _Source(operand.address, width, offset, stride, step)


@lru_cache(maxsize=1024)
def _join(
    rows: int, row: int, itemsize: int, alignment: int, widths: Dims, offsets: Dims, strides: Dims, steps: Dims
) -> _Join:
    width = itemsize
    sizes = (*widths, *offsets, *strides, row)
    while 2 * width <= alignment and set(steps) == {1} and all(size * itemsize % (2 * width) == 0 for size in sizes):
        width *= 2
    together = width // itemsize
    widths, offsets, strides = (tuple(size // together for size in each) for each in (widths, offsets, strides))
    blocks = [ceil_divide(rows * size, COPY_ELEMENTS * BLOCK_SIZE) for size in widths]
    first_blocks = tuple(itertools.accumulate(blocks[:-1], initial=0))
    multipliers, shifts = zip(*map(divisor, widths), strict=True)
    is_small = len(widths) <= JOIN_SOURCES
    capacity = JOIN_SOURCES if is_small else JOIN_MANY_SOURCES
    pack = partial(
        arguments.join if is_small else arguments.join_many, first_blocks=filled(first_blocks, capacity, (1 << 32) - 1),
        widths=filled(widths, capacity, 0), multipliers=filled(multipliers, capacity, 0),
        shifts=filled(shifts, capacity, 0),
        strides=filled(strides, capacity, 0), steps=filled(steps, capacity, 0), offsets=filled(offsets, capacity, 0),
        row=row // together, rows=rows,
    )  # fmt: skip
    return _Join(f"join_{'' if is_small else 'many_'}b{8 * width}", capacity, sum(blocks), pack)


def pad(
    build: ProgramBuilder, x: Operand, border: str, before: Dims, after: Dims, value: complex | Parameter
) -> Buffer:
    """Pad each dim with new elements before and after its own."""
    result = build.output(results.pad(x, before, after))
    if result.length == 0:
        return result
    itemsize, words = x.itemsize, element_words(value, x.dtype)
    dims = padded_dims(x.shape, x.strides, border, before, after)
    sizes, strides = tuple([dim.size for dim in dims]), tuple([dim.stride for dim in dims])
    for blocks, first, _, count, geometry in plane_parts("pad", COPY_ELEMENTS * BLOCK_SIZE, sizes, (strides,), 0):
        starts = [first // math.prod(sizes[dim + 1 :]) % size for dim, size in enumerate(sizes)]
        packed = arguments.pad(
            result=result.address + first * itemsize, source=x.address, value=words, count=count, geometry=geometry,
            runs=arguments.Runs(packed_runs(dims[::-1], starts[::-1])),
        )  # fmt: skip
        build.launch("copy", f"pad_b{8 * itemsize}", blocks, packed)
    return result


def copy2d(build: ProgramBuilder, source: StorageOrBuffer, target: StorageOrBuffer, *numbers: int) -> None:
    """Copy rows of dense elements."""
    copy(build, *views_of_rows(source, target, *numbers))


def repeated_number(build: ProgramBuilder, like: Operand, value: complex, shape: Dims) -> Operand:
    """A number of an operand's dtype, once in memory, as elements of a shape."""
    number = dense(build.empty(like.dtype, 1), (1,))
    const_set(build, number, value)
    return number.as_strided(shape, (0,) * len(shape))


@dynamic
def const_set(build: ProgramBuilder, target: Operand, value: complex) -> None:
    """Set every element to `value`, converted to the dtype."""
    if target.layout.elem_count:
        _fill(build, target, partial(element_words, value, target.dtype))


def fill_with(build: ProgramBuilder, target: Operand, bits: Number) -> None:
    """Set every element, of which there is one at least, to one of these bits."""
    _fill(build, target, lambda times: (repeated_bits(bits, target.itemsize, times), 0))


def _fill(build: ProgramBuilder, target: Operand, words_of: Callable[[int], tuple[Number, Number]]) -> None:
    """Set every element, to what `words_of` gives for one element or several of them."""
    count, itemsize, address = target.layout.elem_count, target.itemsize, target.address
    if target.layout.is_contiguous:
        elements = build.count(count)
        blocks = computed(ceil_divide, elements, FILL_PACKS * BLOCK_SIZE * (ACCESS_BYTES // itemsize))
        packed = arguments.fill_contiguous(result=address, count=elements, value=words_of(1))
        build.launch("fill", f"fill_b{8 * itemsize}_contiguous", blocks, packed)
        return
    plan = _fill_plan(target.shape, target.strides, itemsize, alignment_of(address))
    repeated = words_of(plan.width // itemsize)
    for blocks, _, (offset,), count, geometry in plan.parts:
        result = address + offset * plan.width
        packed = arguments.fill_strided(result=result, value=repeated, count=count, geometry=geometry)
        build.launch("fill", plan.kernel, blocks, packed)


@lru_cache(maxsize=1024)
def _fill_plan(shape: Dims, to: Dims, itemsize: int, alignment: int) -> _Plan:
    # What a dim of stride 0 repeats is written once.
    order = sorted((dim for dim in range(len(shape)) if to[dim]), key=lambda dim: -to[dim])
    dims, strides = merged(tuple(shape[dim] for dim in order), [tuple(to[dim] for dim in order)])
    width, dims, strides = widened(dims, strides, (), itemsize, alignment, _WIDEST_FILL)
    return _Plan(f"fill_b{8 * width}_strided", False, width, parts(BLOCK_SIZE, dims, strides))
