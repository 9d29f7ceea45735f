"""Facts of an op of rows that its launches depend on."""

from __future__ import annotations

from typing import NamedTuple


class RowFacts(NamedTuple):
    """The facts of an op of rows, besides its formula."""

    results: int
    """How many results have an element for each one of the first operand."""
    passes: tuple[tuple[int, int], ...]
    """For each pass, the numbers that it reduces a row to, and those derived from them once a row."""
    rescaled: int
    """A bit for each pass that kernels of long rows make together with the one before."""
    absent: tuple[float | None, ...]
    """By operand, the number used if a call leaves it out; None if it must be passed."""
    last_dim: bool = False
    """Whether rows lie along the last dim; else calls choose the dim."""
    vectors: int = 0
    """A bit for each operand that has an element for each position in the row, which all rows share."""
    adds_residual: bool = False
    """Whether the last operand is a residual that may be left out; its sum with the first one is the last result."""
    totals: int = 0
    """How many further results are sums over all rows, each of which calls may ask for."""
    has_index: bool = False
    """Whether an operand has the position of an element for each row."""
    numbers: int = 0
    """How many operands have a number for each row."""
    number_results: int = 0
    """How many results are a number for each row; with an index the second one is what the row counts for."""
    saved: int = 0
    """How many of these, the last ones, are for the gradient alone; calls say whether they are results."""
    at_index: int = 0
    """A bit for each operand of which the element at the index of a row is read."""
    begun: int = 0
    """How many numbers are computed from a row's arguments before its first pass."""
    joins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The formulas of the numbers that passes reduce a row to, and which of these numbers occur in each.

    {0} and so on are the operands and then the parameters, {j0} and so on the numbers. An empty formula equals none.
    """
    variant: str = ""
    """The variant without the optional operands, where it has kernels for calls that leave out all of them."""

    @property
    def has_numbers(self) -> bool:
        """Whether operands or results have an element for each row."""
        return self.has_index or self.numbers > 0 or self.number_results > 0

    @property
    def outputs(self) -> int:
        """The results of all kinds."""
        return self.results + self.totals + self.adds_residual

    @property
    def stages(self) -> int:
        """How often kernels read a long row before its results are computed."""
        return len(self.passes) - self.rescaled.bit_count()

    @property
    def reduced(self) -> int:
        """To how many numbers all passes reduce a row."""
        return sum(count for count, _ in self.passes)

    @property
    def known(self) -> int:
        """The values of a row that all results are computed from: its arguments, reductions and derived numbers."""
        return self.numbers + sum(joins + finished for joins, finished in self.passes)
