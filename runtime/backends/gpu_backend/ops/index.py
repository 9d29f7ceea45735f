"""Elements chosen by an index: gathered and scattered. Sums of them are in `ops.sums`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ..... import results
from .....kernels import arguments
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, COPY_ELEMENTS
from ....core.shape import Shape
from ....core.tensor_type import TensorType
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Buffer, KernelArguments, Operand, alignment_of
from ..execute.index_errors import code_of
from . import copy
from .geometry import Dims, Part, merged, packed_block, parts

# The number of indexes that a block checks at once.
FEW: Final = 4 * BLOCK_SIZE
# A thread that gathers aligned accesses has several in flight if there are this many for each multiprocessor.
_MANY: Final = 8192
# Of an entry in the table of winners, a u32.
_WINNER_BYTES: Final = 4


class Rows(NamedTuple):
    """The rows that the indexes of one call select from: `size` of them."""

    indexes: Operand
    size: int
    fields: arguments.Index

    @classmethod
    def of(cls, build: ProgramBuilder, op: str, indexes: Operand, size: int, mark: int | None = None) -> Rows:
        """Those of a new call; without a mark, with that of the dtype."""
        own_mark, itemsize, shift = indexes.dtype.index_form
        fields = arguments.Index(
            errors=build.error_record, size=size, call=build.call_number(),
            index_mark=own_mark if mark is None else mark, op=code_of(op, indexes.dtype), index_bytes=itemsize,
            index_shift=shift,
        )  # fmt: skip
        return cls(indexes, size, fields)


def fields(build: ProgramBuilder, op: str, indexes: Operand, size: int) -> arguments.Index:
    """Return the fields of indexes that select from `size` rows."""
    return Rows.of(build, op, indexes, size).fields


def launch(build: ProgramBuilder, kernel: str, blocks: int, packed: KernelArguments) -> None:
    """Enqueue a kernel that reads indexes."""
    build.launch("index", kernel, blocks, packed)
    build.expect_error()


def check(build: ProgramBuilder, rows: Rows) -> None:
    """Enqueue a look at every index: what comes after it in the call writes nothing where one is out of range."""
    indexes = rows.indexes
    for blocks, _, (offset,), count, geometry in _looks(indexes.shape, indexes.strides):
        start = indexes.address + offset * indexes.itemsize
        packed = arguments.index_check(indexes=start, index=rows.fields, count=count, geometry=geometry)
        launch(build, "index_check", blocks, packed)


@lru_cache(maxsize=4096)
def _looks(shape: Dims, strides: Dims) -> tuple[Part, ...]:
    if 0 in shape:
        return ()
    # An index that several positions share is looked at once.
    steps = [(size, stride) for size, stride in zip(shape, strides, strict=True) if stride]
    sizes, strides = zip(*steps, strict=True) if steps else ((), ())
    return parts(FEW, sizes, (strides,))


def without(strides: Dims, dim: int) -> Dims:
    """The strides with that of `dim` 0."""
    return (*strides[:dim], 0, *strides[dim + 1 :])


def along(rank: int, dim: int, stride: int) -> Dims:
    """Strides that are 0 but for that of `dim`."""
    return (*(0,) * dim, stride, *(0,) * (rank - dim - 1))


def index_select(build: ProgramBuilder, x: Operand, indexes: Operand, dim: int) -> Buffer:
    """The rows along `dim` that the vector `indexes` names; zeros at a mark."""
    return select(build, "index_select", x, indexes, results.index_select(x, indexes, dim), dim)


def select(build: ProgramBuilder, op: str, x: Operand, indexes: Operand, selected: TensorType, dim: int) -> Buffer:
    """Select rows for an op that errors name."""
    return _gather(build, op, x, indexes, selected, along(len(selected.shape), dim, indexes.strides[0]), dim)


def gather(build: ProgramBuilder, x: Operand, indexes: Operand, dim: int) -> Buffer:
    """The element at each index along `dim`, in the shape of the indexes; 0 at a mark."""
    return gathered(build, x, indexes, results.gather(x, indexes), dim)


def gathered(build: ProgramBuilder, x: Operand, indexes: Operand, chosen: TensorType, dim: int) -> Buffer:
    """Gather elements for any op whose indexes are in range."""
    return _gather(build, "gather", x, indexes, chosen, indexes.strides, dim)


def _gather(
    build: ProgramBuilder, op: str, x: Operand, indexes: Operand, chosen: TensorType, index_strides: Dims, dim: int
) -> Buffer:
    result = build.output(chosen)
    rows, stride = Rows.of(build, op, indexes, x.shape[dim]), x.strides[dim]
    if result.length == 0:
        check(build, rows)
        return result
    alignment = alignment_of(x.address, stride * x.itemsize)
    several = build.facts.multiprocessors * _MANY <= result.nbytes // ACCESS_BYTES
    plan = _gather_plan(chosen.shape, index_strides, without(x.strides, dim), x.itemsize, alignment, several)
    for blocks, first, (index_offset, offset), count, geometry in plan.parts:
        packed = arguments.gather(
            result=result.address + first * plan.width, source=x.address + offset * plan.width,
            indexes=indexes.address + index_offset * indexes.itemsize, index=rows.fields,
            row_stride=stride * x.itemsize // plan.width, count=count, geometry=geometry,
        )  # fmt: skip
        launch(build, f"gather_b{8 * plan.width}", blocks, packed)
    return result


class _GatherPlan(NamedTuple):
    """The bytes of the elements that are moved, and the launches."""

    width: int
    parts: tuple[Part, ...]


@lru_cache(maxsize=4096)
def _gather_plan(shape: Dims, indexes: Dims, source: Dims, itemsize: int, alignment: int, several: bool) -> _GatherPlan:
    dims, (source, indexes) = merged(shape, (source, indexes))
    width, dims, (source, indexes) = copy.widened(dims, (source,), (indexes,), itemsize, alignment, ACCESS_BYTES)
    per_block = packed_block(width, dims[-1] if dims else 1)
    if width == ACCESS_BYTES and several:
        per_block *= COPY_ELEMENTS
    return _GatherPlan(width, parts(per_block, dims, (indexes, source)))


def scatter_set(build: ProgramBuilder, x: Operand, indexes: Operand, source: Operand, dim: int) -> None:
    """Write each element of `source` to its index along `dim`; the last in row-major order wins."""
    if indexes.layout.elem_count == 0:
        return
    indexes, source = copy.copy_if_aliasing(build, x, indexes), copy.copy_if_aliasing(build, x, source)
    itemsize = x.itemsize
    rows = Rows.of(build, "scatter_set", indexes, x.shape[dim])
    reached = x.layout.end - x.layout.start_offset if x.layout.end else 0
    # A row that one index names is written to once.
    is_one = indexes.shape[dim] == 1 and all(
        size == 1 or stride == 0 for size, stride in zip(indexes.shape, indexes.strides, strict=True)
    )
    winners = None if is_one else build.allocate(reached * _WINNER_BYTES)
    launches = parts(BLOCK_SIZE, indexes.shape, (indexes.strides, without(x.strides, dim), source.strides))
    if winners is not None and len(launches) > 1:
        # One launch marks the winners of its part only, and none may write before all indexes were looked at.
        check(build, rows)
    for blocks, _, offsets, count, geometry in launches:
        if winners is not None:
            build.zero(winners)
        packed = arguments.scatter(
            destination=x.address + offsets[1] * itemsize, source=source.address + offsets[2] * itemsize,
            indexes=indexes.address + offsets[0] * indexes.itemsize,
            winners=NULL if winners is None else winners.address + offsets[1] * _WINNER_BYTES, index=rows.fields,
            row_stride=x.strides[dim], count=count, geometry=geometry,
        )  # fmt: skip
        if winners is not None:
            launch(build, "scatter_mark", blocks, packed)
        launch(build, f"scatter_set_b{8 * itemsize}", blocks, packed)


def broadcast(indexes: Operand, shape: Shape, dim: int) -> Operand:
    """A vector of indexes as one for each element of `shape` along `dim`."""
    return indexes.as_strided(shape, along(len(shape), dim, indexes.strides[0]))
