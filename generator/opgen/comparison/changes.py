"""The differences between two specs, subject by subject and value by value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opgen.cache import exact
from opgen.comparison.records import ORDER, Keys, Leaf, Record, Subject, records
from opgen.model.spec import Spec
from opgen.problem import Location

Kind: TypeAlias = Literal["added", "changed", "removed"]


@dataclass(frozen=True)
class Difference:
    """One value of a subject that is added, changed or removed."""

    kind: Kind
    path: Keys
    old: object
    new: object
    location: Location  # of the new value; of the old one where it is removed

    @property
    def name(self) -> str:
        """The path to the value, as one word."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Change:
    """A subject that is added, changed or removed."""

    kind: Kind
    subject: Subject
    location: Location  # of the new one; of the old one where it is removed
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Two specs and what differs between them."""

    old: Spec
    new: Spec
    changes: tuple[Change, ...]


def compare(old: Spec, new: Spec) -> Comparison:
    """The differences between two checked specs."""
    before, after = records(old), records(new)
    return Comparison(old, new, tuple(differing(before, after)))


def differing(old: Mapping[Subject, Record], new: Mapping[Subject, Record]) -> Iterator[Change]:
    """Return the differences between the records of two specs."""
    for subject, record in new.items():
        if subject in old:
            differences = tuple(_differences(old[subject].leaves, record.leaves))
            if differences:
                yield Change("changed", subject, record.location, differences)
        elif subject.kind != ORDER:  # of two names where there was one
            yield Change("added", subject, record.location)
    for subject, record in old.items():
        if subject not in new and subject.kind != ORDER:
            yield Change("removed", subject, record.location)


def _differences(old: Mapping[Keys, Leaf], new: Mapping[Keys, Leaf]) -> Iterator[Difference]:
    for path in dict.fromkeys((*new, *old)):
        if path in old and path in new and old[path] is new[path]:
            continue
        if path not in old:
            if path[-1:] != (ORDER,):
                yield Difference("added", path, None, new[path].value, new[path].location)
        elif path not in new:
            if path[-1:] != (ORDER,):
                yield Difference("removed", path, old[path].value, None, old[path].location)
        else:
            before, after = old[path].value, new[path].value
            if path[-1:] == (ORDER,):
                before, after = _common(before, after), _common(after, before)
            if not exact.Comparison().same(before, after):
                yield Difference("changed", path, before, after, new[path].location)


def _common(names: object, others: object) -> tuple[str, ...]:
    """Return the names that both have, whose order is compared; additions and removals are reported themselves."""
    assert isinstance(names, tuple) and isinstance(others, tuple)
    return tuple(name for name in names if name in others)
