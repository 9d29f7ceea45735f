"""The plot of the largest size: the share of the copy ceiling, and the speed relative to PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..plot import Axis, Mark, Panel, ratio_axis
from ..plot import draw as draw_panels
from .results import ITEM_SIZES, Results, Row, size_text

_SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1.0)


def draw(results: Results) -> str:
    """The plot as SVG, or one with no marks where nothing was measured."""
    largest = max((row.elements for row in results.rows), default=1)
    rows = [row for row in results.rows if row.elements == largest and not row.failure]
    # A dtype may lack some ops, so the order is that of the dtype with the most of them.
    by_dtype = sorted(([row.op for row in rows if row.dtype == dtype] for dtype in ITEM_SIZES), key=len, reverse=True)
    ops = list(dict.fromkeys(op for group in by_dtype for op in group))
    shares, ratios = _marks(rows, results.share), _marks(rows, lambda row: row.ratio("torch"))
    most = max([1.1, *(mark.value for mark in shares)])
    panels = [
        Panel("share of the copy ceiling", Axis(lambda share: share / most, _SHARE_TICKS), shares),
        Panel("speed relative to PyTorch", ratio_axis(mark.value for mark in ratios), ratios),
    ]
    heading = f"{size_text(largest)} elements, {results.environment.get('GPU', '')}"
    return draw_panels(f"tallow beside a copy and PyTorch, {heading}", heading, ops, list(ITEM_SIZES), panels)


def _marks(rows: Sequence[Row], value: Callable[[Row], float | None]) -> list[Mark]:
    return [Mark(row.op, row.dtype, found) for row in rows if (found := value(row))]
