"""The source of kernels of fused rows: maps and row formulas, composed as one functor of the engine of rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .....dtype import HALF, DType
from .....kernels.constants import ROW_REDUCTIONS, STRUCTS
from .....op import BinaryOp, CmpOp
from ....base.row_facts import RowFacts
from ....program.fused_function import IndexOp
from . import fused_source, row_formula, row_launches
from .fused_passes import (
    Join,
    gathered_operands,
    given_operands,
    indexed_step,
    of_elements_or_rows,
    schedule,
    totals_of,
)
from .fused_source import Statements, composed

if TYPE_CHECKING:
    from ....core.shape import Shape
    from ....program.fused_function import FusedFunction, Source, Step
    from ....program.fused_kernels import Rows

# Maps of an instruction or two, which take no more time than registers that keep their results would cost.
_CHEAP_OPS: Final = frozenset(
    ["add", "sub", "mul", "maximum", "minimum", "neg", "abs", "sqr", "affine", "to_dtype", "where_cond"]
    + [op.value for op in CmpOp]
)
_MAX_DERIVED: Final = 4


@lru_cache(maxsize=1024)
def formula_of(kernel: FusedFunction, shape: Shape, rows: Rows) -> row_formula.RowFormula:
    """The formula of a kernel of rows."""
    return _Composition(kernel, shape, rows).formula()


class _Composition:
    """The functor of a kernel.

    Reductions are known numbers of a row, as they are rounded, and so are maps of these and of numbers alone.
    """

    def __init__(self, kernel: FusedFunction, shape: Shape, rows: Rows) -> None:
        self._kernel = kernel
        self._shape = shape
        self._rows = rows
        self._dtype = rows.dtype
        indexed = indexed_step(kernel)
        self._index = None if indexed is None else indexed.row_index
        self._sources = {name: source for name, source in kernel.sources.items() if name != self._index}
        self._statements = Statements(kernel, "bits_of(row.parameters[{}])".format)
        self._steps = {name: step for step in kernel.steps for name in step.names}
        self._passes, self._numbers_of = schedule(kernel.steps)
        # By op, its known numbers.
        self._known: dict[str, list[int]] = {}
        self._joined: list[int] = []
        """Where the known numbers of each pass begin."""
        self._joins = [len(each.joins) for each in self._passes]
        divisors = {step.operands[1] for step in kernel.steps if step.op is BinaryOp.DIV and step.dtype in HALF}
        self._reciprocals: dict[str, int] = {}
        """By number that elements of 16 bits are divided by, the known number that is its reciprocal."""
        operands_of_rows = [name for name, source in self._sources.items() if self._has_number(source)]
        self._of_row = {name: number for number, name in enumerate(operands_of_rows)}
        """By number of a row that a step computes or that an operand has, the known number that it is."""
        # By value, the last pass on which it depends, if any.
        self._last = dict.fromkeys(kernel.sources, -1)
        self._after = self._numbers_of_rows()
        self._at_index = self._needed_at_index()
        self._given: dict[str, list[int]] = {}
        """By op, the known numbers that it takes before its first pass, and those that follow from them."""
        self._first_at_index = len(operands_of_rows)
        known = self._first_at_index + len(self._at_index)
        for step in kernel.steps:
            inputs = given_operands(step)
            if inputs:
                count = len(inputs) + step.facts.begun
                self._given[step.name] = [*range(known, known + count)]
                known += count
        known = self._place_numbers(-1, known, divisors)
        self._known |= {name: [*inputs] for name, inputs in self._given.items()}
        self._given_after = {step.name: self._when_known(step) for step in kernel.steps if step.name in self._given}
        self._begin = known
        positions: dict[Join, int] = {}
        for after, each in enumerate(self._passes):
            self._joined.append(known)
            positions |= {join: known + k for k, join in enumerate(each.joins)}
            known += len(each.joins)
            for step, number in self._finished(after):
                own, (_, constants) = self._numbers_of[step.name][: number + 1], step.facts.passes[number]
                if max(number.after for each in own for number in each) == after:
                    own_positions = self._known.setdefault(step.name, [])
                    own_positions += [positions[number.join] for number in own[-1]]
                    own_positions += range(known, known + constants)
                    known += constants
            known = self._place_numbers(after, known, divisors)
        self._known_count = known

    def _finished(self, after: int) -> list[tuple[Step, int]]:
        """The ops and passes of them of which a number is known after a pass, or one of an earlier pass of the op.

        What follows from numbers that are not yet known is computed again with these.
        """
        finished = []
        for step in self._kernel.steps:
            known = [[own.after for own in each] for each in self._numbers_of.get(step.name, ())]
            first = next((number for number, each in enumerate(known) if after in each), len(known))
            finished += [(step, number) for number in range(first, len(known)) if min(known[number]) <= after]
        return finished

    def _place_numbers(self, after: int, known: int, divisors: Collection[str]) -> int:
        """Number the values that follow from a pass, or that precede the first one, after `known` known numbers."""
        for name in [name for step in self._kernel.steps for name in step.names if self._after.get(name) == after]:
            self._of_row[name] = known
            known += 1
            if name in divisors:
                self._reciprocals[name] = known
                known += 1
        return known

    def _numbers_of_rows(self) -> dict[str, int]:
        """By reduction and map of what is known of rows, the pass after which it is."""
        over = {
            name: max([known.after for each in passes for known in each], default=-1)
            for name, passes in self._numbers_of.items()
        }
        last_pass = dict.fromkeys(self._of_row, -1)
        for step in self._kernel.steps:
            operands = [name for name in step.operands if name not in self._kernel.numbers]
            after = max([over.get(step.name, -1), *[self._last[name] for name in operands]])
            self._last |= dict.fromkeys(step.names, after)
            is_map_of_numbers = step.dim is None and operands and all(name in last_pass for name in operands)
            if is_map_of_numbers or step.is_reduction:
                last_pass |= dict.fromkeys(step.names, after)
        return last_pass

    def _when_known(self, step: Step) -> int | None:
        """The pass after which the numbers that an op takes are known; None if they are elements."""
        inputs = given_operands(step)
        if not all(is_gathered or name in {*self._after, *self._kernel.numbers} for name, is_gathered in inputs):
            return None
        return max(self._last.get(name, -1) for name, _ in inputs)

    def _needed_at_index(self) -> list[str]:
        """The sources of values that are gathered."""
        needed: set[str] = set()
        for step in self._kernel.steps:
            for name in gathered_operands(step):
                needed |= self._needed_for(name)
        return [name for name in self._sources if name in needed and name not in self._of_row]

    def _needed_for(self, name: str) -> set[str]:
        """The names that are read and computed for a gathered value, down to numbers of the row."""
        needed: set[str] = set()
        left = [name]
        while left:
            name = left.pop()
            if name not in needed:
                needed.add(name)
                left += self._steps[name].of_elements if name in self._steps and name not in self._after else ()
        return needed

    def _has_number(self, source: Source) -> bool:
        """Return True for an operand with one number a row, which kernels of rows load once."""
        dim, is_last = self._rows.dim, math.prod(self._shape[self._rows.dim + 1 :]) == 1
        is_read = is_last or self._index is not None
        return is_read and self._shape[dim] > 1 and self._step_along(source) == 0

    def _step_along(self, source: Source) -> int:
        """The stride of an operand along the row."""
        return source.layout.broadcast_as(self._shape).strides[self._rows.dim]

    def _is_shared(self, source: Source) -> bool:
        """Return True for a vector that all rows share, which is in the cache."""
        layout, dim = source.layout.broadcast_as(self._shape), self._rows.dim
        return not any(step for axis, step in enumerate(layout.strides) if axis != dim and self._shape[axis] > 1)

    def _is_of_row(self, name: str) -> bool:
        """Return True for a result of one number a row."""
        step = self._steps.get(name)
        return step is not None and (step.is_reduction or step.result_shape != self._shape)

    def formula(self) -> row_formula.RowFormula:
        kernel, sources = self._kernel, [*self._sources.values()]
        own, totals = of_elements_or_rows(kernel), totals_of(kernel)
        results = [result.dtype for result in own]
        types: tuple[str, ...] = ()
        if not results or any(dtype is not self._dtype for dtype in (*results, *(source.dtype for source in sources))):
            types = (
                f"using Operands = Types<{', '.join(source.dtype.cpp for source in sources)}>;",
                f"using Results = Types<{', '.join(result.cpp for result in results)}>;",
            )
        by_pass = [[join.step for join in each.joins] for each in self._passes]
        operands = [[name for step in steps for name in step.operands] for steps in by_pass]
        roots = [*operands, [name for name, *_ in kernel.results]]
        self._derived: dict[str, int] = {}
        self._derived = self._derived_values(roots)
        stages = [self._needed(names) for names in roots]
        derivations = [
            self._needed((), [name for name, first in self._derived.items() if first == stage])
            for stage in range(len(roots))
        ]
        reads = [stage | derived for stage, derived in zip(stages, derivations, strict=True)]
        rescaled = sum(1 << number for number, each in enumerate(self._passes) if each.is_rescaled)
        family = composed(
            "fused_rows",
            kernel.name,
            fused_source.ROWS.replace("{kernels}", "\n".join(self._kernels_text())),
            types="".join(f"{line}\n    " for line in types),
            index=""
            if self._index is None
            else fused_source.INDEX.format(_bits(name in self._at_index for name in self._sources)),
            operands=len(sources),
            of_rows=_bits(name in self._of_row for name in self._sources),
            # With an index NVIDIA's compiler would wait for it before it asks for all elements, if that took no branch.
            along_rows=0 if self._index else _bits(self._step_along(source) != 0 for source in sources),
            results=len(results),
            totals=len(totals),
            parameters=sum(number.words for number in kernel.numbers.values()),
            passes=len(self._passes),
            known=self._known_count,
            # What derived values are computed of has their registers before them. An operand that is read once is
            # loaded with the others, unless sums over rows take the registers.
            in_registers=_bits(
                not self._is_shared(source)
                and name not in self._of_row
                and (
                    not totals
                    or sum(name in each for each in reads) > min(len(self._passes), 1)
                    or any(name in each for each in derivations)
                )
                for name, source in self._sources.items()
            ),
            rescaled=rescaled,
            row_results=_bits(self._is_of_row(name) for name, *_ in own),
            derived=self._derived_text(derivations),
            elements="operands + derived" if self._derived else "operands",
            contributions=_by_pass([self._contribution(number, stage) for number, stage in enumerate(stages[:-1])]),
            begin="\n        ".join(self._known_after(-1)),
            finish=_by_pass([self._finish(number) for number in range(len(self._passes))]),
            compute="\n        ".join(self._computed(stages[-1])),
            joins="\n".join(self._joins_text()),
        )
        ends = [*self._joined, self._known_count][1:]
        passes = tuple(
            [(joins, end - begin - joins) for joins, begin, end in zip(self._joins, self._joined, ends, strict=True)]
        )
        facts = RowFacts(
            len(results), passes, rescaled, (None,) * len(sources), totals=len(totals),
            has_index=self._index is not None, numbers=self._begin,
        )  # fmt: skip
        of_rows = tuple([self._is_of_row(name) for name, *_ in own])
        return row_formula.RowFormula(family, family, facts, of_rows, has_elements=not all(of_rows))

    def _needed(self, names: Iterable[str], derived: Iterable[str] = ()) -> set[str]:
        """The names that are read or computed for others, down to derived values, and for the derived ones."""
        needed: set[str] = {*derived}
        left = [*names, *[operand for name in needed for operand in self._steps[name].of_elements]]
        while left:
            name = left.pop()
            if name not in needed:
                needed.add(name)
                is_computed = name in self._steps and name not in self._of_row and name not in self._derived
                left += self._steps[name].of_elements if is_computed else ()
        return needed

    def _derived_values(self, roots: Sequence[Sequence[str]]) -> dict[str, int]:
        """Values that are needed in several stages, by the first of these: the ones that are worth their registers.

        A value costs nothing if it replaces operands that nothing else needs later.
        """
        first: dict[str, int] = {}
        stage_of: dict[str, int] = {}
        for stage, names in enumerate(roots):
            left, seen = [*names], set[str]()
            while left:
                name = left.pop()
                step = self._steps.get(name)
                if step is None or name in seen or name in self._of_row:
                    continue
                seen.add(name)
                if first.get(name, stage) < stage and (step.dim is None or self._takes_time(name)):
                    stage_of[name] = first[name]
                else:
                    left += step.of_elements
            for name in self._needed(names):
                first.setdefault(name, stage)
        self._derived = stage_of
        stages = [self._needed(names) for names in roots]

        def is_worth_registers(name: str) -> bool:
            own, later = self._own_sources(name), set[str]().union(*stages[stage_of[name] + 1 :])
            sizes = [self._sources[source].dtype.itemsize for source in own]
            is_free = own.isdisjoint(later) and self._steps[name].dtype.itemsize <= sum(sizes)
            return is_free or len(own) > 1 or self._takes_time(name)

        return dict([item for item in stage_of.items() if is_worth_registers(item[0])][-_MAX_DERIVED:])

    def _own_sources(self, name: str) -> set[str]:
        """The sources of which a value is computed, but for vectors that all rows share."""
        needed = self._needed((), [name])
        return {name for name, source in self._sources.items() if name in needed and not self._is_shared(source)}

    def _takes_time(self, name: str) -> bool:
        """Return True if a value, with what it is computed of, is more than a few multiplications."""
        steps = [self._steps[each] for each in self._needed((), [name]) if each in self._steps]
        return any(
            step.op.value not in _CHEAP_OPS if step.dim is None else step.facts.rescaled
            for step in steps
            if step.name not in self._of_row
        )

    def _derived_text(self, derivations: Sequence[set[str]]) -> str:
        """Return the code of the functor that derives values, if it does."""
        if not self._derived:
            return ""
        count, names = len(self._sources), [*self._derived]
        masks = [_bits(self._derived[name] == stage for name in names) for stage in range(len(derivations))]
        blocks = []
        for stage, needed in enumerate(derivations):
            own = {name for name in names if self._derived[name] == stage}
            stores = [
                f"elements[{count + names.index(name)}] = convert<compute_type<T>>(to_compute({name}));" for name in own
            ]
            blocks.append([*self._values(needed, own), *stores] if own else [])
        return fused_source.DERIVED.format(
            count=len(names),
            types=", ".join(self._steps[name].dtype.cpp for name in names),
            stages="".join(f"Stage == {stage} ? {mask} : " for stage, mask in enumerate(masks) if mask) + "0",
            derive=_by_pass(blocks),
        )

    def _values(self, needed: set[str], computed: Collection[str] = (), unrounded: Collection[str] = ()) -> list[str]:
        """Statements that compute sources and steps, and of derived values the current ones.

        Those of `unrounded` are in the compute type.
        """
        count = len(self._sources)
        lines = [
            self._known_number(name)
            if name in self._of_row
            else f"const auto {name} = narrow<{source.dtype.cpp}>(elements[{index}]);"
            for index, (name, source) in enumerate(self._sources.items())
            if name in needed
        ]
        for step in self._kernel.steps:
            if needed.isdisjoint(step.names):
                continue
            if step.names[0] in self._of_row:
                lines += [self._known_number(name) for name in step.names if name in needed]
                continue
            derived = [name for name in step.names if name in self._derived and name in needed and name not in computed]
            lines += [
                f"const auto {name} = narrow<{step.dtype.cpp}>(elements[{count + [*self._derived].index(name)}]);"
                for name in derived
            ]
            if needed.intersection(step.names).issubset(derived):
                continue
            if step.dim is None or isinstance(step.op, IndexOp):
                lines.append(self._statement(step, is_rounded=step.name not in unrounded))
                continue
            if step.is_reduction:
                lines += self._numbers(step)
                continue
            row, definitions = self._row_with_given(step)
            operands = ", ".join([row, "position", *self._elements(step)])
            call = f"{self._op(step)}::template compute<{step.dtype.cpp}>"
            lines += [*definitions, f"const auto {step.name}_made = {call}({operands});"]
            lines += [
                f"const auto {name} = {self._counted(step, name, index, is_rounded=name not in unrounded)};"
                for index, name in enumerate(step.names)
                if name not in derived
            ]
        return lines

    def _counted(self, step: Step, name: str, index: int, *, is_rounded: bool) -> str:
        """A result of a row op, which is 0 where the index of the row does not count."""
        cpp = step.dtype_of(name).cpp
        if not is_rounded:
            cpp = f"compute_type<{cpp}>"
        value = f"convert<{cpp}>({step.name}_made.values[{index}])"
        return value if step.row_position is None else f"row.index == no_index ? convert<{cpp}>(0.0f) : {value}"

    def _elements(self, step: Step) -> list[str]:
        """The operands of a row op that have elements along the row; compilers omit what an absent one changes."""
        operands = zip(step.operands, self._statements.operands(step), step.facts.absent, strict=False)
        return [f"{absent}f" if self._is_number(name, absent) else term for name, term, absent in operands]

    def _is_number(self, name: str, value: float | None) -> bool:
        """Return True for an operand that is the same finite number in all calls, with its sign."""
        number = self._kernel.numbers.get(name)
        return value is not None and math.isfinite(value) and number is not None and repr(number.value) == repr(value)

    def _row_with_given(self, step: Step) -> tuple[str, list[str]]:
        """Return the row with the numbers that an op takes: a copy where they are elements, which statements set."""
        if self._given_after.get(step.name, -1) is not None:
            return "row", []
        name = f"{step.name}_row"
        return name, [f"auto {name} = row;", *self._given_numbers(step, name)]

    def _given_numbers(self, step: Step, row: str) -> list[str]:
        """The statements that set the numbers which an op takes, and those that follow from them."""
        lines = []
        for (operand, is_gathered), position in zip(given_operands(step), self._given[step.name], strict=False):
            value = self._statements.terms.get(operand, operand)
            if is_gathered and operand not in self._kernel.numbers:
                value = f"{step.name}_{operand}"
                lines.append(self._gathered(value, operand, step.dtype.cpp))
            lines.append(f"{row}.known[{position}] = convert<compute_type<T>>(to_compute({value}));")
        return [*lines, f"{self._op(step)}::template begin<{step.dtype.cpp}>({row});"]

    def _numbers(self, step: Step) -> list[str]:
        """The statements of what a step with a number for each row gives."""
        if step.op.value in ROW_REDUCTIONS:
            return [f"const auto {step.name} = {self._op(step)}::template reduced<{step.dtype.cpp}>(row);"]
        name, definitions = self._row_with_given(step)
        call = f"{self._op(step)}::template concluded<{step.dtype.cpp}>({name})"
        numbers = [f"const auto {each} = {step.name}_made.values[{k}];" for k, each in enumerate(step.names)]
        return [*definitions, f"const auto {step.name}_made = {call};", *numbers]

    def _statement(self, step: Step, *, is_rounded: bool = True) -> str:
        """The statement of a map, or of an op with an index."""
        if step.op is IndexOp.GATHER:
            return self._gathered(step.name, step.operands[0], step.dtype.cpp)
        if step.op is IndexOp.SCATTER:
            cpp, (number, _) = step.dtype.cpp, self._statements.operands(step)
            zero = f"convert<{cpp}>(compute_type<{cpp}>{{0}})"
            index = "static_cast<uint32_t>(row.index)"
            return f"const {cpp} {step.name} = position == {index} ? {number} : {zero};"
        if step.op is BinaryOp.DIV and step.dtype in HALF and step.operands[1] in self._of_row:
            operands, known = self._statements.operands(step), self._reciprocals.get(step.operands[1])
            operands.append(f"reciprocal_of_number({operands[1]})" if known is None else f"row.known[{known}]")
            quotient = f"divide_by_number({', '.join(operands)})"
            return f"const auto {step.name} = {f'convert<{step.dtype.cpp}>({quotient})' if is_rounded else quotient};"
        return self._statements.of_map(step, is_rounded=is_rounded)

    def _gathered(self, name: str, operand: str, cpp: str) -> str:
        """The statement that computes an operand at the index of the row."""
        sources = [*self._sources]
        loads = [
            f"elements[{sources.index(source)}] = row.known[{k}];"
            for k, source in enumerate(self._at_index, self._first_at_index)
        ]
        return fused_source.GATHERED.format(
            name=name,
            elements="operands + derived" if self._derived else "operands",
            loads="\n                ".join(loads),
            values="\n                ".join(self._values(self._needed_for(operand), self._derived)),
            cpp=cpp,
            value=self._statements.terms.get(operand, operand),
        )

    def _known_number(self, name: str) -> str:
        dtype = self._steps[name].dtype_of(name) if name in self._steps else self._sources[name].dtype
        return f"const auto {name} = narrow<{dtype.cpp}>(row.known[{self._of_row[name]}]);"

    def _op(self, step: Step) -> str:
        """A row op in the functor."""
        known = ", ".join(map(str, self._known.get(step.name, [])))
        parameters = ", ".join(str(self._statements.positions[name]) for name in step.parameters)
        return f"ComposedRow<{STRUCTS[step.functor]}, Numbers<{known}>, Numbers<{parameters}>>"

    def _contribution(self, number: int, needed: set[str]) -> list[str]:
        """The statements of a pass, which needs the operands of its ops."""
        lines = self._values(needed)
        joins = self._passes[number].joins
        for step, own in dict.fromkeys([(join.step, join.number) for join in joins]):
            row, definitions = self._row_with_given(step)
            # Those that are joined elsewhere are after the last one.
            count, _ = step.facts.passes[own]
            taken = {join.position: k for k, join in enumerate(joins) if (join.step, join.number) == (step, own)}
            targets = ", ".join([str(taken.get(position, len(joins))) for position in range(count)])
            operands = ", ".join([f"Numbers<{targets}>{{}}", row, "position", "numbers", *self._elements(step)])
            lines += definitions
            lines.append(f"{self._op(step)}::template contribute<{own}, {step.dtype.cpp}>({operands});")
        return lines

    def _finish(self, after: int) -> list[str]:
        finished = self._finished(after)
        calls = [f"{self._op(step)}::template finish<{number}, {step.dtype.cpp}>(row);" for step, number in finished]
        return [*calls, *self._known_after(after)]

    def _known_after(self, after: int) -> list[str]:
        """The statements that set the numbers of a row which are known after a pass, or before the first one."""
        of_row = [step for step in self._kernel.steps if self._after.get(step.names[0]) == after]
        starting = [step for step in self._kernel.steps if self._given_after.get(step.name) == after]
        own = {name for step in of_row for name in step.names}
        read = [name for step in of_row for name in step.of_elements]
        read += [name for step in starting for name, is_gathered in given_operands(step) if not is_gathered]
        lines = [self._known_number(name) for name in dict.fromkeys(read) if name in self._of_row and name not in own]
        for step in self._kernel.steps:
            if step in starting:
                lines += self._given_numbers(step, "row")
            if step not in of_row:
                continue
            is_formula = step.is_reduction and not isinstance(step.op, IndexOp)
            lines += self._numbers(step) if is_formula else [self._statement(step)]
            for name in step.names:
                known = f"row.known[{self._of_row[name]}]"
                lines.append(f"{known} = convert<compute_type<T>>(to_compute({name}));")
                if name in self._reciprocals:
                    lines.append(f"row.known[{self._reciprocals[name]}] = reciprocal_of_number({name});")
        return lines

    def _computed(self, needed: set[str]) -> list[str]:
        terms = self._statements.terms
        return self._values(needed, unrounded=self._rounded_when_stored(needed)) + [
            f"outputs[{index}] = convert<compute_type<T>>(to_compute({terms.get(name, name)}));"
            for index, (name, *_) in enumerate([*of_elements_or_rows(self._kernel), *totals_of(self._kernel)])
        ]

    def _rounded_when_stored(self, needed: set[str]) -> set[str]:
        """The results of 16 bits that nothing else reads: kernels round these by pairs as they store them."""
        read = {name for step in self._kernel.steps if needed.intersection(step.names) for name in step.operands}
        read.update(name for name, *_ in totals_of(self._kernel))
        return {
            name
            for name, *_ in of_elements_or_rows(self._kernel)
            if name in self._steps and name not in read and not self._is_of_row(name) and self._is_half(name)
        }

    def _is_half(self, name: str) -> bool:
        """Return True for a value of 16 bits that is computed in f32, as the row is."""
        step = self._steps[name]
        is_single = self._dtype.compute is step.operand_dtype.compute is DType.F32
        return step.dtype_of(name) in HALF and is_single and not isinstance(step.op, IndexOp) and not step.op.moves

    def _joins_text(self) -> Iterable[str]:
        for number, (first, each) in enumerate(zip(self._joined, self._passes, strict=True)):
            joins = ", ".join(
                f"JoinAt<{STRUCTS[step.functor]}::Reduced<{own}>, {index}>" for step, own, index in each.joins
            )
            yield f"template <> struct Composition::Reduced<{number}> : RowJoins<{first}, {joins}> {{}};"

    def _kernels_text(self) -> Iterable[str]:
        for kernel in row_launches.row_kernels(self._dtype):
            if kernel.is_of_columns and (self._index is not None or self._first_at_index):
                continue
            struct = "FusedColumns" if kernel.is_of_columns else "FusedRows"
            name, call = f"{{family}}_{self._dtype.value}_{kernel.name}", kernel.call.format("Composition")
            yield f"TALLOW_KERNEL({name}, {struct}, {call})"
        if totals_of(self._kernel):
            cpp = self._dtype.cpp
            yield f"TALLOW_KERNEL({{family}}_{self._dtype.value}_totals, FusedRows, add_up_rows<Composition, {cpp}>)"


def _bits(flags: Iterable[bool]) -> int:
    """A mask of flags."""
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def _by_pass(statements: Sequence[Sequence[str]]) -> str:
    blocks = [
        "\n            ".join([f"if constexpr (Pass == {number}) {{", *lines]) + "\n        }"
        for number, lines in enumerate(statements)
    ]
    return "\n        ".join(blocks)
