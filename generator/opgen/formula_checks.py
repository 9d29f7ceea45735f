"""Checks of formulas: they can be computed, have gradients, and use every primitive."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from opgen.cache.memo import memoize
from opgen.formula.nodes import INCOMING, OPERATORS, WHERE, Call, FormulaError, Kind, Name, Node, calls, is_zero, names
from opgen.formula.primitives import Primitive
from opgen.model.functor_kinds import FunctorKind
from opgen.model.functors import Functor
from opgen.model.reductions import Monoid
from opgen.model.spec import Spec
from opgen.monoids import COUNT, inner_reduction, reads_unit, reductions_used_by
from opgen.problem import Problems
from opgen.rows import DETACH, JOINS
from opgen.scopes import (
    Scope,
    decisive,
    derivatives,
    is_differentiable,
    scopes,
    state_scopes,
    tensor_methods,
    written_out,
)


def check_formulas(spec: Spec, problems: Problems) -> bool:
    """Note what is wrong with formulas, ops without a gradient, and primitives that no formula has.

    Whether nothing is wrong with formulas, so that they can be computed.
    """
    errors, used = _checked_formulas(spec)
    problems += errors
    # What an error stands in may be what it is for.
    for name, primitive in () if problems else spec.primitives.items():
        if name not in used and not primitive.location.is_of_base:
            problems.note(primitive.location, f"primitive '{name}' is in no formula; remove it")
    return not errors


@memoize(lambda spec: (spec.primitives, spec.known_dtypes, spec.package, *spec.functors.values()), size=4)
def _checked_formulas(spec: Spec) -> tuple[Problems, Collection[str]]:
    """Return the errors of formulas and gradients, and the primitives that formulas use."""
    problems, used = Problems(), set[str]()
    reductions = [functor.name for functor in spec.every_functor if functor.reduction is not None]
    ops = {*OPERATORS, WHERE, *tensor_methods(spec), *reductions, *JOINS, DETACH}
    others = [scope for primitive in spec.primitives.values() for scope in _primitive_scopes(spec, primitive)]
    for kind in spec.functors.values():
        for functor in kind.functors:
            _check_reduction(spec, kind, functor, problems)
            own = _checked_functor(spec, functor)
            problems += own.problems
            used.update(own.used)
            for name in own.computed:
                if name not in ops:
                    message = f"the gradient of op '{functor.name}' has '{name}', which is no op"
                    problems.note(functor.location, f"{message}; add the op, or write 'gradient'")
        for state in kind.states.values():
            others += state_scopes(spec, state).values()
    for scope in others:
        scope.check(problems)
        used.update(scope.used())
    return problems, used


class _Checked(NamedTuple):
    """Return the errors of formulas, the primitives that they use, and those that their gradients use on tensors."""

    problems: Problems
    used: Collection[str]
    computed: Collection[str]


@memoize(decisive)
def _checked_functor(spec: Spec, functor: Functor) -> _Checked:
    """Check a functor's formulas and gradients."""
    problems = Problems()
    computed: Collection[str] = ()
    own = scopes(spec, functor)
    for key, scope in own.items():
        if not functor.borrows or key.startswith("gradient"):
            scope.check(problems)
    is_read = not isinstance(functor.reduction, Monoid) or not is_zero(functor.reduction.combine.node)
    if not problems and is_read and not functor.is_scan:
        computed = _check_gradient(spec, functor, problems)
    return _Checked(problems, {primitive for scope in own.values() for primitive in scope.used()}, computed)


def _primitive_scopes(spec: Spec, primitive: Primitive) -> Iterator[Scope]:
    kinds: dict[str, Kind] = {**dict.fromkeys(primitive.parameters, "float"), INCOMING: "float"}
    if primitive.condition is not None:
        kinds[primitive.condition] = "bool"
    if primitive.formula is not None:
        own = {kind: dict.fromkeys(primitive.parameters, kind) for kind in primitive.kinds}
        what = f"'formula' of primitive '{primitive.name}'"
        yield Scope(what, primitive.formula, own, spec.primitives, primitive.result is not None)
    for formula in primitive.gradient.values():
        yield Scope(
            f"'gradient' of primitive '{primitive.name}'",
            formula.with_parts(primitive.let),
            {"float": kinds},
            spec.primitives,
        )
    of_complex: dict[str, Kind] = {**dict.fromkeys(primitive.parameters, "complex"), INCOMING: "complex"}
    for formula in primitive.complex_gradient.values():
        what = f"'complex_gradient' of primitive '{primitive.name}'"
        yield Scope(what, formula.with_parts(primitive.let), {"float": of_complex}, spec.primitives)


