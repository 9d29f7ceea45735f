"""Properties of reductions, and the reductions that they depend on."""

from typing import Final

from opgen.formula.nodes import ADD, Call, Name, names, walk
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid

COUNT: Final = "count"
"""The name of the number of elements in `finish`."""
UNIT: Final = "unit"
"""The name of the number by which the elements were divided, in `finish`."""
ITSELF: Final = "element"
"""The name of the element itself in the `finish` of a scan."""
REDUCED: Final = "reduced"
"""The name of the reduction on which an element's contribution depends, in functions of arrays."""


def inner_reduction(kind: FunctorKind, monoid: Monoid) -> Functor | None:
    """The reduction of the elements whose result an element's contribution depends on; None where there is none."""
    called = (
        {node.primitive for node in walk(monoid.element.node) if isinstance(node, Call)} if monoid.element else set()
    )
    return next((functor for functor in kind.functors if functor.name in called), None)


def is_sum(monoid: Monoid) -> bool:
    """Whether a reduction adds up what the elements contribute."""
    return monoid.combine.node == Call(ADD, (Name("x"), Name("y")))


def is_plain_sum(functor: Functor) -> bool:
    """Whether a reduction or a scan adds up the elements themselves."""
    monoid = functor.reduction
    return isinstance(monoid, Monoid) and is_sum(monoid) and monoid.element is None and monoid.finish is None


def reads_unit(monoid: Monoid) -> bool:
    """Whether the end of a reduction has the number by which the elements were divided."""
    return monoid.finish is not None and UNIT in names(monoid.finish.node)


def reductions_used_by(kind: FunctorKind, functor: Functor | None) -> list[Functor]:
    """A reduction, that whose result its elements depend on, and so on."""
    chain: list[Functor] = []
    while functor is not None and functor not in chain:
        chain.append(functor)
        functor = inner_reduction(kind, functor.reduction) if isinstance(functor.reduction, Monoid) else None
    return chain
