"""Rules for gradients."""

from opgen.comparison.rule import ANYHOW, CHANGED, Match, rule


@rule(*((kind, CHANGED, "is_differentiable") for kind in ("op", "storage method")))
def gradient_removed(match: Match) -> str | None:
    """An op or a method loses its gradient.

    `backward` raises an error if a Var takes part.
    """
    return None if match.new else f"{match.subject} no longer has a gradient"


@rule(
    ("op", ANYHOW, "gradients.*"),
    ("storage method", CHANGED, "gradient.functions.*"),
    ("storage method", CHANGED, "gradient.all"),
)
def gradient_changed(match: Match) -> str | None:
    """A written gradient changes, is added or is removed, while the op computes the same.

    Training steps may return other numbers.
    """
    if match.is_changed("computes") or match.is_changed("is_differentiable"):
        return None
    names = [value or "what follows from the formula" for value in (match.new, match.old)]
    return (
        f"the gradient of {'.'.join(match.matched) or 'operands'} in {match.subject} is {names[0]}, and was {names[1]}"
    )
