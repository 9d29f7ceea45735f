"""Rules for the package and its public modules."""

import re

from opgen.comparison.rule import CHANGED, REMOVED, Match, rule

_OLD_BOUND = re.compile(r">= ?3\.(\d+)")


@rule(("package", CHANGED, "name"))
def package_renamed(match: Match) -> str | None:
    """The package has another name. Every import fails."""
    return f"the package is named {match.new}, and was {match.old}"


@rule(("package", CHANGED, "python"))
def python_narrowed(match: Match) -> str | None:
    """The package no longer supports a version of Python."""
    old, new = (str(text).replace(" ", "").split(",") for text in (match.old, match.new))
    bounds = [[int(bound[1]) for text in texts if (bound := _OLD_BOUND.fullmatch(text))] for texts in (old, new)]
    others = [{text for text in texts if not _OLD_BOUND.fullmatch(text)} for texts in (old, new)]
    is_narrower = max(bounds[1], default=0) > max(bounds[0], default=0) or bool(others[1] - others[0])
    return f"the package needs Python {match.new}, and needed {match.old}" if is_narrower else None


@rule(("package", CHANGED, "max_rank"))
def max_rank_lowered(match: Match) -> str | None:
    """Tensors have a lower maximum rank."""
    assert isinstance(match.new, int) and isinstance(match.old, int)
    return f"a tensor has {match.new} dims at most, and had {match.old}" if match.new < match.old else None


@rule(("public module", REMOVED, ""))
def public_module_removed(match: Match) -> str | None:
    """A module that users import is removed."""
    return f"{match.subject} is removed"


@rule(("public module", REMOVED, "names.*"))
def public_name_removed(match: Match) -> str | None:
    """A module that users import loses a name."""
    return f"{match.subject} no longer has '{match.last}'"
