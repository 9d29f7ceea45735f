"""The results of a run, and the file that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.results import Run

# The first is what all others are compared with in the tables.
TALLOW, TALLOW_GRAPH = "tallow", "tallow, in a graph"
COMPOSED, COMPOSED_GRAPH = "tallow, same ops", "same ops, in a graph"
SAME_OPS, FUSED = "PyTorch, same ops", "PyTorch, fused ops"
FUSED_GRAPH, COMPILED = "fused, in a CUDA graph", "compiled, in a CUDA graph"
TALLOW_VARIANTS = (TALLOW, TALLOW_GRAPH, COMPOSED, COMPOSED_GRAPH)
GRAPHS = (TALLOW_GRAPH, COMPOSED_GRAPH)
TORCH_GRAPHS = (FUSED_GRAPH, COMPILED)
TORCH_VARIANTS = (SAME_OPS, FUSED, *TORCH_GRAPHS)
VARIANTS = TALLOW_VARIANTS + TORCH_VARIANTS

PHASES = ("prefill", "decode")
# How far logits may be from those in f32, both as the root of the mean of squares. Each op rounds to the dtype.
TOLERANCES = {"f32": 1e-4, "f16": 0.02, "bf16": 0.12}


@dataclass
class Row:
    """A variant of a phase: medians in seconds, or the reason why there are none."""

    phase: str
    variant: str
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
class Results(Run):
    """A whole run: `prompt` tokens are read first, then one more."""

    row_class: ClassVar = Row

    prompt: int = 0
    rows: list[Row] = field(default_factory=list)
