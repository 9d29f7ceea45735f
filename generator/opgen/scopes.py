"""The expressions of functors, and what each of them may name besides functions."""

from collections.abc import Iterator
from dataclasses import dataclass

from opgen.model import Functor, Monoid, Pair, Position, Spec
from opgen.problem import Location

NUMPY, HIP = "numpy", "hip"
# What floats have in expressions of both languages.
LITERALS = ("inf", "nan")


@dataclass(frozen=True)
class Scoped:
    """An expression with its scope."""

    language: str
    key: str  # of the op
    what: str
    text: str
    names: tuple[str, ...]  # what it may name besides functions
    is_of_integers: bool  # perhaps besides floats
    location: Location


def scoped(spec: Spec, functor: Functor) -> Iterator[Scoped]:
    """The expressions of a functor."""
    has_integers = not {*spec.resolve(functor.dtypes)} <= {*spec.groups["float"]}
    reduction, op = functor.reduction, f"op '{functor.name}'"
    if isinstance(reduction, Position):
        yield Scoped(NUMPY, NUMPY, f"'{NUMPY}' of {op}", reduction.numpy, (), False, reduction.location)
    elif reduction is not None:
        yield from _of_monoid(functor, reduction, has_integers)
    else:
        for language, expression in ((NUMPY, functor.numpy), (HIP, functor.hip)):
            for text, is_of_integers in expression.parts(has_integers):
                literals = () if is_of_integers else LITERALS
                names = (*functor.operands, *functor.parameters, *literals)
                what = f"'{language}' of {op}"
                yield Scoped(language, language, what, text, names, is_of_integers, expression.location)


def _of_monoid(functor: Functor, monoid: Monoid, has_integers: bool) -> Iterator[Scoped]:
    literals = () if has_integers else LITERALS
    given = ("y",) if monoid.given is not None else ()
    finish = ("x", "count", *functor.parameters)
    # What NumPy joins by is a function's name.
    scopes: tuple[tuple[str, Pair | None, tuple[str, ...], tuple[str, ...]], ...] = (
        ("combine", monoid.combine, (), ("x", "y", *literals)),
        ("element", monoid.element, ("x", *given, *literals), ("x", "State", *literals)),
        ("finish", monoid.finish, (*finish, *literals), (*finish, *literals)),
    )
    for key, pair, of_numpy, of_hip in scopes:
        if pair is not None:
            what = f"of '{key}' of op '{functor.name}'"
            yield Scoped(NUMPY, key, f"'{NUMPY}' {what}", pair.numpy, of_numpy, has_integers, pair.numpy_location)
            yield Scoped(HIP, key, f"'{HIP}' {what}", pair.hip, of_hip, has_integers, pair.hip_location)
    if monoid.state is not None:
        what = f"'state' of op '{functor.name}'"
        yield Scoped(HIP, "state", what, monoid.state, (), has_integers, functor.location)