def _check_reduction(spec: Spec, kind: FunctorKind, functor: Functor, problems: Problems) -> None:
    monoid = functor.reduction
    if not isinstance(monoid, Monoid) or functor.borrows:
        return
    if monoid.state is not None and monoid.state not in spec.states:
        message = f"op '{functor.name}' has unknown state '{monoid.state}'"
        problems.unknown(functor.location, message, monoid.state, spec.states)
    _check_unit(spec, functor, monoid, problems)
    other = inner_reduction(kind, monoid)
    if other is None or monoid.element is None:
        return
    what, reductions = f"'element' of op '{functor.name}'", {it.name for it in kind.functors}
    called = {call for call in calls(monoid.element.node) if call.primitive in reductions}
    if len({call.primitive for call in called}) > 1:
        several = " and ".join(sorted({call.primitive for call in called}))
        message = f"{what} has several other reductions, {several}; write one, or a reduction that has the other itself"
        problems.note(monoid.element.location, message)
    elif called != {Call(other.name, (Name("x"),))}:
        message = f"{what} may have the reduction of its elements alone; write {other.name}(x)"
        problems.note(monoid.element.location, message)
    elif monoid.state is None:
        message = f"{what} has '{other.name}', which kernels do not know before they have read all elements"
        problems.note(monoid.element.location, f"{message}; write the 'state' by which they read these once")
    elif functor is not other and functor in reductions_used_by(kind, other):
        message = f"{what} has '{other.name}', which has '{functor.name}' itself; remove one of them"
        problems.note(monoid.element.location, message)


def _check_unit(spec: Spec, functor: Functor, monoid: Monoid, problems: Problems) -> None:
    """Note a unit of which only the op or only its state knows."""
    state = spec.states.get(monoid.state or "")
    has_unit = state is not None and state.unit is not None
    if reads_unit(monoid) and not has_unit:
        message = f"'finish' of op '{functor.name}' has 'unit', which kernels do not know"
        problems.note(functor.location, f"{message}; write a 'state' with a 'unit'")
    elif has_unit and not reads_unit(monoid):
        message = f"state '{monoid.state}' of op '{functor.name}' has a 'unit', by which no 'finish' multiplies"
        problems.note(functor.location, f"{message}; write one over 'unit', or another state")


def _check_gradient(spec: Spec, functor: Functor, problems: Problems) -> Collection[str]:
    """Note gradients that the op cannot have or need not say; the primitives that ops have to compute of tensors."""
    if not is_differentiable(spec, functor):
        if functor.gradient:
            message = f"op '{functor.name}' has no floats, or gives none, and so no gradient; remove it"
            problems.note(functor.location, message)
        return ()
    for operand, formula in functor.gradient.items():
        if operand not in functor.operands:
            message = f"unknown operand '{operand}' in 'gradient' of op '{functor.name}'"
            problems.unknown(formula.location, message, operand, functor.operands)
    try:
        gradients = derivatives(spec, functor)
    except FormulaError as error:
        problems.note(functor.location, f"op '{functor.name}': {error}")
        return ()
    # What opgen wrote of gradients need not be compared.
    derived = _derived(spec, functor) if not functor.is_gradient else {}
    for operand, formula in functor.gradient.items():
        if formula.node == derived.get(operand):
            message = f"'gradient' of '{operand}' of op '{functor.name}' follows from its formula; remove it"
            problems.note(formula.location, message)
    if functor.is_of_rows:
        gradients = {operand: written_out(spec, node) for operand, node in gradients.items()}
    numbers = {*functor.parameters, COUNT}
    parts = (part for node in gradients.values() for part in calls(node))
    return {part.primitive for part in parts if not {*names(part)} <= numbers}


def _derived(spec: Spec, functor: Functor) -> Mapping[str, Node]:
    """The gradients that follow from a formula of which the op says some; none where one does not."""
    try:
        return derivatives(spec, replace(functor, gradients={})) if functor.gradient else {}
    except FormulaError:
        return {}
