"""The results of a run, and the file that stores them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

ITEM_SIZES = {"f32": 4, "f16": 2, "bf16": 2}
PEERS = {"torch": "PyTorch", "cupy": "CuPy"}
LIBRARIES = {"tallow": "tallow"} | PEERS
# PyTorch's variant of some ops at the largest size, in tables of its own.
COMPILED = "torch.compile"


@dataclass
class Measurement:
    """One library's call: seconds on the device and to enqueue it on the host, or the reason why there are none."""

    seconds: float | None = None
    host_seconds: float | None = None
    reason: str = ""


@dataclass
class Row:
    """An op on one dtype and size. `nbytes` and `flops` are what the op needs by its meaning, however it is done."""

    family: str
    op: str
    dtype: str
    elements: int
    shape: str
    nbytes: int
    flops: int
    libraries: dict[str, Measurement]
    # Why the row counts for nothing: an error, or a result of tallow or of PyTorch that is wrong.
    failure: str = ""

    @property
    def size(self) -> str:
        """The number of elements as a power of two."""
        return size_text(self.elements)

    @property
    def unit(self) -> str:
        """The unit of `rate`."""
        return "TFLOP/s" if self.flops else "GB/s"

    def rate(self, library: str) -> float | None:
        """GB/s, or TFLOP/s for an op that is bound by arithmetic."""
        seconds = self.libraries[library].seconds
        if seconds is None:
            return None
        return self.flops / seconds / 1e12 if self.flops else self.nbytes / seconds / 1e9

    def ratio(self, peer: str) -> float | None:
        """How many times as fast as the peer tallow is on the device."""
        return _divide(self.libraries[peer].seconds, self.libraries["tallow"].seconds)

    def host_ratio(self, peer: str) -> float | None:
        """How many times as fast as the peer tallow is on the host."""
        return _divide(self.libraries[peer].host_seconds, self.libraries["tallow"].host_seconds)


@dataclass
class Loading:
    """A variant of loading a file: bytes, seconds, and growth of the host's memory in bytes, or why there are none."""

    variant: str
    nbytes: int = 0
    seconds: float | None = None
    host_bytes: int | None = None
    reason: str = ""

    @property
    def rate(self) -> float | None:
        """GB/s."""
        return None if self.seconds is None else self.nbytes / self.seconds / 1e9


@dataclass
class Start:
    """A variant of starting a small program: seconds of the whole process and of its phases, or why there are none."""

    variant: str
    seconds: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass
class Results:
    """A whole run."""

    environment: dict[str, str]
    # By how much was copied, in bytes: GB/s read and written, by who copied.
    ceilings: dict[int, dict[str, float]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    # The first is the copy from pinned memory, which none can beat.
    loading: list[Loading] = field(default_factory=list)
    # Seconds on the host for a launch, by whose kernel it is: tallow's own is the first.
    launches: dict[str, float] = field(default_factory=dict)
    # A small program from its start to its end.
    starts: list[Start] = field(default_factory=list)

    def ceiling(self, row: Row) -> float | None:
        """GB/s of the best copy of as many elements of the row's dtype."""
        rates = self.ceilings.get(row.elements * ITEM_SIZES[row.dtype])
        return max(rates.values()) if rates else None

    def share(self, row: Row, library: str = "tallow") -> float | None:
        """The part of the copy ceiling that a library reaches; None for an op that is bound by arithmetic."""
        return None if row.flops else _divide(row.rate(library), self.ceiling(row))

    @property
    def failures(self) -> list[Row]:
        """The rows that count for nothing."""
        return [row for row in self.rows if row.failure]

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ceilings = {int(nbytes): rates for nbytes, rates in fields["ceilings"].items()}
        rows = [_row(row) for row in fields["rows"]]
        loading, starts = (
            [Loading(**variant) for variant in fields["loading"]],
            [Start(**variant) for variant in fields["starts"]],
        )
        return cls(fields["environment"], ceilings, rows, loading, fields["launches"], starts)


def bytes_text(nbytes: int) -> str:
    """A number of bytes in the largest unit that it is a whole number of."""
    power = min(((nbytes & -nbytes).bit_length() - 1) // 10, 2)
    return f"{nbytes >> 10 * power} {('bytes', 'KiB', 'MiB')[power]}"


def size_text(elements: int) -> str:
    """The number of elements as a power of two, which it is."""
    return f"2^{elements.bit_length() - 1}"


def _row(fields: dict[str, Any]) -> Row:
    libraries = {name: Measurement(**measured) for name, measured in fields.pop("libraries").items()}
    return Row(**fields, libraries=libraries)


def _divide(number: float | None, by: float | None) -> float | None:
    return None if number is None or not by else number / by
