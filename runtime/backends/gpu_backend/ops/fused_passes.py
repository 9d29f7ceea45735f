"""The steps of fused rows: what they read of a row, and the passes over it that they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ....program.fused_function import IndexOp

if TYPE_CHECKING:
    from .....dtype import DType
    from ....program.fused_function import FusedFunction, Result, Step


def indexed_step(kernel: FusedFunction) -> Step | None:
    """A step with an index of each row, which all such steps of a kernel share."""
    return next((step for step in kernel.steps if step.row_position is not None), None)


def of_elements_or_rows(kernel: FusedFunction) -> list[Result]:
    """The results of a kernel that are no sums over rows."""
    return [result for result in kernel.results if result.along is None]


def totals_of(kernel: FusedFunction) -> list[Result]:
    """The results of a kernel that are sums over rows."""
    return [result for result in kernel.results if result.along is not None]


class Join(NamedTuple):
    """A number to which a pass of a row op reduces a row."""

    step: Step
    number: int
    """That of the pass among those of the op."""
    position: int
    """That of the join in this pass."""


class Pass(NamedTuple):
    """A pass over a row: joins of ops that are computed together."""

    joins: list[Join]
    is_rescaled: bool = False
    """Whether it is computed with the pass before in long rows."""
    is_shared: bool = True
    """Whether other ops may take part."""


class Known(NamedTuple):
    """How a number to which an op reduces a row becomes known."""

    join: Join
    """The op's own, or the one of another op that computes the same."""
    after: int
    """The pass that computes it."""


def schedule(steps: Iterable[Step]) -> tuple[list[Pass], dict[str, list[list[Known]]]]:
    """Return the fewest passes of row ops, in order, and by op and pass of it the numbers that it has.

    What several ops reduce a row to by the same formula is computed once. What is rescaled shares no pass: so kernels
    of long rows rescale it too, and give the bits of the op alone.
    """
    passes: list[Pass] = []
    done: dict[str, int] = {}
    numbers: dict[str, list[list[Known]]] = {}
    equal: dict[tuple[str, DType], Known] = {}
    for step in steps:
        first = max([done.get(name, -1) for name in step.operands], default=-1)
        if step.dim is not None:
            rescaled, known, formulas = step.facts.rescaled, list[Known](), _formulas(step)
            numbers[step.name] = []
            for number, (count, _) in enumerate(step.facts.passes):
                is_last, is_own, own = bool(rescaled >> number & 1), bool(rescaled >> number & 3), len(passes)
                for position in range(count):
                    formula, needed = formulas[len(known)], step.facts.joins[len(known)][1]
                    if formula and (formula, step.dtype) in equal:
                        known.append(equal[formula, step.dtype])
                        continue
                    after = max([first, *[known[other].after for other in needed]])
                    free = (each for each in range(after + 1, len(passes)) if passes[each].is_shared)
                    after = own if is_own else next(free, len(passes))
                    if after == len(passes):
                        passes.append(Pass([], is_last, not is_own))
                    known.append(Known(Join(step, number, position), after))
                    passes[after].joins.append(known[-1].join)
                    if formula:
                        equal[formula, step.dtype] = known[-1]
                numbers[step.name].append(known[len(known) - count :])
            first = max([first, *[each.after for each in known]])
        done |= dict.fromkeys(step.names, first)
    return passes, numbers


def _formulas(step: Step) -> list[str]:
    """The formulas of the joins of a row op, of its operands as layouts show them; empty ones are like no others."""
    operands = [f"{name}{layout.strides}" for name, layout in zip(step.operands, step.layouts, strict=True)]
    inputs = *operands[: len(step.facts.absent)], *step.parameters
    formulas: list[str] = []
    for template, needed in step.facts.joins:
        is_whole = not step.facts.rescaled and all(formulas[number] for number in needed)
        formulas.append(template.format(*inputs, **{f"j{k}": f for k, f in enumerate(formulas)}) if is_whole else "")
    return formulas


def given_operands(step: Step) -> list[tuple[str, bool]]:
    """Return the operands of a row op that are numbers of the row, and whether those are at its index."""
    if step.dim is None or isinstance(step.op, IndexOp) or not step.facts.has_numbers:
        return []
    count, facts = len(step.facts.absent), step.facts
    numbers = [(name, False) for name in step.operands[count : count + facts.numbers]]
    return numbers + [(name, True) for k, name in enumerate(step.operands[:count]) if facts.at_index >> k & 1]


def gathered_operands(step: Step) -> list[str]:
    """The operands of a step of which it reads the element at the index of the row."""
    if step.op is IndexOp.GATHER:
        return [*step.operands[:1]]
    return [name for name, is_gathered in given_operands(step) if is_gathered]
