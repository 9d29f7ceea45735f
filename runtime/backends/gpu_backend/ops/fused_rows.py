"""Fused functions of rows: launches of kernels that are composed of row formulas and maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .....kernels import arguments
from .....kernels.constants import FUSED_ROW_RESULTS, FUSED_ROW_SOURCES
from ....program.builder import ProgramBuilder
from ....program.fused_function import IndexOp
from ....program.values import Buffer, Number, Operand
from . import row, row_formula
from .fused_composition import formula_of
from .fused_passes import indexed_step, of_elements_or_rows, totals_of

if TYPE_CHECKING:
    from ....core.shape import Shape
    from ....program.fused_function import FusedFunction
    from ....program.fused_kernels import Rows

_STRUCTS: Final = row_formula.RowStructs(
    arguments.fused_rows, arguments.fused_columns, FUSED_ROW_SOURCES, FUSED_ROW_RESULTS, has_numbers=False
)
# No index of a row.
_NEVER: Final = 1 << 63


def fused_rows(
    build: ProgramBuilder,
    kernel: FusedFunction,
    shape: Shape,
    rows: Rows,
    operands: Sequence[Operand],
    numbers: Sequence[Number],
) -> tuple[Buffer, ...]:
    """Launch a kernel of row ops and reductions along one dim, and of maps around them."""
    formula = formula_of(kernel, shape, rows)
    step, indexed = indexed_step(kernel), None
    if step is not None and step.row_position is not None:
        name, ignored = step.row_position
        by_name = dict(zip(kernel.sources, operands, strict=True))
        outer = [[*each[: rows.dim], *each[rows.dim + 1 :]] for each in (shape, by_name[name].strides)]
        positions = by_name.pop(name).as_strided(*outer)
        op = IndexOp.GATHER.value if isinstance(step.op, IndexOp) else step.op.value
        ignored = _NEVER if ignored is None else ignored
        indexed = row.RowNumbers().indexed(build, op, positions, shape[rows.dim], ignored)
        operands = [*by_name.values()]
        build.expect_error()
    results, totals = of_elements_or_rows(kernel), totals_of(kernel)
    dtypes = [result.dtype for result in (*results, *totals)]
    wanted = [True] * len(totals)
    arguments = operands, dtypes, numbers, wanted, indexed
    outputs = row.typed_along(build, formula, _STRUCTS, rows.dim, rows.dtype, *arguments)
    computed = dict(zip([*results, *totals], outputs, strict=True))
    return tuple([computed[result] for result in kernel.results])
