"""The source of kernels of fused rows: maps and row formulas, composed as one functor of the engine of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from .....kernels.constants import STRUCTS
from .....op import BinaryOp, CmpOp
from ....base.row_facts import RowFacts
from ....program.fused_function import IndexOp
from . import row_formula, row_launches
from .fused_source import Statements, composed

if TYPE_CHECKING:
    from ....core.shape import Shape
    from ....program.fused_function import FusedFunction, Result, Source, Step
    from ....program.fused_kernels import Rows

_SOURCE: Final = """
namespace tallow {{

struct Composition {{
    {types}static constexpr bool is_composed = true;
    {index}static constexpr uint32_t operands = {operands};
    static constexpr uint32_t results = {results};
    static constexpr uint32_t totals = {totals};
    static constexpr uint32_t parameters = {parameters};
    static constexpr uint32_t passes = {passes};
    static constexpr uint32_t known = {known};
    static constexpr uint32_t in_registers = {in_registers};
    static constexpr uint32_t rescaled = {rescaled};
    static constexpr uint32_t row_results = {row_results};
    {derived}template <uint32_t Pass> struct Joined;
    template <uint32_t Pass, typename T, typename Number>
    static TALLOW_INLINE void contribute(const RowOf<T, Composition>& row,
                                         const compute_type<T> (&elements)[{elements}], uint32_t position,
                                         Number (&numbers)[Joined<Pass>::count]) {{
        {contributions}
    }}
    template <uint32_t Pass, typename T> static TALLOW_INLINE void finish(RowOf<T, Composition>& row) {{
        {finish}
    }}
    template <typename T>
    static TALLOW_INLINE void compute(const RowOf<T, Composition>& row, const compute_type<T> (&elements)[{elements}],
                                      uint32_t position, compute_type<T> (&outputs)[results + totals]) {{
        {compute}
    }}
}};
{joins}

{kernels}

}} // namespace tallow
"""


_INDEX: Final = """static constexpr bool has_index = true;
    static constexpr uint32_t at_index = {};
    """
_DERIVED: Final = """static constexpr uint32_t derived = {count};
    using Derived = Types<{types}>;
    template <uint32_t Stage> static constexpr uint32_t derives = {stages};
    template <uint32_t Pass, typename T>
    static TALLOW_INLINE void derive(const RowOf<T, Composition>& row, compute_type<T> (&elements)[operands + derived],
                                     uint32_t position) {{
        {derive}
    }}
    """
# Maps of an instruction or two, which take no more time than registers that keep their results would cost.
# The value of an element at the index of its row, of operands that are loaded there before the first pass.
_GATHERED: Final = """const auto {name} = [&] {{
                compute_type<T> elements[{elements}] = {{}};
                {loads}
                [[maybe_unused]] const uint64_t position = row.index;
                {values}
                return row.index == no_index ? convert<{cpp}>(compute_type<{cpp}>{{0}}) : {value};
            }}();"""
_CHEAP_OPS: Final = frozenset(
    ["add", "sub", "mul", "maximum", "minimum", "neg", "abs", "sqr", "affine", "to_dtype", "where_cond"]
    + [op.value for op in CmpOp]
)
_MAX_DERIVED: Final = 4


def index_of(kernel: FusedFunction) -> str | None:
    """The source that is an index of each row."""
    return next((step.row_index for step in kernel.steps if step.row_index is not None), None)


def of_elements_or_rows(kernel: FusedFunction) -> list[Result]:
    """The results of a kernel that are no sums over rows."""
    return [result for result in kernel.results if result.along is None]


def totals_of(kernel: FusedFunction) -> list[Result]:
    """The results of a kernel that are sums over rows."""
    return [result for result in kernel.results if result.along is not None]


class Pass(NamedTuple):
    """A pass over a row: passes of ops that are made together."""

    ops: list[tuple[Step, int]]
    is_rescaled: bool = False
    """Whether it is made with the pass before in long rows."""
    is_shared: bool = True
    """Whether other ops may take part."""


def schedule(steps: Iterable[Step]) -> list[Pass]:
    """The fewest passes of row ops in which each finds what it depends on.

    What is rescaled shares no pass: so kernels of long rows rescale it too, and give the bits of the op alone.
    """
    passes: list[Pass] = []
    done: dict[str, int] = {}
    for step in steps:
        first = max([done.get(name, 0) for name in step.operands], default=0)
        if step.dim is not None:
            own, rescaled = step.facts.passes, step.facts.rescaled
            for number in range(len(own)):
                is_last, is_first = rescaled >> number & 1, rescaled >> number + 1 & 1
                free = (place for place in range(first, len(passes)) if passes[place].is_shared)
                place = len(passes) if is_first or is_last else next(free, len(passes))
                if place == len(passes):
                    passes.append(Pass([], bool(is_last), not (is_first or is_last)))
                passes[place].ops.append((step, number))
                first = place + 1
        done |= dict.fromkeys(step.names, first)
    return passes


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
        self._index = index_of(kernel)
        self._sources = {name: source for name, source in kernel.sources.items() if name != self._index}
        self._statements = Statements(kernel, "bits_of(row.parameters[{}])".format)
        self._steps = {name: step for step in kernel.steps for name in step.names}
        self._passes = schedule(kernel.steps)
        # By op and pass, where its numbers are among those that the pass joins; by op, its known numbers.
        self._first: dict[tuple[str, int], int] = {}
        self._known: dict[str, list[int]] = {}
        self._joined: list[int] = []
        """Where the known numbers of each pass begin."""
        self._joins = [sum(step.facts.passes[number][0] for step, number in each.ops) for each in self._passes]
        self._after = self._numbers_of_rows()
        self._of_row: dict[str, int] = {}
        """By reduction and map of a row's numbers, the known number that it is."""
        self._finished: list[list[Step]] = []
        """By pass, those that are known once it is over."""
        self._at_index = self._needed_at_index()
        known = len(self._at_index)
        for each, joins in zip(self._passes, self._joins, strict=True):
            self._joined.append(known)
            first, constants = 0, known + joins
            for step, number in each.ops:
                own, finished = step.facts.passes[number]
                self._first[step.name, number] = first
                positions = self._known.setdefault(step.name, [])
                positions += range(known + first, known + first + own)
                positions += range(constants, constants + finished)
                first, constants = first + own, constants + finished
            self._finished.append([step for step in kernel.steps if self._after.get(step.name) == len(self._finished)])
            for step in self._finished[-1]:
                self._of_row[step.name] = constants
                constants += 1
            known = constants
        self._known_count = known

    def _numbers_of_rows(self) -> dict[str, int]:
        """By reduction and map of what is known of rows, the pass after which it is."""
        over = {step.name: number for number, each in enumerate(self._passes) for step, _ in each.ops}
        found: dict[str, int] = {}
        # By value, the last pass on which it depends.
        last = dict.fromkeys(self._kernel.sources, -1)
        for step in self._kernel.steps:
            operands = [name for name in step.operands if name not in self._kernel.numbers]
            after = max([over.get(step.name, -1), *[last[name] for name in operands]])
            last |= dict.fromkeys(step.names, after)
            is_map_of_numbers = step.dim is None and operands and all(name in found for name in operands)
            # What is gathered of operands alone is computed where it is read.
            if is_map_of_numbers or (step.is_reduction and after >= 0):
                found[step.name] = after
        return found

    def _needed_at_index(self) -> list[str]:
        """The sources of values that are gathered."""
        gathered = [step for step in self._kernel.steps if step.op is IndexOp.GATHER]
        needed: set[str] = set()
        for step in gathered:
            needed |= self._needed_for(step)
        return [name for name in self._sources if name in needed]

    def _needed_for(self, step: Step) -> set[str]:
        """What is read and computed for a value that is gathered, down to numbers of the row."""
        found: set[str] = set()
        left = [step.operands[0]]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self._steps[name].of_elements if name in self._steps and name not in self._after else ()
        return found

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
        by_pass = [[step for step, _ in each.ops] for each in self._passes]
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
            _SOURCE.replace("{kernels}", "\n".join(self._kernels_text())),
            types="".join(f"{line}\n    " for line in types),
            index="" if self._index is None else _INDEX.format(_bits(name in self._at_index for name in self._sources)),
            operands=len(sources),
            results=len(results),
            totals=len(totals),
            parameters=sum(number.words for number in kernel.numbers.values()),
            passes=len(self._passes),
            known=self._known_count,
            # What derived values are computed of has their registers before them.
            in_registers=_bits(
                not self._is_shared(source)
                and (
                    sum(name in each for each in reads) > min(len(self._passes), 1)
                    or any(name in each for each in derivations)
                )
                for name, source in self._sources.items()
            ),
            rescaled=rescaled,
            row_results=_bits(self._is_of_row(name) for name, *_ in own),
            derived=self._derived_text(derivations),
            elements="operands + derived" if self._derived else "operands",
            contributions=_by_pass([self._contribution(number, stage) for number, stage in enumerate(stages[:-1])]),
            finish=_by_pass(
                [self._finish(each, of_row) for each, of_row in zip(self._passes, self._finished, strict=True)]
            ),
            compute="\n        ".join(self._computed(stages[-1])),
            joins="\n".join(self._joins_text()),
        )
        ends = [*self._joined, self._known_count][1:]
        passes = tuple(
            [(joins, end - begin - joins) for joins, begin, end in zip(self._joins, self._joined, ends, strict=True)]
        )
        facts = RowFacts(
            len(results), passes, rescaled, (None,) * len(sources), totals=len(totals),
            has_index=self._index is not None, numbers=len(self._at_index),
        )  # fmt: skip
        of_rows = tuple([self._is_of_row(name) for name, *_ in own])
        return row_formula.RowFormula(family, family, facts, of_rows)

    def _needed(self, names: Iterable[str], derived: Iterable[str] = ()) -> set[str]:
        """What is read or computed for names, down to derived values, and for those that are given."""
        found: set[str] = {*derived}
        left = [*names, *[operand for name in found for operand in self._steps[name].of_elements]]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                is_computed = name in self._steps and name not in self._of_row and name not in self._derived
                left += self._steps[name].of_elements if is_computed else ()
        return found

    def _derived_values(self, roots: Sequence[Sequence[str]]) -> dict[str, int]:
        """Values that are needed in several stages, by the first of these: the ones that are worth their registers.

        A value costs none if it takes the place of operands that are needed for nothing else from then on.
        """
        first: dict[str, int] = {}
        found: dict[str, int] = {}
        for stage, names in enumerate(roots):
            left, seen = [*names], set[str]()
            while left:
                name = left.pop()
                step = self._steps.get(name)
                if step is None or name in seen or name in self._of_row:
                    continue
                seen.add(name)
                if first.get(name, stage) < stage and (step.dim is None or self._takes_time(name)):
                    found[name] = first[name]
                else:
                    left += step.of_elements
            for name in self._needed(names):
                first.setdefault(name, stage)
        self._derived = found
        stages = [self._needed(names) for names in roots]

        def is_worth_registers(name: str) -> bool:
            own, later = self._own_sources(name), set[str]().union(*stages[found[name] + 1 :])
            sizes = [self._sources[source].dtype.itemsize for source in own]
            is_free = own.isdisjoint(later) and self._steps[name].dtype.itemsize <= sum(sizes)
            return is_free or len(own) > 1 or self._takes_time(name)

        return dict([item for item in found.items() if is_worth_registers(item[0])][-_MAX_DERIVED:])

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
        """What the functor has besides if it derives values."""
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
        return _DERIVED.format(
            count=len(names),
            types=", ".join(self._steps[name].dtype.cpp for name in names),
            stages="".join(f"Stage == {stage} ? {mask} : " for stage, mask in enumerate(masks) if mask) + "0",
            derive=_by_pass(blocks),
        )

    def _values(self, needed: set[str], computed: Collection[str] = ()) -> list[str]:
        """Statements that compute sources and steps, and of derived values those that are given."""
        count = len(self._sources)
        lines = [
            f"const auto {name} = narrow<{source.dtype.cpp}>(elements[{place}]);"
            for place, (name, source) in enumerate(self._sources.items())
            if name in needed
        ]
        for step in self._kernel.steps:
            if needed.isdisjoint(step.names):
                continue
            if step.name in self._of_row:
                lines.append(self._known_number(step))
                continue
            derived = [name for name in step.names if name in self._derived and name in needed and name not in computed]
            lines += [
                f"const auto {name} = narrow<{step.dtype.cpp}>(elements[{count + [*self._derived].index(name)}]);"
                for name in derived
            ]
            if needed.intersection(step.names).issubset(derived):
                continue
            if step.dim is None or step.row_index is not None:
                lines.append(self._statement(step))
                continue
            operands = ", ".join(["row", "position", *self._statements.operands(step)])
            call = f"{self._op(step)}::template compute<{step.dtype.cpp}>"
            lines.append(f"const auto {step.name}_made = {call}({operands});")
            lines += [
                f"const auto {name} = convert<{step.dtype_of(name).cpp}>({step.name}_made.values[{place}]);"
                for place, name in enumerate(step.names)
                if name not in derived
            ]
        return lines

    def _statement(self, step: Step) -> str:
        """The statement of a map, or of an op with an index."""
        if step.op is IndexOp.GATHER:
            names, needed = [*self._sources], self._needed_for(step)
            loads = [f"elements[{names.index(name)}] = row.known[{k}];" for k, name in enumerate(self._at_index)]
            return _GATHERED.format(
                name=step.name,
                elements="operands + derived" if self._derived else "operands",
                loads="\n                ".join(loads),
                values="\n                ".join(self._values(needed, self._derived)),
                cpp=step.dtype.cpp,
                value=self._statements.operands(step)[0],
            )
        if step.op is IndexOp.SCATTER:
            cpp, (number, _) = step.dtype.cpp, self._statements.operands(step)
            zero = f"convert<{cpp}>(compute_type<{cpp}>{{0}})"
            index = "static_cast<uint32_t>(row.index)"
            return f"const {cpp} {step.name} = position == {index} ? {number} : {zero};"
        if step.op is BinaryOp.DIV and step.dtype.itemsize == 2 and step.operands[1] in self._of_row:
            return f"const auto {step.name} = divide_by_number({', '.join(self._statements.operands(step))});"
        return self._statements.of_map(step)

    def _known_number(self, step: Step) -> str:
        return f"const auto {step.name} = narrow<{step.dtype.cpp}>(row.known[{self._of_row[step.name]}]);"

    def _op(self, step: Step) -> str:
        """A row op in the functor."""
        known = ", ".join(map(str, self._known.get(step.name, [])))
        parameters = ", ".join(str(self._statements.positions[name]) for name in step.parameters)
        return f"ComposedRow<{STRUCTS[step.op.value]}, Numbers<{known}>, Numbers<{parameters}>>"

    def _contribution(self, number: int, needed: set[str]) -> list[str]:
        """The statements of a pass, which needs the operands of its ops."""
        lines = self._values(needed)
        for step, own in self._passes[number].ops:
            operands = ", ".join(["row", "position", "numbers", *self._statements.operands(step)])
            call = f"{self._op(step)}::template contribute<{own}, {self._first[step.name, own]}, {step.dtype.cpp}>"
            lines.append(f"{call}({operands});")
        return lines

    def _finish(self, each: Pass, of_row: Sequence[Step]) -> list[str]:
        lines = [f"{self._op(step)}::template finish<{number}, {step.dtype.cpp}>(row);" for step, number in each.ops]
        own = {step.name for step in of_row}
        read = dict.fromkeys(name for step in of_row for name in step.of_elements if name not in own)
        lines += [self._known_number(self._steps[name]) for name in read if name in self._of_row]
        for step in of_row:
            if step.is_reduction and step.row_index is None:
                lines.append(f"const auto {step.name} = {self._op(step)}::template reduced<{step.dtype.cpp}>(row);")
            else:
                lines.append(self._statement(step))
            number = f"row.known[{self._of_row[step.name]}]"
            lines.append(f"{number} = convert<compute_type<T>>(to_compute({step.name}));")
        return lines

    def _computed(self, needed: set[str]) -> list[str]:
        terms = self._statements.terms
        return self._values(needed) + [
            f"outputs[{place}] = convert<compute_type<T>>(to_compute({terms.get(name, name)}));"
            for place, (name, *_) in enumerate([*of_elements_or_rows(self._kernel), *totals_of(self._kernel)])
        ]

    def _joins_text(self) -> Iterable[str]:
        for number, (first, each) in enumerate(zip(self._joined, self._passes, strict=True)):
            ops = ", ".join(f"{STRUCTS[step.op.value]}::Joined<{own}>" for step, own in each.ops)
            yield f"template <> struct Composition::Joined<{number}> : JoinedPasses<{first}, {ops}> {{}};"

    def _kernels_text(self) -> Iterable[str]:
        for kernel in row_launches.row_kernels(self._dtype):
            if kernel.is_of_columns and self._index is not None:
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
