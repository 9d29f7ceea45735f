"""Row formulas: functions of the elements along a dim and of reductions over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .....kernels import arguments
from .....kernels.arguments import Geometry
from .....kernels.constants import ACCESS_BYTES, BLOCK_SIZE, JOINED_COLUMNS, ROW_TEAM, ROWS
from .....op import MethodOp
from ....base.error import InvalidArgument
from ....base.row_facts import RowFacts
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer, KernelArguments, Number, Operand, Value, address_of, dense
from ..driver.grid import ceil_divide, power_of_two
from . import copy, index
from .geometry import LIMIT, Dims, merged, packed_dims, split
from .rows import moved_back, moved_last
from .scalar import parameter_bits

if TYPE_CHECKING:
    from .....dtype import DType

_FAMILY: Final = "row"
_NO_INDEX: Final = arguments.Index(errors=NULL, size=0, call=0, index_mark=0, op=0, index_bytes=0, index_shift=0)

# How many vectors of 16 bytes of a row a thread may have in registers; of rows that do not consist of such, how many
# pairs of elements of 16 bits, or how many elements of 4 bytes; or how many elements of 8 bytes, which need no vectors.
_VECTORS: Final = (2, 4, 8)
_WORDS: Final = (4, 16, 32)
_WIDE_SCALARS: Final = (4,)
# The first ones of vectors, where threads also have sums over rows in registers.
_VECTORS_WITH_TOTALS: Final = 2
# The blocks of a multiprocessor that add up rows: so many are resident, and more would leave more sums to join.
_RESIDENT: Final = 2
_WIDE_ELEMENT: Final = 8
_WORD_BYTES: Final = 4
# Up to so many are better than more threads for a row.
_PREFERRED_VECTORS: Final = 4
_PREFERRED_WORDS: Final = 16
# With fewer blocks for each multiprocessor, long rows are split into parts. A part has at least so many bytes for each
# thread, so that the numbers of all parts are few to read.
_BUSY_BLOCKS: Final = 4
_MIN_THREAD_BYTES: Final = 64
_MAX_PARTS: Final = 1024
# Kernels count the elements of a row in 32 bits, and look ahead.
_MAX_LENGTH: Final = (1 << 32) - (1 << 20)
# Along a dim that is not the innermost one, kernels of columns read so many bytes side by side at least, and keep a
# device busy where rows are not longer than this. Else the dim is moved last, which copies. Neither depends on how many
# rows there are.
_MIN_INNER_BYTES: Final = 64
_MAX_COLUMN: Final = 4096
# How many rows side by side make a column of vectors, how many of these a thread may have in registers, and the most
# threads that share a column.
_COLUMN_WIDTH: Final = 4
_COLUMN_VECTORS: Final = 8
_COLUMN_THREADS: Final = 32


def row(build: ProgramBuilder, op: MethodOp, *arguments: Any) -> Any:
    """`op` of operands along a dim, which comes behind them; then which totals are asked for, and the parameters.

    Operands have one shape or are vectors along the row; those that are left out are None.
    """
    facts = ROWS[op.value]
    if facts.has_numbers:
        return _with_numbers(build, RowFormula(_FAMILY, op.value, facts), arguments)
    count = len(facts.absent) + facts.adds_residual
    operands, rest = arguments[:count], [*arguments[count:]]
    dim = len(operands[0].shape) - 1 if facts.last_dim else rest.pop(0)
    asked, parameters = rest[: facts.totals], rest[facts.totals :]
    outputs = along(build, RowFormula(_FAMILY, op.value, facts), dim, operands, parameters, asked)
    return outputs if facts.outputs > 1 else outputs[0]


class RowFormula(NamedTuple):
    """Kernels of a row formula, and what their launches depend on."""

    family: str
    op: str
    """The kernels' names begin with it."""
    facts: RowFacts
    of_rows: tuple[bool, ...] = ()
    """Whether each result is one number a row; none is where this is empty."""

    def is_of_rows(self, result: int) -> bool:
        """Return True for a result that is one number a row."""
        return bool(self.of_rows) and self.of_rows[result]


class RowStructs(NamedTuple):
    """The structs that kernels of rows take, and for how many operands and results these have room."""

    rows: Callable[..., KernelArguments]
    columns: Callable[..., KernelArguments]
    operands: int
    results: int
    has_numbers: bool
    """Whether there is room for numbers of rows."""


_STRUCTS: Final = RowStructs(arguments.along_rows, arguments.along_columns, 4, 3, has_numbers=True)
# Numbers of rows that a struct has room for.
_NUMBERS: Final = 4


