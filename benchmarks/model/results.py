"""What a run has measured, and the file that keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

# The first is what all others are compared with in the tables.
TALLOW, TALLOW_GRAPH = "tallow", "tallow, in a graph"
COMPOSED, COMPOSED_GRAPH = "tallow, same ops", "same ops, in a graph"
SAME_OPS, FUSED = "PyTorch, same ops", "PyTorch, fused ops"
FUSED_GRAPH, COMPILED = "fused, in a CUDA graph", "compiled, in a CUDA graph"
TALLOW_WAYS = (TALLOW, TALLOW_GRAPH, COMPOSED, COMPOSED_GRAPH)
GRAPHS = (TALLOW_GRAPH, COMPOSED_GRAPH)
TORCH_GRAPHS = (FUSED_GRAPH, COMPILED)
TORCH_WAYS = (SAME_OPS, FUSED, *TORCH_GRAPHS)
WAYS = TALLOW_WAYS + TORCH_WAYS

PHASES = ("prefill", "decode")
# How far logits may be from those in f32, both as the root of the mean of squares. Each op rounds to the dtype.
TOLERANCES = {"f32": 1e-4, "f16": 0.02, "bf16": 0.12}


@dataclass
class Row:
    """One phase in one way: medians in seconds, or the reason why there are none."""

    phase: str
    way: str
    dtype: str
    batch: int
    wall_seconds: float | None = None
    # Of all kernels and copies together, and how many they are.
    gpu_seconds: float | None = None
    launches: int | None = None
    # Until the call returns.
    host_seconds: float | None = None
    # Of the logits from those in f32, as a share.
    difference: float | None = None
    reason: str = ""
    # Whether the reason is a wrong result or an error: then the whole run counts as failed.
    failed: bool = False


@dataclass
class Results:
    """A whole run: `prompt` tokens are read first, then one more."""

    environment: dict[str, str]
    prompt: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def failures(self) -> list[Row]:
        """The rows whose logits are wrong, or that ended with an error."""
        return [row for row in self.rows if row.failed]

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["environment"], found["prompt"], [Row(**row) for row in found["rows"]])
