"""Values of the elements of a row that several passes need: engines store them where a row fits their memory."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from opgen.formula.nodes import Call, Name, Node, calls, names, size
from opgen.formula.primitives import Primitive, Primitives
from opgen.row_passes import Passes
from opgen.rows import replaced

_IS_FUNCTION = re.compile(r"\w+\(")


@dataclass(frozen=True)
class Value:
    """A value of each element, computed in a stage for this one and later ones."""

    name: str
    stage: int
    node: Node


@dataclass(frozen=True)
class Stages:
    """The formulas of each pass, and of the results last, in which shared values are names."""

    nodes: tuple[tuple[Node, ...], ...]
    values: tuple[Value, ...]
    """The values in the order of their stages, each after those that it depends on."""


def stages_of(passes: Passes) -> Stages:
    """Return the stages of a row formula as they are."""
    contributions = [tuple(join.contribution for join in each.joins) for each in passes.passes]
    return Stages((*contributions, passes.results), ())


def share_values(passes: Passes, elements: Collection[str], primitives: Primitives) -> Stages:
    """Name the largest formulas that several stages have, if they call functions that take long.

    `elements` are the names that differ between elements of a row.
    """
    trees: Sequence[Sequence[Node]] = stages_of(passes).nodes
    ready = {join.name: stage for stage, each in enumerate(passes.passes, 1) for join in each.joins}
    ready |= {name: stage for stage, each in enumerate(passes.passes, 1) for name in each.constants}
    varying = {*elements}
    values: list[Value] = []
    while (node := _largest_shared(trees, values, varying, primitives)) is not None:
        stage = max((ready[name] for name in names(node) if name in ready), default=0)
        value = Value(f"value_{len(values) + 1}", stage, node)
        of_value: Mapping[Node, Node] = {node: Name(value.name)}
        trees = [[replaced(tree, of_value) for tree in nodes] for nodes in trees]
        values = [replace(other, node=replaced(other.node, of_value)) for other in values]
        # It may be part of those before it.
        values.insert(0, value)
        ready[value.name] = stage
        varying.add(value.name)
    return Stages(tuple(map(tuple, trees)), tuple(sorted(values, key=lambda value: value.stage)))


def _largest_shared(
    trees: Sequence[Sequence[Node]], values: Sequence[Value], varying: set[str], primitives: Primitives
) -> Call | None:
    stages: dict[Call, set[int]] = {}
    for stage, nodes in enumerate(trees):
        for node in (*nodes, *(value.node for value in values if value.stage == stage)):
            for part in calls(node):
                stages.setdefault(part, set()).add(stage)
    shared = [part for part, used in stages.items() if len(used) > 1 and not varying.isdisjoint(names(part))]
    slow = [part for part in shared if any(_is_slow(primitives[each.primitive]) for each in calls(part))]
    return max(slow, key=size, default=None)


def _is_slow(primitive: Primitive) -> bool:
    """Return True for functions of floats alone, and those with a quick variant: others take an instruction or two."""
    is_of_floats = primitive.kind == "float" and primitive.result is None
    return _IS_FUNCTION.match(primitive.call) is not None and (primitive.fast_math or is_of_floats)
