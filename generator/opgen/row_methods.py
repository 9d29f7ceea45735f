"""How the storage methods of ops of rows are recorded: their gradients are ops of rows too."""

from collections.abc import Mapping
from dataclasses import replace

from opgen.gradient_ops import GRADIENT_ENDING, TAKEN, row_gradient_name, row_gradient_sources
from opgen.gradients import Expression, Gradient
from opgen.model import ROW, ROW_GRADIENT, Functor, FunctorKind, Method, Spec


def with_row_gradient(spec: Spec, kinds: Mapping[str, FunctorKind], method: Method) -> Method:
    """Return a method with the gradient that it has if it is that of an op of rows."""
    functor = kinds[method.kind or ""].by_name[method.functor or ""]
    if not functor.is_of_rows or spec.package.without_gradients:
        return method
    if functor.is_gradient:
        return replace(method, gradient=_of_gradient(kinds[ROW], functor))
    gradients = kinds[ROW_GRADIENT].by_name if ROW_GRADIENT in kinds else {}
    return replace(method, gradient=_of_op(spec, functor, gradients.get(row_gradient_name(functor))))


def _of_op(spec: Spec, functor: Functor, gradient: Functor | None) -> Gradient:
    """Return that of an op: the call of its gradient op, and which of the results each operand takes."""
    own = {functor.operands[0]: "self"}
    takes = () if gradient is None else tuple(TAKEN.get(name, name) for name in gradient.operands[1:])
    numbers = () if gradient is None else tuple(gradient.parameters)
    operands = "".join(f"{own.get(name, name)}, " for name in takes)
    sources = "".join(f"{source}, " for source in row_gradient_sources(spec, functor).values())
    arguments = ", ".join(["g", repr(row_gradient_name(functor)), f"({sources})", f"({operands})", "dim", *numbers])
    call = Expression(f"rules.row_gradients({arguments})", functor.location)
    return Gradient(call, {}, None, None, {}, functor.location)


def _of_gradient(kind: FunctorKind, functor: Functor) -> Gradient:
    """Return that of a gradient op: what it computes is recorded op by op."""
    op = kind.by_name[functor.name.removesuffix(GRADIENT_ENDING)]
    tensors = ["'g': (self, layout)"]
    tensors += [f"{TAKEN.get(name, name)!r}: ({name}, {name}_layout)" for name in functor.operands[1:]]
    numbers = [f"{name!r}: {name}" for name in functor.parameters]
    arguments = ", ".join([op.member, f"{{{', '.join(tensors)}}}", "dim", f"{{{', '.join(numbers)}}}"])
    call = Expression(f"rules.row_by_ops({arguments})", functor.location)
    return Gradient(None, {"self": call}, None, None, {}, functor.location)
