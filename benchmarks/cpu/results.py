"""The results of a run, and the file that stores them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

CALLS = 0
"""The exponent of rows of `calls`, whose operands have shapes of their own."""


class Row(NamedTuple):
    """An op with one number of threads, on one dtype and size: medians in seconds, None where there is no call."""

    threads: int
    dtype: str
    exponent: int
    op: str
    tallow: float
    torch: float | None = None
    numpy: float | None = None
    family: str = ""

    @property
    def to_torch(self) -> float | None:
        """How many times as fast as PyTorch tallow is."""
        return self.torch and self.torch / self.tallow

    @property
    def to_numpy(self) -> float | None:
        """How many times as fast as NumPy tallow is."""
        return self.numpy and self.numpy / self.tallow


@dataclass
class Machine:
    """The machine of a run, and the versions of its packages."""

    processor: str
    cores: int
    # By library; None for one that is not there.
    versions: dict[str, str | None]
    # Whether tallow's compiled kernels ran; else NumPy served.
    kernels: bool

    @property
    def has_onednn(self) -> bool:
        """Whether oneDNN took part."""
        return self.versions.get("oneDNN") is not None


@dataclass
class Results:
    """A run."""

    command: str
    machine: Machine
    rows: list[Row] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The key that distinguishes this run from those on other machines, or without oneDNN."""
        onednn = ", with oneDNN" if self.machine.has_onednn else ""
        return f"{self.machine.processor}, {self.machine.cores} cores{onednn}"

    @property
    def exponents(self) -> list[int]:
        """The sizes, as they were measured."""
        return list(dict.fromkeys(row.exponent for row in self.rows if row.exponent != CALLS))

    def ops(self, exponent: int) -> list[str]:
        """The ops of a size in the order of their cases, of which each dtype may lack some."""
        rows = [row for row in self.rows if row.exponent == exponent]
        return _merged([row.op for row in rows if row.dtype == dtype] for dtype in dict.fromkeys(r.dtype for r in rows))

    def write(self, file: Path) -> None:
        """Write the file, at once or not at all."""
        write_text(file, json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `write` wrote."""
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return cls(fields["command"], Machine(**fields["machine"]), [Row(*row) for row in fields["rows"]])


def write_text(file: Path, text: str) -> None:
    """Write a file atomically, so that no one reads half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _merged(lists: Iterable[list[str]]) -> list[str]:
    """Merge lists of names; a name that only a later list has is inserted after the name that it follows there."""
    merged: list[str] = []
    for names in lists:
        position = 0
        for name in names:
            if name in merged:
                position = merged.index(name) + 1
            else:
                merged.insert(position, name)
                position += 1
    return merged
