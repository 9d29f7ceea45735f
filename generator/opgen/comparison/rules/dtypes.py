"""Rules for dtypes."""

from opgen.comparison.rule import ANYHOW, CHANGED, REMOVED, Match, listed, rule


@rule(("dtype", REMOVED, ""))
def dtype_removed(match: Match) -> str | None:
    """A dtype is removed."""
    return f"{match.subject} is removed"


@rule(("dtype", CHANGED, "size"))
def dtype_size_changed(match: Match) -> str | None:
    """A dtype has another size. Files and shared memory are read differently."""
    return f"{match.subject} has {match.new} bytes, and had {match.old}"


@rule(*(("dtype", ANYHOW, path) for path in ("kind", "exponent", "fraction", "bias", "specials")))
def dtype_format_changed(match: Match) -> str | None:
    """The elements of a dtype have another encoding. Files, shared memory and NumPy arrays are read differently."""
    name = match.difference.name if match.difference is not None else ""
    return f"{name} of {match.subject} is {match.new}, and was {match.old}"


@rule(("dtype", CHANGED, "compute"))
def dtype_compute_changed(match: Match) -> str | None:
    """Arithmetic on a dtype uses another dtype. Results gain or lose digits."""
    return f"arithmetic on {match.subject} is done in {match.new}, and was in {match.old}"


@rule(("dtype", ANYHOW, "joined_as"))
def dtype_joined_changed(match: Match) -> str | None:
    """Ranks join the elements of a dtype in another one. Results may be rounded otherwise, or wrap elsewhere."""
    name = match.subject
    return f"ranks join {name} in {match.new or 'the dtype itself'}, and did in {match.old or 'the dtype itself'}"


@rule(("dtype", CHANGED, "may_index"))
def dtype_index_removed(match: Match) -> str | None:
    """A dtype can no longer be an index."""
    return None if match.new else f"{match.subject} can no longer be an index"


@rule(("dtype", ANYHOW, "index_mark"))
def dtype_index_mark_changed(match: Match) -> str | None:
    """Another value of a dtype, or none, means "no row" in an index."""
    if match.is_changed("may_index"):
        return None
    return f"{match.new if match.new is not None else 'no number'} of {match.subject} is no row, and {match.old} was"


@rule(("dtype", CHANGED, "safetensors"))
def dtype_file_name_changed(match: Match) -> str | None:
    """A dtype has another name in safetensors files. Existing files cannot be read."""
    return f"{match.subject} is {match.new} in safetensors files, and was {match.old}"


@rule(("dtype", CHANGED, "promotes_to"))
def dtype_promotion_changed(match: Match) -> str | None:
    """A dtype is promoted to other dtypes. Operations on it and another dtype have other results, or are refused."""
    if not match.old:
        return None
    return f"{match.subject} is promoted to {listed(match.new) or 'nothing'}, and was to {listed(match.old)}"


@rule(("dtype", CHANGED | REMOVED, "yields_to"))
def dtype_yields_changed(match: Match) -> str | None:
    """A dtype yields to other dtypes. Operations on it and another dtype have other results, or are refused."""
    return f"{match.subject} yields to {listed(match.new) or 'nothing'}, and did to {listed(match.old)}"
