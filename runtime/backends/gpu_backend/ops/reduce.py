"""Reductions of some dims: which kernel, how many threads for an output, and in how many parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from .....dtype import DType
from .....kernels import arguments
from .....kernels.constants import (
    ACCESS_BYTES,
    BLOCK_SIZE,
    COLUMN_ELEMENTS,
    COMBINED_COLUMNS,
    REDUCE_IN_FLIGHT,
    ROW_SUBGROUP,
)
from .....op import MethodOp, ReduceOp
from ....base.error import InvalidArgument
from ....core.result_shapes import reduced
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, KernelArguments, Number, Operand
from ..driver.grid import ceil_divide, power_of_two
from . import copy
from .geometry import LIMIT, Dims, Piece, merged, packed_dims, split
from .scalar import parameter_bits

# Below this many blocks for each multiprocessor, outputs are split among several blocks.
_BUSY_BLOCKS: Final = 4
_MAX_SPLITS: Final = 1024
# A thread makes at least this many accesses of a split, so that the second pass stays small, and at most that many, so
# that rounding errors of sums do.
_MIN_ACCESSES: Final = 4
_MAX_ACCESSES: Final = 512
# So few splits save less time than the second pass takes.
_FEW_SPLITS: Final = 2
# A block takes a row of more accesses: each of its threads then has REDUCE_IN_FLIGHT. A wave reads a shorter one
# sooner than a block combines the states of its threads, and needs no second pass.
_WAVE_ACCESSES: Final = BLOCK_SIZE * REDUCE_IN_FLIGHT - 1
# The limit for elements with a stride, of which a thread reads one after the other.
_WAVE_ELEMENTS: Final = 128
# The same where states are several numbers: those of many threads take long to join.
_WAVE_ACCESSES_OF_SEVERAL: Final = 2048
# The adjacent threads that read full sectors of memory, and the rows up to which they need no second pass.
_MIN_SUBGROUP: Final = 4
_MAX_IN_ONE_PASS: Final = 1024
# What the rows kernel numbers where a row is dense.
_MAX_IN_ROW: Final = (1 << 32) - (1 << 20)


class _Elements(NamedTuple):
    """The facts of an op and its dtype that a plan depends on, in bytes."""

    itemsize: int
    state: int
    """Of a partial result."""
    is_ordered: bool
    """Whether the result is a position."""
    is_one_number: bool
    """Whether a partial result is."""


class _Axes(NamedTuple):
    """Merged dims and their strides."""

    dims: Dims
    strides: Dims

    @property
    def size(self) -> int:
        """How many elements they are."""
        return math.prod(self.dims)

    @property
    def is_dense(self) -> bool:
        """Whether the elements follow each other."""
        return not self.dims or (len(self.dims) == 1 and self.strides[0] == 1)


class _Pass(NamedTuple):
    """A launch of the first pass over the elements from `offset` on, into `splits` of each output."""

    kernel: str
    blocks: int
    offset: int
    splits: int
    pack: Callable[..., KernelArguments]
    """Takes the arguments that differ between calls."""


class _Plan(NamedTuple):
    """How the outputs from `first` on are computed. With one split there is no second pass."""

    first: int
    outputs: int
    length: int
    """How many elements are reduced for an output."""
    passes: tuple[_Pass, ...]
    splits: int


def reduce(
    build: ProgramBuilder, op: ReduceOp | MethodOp, source: Operand, dims: tuple[int, ...], *parameters: float
) -> Buffer:
    """`op` over `dims`, of all outputs in row-major order; the numbers are its parameters."""
    layout, dtype = source.layout, source.dtype
    result = build.output(TensorType(op.result_of(dtype), reduced(layout.shape, dims)))
    outputs = result.length
    if outputs == 0:
        return result
    elements = _elements(op, dtype)
    if elements.is_ordered and layout.elem_count // outputs >= LIMIT:
        source, dims = _innermost(build, op, source, dims)
    plans = _plans(elements, source.shape, source.strides, dims, build.facts.multiprocessors)
    bits = parameter_bits("reduce", parameters, dtype)
    for plan in plans:
        _run(build, op, elements, source, result, plan, bits)
    return result


def subgroup_of_one_row(build: ProgramBuilder, x: Operand) -> int | None:
    """Return the threads that sum all elements in one launch; None where these are not contiguous, or too many."""
    count = x.layout.elem_count
    if not count or not x.layout.is_contiguous:
        return None
    (plan,) = _plans(_elements(ReduceOp.SUM, x.dtype), (count,), (1,), (0,), build.facts.multiprocessors)
    return None if plan.splits > 1 else _subgroup_size(ceil_divide(count, ACCESS_BYTES // x.itemsize))


def _elements(op: ReduceOp | MethodOp, dtype: DType) -> _Elements:
    compute = dtype.compute.itemsize
    if op.gives_position:
        state = max(2 * compute, 8)
    elif op.result in (None, dtype):
        state = op.numbers * compute
    else:
        # A result of its own dtype is combined in a full register.
        state = max(op.result.itemsize, 4)
    return _Elements(dtype.itemsize, state, op.gives_position, op.numbers == 1)


def _innermost(
    build: ProgramBuilder, op: ReduceOp | MethodOp, source: Operand, dims: tuple[int, ...]
) -> tuple[Operand, tuple[int, ...]]:
    """The reduced dims as dense last ones, of which more elements can be numbered than of strided ones."""
    order = [*(dim for dim in range(len(source.shape)) if dim not in dims), *sorted(dims)]
    moved = source.as_strided(tuple(source.shape[dim] for dim in order), tuple(source.strides[dim] for dim in order))
    last = tuple(range(len(order) - len(dims), len(order)))
    if math.prod(moved.shape[last[0] :]) > _MAX_IN_ROW:
        raise InvalidArgument(op.value, f"at most {_MAX_IN_ROW} elements are numbered; reduce fewer dims at once")
    return copy.contiguous(build, moved), last


def _run(
    build: ProgramBuilder,
    op: ReduceOp | MethodOp,
    elements: _Elements,
    source: Operand,
    result: Buffer,
    plan: _Plan,
    bits: Sequence[Number],
) -> None:
    name = f"{op.value}_{source.dtype.value}"
    output = to = result.address + plan.first * result.dtype.itemsize
    if plan.splits > 1:
        states = build.allocate(plan.splits * plan.outputs * elements.state)
        to = states.address
    for kernel, blocks, offset, splits, pack in plan.passes:
        first = source.address + offset * elements.itemsize
        packed = pack(result=to, source=first, count=plan.length, parameters=bits)
        build.launch("reduce", f"{name}_{kernel}", blocks, packed)
        to += splits * plan.outputs * elements.state
    if plan.splits > 1:
        most = BLOCK_SIZE // min(COMBINED_COLUMNS, power_of_two(plan.outputs))
        subgroup_size = min(most, power_of_two(ceil_divide(plan.splits, REDUCE_IN_FLIGHT)))
        packed = arguments.reduce_finish(
            result=output, source=states.address, count=plan.length, outputs=plan.outputs, splits=plan.splits,
            subgroup_size=subgroup_size, parameters=bits,
        )  # fmt: skip
        build.launch("reduce", f"{name}_finish", ceil_divide(plan.outputs * subgroup_size, BLOCK_SIZE), packed)


@lru_cache(maxsize=4096)
def _plans(
    elements: _Elements, shape: Dims, strides: Dims, dims: tuple[int, ...], multiprocessors: int
) -> tuple[_Plan, ...]:
    order = sorted(dims)
    if not elements.is_ordered:
        # Read in the order in which they lie, where any order will do.
        order.sort(key=lambda dim: -strides[dim])
    reduced = _axes(shape, strides, order)
    outer = _axes(shape, strides, [dim for dim in range(len(shape)) if dim not in dims])
    wanted = _BUSY_BLOCKS * multiprocessors
    return tuple(_plan(elements, reduced, outer, piece, wanted) for piece in split(outer.dims, [outer.strides]))


def _axes(shape: Dims, strides: Dims, dims: list[int]) -> _Axes:
    sizes, (steps,) = merged(tuple(shape[dim] for dim in dims), [tuple(strides[dim] for dim in dims)])
    return _Axes(sizes, steps)


def _plan(elements: _Elements, reduced: _Axes, outer: _Axes, piece: Piece, wanted: int) -> _Plan:
    outputs = _Axes(piece.dims, outer.strides)
    # Too many elements for one launch become splits of several; where order matters they are dense, which fits anyway.
    launches = [Piece(0, (0,), reduced.dims)]
    if not elements.is_ordered:
        launches = list(split(reduced.dims, [reduced.strides]))
    least = 1 if len(launches) == 1 else 2
    passes = []
    for launch in launches:
        axes = _axes(launch.dims, reduced.strides, list(range(len(launch.dims))))
        is_column = outputs.strides[-1:] == (1,) and axes.strides[-1:] not in ((), (1,))
        first = _columns if is_column else _rows
        offset = piece.offsets[0] + launch.offsets[0]
        passes.append(first(elements, axes, outputs, offset, wanted, least))
    return _Plan(piece.first, outputs.size, reduced.size, tuple(passes), sum(first.splits for first in passes))


def _rows(elements: _Elements, reduced: _Axes, outer: _Axes, offset: int, wanted: int, least: int) -> _Pass:
    """Plan a subgroup for each output and split."""
    outputs, length = outer.size, reduced.size
    unit = ACCESS_BYTES // elements.itemsize if reduced.is_dense else 1
    accesses = ceil_divide(length, unit)
    most = _WAVE_ACCESSES if reduced.is_dense else _WAVE_ELEMENTS
    subgroup_size = _subgroup_size(accesses, most if elements.is_one_number else _WAVE_ACCESSES_OF_SEVERAL)
    blocks = ceil_divide(outputs * subgroup_size, BLOCK_SIZE)
    splits, chunk = _splits(length, wanted // blocks if accesses > most else 1, subgroup_size * unit, least)
    sizes, strides = outer.dims + reduced.dims, outer.strides + reduced.strides
    packer = partial(
        arguments.reduce_rows, outputs=outputs, length=length, splits=splits, chunk=chunk, subgroup_size=subgroup_size,
        dense=reduced.is_dense, reduced_rank=len(reduced.dims), geometry=packed_dims(sizes, [strides]),
    )  # fmt: skip
    return _Pass("rows", ceil_divide(outputs * splits * subgroup_size, BLOCK_SIZE), offset, splits, packer)


def _columns(elements: _Elements, reduced: _Axes, outer: _Axes, offset: int, wanted: int, least: int) -> _Pass:
    """Plan a subgroup for adjacent outputs; the other threads of the block share the rows."""
    length, inner = reduced.size, outer.dims[-1]
    pack = COLUMN_ELEMENTS[elements.itemsize]
    per_row = ceil_divide(inner, pack)
    packs = outer.size // inner * per_row
    subgroup_size = min(ROW_SUBGROUP, power_of_two(packs))
    while subgroup_size < min(BLOCK_SIZE, packs) and BLOCK_SIZE // subgroup_size > length:
        subgroup_size *= 2
    # Where that spares a second pass, more blocks have fewer outputs each.
    while (
        subgroup_size > _MIN_SUBGROUP
        and _rows_at_once(subgroup_size) < length <= _MAX_IN_ONE_PASS
        and packs < wanted * subgroup_size
    ):
        subgroup_size //= 2
    across = ceil_divide(packs, subgroup_size)
    splits, chunk = _splits(length, wanted // across, _rows_at_once(subgroup_size), least)
    sizes = (*outer.dims[:-1], per_row, *reduced.dims)
    strides = (*outer.strides[:-1], pack, *reduced.strides)
    packer = partial(
        arguments.reduce_columns, outputs=outer.size, length=length, splits=splits, chunk=chunk,
        subgroup_size=subgroup_size, packs=packs, packs_per_row=per_row, inner=inner, reduced_rank=len(reduced.dims),
        geometry=packed_dims(sizes, [strides]),
    )  # fmt: skip
    return _Pass("columns", across * splits, offset, splits, packer)


def _rows_at_once(subgroup_size: int) -> int:
    """How many rows of a column a block has in flight."""
    return BLOCK_SIZE // subgroup_size * REDUCE_IN_FLIGHT


def _subgroup_size(accesses: int, max_of_wave: int = _WAVE_ACCESSES) -> int:
    if accesses > max_of_wave:
        return BLOCK_SIZE
    return min(ROW_SUBGROUP, power_of_two(ceil_divide(accesses, REDUCE_IN_FLIGHT)))


def _splits(length: int, wanted: int, unit: int, least: int) -> tuple[int, int]:
    """Return the number of splits for the `length` elements of an output, and their size, in units if many."""
    splits = min(wanted, length // (_MIN_ACCESSES * unit), _MAX_SPLITS)
    if splits <= _FEW_SPLITS:
        splits = 1
    splits = max(splits, ceil_divide(length, _MAX_ACCESSES * unit))
    if splits <= least:
        return least, ceil_divide(length, least)
    chunk = ceil_divide(ceil_divide(length, splits), unit) * unit
    return ceil_divide(length, chunk), chunk
