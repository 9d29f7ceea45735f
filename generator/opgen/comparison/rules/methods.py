"""Rules for storage methods and device methods."""

from opgen.comparison.rule import ADDED, ANYHOW, CHANGED, REMOVED, Match, listed, narrowed, rule

_METHODS = ("storage method", "device method")


def _of_methods(kinds: frozenset[str], *paths: str) -> tuple[tuple[str, frozenset[str], str], ...]:
    return tuple((subject, kinds, path) for subject in _METHODS for path in paths)


@rule(*_of_methods(REMOVED, ""))
def method_removed(match: Match) -> str | None:
    """A method of Storage or Device is removed."""
    return f"{match.subject} is removed"


@rule(*_of_methods(ADDED, "signature.types.*"))
def argument_added(match: Match) -> str | None:
    """A method of Storage or Device gains an argument. These methods have no defaults, so every call fails."""
    return f"{match.subject} needs argument '{match.last}'"


@rule(*_of_methods(REMOVED, "signature.types.*"))
def argument_removed(match: Match) -> str | None:
    """A method of Storage or Device loses an argument. Calls that pass it fail."""
    return f"{match.subject} no longer takes argument '{match.last}'"


@rule(*_of_methods(CHANGED, "signature.types.(order)"))
def arguments_reordered(match: Match) -> str | None:
    """A method of Storage or Device reorders its arguments. Calls by position pass them to the wrong parameters."""
    return f"the arguments of {match.subject} are {listed(match.new)}, and were {listed(match.old)}"


@rule(*_of_methods(CHANGED, "signature.types.*"))
def argument_type_changed(match: Match) -> str | None:
    """An argument of a method has another type. A type that only accepts more breaks no callers.

    METHOD_OPS_CHANGED reports an argument `op` that takes other ops.
    """
    if match.last == "op" and match.is_changed("kind"):
        return None
    return narrowed(match, "argument")


@rule(*_of_methods(CHANGED, "signature.returns"), ("storage method", CHANGED, "tensor.returns"))
def return_type_changed(match: Match) -> str | None:
    """A method returns another type."""
    return f"{match.subject} returns {match.new}, and returned {match.old}"


@rule(("storage method", CHANGED, "gives"))
def result_changed(match: Match) -> str | None:
    """A storage method gives another dtype or another shape. What is computed from it changes too, or is refused."""
    return f"{match.subject} gives {match.new or 'nothing'}, and gave {match.old or 'nothing'}"


@rule(("storage method", REMOVED, "operands.*.dtypes.*"), ("device method", REMOVED, "dtypes.*"))
def method_dtype_removed(match: Match) -> str | None:
    """A storage method no longer accepts a dtype for an operand, or a device method no longer makes it.

    Such calls raise UnsupportedDType, or DTypeMismatch if the dtype must match another operand.
    """
    method = next(method for method in match.comparison.new.methods if method.name == match.name)
    is_gone = len(match.matched) > 1 and match.matched[0] not in [operand.name for operand in method.operands]
    if is_gone or not match.loses_dtype():
        return None
    of = f" as '{match.matched[0]}'" if len(match.matched) > 1 else ""
    return f"{match.subject} no longer takes {match.last}{of}"


@rule(("storage method", CHANGED, "operands.(order)"))
def operands_reordered(match: Match) -> str | None:
    """A storage method reorders its operands.

    The first operand decides the dtype and the cell of a call, and errors name its dtype.
    """
    return f"the operands of {match.subject} are {listed(match.new)}, and were {listed(match.old)}"


@rule(*_of_methods(ADDED, "checks.*.call"))
def check_added(match: Match) -> str | None:
    """A method makes another check before its branch, and may refuse calls that it accepted."""
    return f"{match.subject} checks {match.last} now"


@rule(*_of_methods(REMOVED, "raises.*"))
def error_removed(match: Match) -> str | None:
    """A method no longer raises an error. Code that catches it is never reached."""
    return f"{match.subject} no longer raises {match.last}"


@rule(*_of_methods(ADDED, "raises.*"))
def error_added(match: Match) -> str | None:
    """A method raises a new error, which callers do not catch. CHECK_ADDED reports the errors of a new check."""
    return None if match.is_changed("checks") else f"{match.subject} raises {match.last}"


@rule(("storage method", ANYHOW, "kind"))
def method_ops_changed(match: Match) -> str | None:
    """A storage method takes the ops of another kind, or none."""
    kinds = [value or "no kind" for value in (match.new, match.old)]
    return f"{match.subject} chooses between the ops of {kinds[0]}, and did between those of {kinds[1]}"
