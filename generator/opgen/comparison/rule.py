"""Rules: when a change of the spec breaks callers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from opgen.comparison.changes import Change, Comparison, Difference
from opgen.comparison.records import ORDER, Keys
from opgen.docstrings import docstring_of

# In a pattern: any one step of a path, which belongs to the name of what breaks; and any steps at all.
_ANY, _REST = "*", "**"


@dataclass(frozen=True)
class Match:
    """A difference that the trigger of a rule matches."""

    comparison: Comparison
    change: Change
    difference: Difference | None  # None if the subject itself is added or removed
    matched: Keys  # the steps of the path that match `*`

    @property
    def name(self) -> str:
        """The name of the subject."""
        return self.change.subject.name

    @property
    def subject(self) -> str:
        """The subject in messages."""
        return f"{self.change.subject.kind} '{self.name}'"

    @property
    def what(self) -> str:
        """The key of an exception: the subject, and the names inside it."""
        return ".".join((self.name, *self.matched))

    @property
    def last(self) -> str:
        """The last name that matched."""
        return self.matched[-1]

    @property
    def old(self) -> object:
        """The old value."""
        return self.difference and self.difference.old

    @property
    def new(self) -> object:
        """The new value."""
        return self.difference and self.difference.new

    def is_changed(self, *path: str) -> bool:
        """Return True if another value of the subject differs, at a path or below it."""
        return any(other.path[: len(path)] == path for other in self.change.differences)

    def loses_dtype(self) -> bool:
        """Return True if the list of dtypes is edited and drops one that the spec still has.

        A dtype that is removed, or leaves a group, breaks callers by itself.
        """
        path = self.difference.path[:-1] if self.difference is not None else ()
        new = self.comparison.new
        is_written = any(other.path == path for other in self.change.differences)
        return is_written and self.last in (*new.groups["all"], *new.sets["blocks"])

    def keeps_tensor_method(self) -> bool:
        """Return True if both specs have the tensor method."""
        return not self.is_changed("has_tensor_method")


Test: TypeAlias = Callable[[Match], str | None]


@dataclass(frozen=True)
class Trigger:
    """The differences that a rule applies to: a kind of subject, kinds of change, and a pattern of paths."""

    subject: str
    kinds: frozenset[str]
    path: Keys

    def matches(self, kind: str, subject: str, path: Keys) -> Keys | None:
        """Return the steps that match `*`; None if the pattern does not match."""
        if kind not in self.kinds or subject != self.subject:
            return None
        pattern = self.path[:-1] if self.path[-1:] == (_REST,) else self.path
        if len(path) < len(pattern) or (len(path) > len(pattern) and self.path[-1:] != (_REST,)):
            return None
        if any(step not in ((_ANY, own) if own != ORDER else (own,)) for step, own in zip(pattern, path, strict=False)):
            return None
        return tuple(own for step, own in zip(pattern, path, strict=False) if step == _ANY)


@dataclass(frozen=True)
class Rule:
    """A rule by which a change breaks callers."""

    name: str
    doc: str
    triggers: tuple[Trigger, ...]
    test: Test


ADDED, CHANGED, REMOVED = (frozenset({kind}) for kind in ("added", "changed", "removed"))
ANYHOW = ADDED | CHANGED | REMOVED


def rule(*triggers: tuple[str, frozenset[str], str]) -> Callable[[Test], Rule]:
    """Return a decorator that makes a rule of a test; a trigger is a kind of subject, kinds of change and a path."""
    parsed = tuple(Trigger(kind, kinds, tuple(filter(None, path.split(".")))) for kind, kinds, path in triggers)
    return lambda test: Rule(test.__name__.upper(), docstring_of(test), parsed, test)


def narrowed(match: Match, noun: str) -> str | None:
    """The message about a type that allows less, or other things."""
    old, new = ({*str(text).split(" | ")} for text in (match.old, match.new))
    if old <= new:
        return None
    return f"{noun} '{match.last}' of {match.subject} is {match.new}, and was {match.old}"


def listed(names: object) -> str:
    """Return names separated by commas."""
    return ", ".join(map(str, names)) if isinstance(names, tuple) else ""
