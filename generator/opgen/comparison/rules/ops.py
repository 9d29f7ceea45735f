"""Rules for ops."""

from opgen.comparison.rule import ANYHOW, CHANGED, REMOVED, Match, listed, rule


@rule(("op", REMOVED, ""))
def op_removed(match: Match) -> str | None:
    """An op is removed, along with its tensor method and its enum member.

    Calls fail with AttributeError. Keep the op until callers have a replacement, or name the replacement in the
    exception.
    """
    return f"{match.subject} is removed"


@rule(("op", REMOVED, "dtypes.*"))
def op_dtype_removed(match: Match) -> str | None:
    """An op no longer supports a dtype.

    Calls with tensors of this dtype raise UnsupportedDType on every backend.
    """
    return f"{match.subject} no longer has {match.last}" if match.loses_dtype() else None


@rule(("op", ANYHOW, "result"))
def op_result_changed(match: Match) -> str | None:
    """An op returns another dtype.

    Everything computed from the result changes its dtype too, and so do files written from it.
    """
    names = [value or "that of its operands" for value in (match.new, match.old)]
    return f"the dtype of the result of {match.subject} is {names[0]}, and was {names[1]}"


@rule(
    ("op", CHANGED, "computes"),
    ("op", ANYHOW, "reduction.element"),
    ("op", CHANGED, "reduction.combine"),
    ("op", ANYHOW, "reduction.finish"),
    ("op", CHANGED, "reduction.of"),
)
def op_formula_changed(match: Match) -> str | None:
    """An op has another formula, or a reduction another element, combine or finish.

    The same call may return other numbers. The rule also reports a formula that was only rewritten, because it may
    round differently; say so in the exception.
    """
    if any(other.path == ("reduction", "of") and other.kind != "changed" for other in match.change.differences):
        return None
    names = [value or "the elements themselves" for value in (match.new, match.old)]
    return f"{match.subject} computes {names[0]}, and computed {names[1]}"


@rule(("op", CHANGED, "reduction.identity"))
def op_identity_changed(match: Match) -> str | None:
    """A reduction of no elements returns another value."""
    return f"{match.subject} of nothing is {match.new}, and was {match.old}"


@rule(("op", ANYHOW, "reduction.accumulate"))
def op_accumulation_changed(match: Match) -> str | None:
    """A reduction of floats accumulates in another dtype.

    Results gain or lose digits.
    """
    names = [value or "the compute dtype" for value in (match.new, match.old)]
    return f"{match.subject} accumulates in {names[0]}, and did in {names[1]}"


@rule(("op", CHANGED, "edges.*.value"))
def op_edge_changed(match: Match) -> str | None:
    """An op returns another value at an edge that the spec promises, such as NaN or the sign of zero."""
    return f"{match.subject} gives {match.new} for {match.last}, and gave {match.old}"


@rule(("op", REMOVED, "edges.*.value"))
def op_edge_removed(match: Match) -> str | None:
    """The spec no longer promises what an op returns at an edge, and no test checks it."""
    return f"{match.subject} no longer promises that {match.last} is {match.old}"


@rule(("op", CHANGED, "named"))
def op_operands_changed(match: Match) -> str | None:
    """An op renames or reorders its operands.

    Calls that name an operand fail; calls by position compute something else.
    """
    return f"the operands of {match.subject} are {listed(match.new)}, and were {listed(match.old)}"


@rule(("op", REMOVED, "condition.*"))
def op_condition_dtype_removed(match: Match) -> str | None:
    """The condition of an op, its first operand, no longer accepts a dtype.

    Calls with a condition of this dtype raise UnsupportedDType.
    """
    return f"the condition of {match.subject} may not be {match.last}" if match.loses_dtype() else None


@rule(("op", CHANGED, "is_method"))
def op_call_changed(match: Match) -> str | None:
    """An op becomes a storage method of its own, or a member of the enum that a storage method takes.

    Calls through `Storage` and the enum fail. The tensor method stays.
    """
    how = "a storage method" if match.new else "a member of an enum"
    return f"{match.subject} is {how} now, and calls by Storage differ"


@rule(("op", REMOVED, "reduction.of"), ("op", REMOVED, "reduction.identity"))
def op_reduction_kind_changed(match: Match) -> str | None:
    """A reduction that returned a position returns a value, or the reverse."""
    was = "the position of an element" if match.difference and match.difference.path[-1] == "of" else "a value"
    return f"{match.subject} gives another kind of result; it gave {was}"
