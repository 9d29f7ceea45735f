"""What a run measured, and the file that holds it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

DECODER, PERCEPTRON = "decoder", "perceptron"
NETWORKS = (DECODER, PERCEPTRON)
# The first is what all others are compared with in the tables.
TALLOW, GRAPH, EAGER, COMPILED = "tallow", "tallow, in a graph", "PyTorch", "PyTorch, compiled"
WAYS = (TALLOW, GRAPH, EAGER, COMPILED)
TORCH_WAYS = (EAGER, COMPILED)


@dataclass
class Row:
    """A network in one way: medians in seconds, or the reason why there are none."""

    network: str
    way: str
    wall_seconds: float | None = None
    # Until the call returns.
    host_seconds: float | None = None
    # The most that tensors held at once.
    peak_bytes: int | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    reason: str = ""
    # Whether the reason is an error: then the whole run counts as failed.
    failed: bool = False


@dataclass
class Results:
    """A whole run; losses are those of the first of so many steps, and of the last."""

    environment: dict[str, str]
    sizes: str
    steps: int
    rows: list[Row] = field(default_factory=list)

    @property
    def failures(self) -> list[Row]:
        """The rows that ended with an error."""
        return [row for row in self.rows if row.failed]

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in found["rows"]]
        return cls(found["environment"], found["sizes"], found["steps"], rows)
