"""Sums over all rows of what their elements add, such as the gradients of weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from .....kernels import arguments
from .....kernels.constants import BLOCK_SIZE, COMBINED_COLUMNS
from ....program.builder import ProgramBuilder
from ....program.values import NULL, Address, Buffer
from ..driver.grid import ceil_divide
from .row_formula import FAMILY, STRUCTS, RowKernels, padded
from .row_launches import RowLaunch

# The blocks of a multiprocessor that add up rows: these are resident, and more would leave more sums to join. A kernel
# that adds up rows afterwards has registers for more.
_RESIDENT: Final = 2
_RESIDENT_APART: Final = 8


def adds_up(launch: RowLaunch) -> bool:
    """Return True for threads that have complete vectors of rows in registers: they know the positions."""
    return launch.subgroup_size > 0 and launch.kernel.startswith("vector")


def blocks_of(build: ProgramBuilder, launch: RowLaunch) -> int:
    """Return how many blocks compute rows of which they add up what their elements add."""
    return min(launch.blocks, _RESIDENT * build.facts.multiprocessors) if adds_up(launch) else launch.blocks


class RowTotals(NamedTuple):
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
    def of(cls, build: ProgramBuilder, kernels: RowKernels, length: int, launches: Sequence[RowLaunch]) -> RowTotals:
        """Those of launches."""
        are_apart = not adds_up(launches[0])
        columns = ceil_divide(length, BLOCK_SIZE) if are_apart else 1
        most = max(_RESIDENT_APART * build.facts.multiprocessors // columns, 1)
        chunks = [ceil_divide(launch.rows, min(launch.rows, most)) for launch in launches]
        parts = [
            ceil_divide(launch.rows, chunk) if are_apart else blocks_of(build, launch)
            for launch, chunk in zip(launches, chunks, strict=True)
        ]
        sizes = [part * kernels.formula.facts.totals * length * kernels.dtype.compute.itemsize for part in parts]
        buffer = build.allocate(sum(sizes))
        addresses = [buffer.address + begin for begin in accumulate([0, *sizes[:-1]])]
        return cls(are_apart, columns, chunks, parts, addresses, length)

    def join(self, build: ProgramBuilder, kernels: RowKernels, results: Sequence[Buffer | None]) -> None:
        """Launch the kernel that joins the parts."""
        count = kernels.formula.facts.totals
        for dtype in dict.fromkeys([result.dtype for result in results if result is not None]):
            own = [NULL if it is None or it.dtype is not dtype else it.address for it in results]
            packed = arguments.join_totals(
                results=padded(own, STRUCTS.results), sums=self.addresses[0], totals=count, parts=sum(self.parts),
                length=self.length,
            )  # fmt: skip
            blocks = count * ceil_divide(self.length, COMBINED_COLUMNS)
            build.launch(FAMILY, f"totals_{dtype.value}", blocks, packed)
