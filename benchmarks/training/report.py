"""The page of the documentation, rendered from the results alone: no figure in it is written by hand."""

from __future__ import annotations

from functools import partial

from benchmarks.gpu.table import number
from benchmarks.markdown import markdown
from benchmarks.results import joined, milliseconds, missing

from .results import DECODER, NETWORKS, TALLOW, Results, Row

_milliseconds = partial(milliseconds, digits=3)
_INTRODUCTION = """\
# Training steps

Steps of training, forward, backward and optimiser, on tallow and on PyTorch, in one run that begins with the same
weights, on {gpu}.
"""
_METHOD = """\
All figures on this page come from this command:

{command}

- The decoder is GPT-2's ([networks.py](../benchmarks/training/networks.py)), with AdamW: {sizes}. Parameters are
  updated in their own dtype; tallow keeps the moments of 16-bit parameters in f32, PyTorch in 16 bits.
- The perceptron has layers of 64, 128 and 10, a batch of 64 and f32, with SGD and momentum. Its time is the host's.
- "Wall" is the time from a step's beginning to the end of its work on the device, "host" until the call returns, each
  the median of many steps. "Peak" is the most memory that tensors took at once.
- tallow adds floats in the same order in each run, except with "sums in any order"; PyTorch does not.
- Losses are those of the first step and of step {steps}.
"""
_TITLES = {DECODER: "A decoder of GPT-2's size", NETWORKS[1]: "A small perceptron"}
_HEAD = ["variant", "wall, ms", "of tallow's", "host, ms", "peak, GiB", "first loss", "last loss"]
_COLUMNS = ("wall, ms", "host, ms", "peak, GiB", "first loss", "last loss")
HEAD = f"{'network':<10}  {'variant':<37} {' '.join(f'{column:>10}' for column in _COLUMNS)}"


def page(results: Results) -> str:
    """The page, in Markdown."""
    parts = [
        _INTRODUCTION.format(gpu=results.environment.get("GPU", "a GPU")),
        *[f"**{row.network}, {row.variant} failed**: {row.reason}" for row in results.failures],
    ]
    for network in NETWORKS:
        rows = [row for row in results.rows if row.network == network and row.wall_seconds is not None]
        if rows:
            parts += [f"## {_TITLES[network]}", markdown(_HEAD, [_cells(row, rows) for row in rows])]
    command = f"    {results.environment.get('command', '')}"
    method = _METHOD.format(command=command, sizes=results.sizes, steps=results.steps)
    environment = markdown(["", ""], results.environment.items())
    return joined([*parts, *missing(results.rows), "## How it was measured", method, environment])


def _cells(row: Row, rows: list[Row]) -> list[str]:
    first = next((each.wall_seconds for each in rows if each.variant == TALLOW), None)
    ratio = row.wall_seconds / first if first and row.wall_seconds else None
    return [
        row.variant,
        _milliseconds(row.wall_seconds),
        number(ratio, 2),
        _milliseconds(row.host_seconds),
        _gibibytes(row.peak_bytes),
        number(row.first_loss, 4),
        number(row.last_loss, 4),
    ]


def line(row: Row) -> str:
    """A row in the terminal."""
    name = f"{row.network:<10}  {row.variant:<37}"
    if row.reason:
        return f"{name} {'FAILED ' * row.failed} {row.reason}"
    cells = (
        _milliseconds(row.wall_seconds),
        _milliseconds(row.host_seconds),
        _gibibytes(row.peak_bytes),
        number(row.first_loss, 4),
        number(row.last_loss, 4),
    )
    return f"{name} {' '.join(f'{cell:>10}' for cell in cells)}"


def _gibibytes(count: int | None) -> str:
    return number(None if count is None else count / 2**30, 3)
