"""The page of the documentation, rendered from the results alone: no figure in it is written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.gpu.table import number
from benchmarks.markdown import fold, markdown
from benchmarks.results import cell, joined, milliseconds, missing

from .results import PHASES, TALLOW, VARIANTS, Results, Row

_milliseconds = partial(milliseconds, digits=2)
_INTRODUCTION = """\
# A decoder on a GPU

A decoder of GPT-2's size ([decoder.py](../benchmarks/model/decoder.py): 12 layers, width 768, 12 heads, a vocabulary of
50,257 and a context of 1,152) and the same one in PyTorch, with the same weights, in one run on {gpu}.
"""
_METHOD = """\
All figures on this page come from this command:

{command}

- Prefill reads a prompt of {prompt} tokens and gives the logits of the next one; decode reads the token after it. Keys
  and values are written into a cache in place.
- "Wall" is the time from a call to the end of its work on the GPU, "host" until the call returns, each the median of
  several rounds, in which the variants take turns. "GPU" is the total time of its kernels and copies, "launches" their
  number, as CUPTI reports them.
- "Same ops" is written with elementwise ops, reductions and products alone, the same ones in both. "tallow" and
  PyTorch's "fused ops" have layer_norm, linear and scaled_dot_product_attention. "Compiled" is the latter through
  torch.compile(dynamic=False). In a graph a decode step reads its position from the device; only tallow's attention
  takes it from there, the others read the complete cache and mask what lies beyond.
- Logits are compared with those in f32 before anything is timed. "Difference" is the root of the mean of squares, as a
  share of that of the logits. Wrong results have no times, and are listed at the top.
"""
_CAUSES = """\
- A replay takes longer than its kernels together: between two nodes of a graph the GPU pauses while one ends and the
  next begins, in every variant alike. Only fewer nodes help: norms that add first, products that add a bias, attention
  in one op.
- A decode step has about ten launches a layer, and each of them takes longer to begin and to end than to read its
  weights: reading all of them once would take an eighth of the kernels' time. Norms that add first, products that add
  the bias, a copy into the cache in one launch and attention that combines its splits in its own launch reduce their
  number. gelu remains, which torch.compile fuses into another kernel. Runs differ by a tenth.
- Prefill has as many launches as compiled PyTorch. Its kernels take a little longer; no single kernel is the cause.
"""
_EVERY = "Times of the GPU and of the host, launches and differences"
_HEAD = ["dtype", "batch", "variant", "wall, ms", "of tallow's", "GPU, ms", "launches", "host, ms", "difference"]
HEAD = (
    f"{'phase':<8} {'dtype':<5} {'b':>3}  {'variant':<26} {'wall, ms':>9} {'GPU, ms':>9} {'launches':>9}"
    f" {'host, ms':>9} {'difference':>10}"
)


def page(results: Results) -> str:
    """The page, in Markdown."""
    parts = [_INTRODUCTION.format(gpu=results.environment.get("GPU", "a GPU")), *_failures(results)]
    for phase in PHASES:
        rows = [row for row in results.rows if row.phase == phase and row.wall_seconds is not None]
        if rows:
            tables = [_walls(rows), fold(_EVERY, markdown(_HEAD, [cells(row, results) for row in rows]))]
            parts += [f"## {phase.capitalize()}", "Wall time of each variant in ms:", *tables]
    command = f"    {results.environment.get('command', '')}"
    method = _METHOD.format(command=command, prompt=f"{results.prompt:,}")
    parts += ["## What takes the time", _CAUSES, "## How it was measured", method]
    return joined([*parts, markdown(["", ""], results.environment.items()), *missing(results.rows)])


def _walls(rows: Sequence[Row]) -> str:
    """The wall times of the variants, a line for each dtype and batch."""
    variants = [variant for variant in VARIANTS if any(row.variant == variant for row in rows)]
    times = {(_case(row), row.variant): row.wall_seconds for row in rows}
    cases = dict.fromkeys((_case(row), (row.dtype, str(row.batch))) for row in rows)
    body = [[*names, *(_milliseconds(times.get((case, variant))) for variant in variants)] for case, names in cases]
    return markdown(["dtype", "batch", *variants], body)


def cells(row: Row, results: Results) -> list[str]:
    """A row of the table."""
    first = next((each for each in results.rows if each.variant == TALLOW and _case(each) == _case(row)), None)
    ratio = None
    if first is not None and first.wall_seconds and row.wall_seconds is not None:
        ratio = row.wall_seconds / first.wall_seconds
    return [
        row.dtype,
        str(row.batch),
        row.variant,
        _milliseconds(row.wall_seconds),
        number(ratio, 2),
        _milliseconds(row.gpu_seconds),
        number(row.launches, 0),
        _milliseconds(row.host_seconds),
        number(row.difference, 4),
    ]


def line(row: Row) -> str:
    """A row in the terminal."""
    name = f"{row.phase:<8} {row.dtype:<5} {row.batch:>3}  {row.variant:<26}"
    if row.failed:
        return f"{name} FAILED  {row.reason}"
    return (
        f"{name} {_milliseconds(row.wall_seconds):>9} {_milliseconds(row.gpu_seconds):>9} {number(row.launches, 0):>9}"
        f" {_milliseconds(row.host_seconds):>9} {number(row.difference, 4):>10}  {row.reason}"
    ).rstrip()


def _failures(results: Results) -> list[str]:
    if not results.failures:
        return []
    rows = [[row.phase, row.dtype, str(row.batch), row.variant, cell(row.reason)] for row in results.failures]
    return [f"## **{len(rows)} FAILED**", markdown(["phase", "dtype", "batch", "variant", "what is wrong"], rows)]


def _case(row: Row) -> tuple[str, str, int]:
    return row.phase, row.dtype, row.batch
