"""The common parts of results of runs against PyTorch: a file, and a page of the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from benchmarks.gpu.table import number
from benchmarks.markdown import markdown


class Variant(Protocol):
    """A row of a run: the measurements of one variant, or the reason why there are none."""

    variant: str
    reason: str
    # Whether the reason is a wrong result or an error: then the run counts as failed.
    failed: bool


@dataclass
class Run:
    """A run. Its dataclass has `rows`, of the class that it names."""

    row_class: ClassVar[type[Any]]

    environment: dict[str, str]

    @property
    def failures(self) -> list[Any]:
        """The rows that are wrong, or that ended with an error."""
        return [row for row in self._rows if row.failed]

    @property
    def _rows(self) -> list[Any]:
        rows: list[Any] = vars(self)["rows"]
        return rows

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(**fields | {"rows": [cls.row_class(**row) for row in fields["rows"]]})


def write_page(path: Path, text: str) -> None:
    """Write a page of the documentation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def joined(parts: Iterable[str]) -> str:
    """A page of its parts."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def missing(rows: Iterable[Variant]) -> list[str]:
    """The part of a page that says what could not be measured, and why."""
    reasons = {(row.variant, row.reason): None for row in rows if row.reason and not row.failed}
    body = [[variant, cell(reason)] for variant, reason in reasons]
    return ["## What is missing", markdown(["variant", "reason"], body)] if body else []


def cell(text: str) -> str:
    """A text in a table."""
    return text.replace("|", "\\|")


def milliseconds(seconds: float | None, digits: int) -> str:
    """Seconds as milliseconds."""
    return number(None if seconds is None else 1e3 * seconds, digits)
