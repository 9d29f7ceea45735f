"""Parts that nothing uses are refused: added to the repository's spec, one at a time, wherever they can stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath

import own_spec
import pytest
from opgen.formula.formula import Formula
from opgen.formula.nodes import Number
from opgen.kernels import Constant, FieldGroup
from opgen.model.reductions import StatePart
from opgen.model.spec import Spec
from opgen.problem import Location, Problems, SpecError
from opgen.sources import Sources
from opgen.unused import check_headers, check_unused

from .project import REPOSITORY

SPEC = own_spec.read()
ADDED = "zz_surplus"


@cache
def sources() -> Sources:
    return Sources(REPOSITORY)


@cache
def texts() -> dict[PurePosixPath, str]:
    output = REPOSITORY / "generated"
    paths = [path for path in (output / "tallow/kernels").iterdir() if path.suffix in (".hip", ".cpp")]
    return {PurePosixPath(path.relative_to(output)): path.read_text(encoding="utf-8") for path in paths}


def problems(spec: Spec) -> list[str]:
    result = Problems()
    check_unused(spec, sources(), result)
    try:
        check_headers(spec, sources(), texts())
    except SpecError as error:
        result += error.problems
    return [problem.message for problem in result]


def number(location: Location) -> Formula:
    return Formula(Number(1), location)


def with_lets() -> Iterator[tuple[str, Spec]]:
    for kind in SPEC.functors.values():
        for functor in kind.functors:
            if not functor.is_gradient:
                added = replace(functor, let={**functor.let, ADDED: number(functor.location)})
                functors = tuple(added if each is functor else each for each in kind.functors)
                yield f"let of {functor.name}", with_kind(replace(kind, functors=functors))
        for state in kind.listed:
            let = replace(state, let={**state.let, ADDED: number(state.location)})
            part = StatePart(ADDED, number(state.location), number(state.location))
            for what, added_state in (("let", let), ("part", replace(state, parts=(*state.parts, part)))):
                listed = tuple(added_state if each is state else each for each in kind.listed)
                yield f"{what} of state {state.name}", with_kind(replace(kind, listed=listed))
            yield (
                f"state like {state.name}",
                with_kind(replace(kind, listed=(*kind.listed, replace(state, name=ADDED)))),
            )
    for name, primitive in SPEC.primitives.items():
        added_primitive = replace(primitive, let={**primitive.let, ADDED: number(primitive.location)})
        primitives = type(SPEC.primitives)({**SPEC.primitives, name: added_primitive})
        yield f"let of primitive {name}", replace(SPEC, primitives=primitives)


def with_kind(kind: object) -> Spec:
    return replace(SPEC, functors={**SPEC.functors, kind.name: kind})  # type: ignore[attr-defined]


def with_kernel_parts() -> Iterator[tuple[str, Spec]]:
    position = SPEC.constants[0].location
    yield "constant", replace(SPEC, constants=(*SPEC.constants, Constant(ADDED, "none", 1, position)))
    yield "group", replace(SPEC, field_groups=(*SPEC.field_groups, FieldGroup(ADDED, "none", {}, position)))
    for backend, targets in SPEC.targets.items():
        facts_of = {"feature": {"has": {ADDED: position}}, "product": {"instructions": {f"{ADDED}_1x1x1": ADDED}}}
        for what, facts in facts_of.items():
            added = replace(targets[0], **facts)
            yield f"{what} of {backend}", replace(SPEC, targets={**SPEC.targets, backend: [*targets, added]})
    for index, family in enumerate(SPEC.kernels):
        parts = {}
        if family.structs:
            parts["struct"] = replace(family, structs=(*family.structs, replace(family.structs[0], name=ADDED)))
        if family.kernels:
            kernel = replace(family.kernels[0], name=f"{family.kernels[0].name}_{ADDED}")
            parts["kernel"] = replace(family, kernels=(*family.kernels, kernel))
        for what, changed in parts.items():
            kernels = (*SPEC.kernels[:index], changed, *SPEC.kernels[index + 1 :])
            yield f"{what} of {family.name}", replace(SPEC, kernels=kernels)


def with_promotions() -> Iterator[tuple[str, Spec]]:
    dtypes = {dtype.name: dtype for dtype in SPEC.dtypes}
    for position, dtype in enumerate(SPEC.dtypes):
        beyond = [far for near in dtype.promotes_to for far in dtypes[near].promotes_to]
        for far in (*beyond[:1], *dtype.promotes_to[:1]):
            changed = replace(dtype, promotes_to=(*dtype.promotes_to, far))
            own = (*SPEC.dtypes[:position], changed, *SPEC.dtypes[position + 1 :])
            yield f"{dtype.name} to {far}", replace(SPEC, dtypes=own)


def with_headers() -> Iterator[tuple[str, Spec]]:
    other = "search.hpp"
    (location,) = {family.headers[other] for family in SPEC.kernels if other in family.headers}
    for index, family in enumerate(SPEC.kernels):
        if family.headers and other not in family.headers:
            headers = {**family.headers, other: location}
            kernels = (*SPEC.kernels[:index], replace(family, headers=headers), *SPEC.kernels[index + 1 :])
            yield f"{other} of {family.name}", replace(SPEC, kernels=kernels)


def test_all_of_the_spec_is_used() -> None:
    assert not problems(SPEC)


@pytest.mark.parametrize("added", [with_lets, with_kernel_parts, with_promotions, with_headers])
def test_what_changes_nothing_is_refused(added: object, full: bool) -> None:
    cases = list(added())  # type: ignore[operator]
    tried = cases if full else cases[:: max(1, len(cases) // 12)]
    assert cases
    assert [what for what, spec in tried if not problems(spec)] == []
