"""Functions that were traced by `fuse`: operands in memory, numbers, and elementwise and row ops in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, NamedTuple

from ...dtype import DType
from ...kernels.constants import ROW_REDUCTIONS, ROWS
from ..base.row_facts import RowFacts
from ..core.layout import Layout, inverse, reordering
from ..core.shape import Shape
from .row_variants import variant_for
from .values import Parameter


class EmptyRowError(Exception):
    """A row without elements is reduced: what that gives, if anything, the op itself says."""


class IndexOp(Enum):
    """An op of rows with an index each, the second operand: an integer that all elements of a row share."""

    GATHER = "gather"
    """The element that the index names; 0 where it is a mark."""
    SCATTER = "scatter"
    """The number of each row at its index, and 0 elsewhere: the gradient of a gather."""


class TotalOp(Enum):
    """An op of all numbers of rows, besides reductions."""

    RATIO_OF_SUMS = "ratio_of_sums"


ALL: Final = -1
"""Instead of a dim: the reduction is over all dims."""
_INDEX_FACTS: Final = RowFacts(results=1, passes=(), rescaled=0, absent=(None, None), has_index=True)


class Step(NamedTuple):
    """One op: names of operands are those of sources (x0), numbers (n0) and earlier steps (v0)."""

    name: str
    op: Any
    """An ElementwiseOp, a ReduceOp, an IndexOp or a TotalOp."""
    operands: tuple[str, ...]
    layouts: tuple[Layout, ...]
    """Those of the operands, which have one shape; of a number that of its one element, repeated."""
    parameters: tuple[str, ...]
    operand_dtype: DType
    """That of the last operand, in which the op computes."""
    dtype: DType
    dim: int | None = None
    """That along which a row op computes, or a reduction; ALL of what reduces all dims."""
    results: int = 1
    """How many results it has, all of the shape. The results of a row op are followed by the terms that elements add to
    its sums over rows, the totals."""
    ignored: int | None = None
    """The index of rows that do not count, of a row op with an index."""
    variant: str = ""
    """The variant of a row op that a kernel computes, if it is not the op itself."""

    @property
    def shape(self) -> Shape:
        """The shape of the operands."""
        return self.layouts[-1].shape

    @property
    def is_of_rows(self) -> bool:
        """Whether it computes along a dim."""
        return self.dim is not None and self.dim != ALL

    @property
    def is_reduction(self) -> bool:
        """Whether it has one number a row, or one of all."""
        if not self.is_of_rows:
            return self.dim == ALL
        return self.op is IndexOp.GATHER or self.op.value in ROW_REDUCTIONS or self.facts.number_results > 0

    @property
    def row_position(self) -> tuple[str, int | None] | None:
        """The operand that is an index of each row, and the one that does not count."""
        return (self.operands[-1], self.ignored) if self.is_of_rows and self.facts.has_index else None

    @property
    def row_index(self) -> str | None:
        """The operand that is an index of each row."""
        return None if self.row_position is None else self.row_position[0]

    @property
    def of_elements(self) -> tuple[str, ...]:
        """The operands of which each element is computed."""
        if self.row_position is None:
            return self.operands
        return () if self.is_reduction else self.operands[:-1]

    @property
    def saved(self) -> tuple[str, ...]:
        """The results that only a gradient reads, of which it computes none again."""
        if self.op is TotalOp.RATIO_OF_SUMS:
            return self.names[1:2]
        if not self.is_of_rows or not self.facts.number_results:
            return ()
        return self.names[1 + self.facts.has_index :]

    @property
    def facts(self) -> RowFacts:
        """The facts of the row op or reduction."""
        if isinstance(self.op, IndexOp):
            return _INDEX_FACTS
        return ROW_REDUCTIONS[self.op.value] if self.op.value in ROW_REDUCTIONS else ROWS[self.functor]

    @property
    def functor(self) -> str:
        """The row op or reduction, or its variant: what kernels have a functor of."""
        functor: str = self.variant or self.op.value
        return functor

    def without_numbers(self, numbers: Collection[str]) -> Step:
        """A row op by its variant, if operands that calls left out are `numbers` and there is one."""
        if not self.is_of_rows or self.functor not in ROWS:
            return self
        pairs = [*zip(self.operands, self.layouts, strict=True)]
        variant, taken = variant_for(self.functor, pairs, lambda pair: pair[0] in numbers)
        operands, layouts = zip(*taken, strict=True)
        return self._replace(variant=variant, operands=operands, layouts=layouts)

    @property
    def result_shape(self) -> Shape:
        """The shape of the results: that of the operands, or of size 1 along the dim that is reduced."""
        return reduced_shape(self.shape, self.dim) if self.is_reduction else self.shape

    def dtype_of(self, name: str) -> DType:
        """The dtype of a result; numbers of rows and what is added up are not rounded."""
        if not self.is_of_rows:
            return self.dtype
        is_added = self.results > 1 and name in self.names[self.facts.results :]
        return self.dtype.compute if is_added or self.facts.number_results else self.dtype

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the results: of several v0_0, v0_1 and so on."""
        return (self.name,) if self.results == 1 else tuple([f"{self.name}_{i}" for i in range(self.results)])


def reduced_shape(shape: Shape, dim: int | None) -> Shape:
    """Return a shape of size 1 along one dim."""
    if dim == ALL:
        return Shape((1,) * len(shape))
    return shape if dim is None else Shape((*shape[:dim], 1, *shape[dim + 1 :]))