class RowNumbers(NamedTuple):
    """What an op has one of for each row: numbers that it takes and gives, and an index."""

    operands: Sequence[Operand] = ()
    results: Sequence[Buffer] = ()
    positions: Operand | None = None
    """The index of each row."""
    ignored: int = 0
    fields: arguments.Index = _NO_INDEX

    def packed(self, first: int) -> dict[str, Any]:
        """The fields of a launch of the rows from number `first` on."""
        steps = [operand.strides[0] for operand in self.operands]
        numbers: list[Value | int] = [
            operand.at(first * step) for operand, step in zip(self.operands, steps, strict=True)
        ]
        numbers += [result.at(first) for result in self.results]
        varying = sum(1 << k for k, step in enumerate(steps) if step)
        return {"numbers": _padded(numbers, _NUMBERS), "number_steps": varying}

    def packed_indexes(self, first: int) -> dict[str, Any]:
        """Those of the indexes."""
        positions = self.positions
        step = 0 if positions is None else positions.strides[0]
        indexes = NULL if positions is None else positions.at(first * step)
        return {"indexes": indexes, "index": self.fields, "ignored": self.ignored, "index_step": step}

    def indexed(self, build: ProgramBuilder, op: str, positions: Operand, size: int, ignored: int) -> RowNumbers:
        """The same with an index for each row of `size` elements, of which `ignored` is none."""
        fields = index.Rows.of(build, op, positions, size).fields
        if abs(ignored) >= 1 << 63:
            # Any other number is no index either.
            ignored = positions.dtype.index_form[0]
        return self._replace(positions=_evenly_spaced(build, positions), ignored=ignored, fields=fields)


def _with_numbers(build: ProgramBuilder, formula: RowFormula, given: Sequence[Any]) -> Any:
    """The results of a formula that takes or gives numbers of rows, or reads an index of each."""
    facts = formula.facts
    count = len(facts.absent)
    operands, others = given[:count], [*given[count : count + facts.numbers]]
    rest = [*given[count + facts.numbers :]]
    x = operands[0]
    targets = rest.pop(0) if facts.has_index else None
    dim = len(x.shape) - 1 if facts.last_dim else rest.pop(0)
    ignored = rest.pop(0) if facts.has_index else 0
    overwrites = rest.pop(0) if facts.numbers else False
    shape, length = x.shape, x.shape[dim]
    rows = math.prod(shape[:dim]) * math.prod(shape[dim + 1 :])
    made = facts.number_results + (facts.number_results > 0 and facts.has_index)
    numbers = RowNumbers(
        [_evenly_spaced(build, each, (0, 1)) for each in others],
        [build.empty(x.dtype.compute, rows) for _ in range(made)],
    )
    if targets is not None:
        numbers = numbers.indexed(build, formula.op, targets, length, ignored)
    # Kernels of pairs read words that other threads write.
    is_whole = x.layout.dense is x.layout and x.layout.elem_count == x.storage.length and dim == len(shape) - 1
    in_place = overwrites and is_whole and facts.results == 1 and length % _unit(length, x.itemsize) == 0
    results = [x.storage if in_place else build.empty(x.dtype, rows * length) for _ in range(facts.results)]
    if rows:
        kernels = _Kernels(formula, _STRUCTS, x.dtype, parameter_bits(_FAMILY, tuple(rest), x.dtype))
        if length == 0:
            # Kernels read an element in the place of those behind the end of a row.
            one = dense(build.empty(x.dtype, 1), (1,))
            operands = [one.relaid(shape, (0,) * len(shape)) for _ in operands]
        moved = [moved_last(operand, dim) for operand in operands]
        _along_rows(build, kernels, moved, _Outputs(results, (), ()), numbers)
        if targets is not None:
            build.expect_error()
    if facts.number_results:
        return tuple(numbers.results)
    return moved_back(build, results[0], shape, dim)


def _evenly_spaced(build: ProgramBuilder, x: Operand, steps: Collection[int] | None = None) -> Operand:
    """The elements as a vector, of one of some strides: copied where they are not evenly spaced so."""
    step = _step(x.shape, x.strides)
    if x.layout.elem_count == 1:
        step = 0
    if step is None or (steps is not None and step not in steps):
        x, step = copy.copied(build, x), 1
    return x.relaid((x.layout.elem_count,), (step,))


