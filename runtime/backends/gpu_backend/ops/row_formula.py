"""A row formula as launches see it: its kernels, the structs that they take, and what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from .....kernels import arguments
from ....base.row_facts import RowFacts
from ....program.builder import ProgramBuilder
from ....program.values import Buffer, KernelArguments, Number, Value

if TYPE_CHECKING:
    from .....dtype import DType

FAMILY: Final = "row"


class RowFormula(NamedTuple):
    """Kernels of a row formula, and what their launches depend on."""

    family: str
    op: str
    """The kernels' names begin with it or with the variant."""
    facts: RowFacts
    of_rows: tuple[bool, ...] = ()
    """Whether each result is one number a row; none is where this is empty."""
    has_elements: bool = True
    """Whether a row has as many threads as for results of elements."""
    variant: str = ""
    """The variant of the op whose kernels these are, if they are not its own."""

    @property
    def are_of_rows(self) -> tuple[bool, ...]:
        """Return True for each result that is one number a row."""
        return self.of_rows or (False,) * self.facts.results


class RowStructs(NamedTuple):
    """The structs that kernels of rows take, and their capacity of operands and results."""

    rows: Callable[..., KernelArguments]
    columns: Callable[..., KernelArguments]
    operands: int
    results: int
    has_numbers: bool
    """Whether there is capacity for numbers of rows."""


STRUCTS: Final = RowStructs(arguments.along_rows, arguments.along_columns, 4, 3, has_numbers=True)


class RowOutputs(NamedTuple):
    """The results of elements, the sums over rows that are requested, and the sum with a residual."""

    results: Sequence[Buffer]
    totals: Sequence[Buffer | None]
    sums: Sequence[Buffer]


class RowKernels(NamedTuple):
    """The part that all launches of a formula share."""

    formula: RowFormula
    structs: RowStructs
    dtype: DType
    parameters: Sequence[Number]

    def launch(self, build: ProgramBuilder, kernel: str, blocks: int, packed: KernelArguments) -> None:
        name = f"{self.formula.variant or self.formula.op}_{self.dtype.value}_{kernel}"
        build.launch(self.formula.family, name, blocks, packed)


def padded(numbers: Sequence[Value | int], count: int) -> list[Value | int]:
    """The numbers, and zeros up to `count`."""
    return [*numbers, *[0] * (count - len(numbers))]