class Source(NamedTuple):
    """An operand in memory: an argument of the function, by its position among the tensors, with a layout."""

    position: int
    dtype: DType
    layout: Layout


class Number(NamedTuple):
    """A number that is always the same, or how each call computes it, and the dtype of the elements it stands for."""

    dtype: DType
    value: complex | Callable[[Sequence[float]], complex]

    @property
    def words(self) -> int:
        """How many words of 64 bits its element takes."""
        return -(-self.dtype.itemsize // 8)


class Result(NamedTuple):
    """A result: the name of a source or a step, whose elements a layout shows, or their sums over rows."""

    name: str
    dtype: DType
    layout: Layout
    along: int | None = None
    """Along which dim there is a sum for each position, over all other dims; None of the elements themselves."""

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.layout.shape if self.along is None else Shape((self.layout.shape[self.along],))

    @property
    def summed_dims(self) -> tuple[int, ...]:
        """The dims over which it is a sum."""
        return tuple([dim for dim in range(self.layout.rank) if dim != self.along])


class FusedFunction:
    """A computation on tensors of certain layouts and dtypes, with new, contiguous results."""

    def __init__(
        self,
        name: str,
        tensors: Sequence[Layout],
        sources: Mapping[str, Source],
        numbers: Mapping[str, Number],
        steps: Iterable[Step],
        results: Sequence[Result],
        order: tuple[int, ...] = (),
        saved: int = 0,
    ) -> None:
        """Keep the steps, sources and numbers that the results need. `tensors` are the layouts of the arguments.

        With an `order`, the dims of all else are those of the caller in this order: see `in_memory_order`.
        """
        needed, needed_steps = {result.name for result in results}, []
        for step in reversed([*steps]):
            if not needed.isdisjoint(step.names):
                needed.update(step.operands, step.parameters)
                needed_steps.append(step)
        self.name = name
        self.tensors = tensors
        self.sources = {name: source for name, source in sources.items() if name in needed}
        self.numbers = {name: number for name, number in numbers.items() if name in needed}
        self.steps = tuple(reversed(needed_steps))
        self.results = tuple(results)
        self.computed_numbers = [number.value for number in self.numbers.values() if callable(number.value)]
        """The functions that compute the numbers which differ between calls from those of the call."""
        self.saved = saved
        """How many of the last results are for the gradient alone."""
        self.order = order
        self.computed_layouts = [Layout.contiguous(result.shape) for result in results]
        """Those of the results, in the dims of the steps."""
        self.layouts = [it.permute(inverse(order)) if order else it for it in self.computed_layouts]
        """Those of the results for the caller."""

    @cached_property
    def with_saved(self) -> FusedFunction:
        """The function that also gives what its gradient reads: numbers that would take another pass to compute."""
        known = {result.name for result in self.results}
        own = [(step, name) for step in self.steps for name in step.saved if name not in known]
        saved = [Result(name, step.dtype_of(name), Layout.contiguous(step.result_shape)) for step, name in own]
        results = [*self.results, *saved]
        return FusedFunction(
            self.name, self.tensors, self.sources, self.numbers, self.steps, results, self.order, len(saved)
        )

    def of_tensors(self, positions: Sequence[int]) -> FusedFunction:
        """Leave out the tensors that it does not read: those are at other positions."""
        tensors = [self.tensors[position] for position in positions]
        sources = {
            name: source._replace(position=positions.index(source.position)) for name, source in self.sources.items()
        }
        return FusedFunction(self.name, tensors, sources, self.numbers, self.steps, self.results, self.order)

    def in_memory_order(self) -> FusedFunction:
        """Reorder the dims of maps to those of memory, as `tensor.base.aligned` does for one op.

        The first source that has the shape of the results and fills a range of memory decides on the order. What has a
        row op or a reduction, or results of several shapes, stays as it is.
        """
        shape = self.results[0].layout.shape if self.results else Shape(())
        rank = len(shape)
        order = reordering(it.layout for it in self.sources.values() if it.layout.shape == shape)
        is_map = not any(step.dim is not None for step in self.steps)
        is_alike = all(result.layout.shape == shape for result in self.results)
        if not order or not is_map or not is_alike:
            return self

        def reordered(layout: Layout) -> Layout:
            for _ in range(rank - layout.rank):
                layout = layout.unsqueeze(0)
            return layout.permute(order)

        sources = {name: it._replace(layout=reordered(it.layout)) for name, it in self.sources.items()}
        computed: dict[str, Layout] = {}

        def operand(name: str, layout: Layout) -> Layout:
            shown = reordered(layout)
            return computed[name].broadcast_as(shown.shape) if name in computed else shown

        steps = []
        for step in self.steps:
            steps.append(step._replace(layouts=tuple(map(operand, step.operands, step.layouts))))
            computed |= dict.fromkeys(step.names, Layout.contiguous(steps[-1].shape))
        results = [it._replace(layout=operand(it.name, it.layout)) for it in self.results]
        return FusedFunction(self.name, self.tensors, sources, self.numbers, steps, results, order)

    def named_numbers(self, varying: Iterable[Parameter]) -> dict[str, complex | Parameter]:
        """Return the numbers by name, with parameters instead of those that differ between calls."""
        parameters = iter(varying)
        return {name: next(parameters) if callable(it.value) else it.value for name, it in self.numbers.items()}
