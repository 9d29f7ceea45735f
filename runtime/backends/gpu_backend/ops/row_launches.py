"""How kernels take rows along the last dim: threads of a row, vectors of a thread, and parts of long rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from .....kernels.arguments import Geometry
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, ROW_SUBGROUP
from ....program.builder import ProgramBuilder
from ....program.values import Operand
from ..driver.grid import ceil_divide, power_of_two
from . import copy
from .geometry import Dims, merged, packed_dims, split
from .row_columns import COLUMN_VECTORS, COLUMN_WIDTH

if TYPE_CHECKING:
    from .....dtype import DType

# How many vectors of 16 bytes of a row a thread may have in registers; of rows that do not consist of such, how many
# pairs of elements of 16 bits, or how many elements of 4 bytes; or how many elements of 8 bytes, which need no vectors.
_VECTORS: Final = (2, 4, 8)
_WORDS: Final = (4, 16, 32)
_WIDE_SCALARS: Final = (4,)
# The first ones of vectors, where threads also have sums over rows in registers.
_VECTORS_WITH_TOTALS: Final = 2
_WIDE_ELEMENT: Final = 8
_WORD_BYTES: Final = 4
# Up to this many are better than more threads for a row.
_PREFERRED_VECTORS: Final = 4
_PREFERRED_WORDS: Final = 16
# With fewer blocks for each multiprocessor, long rows are split into parts. A part has at least this many bytes for
# each thread, so that the numbers of all parts are few to read.
_BUSY_BLOCKS: Final = 4
_MIN_THREAD_BYTES: Final = 64
_MAX_PARTS: Final = 1024


class RowKernel(NamedTuple):
    """A kernel of the engine of rows, see row.yaml."""

    name: str
    """The suffix of its name."""
    is_of_columns: bool
    call: str
    """The function that it calls, for a functor."""


def row_kernels(dtype: DType) -> list[RowKernel]:
    """The kernels for rows of a dtype."""
    cpp, itemsize = dtype.cpp, dtype.itemsize
    if itemsize == _WIDE_ELEMENT:
        rows = [(f"scalar{count}", f"rows_in_registers<{{}}, {cpp}, 1, {count}>") for count in _WIDE_SCALARS]
        rows.append(("scalar_long", f"long_rows<{{}}, {cpp}, 1>"))
        columns = []
    else:
        of = f"{{}}, {cpp}, {ACCESS_BYTES // itemsize}"
        rows = [(f"vector{count}", f"rows_in_registers<{of}, {count}>") for count in _VECTORS]
        access, words = _word(itemsize), f"{{}}, {cpp}, {_WORD_BYTES // itemsize}"
        rows += [(f"{access}{count}", f"rows_in_registers<{words}, {count}>") for count in _WORDS]
        rows += [("vector_long", f"long_rows<{of}>"), (f"{access}_long", f"long_rows<{words}>")]
        of = f"rows_in_columns<{{}}, {cpp}, {COLUMN_WIDTH}"
        columns = [(f"columns{COLUMN_VECTORS}", f"{of}, {COLUMN_VECTORS}>"), ("vector_columns", f"{of}, 0>")]
    columns.append(("scalar_columns", f"rows_in_columns<{{}}, {cpp}, 1, 0>"))
    return [RowKernel(name, False, call) for name, call in rows] + [
        RowKernel(name, True, call) for name, call in columns
    ]


class RowLaunch(NamedTuple):
    """A launch over rows from number `first` on: `subgroup_size` threads for each or, if 0, `splits` blocks."""

    first: int
    offsets: Dims
    """Where the first row begins in each operand."""
    kernel: str
    rows: int
    subgroup_size: int
    splits: int
    chunk: int
    geometry: Geometry

    @property
    def blocks(self) -> int:
        return (
            ceil_divide(self.rows * self.subgroup_size, BLOCK_SIZE) if self.subgroup_size else self.rows * self.splits
        )


class Rows(NamedTuple):
    """Rows of operands along the last dim, as kernels read them."""

    operands: Sequence[Operand | None]
    varying: int
    """A bit for each operand with more than one element in a row."""
    per_row: int
    """A bit for each operand that has other elements in other rows."""
    launches: Sequence[RowLaunch]


def in_rows(
    build: ProgramBuilder,
    dtype: DType,
    operands: Sequence[Operand | None],
    capacity: int,
    *,
    has_totals: bool = False,
    has_results: bool = True,
) -> Rows:
    """The rows of operands, copied where they are not aligned, and the launches over them.

    Structs have a capacity of `capacity` operands.
    """
    first = operands[0]
    assert first is not None
    shape = first.layout.shape
    unit = vector_elements(shape[-1], dtype.itemsize)
    absent = (0,) * (len(shape) - 1)
    varying = per_row = 0
    rows: list[Operand | None] = []
    outer = []
    for index, operand in enumerate(operands):
        steps = absent
        if operand is not None:
            operand = _in_vectors(build, operand, unit)
            strides = operand.layout.strides
            steps = strides[:-1]
            varying |= (strides[-1] != 0) << index
            per_row |= any(steps) << index
        rows.append(operand)
        outer.append(steps)
    launches = _launches(
        shape, tuple(outer), capacity, dtype.itemsize, unit, build.facts.multiprocessors, has_totals, has_results
    )
    return Rows(rows, varying, per_row, launches)


def _in_vectors(build: ProgramBuilder, x: Operand, unit: int) -> Operand:
    """The elements in rows of aligned vectors of `unit` elements, or one number a row: copied where they are not."""
    layout = x.layout
    shape, strides = layout.shape, layout.strides
    if strides[-1] == 0 or shape[-1] == 1:
        return x.as_strided(shape, (*strides[:-1], 0))
    if strides[-1] == 1 and (unit == 1 or _is_aligned(x, unit)):
        return x
    return _copied_once(build, x)


def _is_aligned(x: Operand, unit: int) -> bool:
    """Whether each row begins with an aligned vector."""
    layout, itemsize = x.layout, x.storage.dtype.itemsize
    shape, strides, start = layout.shape, layout.strides, layout.start_offset
    if (x.storage.memory.skew + start * itemsize) % min(unit * itemsize, ACCESS_BYTES):
        return False
    if not any(strides[:-1]) or x.layout.is_contiguous:
        return True
    return not any(size > 1 and step % unit for size, step in zip(shape, strides[:-1], strict=False))


def _copied_once(build: ProgramBuilder, x: Operand) -> Operand:
    """A copy in which dims of stride 0 have stride 0 too."""
    sizes = [size if step else 1 for size, step in zip(x.shape, x.strides, strict=True)]
    copied = copy.copied(build, x.as_strided(sizes, x.strides))
    return copied.as_strided(x.shape, [new if old else 0 for new, old in zip(copied.strides, x.strides, strict=True)])


@lru_cache(maxsize=4096)
def _launches(
    shape: Dims,
    strides: tuple[Dims, ...],
    most: int,
    itemsize: int,
    unit: int,
    multiprocessors: int,
    has_totals: bool,
    has_results: bool,
) -> tuple[RowLaunch, ...]:
    """Return launches over operands of these strides; their struct has the capacity `most`."""
    dims, length = shape[:-1], shape[-1]
    if len(dims) != 1 or dims[0] == 1:
        dims, strides = merged(dims, strides)
    is_vector = unit * itemsize == ACCESS_BYTES
    access = "vector" if is_vector else _word(itemsize)
    count = unit if is_vector else max(_WORD_BYTES // itemsize, 1)
    vectors = ceil_divide(length, count)
    options, preferred = _options(itemsize, is_vector, has_totals, has_results)
    in_registers = _in_registers(vectors, options, preferred)
    # Those of more vectors than a short row has are ordered by complete waves.
    least = ROW_SUBGROUP if in_registers > options[0] else 1
    subgroup_size = max(power_of_two(ceil_divide(vectors, in_registers)), least) if in_registers else 0
    launches = []
    for piece in split(dims, strides):
        rows = math.prod(piece.dims)
        splits, chunk = (
            (1, ceil_divide(vectors, subgroup_size))
            if subgroup_size
            else _parts(rows, vectors, itemsize * count, multiprocessors)
        )
        kernel = f"{access}{in_registers}" if subgroup_size else f"{access}_long"
        geometry = packed_dims(piece.dims, strides, most - len(strides))
        launches.append(RowLaunch(piece.first, piece.offsets, kernel, rows, subgroup_size, splits, chunk, geometry))
    return tuple(launches)


def vector_elements(length: int, itemsize: int) -> int:
    """How many elements of a row are a vector of 16 bytes; 1 where it does not consist of such, or has no need."""
    vector = ACCESS_BYTES // itemsize
    return 1 if itemsize == _WIDE_ELEMENT or length % vector else vector


def _word(itemsize: int) -> str:
    """Return the fields of rows that do not consist of vectors of 16 bytes."""
    return "scalar" if itemsize >= _WORD_BYTES else "pair"


def _options(itemsize: int, is_vector: bool, has_totals: bool, has_results: bool) -> tuple[Dims, int]:
    """How many vectors a thread may have in registers, and how many are preferred."""
    if not is_vector:
        return (_WIDE_SCALARS, _WIDE_SCALARS[-1]) if itemsize == _WIDE_ELEMENT else (_WORDS, _PREFERRED_WORDS)
    options = _VECTORS[:_VECTORS_WITH_TOTALS] if has_totals else _VECTORS
    # Threads that write nothing have registers left.
    return options, _PREFERRED_VECTORS if has_results else _VECTORS[-1]


def _in_registers(vectors: int, options: Dims, preferred: int) -> int:
    """How many vectors of a row a thread has in registers; 0 where the row is too long.

    Threads of one wave need no barrier. So a row first takes more threads of a wave, then more vectors of each, up to
    those that are preferred, then more waves.
    """
    for option in options:
        if vectors <= option * (ROW_SUBGROUP if option < preferred else BLOCK_SIZE):
            return option
    return 0


def _parts(rows: int, vectors: int, nbytes: int, multiprocessors: int) -> tuple[int, int]:
    """Into how many parts rows of vectors of `nbytes` bytes are split, and the vectors of a part."""
    wanted = _BUSY_BLOCKS * multiprocessors // rows
    splits = max(min(wanted, vectors * nbytes // (_MIN_THREAD_BYTES * BLOCK_SIZE), _MAX_PARTS), 1)
    chunk = ceil_divide(ceil_divide(vectors, splits), BLOCK_SIZE) * BLOCK_SIZE
    return ceil_divide(vectors, chunk), chunk
