"""Row formulas by the kernels for the host: functions of the elements along a dim and of reductions over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .....dtype import DType
from .....kernels import host_arguments
from .....kernels.constants import ROWS
from .....op import MethodOp
from ....base.row_facts import RowFacts
from ....core.shape import Shape
from ....program.builder import ProgramBuilder
from ....program.row_variants import variant_for
from ....program.values import NULL, Buffer, Operand, Parameter, Pointer, address_of, filled
from ...numbers import element_bits
from ..values import RUN_PARTS, THREADS
from . import native_index
from .native import contiguous, copied

if TYPE_CHECKING:
    from ..kernels import HostKernels

_FAMILY: Final = "host_row"
# The arrays of RowFormula. No array of C++ is empty.
_OPERANDS: Final = 4
_RESULTS: Final = 3
# Elements of a part of the work, roughly; rows of a tile; and the most parts whose sums over rows are added up.
_PART_LENGTH: Final = 1 << 13
_GROUP: Final = 32
_MAX_PARTS: Final = 64
_PARAMETERS: Final = max(host_arguments.PARAMETERS[_FAMILY], 1)
# Numbers of rows, and the last position that f32 holds exactly.
_NUMBERS: Final = 5
_MAX_POSITION: Final = 1 << 24
_NO_NUMBERS: Final = {
    "scratch": NULL, "together": 0, "numbers": (NULL,) * _NUMBERS, "number_strides": (0,) * _NUMBERS,
    "indexes": NULL, "wrong": NULL, "ignored": 0, "index_mark": 0, "index_stride": 0, "index_bytes": 0,
    "index_shift": 0,
}  # fmt: skip


_InRows: TypeAlias = tuple[Pointer, int, int, int]
"""The address of an operand, and its strides: along the dims before the row's as one, the row, and the dims after."""
_ABSENT: Final[tuple[_InRows, ...]] = ((NULL, 0, 0, 0),) * _OPERANDS
_ZEROS: Final = (0,) * max(_RESULTS, _PARAMETERS)


def row(
    build: ProgramBuilder, kernels: HostKernels, op: MethodOp, *positional: Operand | float | Parameter | None
) -> Buffer | tuple[Buffer, ...] | None:
    """As `row.row`; None where NumPy does it."""
    variant, arguments = variant_for(op.value, positional)
    facts = ROWS[variant]
    if facts.has_numbers:
        return _with_numbers(build, kernels, op, variant, arguments)
    x, *others = arguments[: len(facts.absent) + facts.adds_residual]
    remaining: list[Any] = [*arguments[len(others) + 1 :]]
    assert isinstance(x, Operand)
    dim = len(x.shape) - 1 if facts.last_dim else remaining.pop(0)
    requested, parameters = remaining[: facts.totals], remaining[facts.totals :]
    kernel = f"{variant}_{x.dtype.value}"
    is_empty = any(requested) and x.layout.elem_count == 0
    if not isinstance(dim, int) or is_empty or not kernels.has(_FAMILY, kernel):
        return None
    operands: list[Any] = [x, *others]
    outputs = along(build, RowKernel(_FAMILY, kernel, facts), dim, operands, parameters, requested)
    return outputs if facts.outputs > 1 else outputs[0]


def _with_numbers(
    build: ProgramBuilder, kernels: HostKernels, op: MethodOp, variant: str, arguments: Sequence[Any]
) -> Buffer | tuple[Buffer, ...] | None:
    """As `row._with_numbers`; None where NumPy does it."""
    facts = ROWS[variant]
    count = len(facts.absent)
    operands, others = arguments[:count], arguments[count : count + facts.numbers]
    remaining = [*arguments[count + facts.numbers :]]
    x = operands[0]
    index = remaining.pop(0) if facts.has_index else None
    dim = len(x.shape) - 1 if facts.last_dim else remaining.pop(0)
    ignored = remaining.pop(0) if facts.has_index else 0
    has_saved = not facts.saved or remaining[0]
    parameters = remaining[facts.numbers > 0 or facts.saved > 0 :]
    kernel, length = f"{variant}_{x.dtype.value}", x.shape[dim]
    # Positions are floats of the compute dtype.
    is_exact = index is None or x.dtype is DType.F64 or length <= _MAX_POSITION
    rows = math.prod(x.shape[:dim]) * math.prod(x.shape[dim + 1 :])
    if not is_exact or not kernels.has(_FAMILY, kernel) or rows == 0:
        return None
    count = facts.number_results - (0 if has_saved else facts.saved)
    results = [build.empty(x.dtype.compute, rows) for _ in range(count)]
    elements = [build.empty(x.dtype, rows * length) for _ in range(facts.results)]
    numbers: list[Operand] = [_evenly_spaced(build, each) for each in others]
    index = index and _evenly_spaced(build, index)
    fields = {} if index is None else {
        "indexes": index.address, "wrong": native_index.index_record(op.value, index.dtype, length),
        # Any other number that is ignored is no index either.
        "ignored": min(max(ignored, -(2**63)), 2**63 - 1), "index_mark": index.dtype.index_form[0],
        "index_stride": index.strides[0], "index_bytes": index.itemsize, "index_shift": index.dtype.index_form[2],
    }  # fmt: skip
    _launch(
        build, RowKernel(_FAMILY, kernel, facts), dim, operands, elements, parameters,
        numbers=filled([*map(address_of, numbers), *map(address_of, results)], _NUMBERS, NULL),
        number_strides=filled([each.strides[0] for each in numbers], _NUMBERS, 0), **fields,
    )  # fmt: skip
    if results:
        return tuple(results)
    return elements[0]


