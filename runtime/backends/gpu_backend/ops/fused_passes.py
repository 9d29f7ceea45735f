"""The steps of fused rows: what they read of a row, and the passes over it that they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ....program.fused_function import IndexOp

if TYPE_CHECKING:
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


class Pass(NamedTuple):
    """A pass over a row: passes of ops that are computed together."""

    ops: list[tuple[Step, int]]
    is_rescaled: bool = False
    """Whether it is computed with the pass before in long rows."""
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
                free = (index for index in range(first, len(passes)) if passes[index].is_shared)
                index = len(passes) if is_first or is_last else next(free, len(passes))
                if index == len(passes):
                    passes.append(Pass([], bool(is_last), not (is_first or is_last)))
                passes[index].ops.append((step, number))
                first = index + 1
        done |= dict.fromkeys(step.names, first)
    return passes


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
