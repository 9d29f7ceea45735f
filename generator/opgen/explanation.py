"""Facts about a name or a line, with their locations."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opgen.problem import Location

GENERATED = "generated"


@dataclass(frozen=True)
class Fact:
    """One thing that is said: what it is called, what it is, where that stands, and what belongs to it."""

    label: str
    text: str = ""
    location: Location | None = None
    parts: "tuple[Fact, ...]" = ()


def generated(path: PurePosixPath, line: int) -> Location:
    """A line of an output, by its path below the project."""
    return Location(Path(GENERATED, path), line)
