"""Plots of the largest size: the share of the copy ceiling, and the speed relative to PyTorch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ..plot import Axis, Mark, Panel, ratio_axis
from ..plot import draw as draw_panels
from .results import ITEM_SIZES, Results, Row, size_text

_SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1.0)
Value = Callable[[Row], float | None]


def draw(results: Results) -> str:
    """The plot of every op as SVG, or one with no marks where nothing was measured."""
    rows = _largest(results)
    # A dtype may lack some ops, so the order is that of the dtype with the most of them.
    by_dtype = sorted(([row.op for row in rows if row.dtype == dtype] for dtype in ITEM_SIZES), key=len, reverse=True)
    ops = list(dict.fromkeys(op for group in by_dtype for op in group))

    def marks(value: Value) -> list[Mark]:
        return [Mark(row.op, row.dtype, number) for row in rows if (number := value(row))]

    return _draw(results, "", ops, marks)


def draw_families(results: Results) -> str:
    """The plot of the geometric means of each family."""
    rows = _largest(results)
    families = list(dict.fromkeys(row.family for row in rows))

    def marks(value: Value) -> list[Mark]:
        marks = []
        for family in families:
            for dtype in ITEM_SIZES:
                own = [value(row) for row in rows if (row.family, row.dtype) == (family, dtype)]
                if known := [ratio for ratio in own if ratio]:
                    marks.append(Mark(family, dtype, statistics.geometric_mean(known)))
        return marks

    return _draw(results, "Geometric means, ", families, marks)


def _largest(results: Results) -> list[Row]:
    largest = max((row.elements for row in results.rows), default=1)
    return [row for row in results.rows if row.elements == largest and not row.failure]


def _draw(results: Results, what: str, names: Sequence[str], marks: Callable[[Value], list[Mark]]) -> str:
    largest = max((row.elements for row in results.rows), default=1)
    shares, ratios = marks(results.share), marks(lambda row: row.ratio("torch"))
    most = max([1.1, *(mark.value for mark in shares)])
    panels = [
        Panel("share of the copy ceiling", Axis(lambda share: share / most, _SHARE_TICKS), shares),
        Panel("speed relative to PyTorch", ratio_axis(mark.value for mark in ratios), ratios),
    ]
    heading = f"{what}{size_text(largest)} elements, {results.environment.get('GPU', '')}"
    return draw_panels(f"tallow beside a copy and PyTorch, {heading}", heading, names, list(ITEM_SIZES), panels)