def _evenly_spaced(build: ProgramBuilder, x: Operand) -> Operand:
    """The elements as a vector, copied where they are not evenly spaced."""
    step = _collapsed(x.shape, x.strides)
    if step is None:
        x, step = copied(build, x), 1
    return x.as_strided((x.layout.elem_count,), (step,))


class RowKernel(NamedTuple):
    """A kernel of a row formula, and what its launches depend on."""

    family: str
    name: str
    facts: RowFacts


def along(
    build: ProgramBuilder,
    kernel: RowKernel,
    dim: int,
    operands: Sequence[Operand | None],
    parameters: Sequence[float | Parameter] = (),
    requested: Sequence[bool] = (),
) -> tuple[Buffer, ...]:
    """Return the results of a row formula along a dim, contiguous, with the sums over rows that are `requested`.

    The operands have one dtype, and the shape of the first one, in which one that lacks a dim has stride 0, or they are
    vectors along the row; those that are left out are None.
    """
    x, facts = operands[0], kernel.facts
    assert x is not None
    count, length = x.layout.elem_count, x.layout.shape[dim]
    residual = operands[-1] if facts.adds_residual else None
    elements = [build.empty(x.dtype, count) for _ in range(facts.results)]
    sums = [build.empty(x.dtype, count) for _ in (residual,) if residual is not None]
    if count == 0:
        return (*elements, *sums)
    totals = [build.empty(x.dtype, length) if is_asked else None for is_asked in requested]
    # As many parts as threads may share, whatever their number.
    rows = count // length
    together = _up_to_group(max(-(-rows // _MAX_PARTS), _PART_LENGTH // length + 1))
    scratch = None
    if True in requested:
        nbytes = -(-rows // together) * facts.totals * _up_to_group(length) * x.dtype.compute.itemsize
        scratch = build.allocate(nbytes)
    if residual is not None:
        operands = [contiguous(build, x), *operands[1:-1], contiguous(build, residual)]
    outputs = (*elements, *totals, *sums)
    _launch(build, kernel, dim, operands, outputs, parameters, scratch=address_of(scratch), together=together)
    return (*elements, *[total for total in totals if total is not None], *sums)


def _launch(
    build: ProgramBuilder,
    kernel: RowKernel,
    dim: int,
    operands: Sequence[Operand | None],
    outputs: Sequence[Buffer | None],
    parameters: Sequence[float | Parameter],
    **others: Any,
) -> None:
    """Launch a kernel of rows along a dim; `others` are the fields that not all ops have."""
    x = operands[0]
    assert x is not None
    layout = x.layout
    shape, inner = layout.shape, math.prod(layout.shape[dim + 1 :])
    in_rows = [*[_in_rows(build, each, shape, dim, inner) for each in operands], *_ABSENT[len(operands) :]]
    addresses, outer_strides, length_strides, inner_strides = zip(*in_rows, strict=True)
    bits = [element_bits(number, x.dtype.compute) for number in parameters]
    packed = host_arguments.row_formula(
        results=(*map(address_of, outputs), *_ZEROS[len(outputs) : _RESULTS]), operands=addresses, run_parts=RUN_PARTS,
        parameters=(*bits, *_ZEROS[len(bits) : _PARAMETERS]), rows=math.prod(shape[:dim]) * inner, length=shape[dim],
        inner=inner, outer_strides=outer_strides, length_strides=length_strides, inner_strides=inner_strides,
        threads=THREADS, **{**_NO_NUMBERS, **others},
    )  # fmt: skip
    build.launch(kernel.family, kernel.name, 1, packed, work=layout.elem_count)


def _up_to_group(count: int) -> int:
    return -(-count // _GROUP) * _GROUP


def _in_rows(build: ProgramBuilder, x: Operand | None, shape: Shape, dim: int, step: int) -> _InRows:
    """Return how kernels read an operand, which may be left out, or be a vector along the dim.

    `step` is the stride of the dim where elements are contiguous. The operand is copied where the dims before or after
    the dim do not collapse.
    """
    if x is None:
        return NULL, 0, 0, 0
    layout = x.layout
    strides = layout.strides
    if len(strides) != len(shape):
        return x.address, 0, strides[0], 0
    if not layout.is_contiguous:
        outer = _collapsed(shape[:dim], strides[:dim])
        inner = _collapsed(shape[dim + 1 :], strides[dim + 1 :])
        if outer is not None and inner is not None:
            return x.address, outer, strides[dim], inner
        x = copied(build, x)
    return x.address, step * shape[dim], step, 1


def _collapsed(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the stride of dims as one dim; None where their elements are not evenly spaced."""
    dims = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for (_, stride), (size, within) in pairwise(dims):
        if stride != size * within:
            return None
    return dims[-1][1] if dims else 0
