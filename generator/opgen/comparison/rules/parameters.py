"""Rules for parameters of ops, and for tensor methods."""

from opgen.comparison.rule import ADDED, CHANGED, REMOVED, Match, listed, narrowed, rule
from opgen.model.functors import Functor
from opgen.model.spec import Spec


def _functor(spec: Spec, name: str) -> Functor:
    kind, _, op = name.partition(".")
    return next(functor for functor in spec.functors[kind].functors if functor.name == op)


@rule(("op", ADDED, "parameters.*"), ("storage method", ADDED, "tensor.types.*"))
def parameter_without_default(match: Match) -> str | None:
    """An op or a tensor method gains a parameter without a default.

    Every call fails until it passes the number. Give the parameter a default with which old calls return what they did.
    """
    has_default = match.change.subject.kind == "op" and match.new is not None
    if has_default or not match.keeps_tensor_method():
        return None
    return f"{match.subject} needs parameter '{match.last}', which has no default"


@rule(("op", ADDED, "parameters.*"))
def parameter_inserted(match: Match) -> str | None:
    """An op gains a parameter in front of an existing one.

    Calls by position pass their arguments to the wrong parameters. Add the parameter at the end.
    """
    old, new = (list(_functor(spec, match.name).parameters) for spec in (match.comparison.old, match.comparison.new))
    following = [name for name in new[new.index(match.last) :] if name in old]
    if match.new is None or not following:
        return None
    return f"parameter '{match.last}' of {match.subject} stands in front of '{following[0]}', which was there"


@rule(("op", REMOVED, "parameters.*"), ("storage method", REMOVED, "tensor.types.*"))
def parameter_removed(match: Match) -> str | None:
    """An op or a tensor method loses a parameter. Calls that pass it fail."""
    return f"{match.subject} no longer has parameter '{match.last}'" if match.keeps_tensor_method() else None


@rule(("op", CHANGED, "parameters.*"))
def parameter_default_removed(match: Match) -> str | None:
    """A parameter loses its default. Calls that omit it fail."""
    return f"parameter '{match.last}' of {match.subject} no longer has a default" if match.new is None else None


@rule(("op", CHANGED, "parameters.*"))
def parameter_default_changed(match: Match) -> str | None:
    """A parameter has another default. Calls that omit it compute something else."""
    if match.new is None or match.old is None:
        return None
    return f"the default of parameter '{match.last}' of {match.subject} is {match.new}, and was {match.old}"


@rule(("op", CHANGED, "parameters.(order)"), ("storage method", CHANGED, "tensor.types.(order)"))
def parameters_reordered(match: Match) -> str | None:
    """An op or a tensor method reorders its parameters.

    Calls by position compute something else.
    """
    return f"the parameters of {match.subject} are {listed(match.new)}, and were {listed(match.old)}"


@rule(("storage method", CHANGED, "tensor.types.*"))
def parameter_type_changed(match: Match) -> str | None:
    """A parameter of a tensor method has another type. A type that only accepts more breaks no callers."""
    return narrowed(match, "parameter")


@rule(*((kind, CHANGED, "has_tensor_method") for kind in ("op", "storage method")))
def tensor_method_removed(match: Match) -> str | None:
    """Tensor loses the method that is one op or one storage method.

    Calls fail with AttributeError. If the runtime defines a method of this name instead, say so in the exception.
    """
    return None if match.new else f"Tensor no longer has the method of {match.subject}"