class RowKernel(NamedTuple):
    """A kernel of the engine of rows, see row.yaml."""

    name: str
    """What its name ends with."""
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
        of = f"rows_in_columns<{{}}, {cpp}, {_COLUMN_WIDTH}"
        columns = [(f"columns{_COLUMN_VECTORS}", f"{of}, {_COLUMN_VECTORS}>"), ("vector_columns", f"{of}, 0>")]
    columns.append(("scalar_columns", f"rows_in_columns<{{}}, {cpp}, 1, 0>"))
    return [RowKernel(name, False, call) for name, call in rows] + [
        RowKernel(name, True, call) for name, call in columns
    ]


def along(
    build: ProgramBuilder,
    formula: RowFormula,
    dim: int,
    operands: Sequence[Operand | None],
    parameters: Sequence[Any] = (),
    asked: Sequence[bool] = (),
) -> tuple[Buffer, ...]:
    """The results of a formula along a dim of operands, contiguous, with the sums over rows that are `asked` for.

    The operands have one dtype, and the shape of the first one, in which one that lacks a dim has stride 0, or they are
    vectors along the row; those that are left out are None.
    """
    x = operands[0]
    assert x is not None
    dtypes = (x.dtype,) * formula.facts.results
    bits = parameter_bits(_FAMILY, tuple(parameters), x.dtype)
    given = [_broadcast(operand, x, dim) for operand in operands]
    return typed_along(build, formula, _STRUCTS, dim, x.dtype, given, dtypes, bits, asked)


def _broadcast(operand: Operand | None, x: Operand, dim: int) -> Operand | None:
    """An operand in the shape of the first one, of which it may be a vector along a dim."""
    if operand is None or len(operand.shape) == len(x.shape):
        return operand
    return operand.relaid(x.shape, [operand.strides[0] if axis == dim else 0 for axis in range(len(x.shape))])


