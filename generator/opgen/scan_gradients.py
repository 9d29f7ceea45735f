"""The gradients of scans, which follow from their reductions, and what is wrong with both."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from opgen.cache.memo import memoize
from opgen.formula.derivatives import with_result
from opgen.formula.nodes import (
    INCOMING,
    OPERATORS,
    RESULT,
    WHERE,
    FormulaError,
    Name,
    Node,
    Number,
    calls,
    inlined,
    names,
)
from opgen.formula.simplification import simplified
from opgen.model.functors import Functor
from opgen.model.reductions import BOUNDS, Monoid, Prefixes
from opgen.model.spec import Spec
from opgen.monoids import COUNT, ITSELF, inner_reduction, is_plain_sum, reads_unit
from opgen.problem import Problem, Problems
from opgen.scopes import decisive, is_differentiable, tensor_methods

NUMBER: Final = "number"
"""The name, in functions of tensors, of the number of elements combined at each position."""


@memoize(decisive)
def scan_gradients(spec: Spec, functor: Functor) -> dict[str, Node]:
    """Return the formulas by which the gradient of a scan follows from its reduction.

    `element` is what an element x contributes, `combine` what x and y join to, `before` and `own` are the gradients of
    both, `contribution` is the gradient of an element by what it contributes, and `finish` and `direct` are those of
    the accumulated x and of the element in `finish`. Raises FormulaError where a formula has no gradient.
    """
    monoid = functor.reduction
    assert isinstance(monoid, Monoid)
    combine, x, g = monoid.combine.node, Name("x"), Name(INCOMING)
    written = {name: formula.node for name, formula in functor.gradient.items()}
    derived = {} if {"x", "y"} <= written.keys() else spec.primitives.gradients(combine, ["x", "y"])
    partials = {name: written.get(name) or with_result(derived[name], combine) for name in "xy"}
    element: Node = x if monoid.element is None else monoid.element.node
    finish: Mapping[str, Node] = {"x": g, ITSELF: Number(0)}
    if monoid.finish is not None:
        finish = spec.primitives.gradients(monoid.finish.node, ["x", ITSELF])
    slopes = {
        "before": partials["x"],
        "own": partials["y"],
        "finish": finish["x"],
        "direct": finish[ITSELF],
    }
    read = {name for node in slopes.values() for name in names(node)}
    # Only contributions can be combined again, and the finished result does not contain them.
    joins = monoid.finish is not None and not read.isdisjoint(("x", RESULT))
    gradients = {
        # Without a formula it is the element.
        "element": element if element != x and (joins or "y" in read) else Number(0),
        "combine": combine if joins else Number(0),
        **slopes,
        "contribution": spec.primitives.gradients(element, ["x"])["x"],
    }
    return {name: simplified(inlined(node, {COUNT: Name(NUMBER)})) for name, node in gradients.items()}


def explained(spec: Spec, functor: Functor) -> "Mapping[str, Node | str]":
    """Return what docs say of the gradient of a scan: sentences, or the slopes of `combine` from which it follows."""
    if not is_differentiable(spec, functor):
        return {}
    if functor.positions:
        return {"x": "`g` of each result, added up at its position"}
    if is_plain_sum(functor):
        return {"x": "`g`, summed from the other end"}
    gradients = scan_gradients(spec, functor)
    return {"x, the elements before": gradients["before"], "y, the next contribution": gradients["own"]}


def check_scans(spec: Spec, problems: Problems) -> None:
    """Note scans that no prefix has the results of, and gradients that do not follow or that tensors cannot compute."""
    ops = {*OPERATORS, WHERE, *tensor_methods(spec)}
    for functor in spec.scans:
        problems += _problems(spec, functor)
        problems += _gradient_problems(spec, functor, ops)


def _problems(spec: Spec, functor: Functor) -> Iterator[Problem]:
    """Yield what is wrong with the reduction of a scan."""
    op, location, monoid = f"op '{functor.name}'", functor.location, functor.reduction
    assert isinstance(monoid, Monoid)
    of = functor.scan.of if isinstance(functor.scan, Prefixes) else ""
    reductions = {other.name: other for other in spec.reductions}
    kind = spec.functors.get(reductions[of].kind) if of in reductions else None
    other = None if kind is None else inner_reduction(kind, monoid)
    if other is not None:
        message = f"{op} combines what depends on '{other.name}' of all elements, which a scan does not know"
        yield Problem(location, f"{message}; write another reduction")
    elif reads_unit(monoid) or (of and reductions[of].parameters):
        message = f"{op} is of a reduction with a 'unit' or parameters, which no scan has"
        yield Problem(location, f"{message}; write another one, or 'element', 'combine' and 'finish'")
    elif functor.positions and not (monoid.identity in BOUNDS and monoid.element is None and monoid.finish is None):
        message = f"{op} has 'positions', but its results are no elements that it finds"
        yield Problem(location, f"{message}; remove them, or write a reduction like 'of: max'")
    elif of and of == functor.name:
        yield Problem(location, f"{op} has the name of its reduction; give it another one")


def _gradient_problems(spec: Spec, functor: Functor, ops: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong with the gradient of a scan."""
    op, location = f"op '{functor.name}'", functor.location
    if functor.gradient and (functor.positions or not is_differentiable(spec, functor)):
        reason = "goes to the positions" if functor.positions else "is none, as it has no floats or gives none"
        yield Problem(location, f"the gradient of {op} {reason}; remove it")
        return
    if functor.positions or not is_differentiable(spec, functor):
        return
    for name, formula in functor.gradient.items():
        if name not in ("x", "y"):
            yield Problem(formula.location, f"unknown operand '{name}' in 'gradient' of {op}; write x or y")
    try:
        gradients = scan_gradients(spec, functor)
    except FormulaError as error:
        yield Problem(location, f"{op}: {error}")
        return
    computed = {call.primitive for node in gradients.values() for call in calls(node)}
    for name in sorted(computed - {*ops}):
        message = f"the gradient of {op} has '{name}', which is no op"
        yield Problem(location, f"{message}; add the op, or write 'gradient'")
