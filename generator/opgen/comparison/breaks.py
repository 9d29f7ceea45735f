"""The changes between two specs that break callers, and the exceptions of the new one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opgen.comparison.changes import Change, Comparison, Difference
from opgen.comparison.records import Keys
from opgen.comparison.rule import Match, Rule
from opgen.comparison.rules import RULES
from opgen.problem import Location, Problem, SpecError


@dataclass(frozen=True, order=True)
class Break:
    """A change that breaks callers."""

    location: Location
    rule: str
    what: str
    message: str
    is_gone: bool  # whether the location is one of the old spec
    exception: str | None = None  # the reason why the package breaks them, as the spec says it


class CallersError(SpecError):
    """Changes that break callers without an exception, and exceptions that no change needs."""


def breaks(comparison: Comparison) -> list[Break]:
    """Return the changes that break callers, each with the exception that the new spec makes for it."""
    exceptions = comparison.new.package.breaking
    every: dict[tuple[str, str], Break] = {}
    for change in comparison.changes:
        for rule, difference, matched in _applicable(change):
            match = Match(comparison, change, difference, matched)
            message = rule.test(match)
            if message is None:
                continue
            is_gone = (difference or change).kind == "removed"
            reason, _ = exceptions.get(rule.name, {}).get(match.what, (None, None))
            location = change.location if difference is None else difference.location
            # Callers may not distinguish some values.
            every.setdefault((rule.name, match.what), Break(location, rule.name, match.what, message, is_gone, reason))
    return sorted(every.values())


def unexcused(comparison: Comparison, every: Iterable[Break]) -> Iterator[Problem]:
    """Yield an error for each change that breaks callers without an exception, and for each needless exception."""
    used = {(each.rule, each.what) for each in every}
    for each in every:
        if each.exception is None:
            location = Location(each.location.path) if each.is_gone else each.location
            fix = f"undo it, or write why to 'breaking: {{{each.rule}: {{{each.what}: reason}}}}' of spec/package.yaml"
            yield Problem(location, f"{each.rule}: {each.message}; {fix}")
    for rule, exceptions in comparison.new.package.breaking.items():
        for what, (_, location) in exceptions.items():
            if (rule, what) not in used:
                yield Problem(location, f"nothing breaks callers by {rule} of '{what}'; remove the exception")


def _applicable(change: Change) -> Iterator[tuple[Rule, Difference | None, Keys]]:
    """Yield the rules that apply to a change, with the difference and the steps that match `*`."""
    complete: list[tuple[str, Difference | None, Keys]] = [(change.kind, None, ())]
    differences = [(each.kind, each, each.path) for each in change.differences]
    for kind, difference, path in differences or complete:
        for rule in RULES.values():
            for trigger in rule.triggers:
                matched = trigger.matches(kind, change.subject.kind, path)
                if matched is not None:
                    yield rule, difference, matched
