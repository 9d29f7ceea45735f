"""Plots of the largest size: the speed relative to PyTorch, in a panel for each number of threads."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ..plot import Mark, Panel, ratio_axis
from ..plot import draw as draw_panels
from .results import Results, Row


def draw_all(results: Results) -> dict[str, str]:
    """The plots as SVG by the names that they have next to the page; none where nothing was compared with PyTorch."""
    exponent = max(results.exponents, default=None)
    rows = [row for row in results.rows if row.exponent == exponent and row.to_torch]
    if exponent is None or not rows:
        return {}
    families = list(dict.fromkeys(row.family for row in rows))
    return {
        file_name(results, "-families"): _draw(results, "Geometric means of the speed", families, rows, _family_marks),
        file_name(results): _draw(results, "Speed", results.ops(exponent), rows, _marks),
    }


def file_name(results: Results, what: str = "") -> str:
    """Return the name of a plot next to the page."""
    onednn = "-onednn" if results.machine.has_onednn else ""
    return f"cpu-{results.machine.cores}-cores{onednn}{what}.svg"


def threads_text(threads: int) -> str:
    """The number of threads in words."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _marks(rows: Sequence[Row]) -> list[Mark]:
    return [Mark(row.op, row.dtype, row.to_torch) for row in rows if row.to_torch]


def _family_marks(rows: Sequence[Row]) -> list[Mark]:
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.to_torch:
            groups.setdefault((row.family, row.dtype), []).append(row.to_torch)
    return [Mark(*group, statistics.geometric_mean(ratios)) for group, ratios in groups.items()]


def _draw(
    results: Results, what: str, names: Sequence[str], rows: Sequence[Row], marks: Callable[[Sequence[Row]], list[Mark]]
) -> str:
    threads = list(dict.fromkeys(row.threads for row in rows))
    panels = {count: marks([row for row in rows if row.threads == count]) for count in threads}
    # One axis for all panels, so that they can be compared.
    axis = ratio_axis(mark.value for own in panels.values() for mark in own)
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    heading = f"{what} relative to PyTorch, 2^{rows[0].exponent} elements"
    return draw_panels(
        f"{heading}, {results.title}",
        heading,
        names,
        dtypes,
        [Panel(threads_text(count), axis, own) for count, own in panels.items()],
    )
