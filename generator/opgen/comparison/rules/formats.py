"""Rules for block formats."""

from opgen.comparison.rule import ANYHOW, CHANGED, REMOVED, Match, rule


@rule(("format", REMOVED, ""))
def format_removed(match: Match) -> str | None:
    """A block format is removed. Files with such weights are refused."""
    return f"{match.subject} is removed"


@rule(("format", CHANGED, "number"))
def format_number_changed(match: Match) -> str | None:
    """A block format has another number in files. Existing files are refused, or read as another format."""
    return f"{match.subject} has number {match.new}, and had {match.old}"


@rule(*(("format", ANYHOW, path) for path in ("fields.**", "bytes", "elements", "shared", "quant", "scale", "offset")))
def format_decoding_changed(match: Match) -> str | None:
    """A block format has another layout or decoding. Existing files decode to other weights."""
    name = match.difference.name if match.difference is not None else ""
    return f"{match.subject} decodes otherwise: {name} is {match.new}, and was {match.old}"