def typed_along(
    build: ProgramBuilder,
    formula: RowFormula,
    structs: RowStructs,
    dim: int,
    dtype: DType,
    operands: Sequence[Operand | None],
    results: Sequence[DType],
    parameters: Sequence[Number],
    asked: Sequence[bool] = (),
    numbers: RowNumbers | None = None,
) -> tuple[Buffer, ...]:
    """The same with operands, results and totals of any dtypes, of rows that are reduced as those of `dtype` are."""
    x, facts = operands[0], formula.facts
    assert x is not None
    shape, count = x.shape, x.layout.elem_count
    of_rows = [formula.is_of_rows(place) for place in range(facts.results)]
    dtypes = results[facts.results :] or [dtype] * facts.totals
    outputs = [
        build.empty(result, count // shape[dim] if is_of_rows and count else count)
        for result, is_of_rows in zip(results, of_rows, strict=False)
    ]
    sums = [build.empty(dtype, count) for _ in range(facts.adds_residual) if operands[-1] is not None]
    totals = [
        build.empty(total, shape[dim]) if is_asked else None for total, is_asked in zip(dtypes, asked, strict=False)
    ]
    if count == 0:
        zeros = [total for total in totals if total is not None]
        for total in zeros:
            build.zero(total)
        return (*outputs, *zeros, *sums)
    kernels = _Kernels(formula, structs, dtype, parameters)
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    is_along_any_dim = not facts.last_dim and not facts.totals and not facts.has_index
    if inner == 1:
        rows = [operand and operand.relaid(shape[: dim + 1], operand.strides[: dim + 1]) for operand in operands]
        _along_rows(build, kernels, rows, _Outputs(outputs, totals, sums), numbers)
    elif (
        is_along_any_dim
        and inner * dtype.itemsize >= _MIN_INNER_BYTES
        and length <= _MAX_COLUMN
        and count // length < LIMIT
    ):
        _along_columns(build, kernels, dim, [operand for operand in operands if operand is not None], outputs)
    else:
        rows = [operand and moved_last(operand, dim) for operand in operands]
        _along_rows(build, kernels, rows, _Outputs(outputs, totals, sums), numbers)
        outputs = [
            output if is_of_rows else moved_back(build, output, shape, dim)
            for output, is_of_rows in zip(outputs, of_rows, strict=True)
        ]
    return (*outputs, *[total for total in totals if total is not None], *sums)


class _Outputs(NamedTuple):
    """The results of elements, the sums over rows that are asked for, and the sum with a residual."""

    results: Sequence[Buffer]
    totals: Sequence[Buffer | None]
    sums: Sequence[Buffer]


class _Kernels(NamedTuple):
    """What all launches of a formula have in common."""

    formula: RowFormula
    structs: RowStructs
    dtype: DType
    parameters: Sequence[Number]

    def launch(self, build: ProgramBuilder, kernel: str, blocks: int, packed: KernelArguments) -> None:
        name = f"{self.formula.op}_{self.dtype.value}_{kernel}"
        build.launch(self.formula.family, name, blocks, packed)


class _Launch(NamedTuple):
    """A launch over rows from number `first` on: of `team` threads each or, without a team, of `splits` blocks each."""

    first: int
    offsets: Dims
    """Where the first row begins in each operand."""
    kernel: str
    rows: int
    team: int
    splits: int
    chunk: int
    geometry: Geometry

    @property
    def blocks(self) -> int:
        return ceil_divide(self.rows * self.team, BLOCK_SIZE) if self.team else self.rows * self.splits


def _along_rows(
    build: ProgramBuilder,
    kernels: _Kernels,
    operands: Sequence[Operand | None],
    outputs: _Outputs,
    numbers: RowNumbers | None = None,
) -> None:
    """Launch kernels of rows along the last dim."""
    numbers = numbers or RowNumbers()
    formula, structs, dtype, parameters = kernels
    x, facts = operands[0], formula.facts
    assert x is not None
    itemsize, length = dtype.itemsize, x.shape[-1]
    if length > _MAX_LENGTH:
        raise InvalidArgument(
            formula.op, f"a row has at most {_MAX_LENGTH} elements, not {length}; cut it into several"
        )
    unit = _unit(length, itemsize)
    operands = [operand and _in_vectors(build, operand, unit) for operand in operands]
    varying = sum(1 << k for k, operand in enumerate(operands) if operand and operand.strides[-1])
    absent = (0,) * (len(x.shape) - 1)
    strides = tuple([absent if operand is None else operand.strides[:-1] for operand in operands])
    apart = sum(1 << k for k, steps in enumerate(strides) if any(steps))
    launches = _launches(
        x.shape, strides, structs.operands, itemsize, unit, build.facts.multiprocessors, facts.totals > 0,
        facts.results > 0,
    )  # fmt: skip
    totals = _Totals.of(build, kernels, length, launches) if any(outputs.totals) else None
    for number, launch in enumerate(launches):
        is_split = launch.splits > 1 and facts.stages > 0
        nbytes = launch.rows * launch.splits * facts.joined * dtype.compute.itemsize
        parts = build.allocate(nbytes) if is_split else None
        sources: list[Value | int] = [
            NULL if operand is None else operand.at(offset)
            for operand, offset in zip(operands, launch.offsets, strict=True)
        ]
        first = launch.first * length
        targets: list[Value | int] = [
            output.at(launch.first if formula.is_of_rows(place) else first)
            for place, output in enumerate(outputs.results)
        ]
        targets += [NULL] * facts.totals
        targets += [output.at(first) for output in outputs.sums]
        nbytes = launch.rows * facts.known * dtype.compute.itemsize
        known = build.allocate(nbytes) if totals and totals.are_apart else None
        fields: dict[str, Any] = {
            "results": _padded(targets, structs.results), "sources": _padded(sources, structs.operands),
            "parts": address_of(parts), "totals": totals.addresses[number] if totals else NULL,
            "known": address_of(known), "parameters": parameters, "rows": launch.rows, "length": length,
            "varying": varying, "apart": apart, "team": launch.team, "splits": launch.splits,
            "geometry": launch.geometry, **numbers.packed_indexes(launch.first),
        }  # fmt: skip
        if structs.has_numbers:
            fields.update(numbers.packed(launch.first))
        has_sums = totals is not None and not totals.are_apart
        blocks = totals.parts[number] if totals is not None and has_sums else launch.blocks
        for stage in range(facts.stages + 1) if is_split else (facts.stages,):
            kernels.launch(build, launch.kernel, blocks, structs.rows(chunk=launch.chunk, stage=stage, **fields))
        if totals is not None and totals.are_apart:
            packed = structs.rows(chunk=totals.chunks[number], stage=0, **fields)
            kernels.launch(build, "totals", totals.parts[number] * totals.columns, packed)
    if totals is not None:
        totals.join(build, kernels, outputs.totals)


class _Totals(NamedTuple):
    """Sums over rows, of which each launch has some parts: those of its blocks, or of some rows each."""

    are_apart: bool
    """Whether another kernel adds up the rows, of the numbers that each has."""
    columns: int
    """How many of its blocks share a part."""
    chunks: Sequence[int]
    """By launch, the rows of a part."""
    parts: Sequence[int]
    addresses: Sequence[Address]
    length: int

    @classmethod
    def of(cls, build: ProgramBuilder, kernels: _Kernels, length: int, launches: Sequence[_Launch]) -> _Totals:
        """Those of launches."""
        # Threads that have complete vectors know of which positions: they add them up.
        are_apart = not launches[0].kernel.startswith("vector") or not launches[0].team
        columns = ceil_divide(length, BLOCK_SIZE) if are_apart else 1
        most = max(_RESIDENT * build.facts.multiprocessors // columns, 1)
        chunks = [ceil_divide(launch.rows, min(launch.rows, most)) for launch in launches]
        parts = [
            ceil_divide(launch.rows, chunk) if are_apart else min(launch.blocks, most)
            for launch, chunk in zip(launches, chunks, strict=True)
        ]
        sizes = [part * kernels.formula.facts.totals * length * kernels.dtype.compute.itemsize for part in parts]
        buffer = build.allocate(sum(sizes))
        addresses = [buffer.address + begin for begin in accumulate([0, *sizes[:-1]])]
        return cls(are_apart, columns, chunks, parts, addresses, length)

    def join(self, build: ProgramBuilder, kernels: _Kernels, results: Sequence[Buffer | None]) -> None:
        """Launch the kernel that joins the parts."""
        count = kernels.formula.facts.totals
        for dtype in dict.fromkeys([result.dtype for result in results if result is not None]):
            own = [NULL if it is None or it.dtype is not dtype else it.address for it in results]
            packed = arguments.join_totals(
                results=_padded(own, _STRUCTS.results), sums=self.addresses[0], totals=count, parts=sum(self.parts),
                length=self.length,
            )  # fmt: skip
            blocks = count * ceil_divide(self.length, JOINED_COLUMNS)
            build.launch(_FAMILY, f"totals_{dtype.value}", blocks, packed)


def _in_vectors(build: ProgramBuilder, x: Operand, unit: int) -> Operand:
    """The elements in rows of aligned vectors of `unit` elements, or one number a row: copied where they are not."""
    *outer, along_row = x.strides
    if along_row == 0 or x.shape[-1] == 1:
        return x.relaid(x.shape, (*outer, 0))
    steps = [step for size, step in zip(x.shape[:-1], outer, strict=True) if size > 1]
    nbytes = min(unit * x.itemsize, ACCESS_BYTES)
    is_aligned = unit == 1 or (x.address.is_aligned(nbytes) and all(step % unit == 0 for step in steps))
    return x if along_row == 1 and is_aligned else _copied_once(build, x)


def _copied_once(build: ProgramBuilder, x: Operand) -> Operand:
    """A copy in which dims of stride 0 have stride 0 too."""
    sizes = [size if step else 1 for size, step in zip(x.shape, x.strides, strict=True)]
    copied = copy.copied(build, x.relaid(sizes, x.strides))
    return copied.relaid(x.shape, [new if old else 0 for new, old in zip(copied.strides, x.strides, strict=True)])


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
) -> tuple[_Launch, ...]:
    """Launches over operands of these strides, of which their struct has room for the `most`."""
    *outer, length = shape
    dims, strides = merged(tuple(outer), strides)
    padding = ((0,) * len(dims),) * (most - len(strides))
    is_vector = unit * itemsize == ACCESS_BYTES
    access = "vector" if is_vector else _word(itemsize)
    count = unit if is_vector else max(_WORD_BYTES // itemsize, 1)
    vectors = ceil_divide(length, count)
    options, preferred = _options(itemsize, is_vector, has_totals, has_results)
    in_registers = _in_registers(vectors, options, preferred)
    # Those of more vectors than a short row has are in the order of whole waves.
    least = ROW_TEAM if in_registers > options[0] else 1
    team = max(power_of_two(ceil_divide(vectors, in_registers)), least) if in_registers else 0
    launches = []
    for piece in split(dims, strides):
        rows = math.prod(piece.dims)
        splits, chunk = (
            (1, ceil_divide(vectors, team)) if team else _parts(rows, vectors, itemsize * count, multiprocessors)
        )
        kernel = f"{access}{in_registers}" if team else f"{access}_long"
        geometry = packed_dims(piece.dims, (*strides, *padding))
        launches.append(_Launch(piece.first, piece.offsets, kernel, rows, team, splits, chunk, geometry))
    return tuple(launches)


def _unit(length: int, itemsize: int) -> int:
    """How many elements of a row are a vector of 16 bytes; 1 where it does not consist of such, or has no need."""
    vector = ACCESS_BYTES // itemsize
    return 1 if itemsize == _WIDE_ELEMENT or length % vector else vector


def _word(itemsize: int) -> str:
    """What kernels take of rows that do not consist of vectors of 16 bytes."""
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
    in_wave = [option for option in options if option <= preferred and vectors <= option * ROW_TEAM]
    in_block = [option for option in options if option >= preferred and vectors <= option * BLOCK_SIZE]
    return next(iter(in_wave + in_block), 0)


def _parts(rows: int, vectors: int, nbytes: int, multiprocessors: int) -> tuple[int, int]:
    """Into how many parts rows of vectors of `nbytes` bytes are split, and the vectors of a part."""
    wanted = _BUSY_BLOCKS * multiprocessors // rows
    splits = max(min(wanted, vectors * nbytes // (_MIN_THREAD_BYTES * BLOCK_SIZE), _MAX_PARTS), 1)
    chunk = ceil_divide(ceil_divide(vectors, splits), BLOCK_SIZE) * BLOCK_SIZE
    return ceil_divide(vectors, chunk), chunk


class _Steps(NamedTuple):
    """The strides of an operand whose dims before and after one dim are merged."""

    outer: int
    along: int
    across: int


def _along_columns(
    build: ProgramBuilder,
    kernels: _Kernels,
    dim: int,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
) -> None:
    """Launch a kernel of columns."""
    _, structs, dtype, parameters = kernels
    shape = operands[0].shape
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    unit = 1 if dtype.itemsize == _WIDE_ELEMENT or inner % _COLUMN_WIDTH else _COLUMN_WIDTH
    pairs = [_in_columns(build, operand, dim, unit) for operand in operands]
    operands, steps = [operand for operand, _ in pairs], [step for _, step in pairs]
    columns = math.prod(shape[:dim]) * (inner // unit)
    # Threads that share a column reduce in an order that follows from the width of rows alone.
    together = min(power_of_two(ceil_divide(length, _COLUMN_VECTORS)), _COLUMN_THREADS)
    fits_registers = unit > 1 and length <= _COLUMN_VECTORS * _COLUMN_THREADS
    kernel = f"columns{_COLUMN_VECTORS}" if fits_registers else "vector_columns" if unit > 1 else "scalar_columns"
    packed = structs.columns(
        results=_padded([result.address for result in results], structs.results),
        sources=_padded([each.address for each in operands], structs.operands), parameters=parameters,
        outer=_padded([step.outer for step in steps], structs.operands),
        along=_padded([step.along for step in steps], structs.operands), inner=inner, length=length,
        varying=sum(1 << k for k, step in enumerate(steps) if step.along),
        across=sum(1 << k for k, step in enumerate(steps) if step.across), columns=columns,
        columns_across=inner // unit, team=BLOCK_SIZE // together,
    )  # fmt: skip
    blocks = ceil_divide(columns * together, BLOCK_SIZE)
    kernels.launch(build, kernel, blocks, packed)


def _in_columns(build: ProgramBuilder, x: Operand, dim: int, unit: int) -> tuple[Operand, _Steps]:
    """The elements in columns of aligned vectors of `unit` elements, with their strides: copied where they are not."""
    steps = _steps(x.shape, x.strides, dim)
    if steps is not None:
        is_aligned = x.address.is_aligned(unit * x.itemsize) and not (steps.outer % unit or steps.along % unit)
        if is_aligned or not steps.across:
            return x, steps
    # A copy has such strides, and is read in the same order wherever the elements were.
    inner = math.prod(x.shape[dim + 1 :])
    return copy.copied(build, x), _Steps(x.shape[dim] * inner, inner, 1)


@lru_cache(maxsize=4096)
def _steps(shape: Dims, strides: Dims, dim: int) -> _Steps | None:
    """The strides around a dim; None where dims before or after it do not merge, or those after it are not dense."""
    outer = _step(shape[:dim], strides[:dim])
    across = _step(shape[dim + 1 :], strides[dim + 1 :])
    return None if outer is None or across not in (0, 1) else _Steps(outer, strides[dim], across)


def _step(dims: Dims, strides: Dims) -> int | None:
    """The stride of dims that are merged into one; None where they do not merge."""
    dims, (steps,) = merged(dims, (strides,))
    return 0 if not dims else steps[0] if len(dims) == 1 else None


def _padded(numbers: Sequence[Value | int], count: int) -> list[Value | int]:
    return [*numbers, *[0] * (count - len(numbers))]
