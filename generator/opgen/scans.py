"""The reductions of scans: which one of the elements up to each a scan is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from opgen.cache.memo import memoize
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.kinds import SCAN
from opgen.model.reductions import Monoid, Prefixes
from opgen.problem import Problem, did_you_mean

_REDUCTIONS: Final = "reduce"


def with_scans(kinds: Mapping[str, FunctorKind], problems: list[Problem]) -> dict[str, FunctorKind]:
    """Return the kinds of functors with the reductions of scans; what is wrong goes to `problems`."""
    completed = dict(kinds)
    if SCAN in kinds:
        completed[SCAN], noted = _with_reductions(kinds[SCAN], kinds.get(_REDUCTIONS))
        problems += noted
    return completed


@memoize(lambda kind, reductions: (kind, reductions), size=4)
def _with_reductions(kind: FunctorKind, reductions: FunctorKind | None) -> tuple[FunctorKind, list[Problem]]:
    known = {} if reductions is None else reductions.by_name
    problems: list[Problem] = []
    functors = []
    for functor in kind.functors:
        complete = _with_reduction(functor, known)
        if isinstance(functor.scan, Prefixes) and complete.reduction is None:
            names = [name for name, other in known.items() if isinstance(other.reduction, Monoid)]
            message = f"op '{functor.name}' is of unknown reduction '{functor.scan.of}'"
            fix = did_you_mean(functor.scan.of, names, "write one of spec/functors/reduce.yaml")
            problems.append(Problem(functor.location, message + fix))
        functors.append(complete)
    return replace(kind, functors=tuple(functors)), problems


def _with_reduction(functor: Functor, known: Mapping[str, Functor]) -> Functor:
    """Return a scan with its reduction, and the dtype of that one's results."""
    if not isinstance(functor.scan, Prefixes):
        return replace(functor, reduction=functor.scan)
    of = known.get(functor.scan.of)
    if of is None or not isinstance(of.reduction, Monoid):
        return functor
    accumulate = functor.scan.accumulate or of.reduction.accumulate
    return replace(functor, reduction=replace(of.reduction, accumulate=accumulate), result=functor.result or of.result)
