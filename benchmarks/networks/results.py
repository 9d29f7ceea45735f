"""The results of a run, and the file that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from benchmarks.results import Run

TALLOW, FUSED = "tallow", "tallow, fused"
GRAPH, FUSED_GRAPH, ANY_ORDER = "tallow, in a graph", "tallow, fused in a graph", "tallow, any order in a graph"
EAGER, ONNX = "PyTorch", "onnxruntime"
EAGER_GRAPH, COMPILED = "PyTorch, in a graph", "PyTorch, compiled, channels last, in a graph"
TUNED = "PyTorch, cudnn.benchmark, in a graph"
# What each variant of tallow is compared with.
GPU_PEERS = {TALLOW: EAGER, GRAPH: EAGER_GRAPH, FUSED_GRAPH: COMPILED, ANY_ORDER: TUNED}
CPU_PEERS = {TALLOW: EAGER, FUSED: EAGER}
CPU_VARIANTS = (*CPU_PEERS, EAGER, ONNX)
GPU_VARIANTS = (*GPU_PEERS, *GPU_PEERS.values())
GRAPHS = (GRAPH, FUSED_GRAPH, ANY_ORDER, EAGER_GRAPH, COMPILED, TUNED)

INFERENCE, TRAINING = "inference", "training"
BATCHES = {INFERENCE: (1, 8, 64), TRAINING: (32,)}
DTYPES = ("f32", "bf16")


class Task(NamedTuple):
    """A task of a network."""

    network: str
    phase: str
    batch: int
    dtype: str
    # None on a GPU.
    threads: int | None

    def __str__(self) -> str:
        threads = "" if self.threads is None else f", {self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.network}, {self.phase}, batch {self.batch}, {self.dtype}{threads}"


@dataclass
class Row:
    """A variant of a task: median wall time, least processor time, or the reason why there are none."""

    network: str
    phase: str
    batch: int
    dtype: str
    threads: int | None
    variant: str
    wall_seconds: float | None = None
    processor_seconds: float | None = None
    # The largest error of a result relative to its norm, beside PyTorch in f64.
    error: float | None = None
    reason: str = ""
    # Whether the reason is a wrong result or an error: then the whole run counts as failed.
    failed: bool = False

    @property
    def task(self) -> Task:
        """The task."""
        return Task(self.network, self.phase, self.batch, self.dtype, self.threads)


@dataclass
class Results(Run):
    """A whole run."""

    row_class: ClassVar = Row

    title: str = ""
    rows: list[Row] = field(default_factory=list)

    @property
    def peers(self) -> dict[str, str]:
        """By variant of tallow, what it is compared with on the device that was measured."""
        return GPU_PEERS if any(row.threads is None for row in self.rows) else CPU_PEERS

    def find(self, task: Task, variant: str) -> Row | None:
        """The row of a variant of a task."""
        return next((row for row in self.rows if row.task == task and row.variant == variant), None)

    def ratio(self, row: Row, peer: str, *, of_processor: bool = False) -> float | None:
        """A peer's time over that of a row: above 1 tallow is faster."""
        other = self.find(row.task, peer)
        if other is None:
            return None
        name = "processor_seconds" if of_processor else "wall_seconds"
        theirs, ours = getattr(other, name), getattr(row, name)
        return theirs / ours if theirs and ours else None
