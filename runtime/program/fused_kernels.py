"""Fused functions as kernels: which of its ops each kernel computes, and what goes through memory between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from ...dtype import DType
from ...kernels.constants import (
    FUSED_NUMBERS,
    FUSED_RESULTS,
    FUSED_ROW_RESULTS,
    FUSED_ROW_SOURCES,
    FUSED_SOURCES,
    ROW_REDUCTIONS,
)
from ...op import MethodOp
from ..core.layout import Layout
from ..core.shape import Shape
from .fused_function import ALL, FusedFunction, Result, Source, Step, reduced_shape

# With at least this many elements, values that this many of them share have a kernel of their own.
_MIN_ELEMENTS: Final = 1 << 18
_MIN_REPEATS: Final = 1 << 8


class Rows(NamedTuple):
    """The rows that a kernel reduces: along a dim, in an order that follows from their dtype and their width."""

    dim: int
    dtype: DType
    is_free: bool = False
    """Whether no op promises an order, as reductions do not: these are of any rows in which numbers are as exact."""

    @classmethod
    def of(cls, step: Step, dtypes: Iterable[DType]) -> Rows | None:
        """The rows of a row op; None of a map.

        What promises no order chooses the shortest float among the dtypes that it reads.
        """
        if step.dim is None:
            return None
        dtype, is_free = step.dtype, not step.facts.passes or step.op.value in ROW_REDUCTIONS
        if is_free:
            dtype = min((it for it in dtypes if it.compute is dtype.compute), key=_itemsize, default=dtype)
        return cls(step.dim, dtype, is_free)

    def merged(self, other: Rows) -> Rows | None:
        """Return the rows of a kernel of both ops; None where no kernel has both."""
        if self.dim != other.dim or self.dtype.compute is not other.dtype.compute:
            return None
        if other.is_free:
            return self
        return other if self.is_free or self == other else None

    def has_room_for(self, dtype: DType) -> bool:
        """Return True if each number of a dtype is one of the dtype that rows are computed in."""
        compute = self.dtype.compute
        if dtype.is_float:
            return dtype.itemsize <= compute.itemsize
        return not dtype.is_complex and dtype.itemsize < compute.itemsize


def _itemsize(dtype: DType) -> int:
    return dtype.itemsize


class FusedKernel(NamedTuple):
    """A launch: a function of the tensors and of the values that earlier kernels write, of elements of one shape."""

    function: FusedFunction
    shape: Shape
    """Results have it, or one number a row."""
    outputs: list[int]
    """The positions of its results among those of the function and, after these, the values. Sources of the
    kernel with positions after the tensors are these."""
    rows: Rows | None
    """The dims or rows that it reduces; None for maps only, and for an op of all numbers of rows."""

    @property
    def total(self) -> Step | None:
        """The op of all numbers of rows, which has a kernel of its own; None of other kernels."""
        last = self.function.steps[-1:]
        return last[0] if last and last[0].dim == ALL else None


@lru_cache(maxsize=1024)
def kernels_of(function: FusedFunction) -> list[FusedKernel]:
    """Divide a function into kernels, in an order in which each finds what it reads.

    A kernel has row ops and reductions along one dim of one shape, and the maps before, between and after them, of
    elements and of numbers of the rows. Maps of arguments alone are computed in each kernel that reads them, others in
    the kernel that computes their operands. So what goes through memory are results, and what row ops read along
    another dim or of another shape.
    """
    return _Division(function).kernels()


def excess(function: FusedFunction) -> str | None:
    """Describe what a kernel of a function has too many of for a GPU; None of a function that is fused."""
    for kernel, *_ in kernels_of(function):
        for what, count, limit in (
            ("operands in memory", len(kernel.sources), FUSED_SOURCES),
            ("numbers", sum(number.words for number in kernel.numbers.values()), FUSED_NUMBERS),
        ):
            if count > limit:
                return f"{count} {what}, and a kernel {limit} at most"
    return None


class _Part:
    """The steps of one kernel."""

    def __init__(self, shape: Shape, rows: Rows | None) -> None:
        self.shape = shape
        self.rows = rows
        self.steps: list[Step] = []
        self.before: set[_Part] = set()
        """The parts that it depends on, also through others."""
        self.outputs: list[tuple[int, Result]] = []
        """The outputs that it writes, by the positions of FusedKernel.outputs."""

    @property
    def is_total(self) -> bool:
        """Whether it is an op of all numbers of rows, which no other joins."""
        return any(step.dim == ALL for step in self.steps)

    @property
    def max_results(self) -> int:
        return FUSED_RESULTS if self.rows is None else FUSED_ROW_RESULTS

    def has_shape_of(self, step: Step) -> bool:
        """Return True for a step of its elements, or a map of numbers of its rows."""
        if step.shape == self.shape:
            return True
        return self.rows is not None and step.dim is None and step.shape == reduced_shape(self.shape, self.rows.dim)


class _Division:
    """How the steps of a function are divided."""

    def __init__(self, function: FusedFunction) -> None:
        self._function = function
        self._parts: list[_Part] = []
        self._steps = {name: step for step in function.steps for name in step.names}
        # Where a value is computed; no part has what is computed of arguments alone wherever it is read.
        self._part_of: dict[str, _Part] = {}
        repeated = self._repeated()
        if repeated or any(step.dim is not None for step in function.steps):
            for step in function.steps:
                if step.name in repeated and not self._parts_before(step):
                    self._join(self._new_part(step.shape, None), step)
                else:
                    self._place(step)
        for position, result in enumerate(function.results):
            self._part_for(result).outputs.append((position, result))
        self._count = len(function.results)
        self._values: dict[str, Source] = {}
        for part in self._parts:
            for name in self._read(part):
                if name in self._part_of and name not in self._values:
                    self._write(name)

    def _repeated(self) -> set[str]:
        """Return the maps whose values are shared by enough elements for a kernel of their own to be quicker."""
        largest: dict[str, int] = {}
        repeated = set()
        for step in reversed(self._function.steps):
            count = max(step.shape.elem_count, *[largest.get(name, 0) for name in step.names])
            for name in step.operands:
                largest[name] = max(largest.get(name, 0), count)
            # A single number costs less than a launch.
            is_map = step.dim is None and step.op is not MethodOp.TO_DTYPE and step.shape.elem_count > 1
            if is_map and count >= _MIN_ELEMENTS:
                repeated |= {name for name in step.names if step.shape.elem_count * _MIN_REPEATS <= count}
        return repeated

    def _write(self, name: str) -> None:
        """Have a value written to memory for other parts: as a result, if it is one."""
        part, step = self._part_of[name], self._steps[name]
        dtype, layout = step.dtype_of(name), Layout.contiguous(step.result_shape)
        written = [
            position
            for position, result in part.outputs
            if result.name == name and result.layout.is_contiguous and result.layout.elem_count == layout.elem_count
        ]
        if not written:
            written = [self._count]
            part.outputs.append((self._count, Result(name, dtype, layout)))
            self._count += 1
        self._values[name] = Source(len(self._function.tensors) + written[0], dtype, layout)

    def _place(self, step: Step) -> None:
        """Choose the part of a row op, or of a map of what parts compute."""
        before = self._parts_before(step)
        if step.dim is None and not before:
            return None
        if step.dim == ALL:
            for name in dict.fromkeys(step.operands):
                operand = self._steps.get(name)
                if operand is not None and name not in self._part_of:
                    self._join(self._new_part(operand.shape, None), operand)
            return self._join(self._new_part(step.shape, None), step)
        sources = self._function.sources
        rows = Rows.of(step, [sources[name].dtype for name in self._closure([step]) if name in sources])
        if step.row_index in self._steps and step.row_index not in self._part_of:
            # Kernels read indexes from memory.
            computed = self._steps[step.row_index]
            self._join(self._new_part(computed.shape, None), computed)
        for part in reversed(self._parts):
            merged = part.rows if rows is None else part.rows and part.rows.merged(rows)
            fits = part in before if rows is None else merged is not None
            if fits and part.has_shape_of(step) and self._may_join(part, step, merged):
                part.rows = merged
                return self._join(part, step)
        part = self._new_part(step.shape, rows)
        if rows is not None and not self._may_join(part, step, rows):
            # What maps compute for it goes through memory.
            for name in dict.fromkeys(step.operands):
                operand = self._steps.get(name)
                if operand is not None and name not in self._part_of:
                    self._join(self._new_part(operand.shape, None, before=part), operand)
        self._join(part, step)
        return None

    def _new_part(self, shape: Shape, rows: Rows | None, before: _Part | None = None) -> _Part:
        part = _Part(shape, rows)
        self._parts.insert(len(self._parts) if before is None else self._parts.index(before), part)
        return part

    def _parts_before(self, step: Step) -> set[_Part]:
        return {self._part_of[name] for name in self._closure([step]) if name in self._part_of}

    def _closure(self, steps: Iterable[Step]) -> Iterator[str]:
        """The names that steps read and those of what is computed for these, down to what parts have computed."""
        seen: set[str] = set()
        names = [name for step in steps for name in (*step.operands, *step.parameters)]
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            yield name
            if name in self._steps and name not in self._part_of:
                step = self._steps[name]
                names += *step.operands, *step.parameters

    def _read(self, part: _Part) -> list[str]:
        """Return what a part reads: arguments, numbers and values of other parts."""
        own = {name for step in part.steps for name in step.names}
        outputs = [result.name for _, result in part.outputs if result.name not in own]
        free = [self._steps[name] for name in outputs if name in self._steps and name not in self._part_of]
        names = dict.fromkeys([*self._closure([*part.steps, *free]), *outputs])
        return [name for name in names if name not in own and (name not in self._steps or name in self._part_of)]

    def _may_join(self, part: _Part, step: Step, rows: Rows | None) -> bool:
        """Return True if a part can compute a step too, with what rows it has then."""
        others = self._parts_before(step) - {part}
        if part.is_total or any(part in other.before for other in others):
            return False
        merged = _Part(part.shape, rows)
        merged.steps = [*part.steps, step]
        read, function = self._read(merged), self._function
        sources = [name for name in read if name not in function.numbers]
        words = sum(function.numbers[name].words for name in read if name in function.numbers)
        if rows is None:
            return len(sources) <= FUSED_SOURCES and words <= FUSED_NUMBERS
        steps = [*[self._steps[name] for name in self._closure(merged.steps) if name in self._steps], *merged.steps]
        positions = {each.row_position for each in steps if each.row_position is not None}
        indexes = {name for name, _ in positions}
        steps = [each for each in steps if indexes.isdisjoint(each.names)]
        if len(positions) > 1 or part in map(self._part_of.get, indexes):
            return False
        elements = {name for each in steps for name in each.operands if name != each.row_index}
        dtypes = {dtype for each in steps for dtype in (each.dtype, each.operand_dtype)}
        dtypes |= {function.sources[name].dtype for name in elements if name in function.sources}
        dtypes |= {function.numbers[name].dtype for name in read if name in function.numbers}
        is_exact = all(map(rows.has_room_for, dtypes))
        return is_exact and len(sources) <= FUSED_ROW_SOURCES and words <= FUSED_NUMBERS

    def _join(self, part: _Part, step: Step) -> None:
        others = self._parts_before(step) - {part}
        part.before |= others.union(*[other.before for other in others])
        for other in self._parts:
            if part in other.before:
                other.before |= part.before
        part.steps.append(step)
        self._part_of |= dict.fromkeys(step.names, part)

    def _part_for(self, result: Result) -> _Part:
        """The part that writes a result: the one that computes it, or one of its shape that reads the same."""
        name, shape = result.name, result.layout.shape
        own = self._part_of.get(name)
        if result.along is not None and own is None:
            # A kernel of rows that reads it, or what it is computed of.
            for part in self._parts:
                is_along = part.rows is not None and part.rows.dim == result.along and part.shape == shape
                if is_along and len(part.outputs) < part.max_results and name in self._read(part):
                    return part
        is_whole = result.layout.is_contiguous
        if own is not None and is_whole and math.prod(self._steps[name].result_shape) == math.prod(shape):
            return own
        computed = {part: {*self._closure(part.steps)} for part in self._parts} if own is None and is_whole else {}
        for part, names in computed.items():
            if name in names and part.shape == shape and (name in self._steps or len(part.outputs) < part.max_results):
                return part
        step = self._steps.get(name)
        if own is None and is_whole and step is not None:
            # A kernel that reads the same arguments anyway.
            needed = {each for each in self._closure([step]) if each in self._function.sources}
            for part in self._parts:
                has_space = len(part.outputs) < part.max_results and needed.issubset(self._read(part))
                if part.shape == shape and has_space and self._may_join(part, step, part.rows):
                    return part
        before = set() if own is None else {own, *own.before}
        for part in self._parts:
            if part.rows is None and not part.steps and part.shape == shape and part.before == before:
                return part
        part = self._new_part(shape, None)
        part.before = before
        return part

    def kernels(self) -> list[FusedKernel]:
        """Return the kernels, each after those that it depends on."""
        function = self._function
        kernels = []
        for part in sorted(self._parts, key=lambda part: len(part.before)):
            steps = [
                step.without_numbers(function.numbers)
                for step in function.steps
                if self._part_of.get(step.names[0], part) is part
            ]
            sources = {name: source for name, source in self._values.items() if self._part_of[name] is not part}
            sources |= function.sources
            for begin in range(0, len(part.outputs), part.max_results):
                outputs = part.outputs[begin : begin + part.max_results]
                results = [result for _, result in outputs]
                kernel = FusedFunction(function.name, function.tensors, sources, function.numbers, steps, results)
                kernels.append(FusedKernel(kernel, part.shape, [position for position, _ in outputs], part.rows))
        return kernels
