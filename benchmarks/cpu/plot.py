"""The plot of the largest size: the speed relative to PyTorch, in a panel for each number of threads."""

from __future__ import annotations

from ..plot import Mark, Panel, ratio_axis
from ..plot import draw as draw_panels
from .results import Results


def draw(results: Results) -> str | None:
    """The plot as SVG; None where nothing was compared with PyTorch."""
    exponent = max(results.exponents, default=0)
    rows = [row for row in results.rows if row.exponent == exponent and row.to_torch]
    if not rows:
        return None
    # One axis for all panels, so that they can be compared.
    axis = ratio_axis(ratio for row in rows if (ratio := row.to_torch))
    panels = [
        Panel(
            threads_text(threads),
            axis,
            [Mark(row.op, row.dtype, row.to_torch) for row in rows if row.threads == threads and row.to_torch],
        )
        for threads in dict.fromkeys(row.threads for row in rows)
    ]
    ops, dtypes = results.ops(exponent), list(dict.fromkeys(row.dtype for row in rows))
    heading = f"Speed relative to PyTorch, 2^{exponent} elements, {results.title}"
    return draw_panels(heading, heading, ops, dtypes, panels)


def file_name(results: Results) -> str:
    """What the plot is called beside the page."""
    onednn = "-onednn" if results.machine.has_onednn else ""
    return f"cpu-{results.machine.cores}-cores{onednn}.svg"


def threads_text(threads: int) -> str:
    """The number of threads in words."""
    return f"{threads} thread{'s' if threads > 1 else ''}"
