"""Rules for kernels and what they share."""

from opgen.comparison.rule import ANYHOW, CHANGED, REMOVED, Match, rule


@rule(("kernel", REMOVED, ""))
def kernel_removed(match: Match) -> str | None:
    """A kernel pattern is removed. Launches of its kernels fail."""
    return f"{match.subject} is removed"


@rule(("kernel", REMOVED, "kernels.**"))
def kernel_range_narrowed(match: Match) -> str | None:
    """A kernel pattern ranges over fewer ops, dtypes or widths. Launches of the missing kernels fail.

    The rule does not report kernels of an op or a dtype that is removed.
    """
    if match.difference is None or not match.is_changed("over"):
        return None
    return f"{match.subject} no longer makes {match.difference.path[-1]}, and perhaps others"


@rule(("kernel", CHANGED, "arguments"))
def kernel_struct_changed(match: Match) -> str | None:
    """A kernel takes another struct. Launches that pack the old one pass wrong fields."""
    return f"{match.subject} takes {match.new}, and took {match.old}"


@rule(("struct", REMOVED, ""))
def struct_removed(match: Match) -> str | None:
    """A kernel struct is removed, along with the function that packs it."""
    return f"{match.subject} is removed"


@rule(("struct", ANYHOW, "members.**"))
def struct_changed(match: Match) -> str | None:
    """A kernel struct has other fields, or another order of fields.

    Launches that pack the old fields, and kernels compiled before, read wrong values.
    """
    path = match.difference.path if match.difference is not None else ()
    return f"the fields of {match.subject} differ, first in {'.'.join(path[1:])}"


@rule(("constant", REMOVED, ""))
def constant_removed(match: Match) -> str | None:
    """A constant that kernels and launches share is removed. Users' kernels that name it do not compile."""
    return f"{match.subject} is removed"
