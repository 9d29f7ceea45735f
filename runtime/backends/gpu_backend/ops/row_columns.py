"""Row formulas along a dim that is not the innermost one: kernels of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from .....kernels.constants import BLOCK_SIZE
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, Operand
from ..driver.grid import ceil_divide, power_of_two
from . import copy
from .geometry import Dims, merged
from .row_formula import RowKernels, padded

# How many rows side by side make a column of vectors, how many of these a thread may have in registers, and the most
# threads that share a column.
COLUMN_WIDTH: Final = 4
COLUMN_VECTORS: Final = 8
_COLUMN_THREADS: Final = 32
_WIDE_ELEMENT: Final = 8


class _Steps(NamedTuple):
    """The strides of an operand whose dims before and after one dim are merged."""

    outer: int
    along: int
    across: int


def along_columns(
    build: ProgramBuilder,
    kernels: RowKernels,
    dim: int,
    operands: Sequence[Operand],
    results: Sequence[Buffer],
) -> None:
    """Launch a kernel of columns."""
    _, structs, dtype, parameters = kernels
    shape = operands[0].shape
    length, inner = shape[dim], math.prod(shape[dim + 1 :])
    unit = 1 if dtype.itemsize == _WIDE_ELEMENT or inner % COLUMN_WIDTH else COLUMN_WIDTH
    pairs = [_in_columns(build, operand, dim, unit) for operand in operands]
    operands, steps = [operand for operand, _ in pairs], [step for _, step in pairs]
    columns = math.prod(shape[:dim]) * (inner // unit)
    # Threads that share a column reduce in an order that follows from the width of rows alone.
    together = min(power_of_two(ceil_divide(length, COLUMN_VECTORS)), _COLUMN_THREADS)
    fits_registers = unit > 1 and length <= COLUMN_VECTORS * _COLUMN_THREADS
    kernel = f"columns{COLUMN_VECTORS}" if fits_registers else "vector_columns" if unit > 1 else "scalar_columns"
    packed = structs.columns(
        results=padded([result.address for result in results], structs.results),
        sources=padded([each.address for each in operands], structs.operands), parameters=parameters,
        outer=padded([step.outer for step in steps], structs.operands),
        along=padded([step.along for step in steps], structs.operands), inner=inner, length=length,
        varying=sum(1 << k for k, step in enumerate(steps) if step.along),
        across=sum(1 << k for k, step in enumerate(steps) if step.across), columns=columns,
        columns_across=inner // unit, subgroup_size=BLOCK_SIZE // together,
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
    outer = merged_step(shape[:dim], strides[:dim])
    across = merged_step(shape[dim + 1 :], strides[dim + 1 :])
    return None if outer is None or across not in (0, 1) else _Steps(outer, strides[dim], across)


def merged_step(dims: Dims, strides: Dims) -> int | None:
    """The stride of dims that are merged into one; None where they do not merge."""
    dims, (steps,) = merged(dims, (strides,))
    return 0 if not dims else steps[0] if len(dims) == 1 else None
