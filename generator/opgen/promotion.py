"""The dtype to which operands of two dtypes are promoted."""

from collections.abc import Iterator, Mapping

from opgen.dtypes import DType
from opgen.model.spec import Spec
from opgen.problem import Problems, unknown_dtype

_Above = Mapping[str, frozenset[str]]


def check_promotion(dtypes: Mapping[str, DType], problems: Problems) -> None:
    """Note a dtype that is promoted to one that is not there, or to itself in the end."""
    for name, dtype in dtypes.items():
        for other in dtype.promotes_to:
            if other not in dtypes:
                message = f"dtype '{name}' is promoted to unknown dtype '{other}'"
                problems.note(dtype.location, message + unknown_dtype(other, dtypes))
    for name, above in _reached(dtypes).items():
        if name in above:
            problems.note(dtypes[name].location, f"dtype '{name}' is promoted to itself in the end; remove a step")


def check_yields(spec: Spec, problems: Problems) -> None:
    """Note a dtype that yields to one that its promotions decide about, or that yields to it; all names are known."""
    reached = _reached({dtype.name: dtype for dtype in spec.dtypes})
    yielded = _yielded(spec)
    for dtype in spec.dtypes:
        for other in yielded[dtype.name]:
            if other == dtype.name:
                wrong = "yields to itself"
            elif other in reached[dtype.name] or dtype.name in reached[other]:
                wrong = f"yields to '{other}', and 'promotes_to' leads from one to the other"
            elif dtype.name in yielded[other]:
                wrong = f"yields to '{other}', which yields to it"
            else:
                continue
            problems.note(dtype.location, f"dtype '{dtype.name}' {wrong}; leave '{other}' out of 'yields_to'")


def redundant(dtypes: Mapping[str, DType], dtype: DType) -> Iterator[str]:
    """Yield the dtypes in `promotes_to` that another one there leads to."""
    above = _reached(dtypes)
    for index, name in enumerate(dtype.promotes_to):
        others = (*dtype.promotes_to[:index], *dtype.promotes_to[index + 1 :])
        if name in dtype.promotes_to[:index] or any(name in above[other] for other in others if other != name):
            yield name


def promotions(spec: Spec) -> Iterator[tuple[str, dict[str, str]]]:
    """Each dtype, with the dtype that it has together with each other dtype that goes with it."""
    dtypes = {dtype.name: dtype for dtype in spec.dtypes}
    reached = {name: above | {name} for name, above in _reached(dtypes).items()}
    yielded = _yielded(spec)

    def promoted(first: str, other: str) -> str | None:
        if other in yielded[first]:
            return other
        return first if first in yielded[other] else _join(reached, {first, other})

    for first in dtypes:
        joins = {other: promoted(first, other) for other in dtypes if other != first}
        yield first, {other: name for other, name in joins.items() if name is not None}


def _yielded(spec: Spec) -> Mapping[str, tuple[str, ...]]:
    """The dtypes that each dtype yields to."""
    return {dtype.name: spec.resolve(dtype.yields_to) if dtype.yields_to else () for dtype in spec.dtypes}


def _reached(dtypes: Mapping[str, DType]) -> _Above:
    """The dtypes that can be reached from each, in one step or more."""
    reached: dict[str, frozenset[str]] = {}
    for name, dtype in dtypes.items():
        names: set[str] = set()
        ahead = [*dtype.promotes_to]
        while ahead:
            step = ahead.pop()
            if step in dtypes and step not in names:
                names.add(step)
                ahead += dtypes[step].promotes_to
        reached[name] = frozenset(names)
    return reached


def _join(reached: _Above, names: set[str]) -> str | None:
    """The first dtype that can be reached from all; of several, none of which leads to another, that of them all."""
    while len(names) > 1:
        common = frozenset.intersection(*[reached[name] for name in names])
        names = {name for name in common if not any(name in reached[other] for other in common - {name})}
    return next(iter(names), None)
