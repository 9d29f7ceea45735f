"""Row formulas: functions of the elements along a dim and of reductions over it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .....kernels import arguments
from .....kernels.constants import ROWS
from .....op import MethodOp
from ....base.error import InvalidArgument
from ....program.builder import ProgramBuilder
from ....program.row_variants import variant_for
from ....program.values import NULL, Buffer, Number, Operand, Value, address_of, dense
from . import copy, index
from .geometry import LIMIT, Dims
from .row_columns import along_columns, merged_step
from .row_formula import FAMILY, STRUCTS, RowFormula, RowKernels, RowOutputs, RowStructs, padded
from .row_launches import in_rows, vector_elements
from .row_totals import RowTotals, blocks_of
from .scalar import parameter_bits

if TYPE_CHECKING:
    from .....dtype import DType

# The capacity of a struct for numbers of rows.
_NUMBERS: Final = 5
_NO_INDEX: Final = arguments.Index(errors=NULL, size=0, call=0, index_mark=0, op=0, index_bytes=0, index_shift=0)

_NO_INDEXES: Final[Mapping[str, Any]] = {"indexes": NULL, "index": _NO_INDEX, "ignored": 0, "index_step": 0}
_NO_NUMBERS: Final[Mapping[str, Any]] = {"numbers": (0,) * _NUMBERS, "number_steps": 0}

# Kernels count the elements of a row in 32 bits, and look ahead.
_MAX_LENGTH: Final = (1 << 32) - (1 << 20)
# Along a dim that is not the innermost one, kernels of columns read at least this many adjacent bytes, and keep a
# device busy where rows are not longer than this. Else the dim is moved last, which copies. Neither depends on how many
# rows there are.
_MIN_INNER_BYTES: Final = 64
_MAX_COLUMN: Final = 4096


def row(build: ProgramBuilder, op: MethodOp, *values: Any) -> Any:
    """`op` of operands along a dim, which comes after them; then which totals are wanted, and the parameters.

    Operands have one shape or are vectors along the row; those that are left out are None.
    """
    variant, arguments = variant_for(op.value, values)
    facts = ROWS[variant]
    if facts.has_numbers:
        formula = RowFormula(FAMILY, op.value, facts, has_elements=facts.results > 0, variant=variant)
        return _with_numbers(build, formula, arguments)
    count = len(facts.absent) + facts.adds_residual
    operands, options = arguments[:count], [*arguments[count:]]
    dim = len(operands[0].shape) - 1 if facts.last_dim else options.pop(0)
    wanted, parameters = options[: facts.totals], options[facts.totals :]
    outputs = along(build, RowFormula(FAMILY, op.value, facts, variant=variant), dim, operands, parameters, wanted)
    return outputs if facts.outputs > 1 else outputs[0]


class RowNumbers(NamedTuple):
    """The numbers of each row that an op takes and gives, and an index."""

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
        return {"numbers": padded(numbers, _NUMBERS), "number_steps": varying}

    def packed_indexes(self, first: int) -> dict[str, Any]:
        """Those of the indexes."""
        positions = self.positions
        step = 0 if positions is None else positions.strides[0]
        indexes = NULL if positions is None else positions.at(first * step)
        return {"indexes": indexes, "index": self.fields, "ignored": self.ignored, "index_step": step}

    def indexed(self, build: ProgramBuilder, op: str, positions: Operand, size: int, ignored: int) -> RowNumbers:
        """Compute an op with an index for each row of `size` elements, of which `ignored` is none."""
        fields = index.Rows.of(build, op, positions, size).fields
        if abs(ignored) >= 1 << 63:
            # Any other number is no index either.
            ignored = positions.dtype.index_form[0]
        return self._replace(positions=_evenly_spaced(build, positions), ignored=ignored, fields=fields)


def _with_numbers(build: ProgramBuilder, formula: RowFormula, values: Sequence[Any]) -> Any:
    """The results of a formula that takes or gives numbers of rows, or reads an index of each."""
    facts = formula.facts
    count = len(facts.absent)
    operands, others = values[:count], [*values[count : count + facts.numbers]]
    options = [*values[count + facts.numbers :]]
    x = operands[0]
    targets = options.pop(0) if facts.has_index else None
    dim = len(x.shape) - 1 if facts.last_dim else options.pop(0)
    ignored = options.pop(0) if facts.has_index else 0
    overwrites = options.pop(0) if facts.numbers else False
    has_saved = options.pop(0) if facts.saved else True
    shape, length = x.shape, x.shape[dim]
    rows = math.prod(shape[:dim]) * math.prod(shape[dim + 1 :])
    unread = 0 if has_saved else facts.saved
    number_results = [build.empty(x.dtype.compute, rows) for _ in range(facts.number_results - unread)]
    # Kernels write all unread results to the same memory.
    ignored_results = [build.empty(x.dtype.compute, rows)] * unread if unread else []
    numbers = RowNumbers([_evenly_spaced(build, each, (0, 1)) for each in others], [*number_results, *ignored_results])
    if targets is not None:
        numbers = numbers.indexed(build, formula.op, targets, length, ignored)
    # Kernels of pairs read words that other threads write.
    is_whole = x.layout.dense is x.layout and x.layout.elem_count == x.storage.length and dim == len(shape) - 1
    in_place = overwrites and is_whole and facts.results == 1 and length % vector_elements(length, x.itemsize) == 0
    results = [x.storage if in_place else build.empty(x.dtype, rows * length) for _ in range(facts.results)]
    if rows:
        kernels = RowKernels(formula, STRUCTS, x.dtype, parameter_bits(FAMILY, tuple(options), x.dtype))
        if length == 0:
            # Kernels read an element instead of those after the end of a row.
            one = dense(build.empty(x.dtype, 1), (1,))
            operands = [operand and one.as_strided(shape, (0,) * len(shape)) for operand in operands]
        moved = [each and _moved_last(each, dim) for each in [broadcast(operand, x, dim) for operand in operands]]
        _along_rows(build, kernels, moved, RowOutputs(results, (), ()), numbers)
        if targets is not None:
            build.expect_error()
    if facts.number_results:
        return tuple(number_results)
    return _moved_back(build, results[0], shape, dim)


def _evenly_spaced(build: ProgramBuilder, x: Operand, steps: Collection[int] | None = None) -> Operand:
    """The elements as a vector, of one of some strides: copied where they are not evenly spaced so."""
    step = merged_step(x.shape, x.strides)
    if x.layout.elem_count == 1:
        step = 0
    if step is None or (steps is not None and step not in steps):
        x, step = copy.copied(build, x), 1
    return x.as_strided((x.layout.elem_count,), (step,))


def along(
    build: ProgramBuilder,
    formula: RowFormula,
    dim: int,
    operands: Sequence[Operand | None],
    parameters: Sequence[Any] = (),
    wanted: Sequence[bool] = (),
) -> tuple[Buffer, ...]:
    """The results of a formula along a dim of operands, contiguous, with the sums over rows that are `wanted`.

    The operands have one dtype, and the shape of the first one, in which one that lacks a dim has stride 0, or they are
    vectors along the row; those that are left out are None.
    """
    x = operands[0]
    assert x is not None
    dtypes = (x.dtype,) * formula.facts.results
    bits = parameter_bits(FAMILY, tuple(parameters), x.dtype)
    rank = len(x.layout.shape)
    views = [
        operand if operand is None or len(operand.layout.shape) == rank else broadcast(operand, x, dim)
        for operand in operands
    ]
    return typed_along(build, formula, STRUCTS, dim, x.dtype, views, dtypes, bits, wanted)


def broadcast(operand: Operand | None, x: Operand, dim: int) -> Operand | None:
    """An operand in the shape of the first one, of which it may be a vector along a dim."""
    if operand is None or len(operand.shape) == len(x.shape):
        return operand
    return operand.as_strided(x.shape, [operand.strides[0] if axis == dim else 0 for axis in range(len(x.shape))])


def typed_along(
    build: ProgramBuilder,
    formula: RowFormula,
    structs: RowStructs,
    dim: int,
    dtype: DType,
    operands: Sequence[Operand | None],
    results: Sequence[DType],
    parameters: Sequence[Number],
    wanted: Sequence[bool] = (),
    numbers: RowNumbers | None = None,
) -> tuple[Buffer, ...]:
    """Compute a formula with operands, results and totals of any dtypes; rows are reduced as those of `dtype` are."""
    x, facts = operands[0], formula.facts
    assert x is not None
    shape, count = x.layout.shape, x.layout.elem_count
    of_rows = formula.are_of_rows
    outputs = [
        build.empty(result, count // shape[dim] if is_of_rows and count else count)
        for result, is_of_rows in zip(results, of_rows, strict=False)
    ]
    sums = [build.empty(dtype, count) for _ in range(facts.adds_residual) if operands[-1] is not None]
    totals: list[Buffer | None] = []
    if facts.totals:
        dtypes = results[facts.results :] or [dtype] * facts.totals
        wanted_dtypes = zip(dtypes, wanted, strict=False)
        totals = [build.empty(total, shape[dim]) if is_wanted else None for total, is_wanted in wanted_dtypes]
    if count == 0:
        zeros = [total for total in totals if total is not None]
        for total in zeros:
            build.zero(total)
        return (*outputs, *zeros, *sums)
    kernels = RowKernels(formula, structs, dtype, parameters)
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    if inner == 1:
        if dim + 1 < len(shape):
            operands = [
                operand and operand.as_strided(shape[: dim + 1], operand.strides[: dim + 1]) for operand in operands
            ]
        _along_rows(build, kernels, operands, RowOutputs(outputs, totals, sums), numbers)
    elif (
        not (facts.last_dim or facts.totals or facts.has_index)
        and inner * dtype.itemsize >= _MIN_INNER_BYTES
        and length <= _MAX_COLUMN
        and count // length < LIMIT
    ):
        along_columns(build, kernels, dim, [operand for operand in operands if operand is not None], outputs)
    else:
        rows = [operand and _moved_last(operand, dim) for operand in operands]
        _along_rows(build, kernels, rows, RowOutputs(outputs, totals, sums), numbers)
        outputs = [
            output if is_of_rows else _moved_back(build, output, shape, dim)
            for output, is_of_rows in zip(outputs, of_rows, strict=True)
        ]
    return (*outputs, *[total for total in totals if total is not None], *sums)


def _moved_last(x: Operand, dim: int) -> Operand:
    """The elements with a dim moved last."""
    if dim + 1 == len(x.layout.shape):
        return x
    order = [*range(dim), *range(dim + 1, len(x.shape)), dim]
    return x.as_strided(tuple([x.shape[d] for d in order]), tuple([x.strides[d] for d in order]))


def _moved_back(build: ProgramBuilder, results: Buffer, shape: Dims, dim: int) -> Buffer:
    """The results of rows along a dim of a shape that was moved last, in row-major order of the shape."""
    order = [*range(dim), len(shape) - 1, *range(dim, len(shape) - 1)]
    strides = copy.row_major((*shape[:dim], *shape[dim + 1 :], shape[dim]))
    there = dense(results, shape).as_strided(shape, tuple([strides[d] for d in order]))
    return results if there.layout.is_contiguous else copy.fresh(build, there)


def _along_rows(
    build: ProgramBuilder,
    kernels: RowKernels,
    operands: Sequence[Operand | None],
    outputs: RowOutputs,
    numbers: RowNumbers | None = None,
) -> None:
    """Launch kernels of rows along the last dim."""
    formula, structs, dtype, parameters = kernels
    x, facts = operands[0], formula.facts
    assert x is not None
    length = x.layout.shape[-1]
    if length > _MAX_LENGTH:
        raise InvalidArgument(
            formula.op, f"a row has at most {_MAX_LENGTH} elements, not {length}; cut it into several"
        )
    rows = in_rows(
        build, dtype, operands, structs.operands, has_totals=facts.totals > 0, has_results=formula.has_elements
    )
    operands, launches = rows.operands, rows.launches
    totals = RowTotals.of(build, kernels, length, launches) if any(outputs.totals) else None
    itemsize, stages = dtype.compute.itemsize, facts.stages
    for number, launch in enumerate(launches):
        is_split = launch.splits > 1 and stages > 0
        parts = build.allocate(launch.rows * launch.splits * facts.reduced * itemsize) if is_split else None
        sources: list[Value | int] = [
            NULL if operand is None else operand.at(offset)
            for operand, offset in zip(operands, launch.offsets, strict=True)
        ]
        first = launch.first * length
        of_rows = formula.are_of_rows
        targets: list[Value | int] = [
            output.at(launch.first if is_of_rows else first)
            for output, is_of_rows in zip(outputs.results, of_rows, strict=False)
        ]
        if outputs.sums:
            targets += [*[NULL] * facts.totals, *[output.at(first) for output in outputs.sums]]
        known = build.allocate(launch.rows * facts.known * itemsize) if totals and totals.are_apart else None
        fields: dict[str, Any] = {
            "results": padded(targets, structs.results), "sources": padded(sources, structs.operands),
            "parts": address_of(parts), "totals": totals.addresses[number] if totals else NULL,
            "known": address_of(known), "parameters": parameters, "rows": launch.rows, "length": length,
            "varying": rows.varying, "per_row": rows.per_row, "subgroup_size": launch.subgroup_size,
            "splits": launch.splits, "geometry": launch.geometry,
            **(numbers.packed_indexes(launch.first) if numbers else _NO_INDEXES),
        }  # fmt: skip
        if structs.has_numbers:
            fields.update(numbers.packed(launch.first) if numbers else _NO_NUMBERS)
        blocks = blocks_of(build, launch) if facts.totals else launch.blocks
        for stage in range(stages + 1) if is_split else (stages,):
            kernels.launch(build, launch.kernel, blocks, structs.rows(chunk=launch.chunk, stage=stage, **fields))
        if totals is not None and totals.are_apart:
            packed = structs.rows(chunk=totals.chunks[number], stage=0, **fields)
            kernels.launch(build, "totals", totals.parts[number] * totals.columns, packed)
    if totals is not None:
        totals.join(build, kernels, outputs.totals)
