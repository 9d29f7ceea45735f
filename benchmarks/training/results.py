"""The results of a run, and the file that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.results import Run

DECODER, PERCEPTRON = "decoder", "perceptron"
NETWORKS = (DECODER, PERCEPTRON)
# The first is what all others are compared with in the tables.
TALLOW, GRAPH, EAGER, COMPILED = "tallow", "tallow, in a graph", "PyTorch", "PyTorch, compiled"
# As PyTorch adds floats.
ANY_ORDER = "tallow, in a graph, sums in any order"
VARIANTS = (TALLOW, GRAPH, ANY_ORDER, EAGER, COMPILED)
GRAPHS = (GRAPH, ANY_ORDER)
TORCH_VARIANTS = (EAGER, COMPILED)


@dataclass
class Row:
    """A variant of a network: medians in seconds, or the reason why there are none."""

    network: str
    variant: str
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
class Results(Run):
    """A whole run; losses are those of the first of so many steps, and of the last."""

    row_class: ClassVar = Row

    sizes: str = ""
    steps: int = 0
    rows: list[Row] = field(default_factory=list)
