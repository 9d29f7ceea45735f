"""The plot of the largest size, as SVG: a line for each op, a mark for each dtype.

It is written out here, without a plotting library, so that the machine with the GPU needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from .results import ITEM_SIZES, Results, Row, size_text

_LINE = 20
_TOP = 92
_NAMES = 200
_PANEL = 300
_GAP = 44
_WIDTH = _NAMES + 2 * _PANEL + _GAP + 40
_SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1.0)

# A border around each mark keeps marks apart that overlap; shapes tell dtypes apart where colours do not.
_STYLE = """\
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #57606a; }
.head { font-weight: 600; }
.right { text-anchor: end; }
.middle { text-anchor: middle; }
.ground { fill: #fbfbfa; stroke: #d0d7de; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.band { fill: #57606a; fill-opacity: 0.05; }
.one { stroke: #57606a; stroke-width: 1.5; }
.mark { stroke: #fbfbfa; stroke-width: 1; }
.f32 { fill: #2f6fb5; } .f16 { fill: #d9822b; } .bf16 { fill: #2f9a6b; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; }
  .ground { fill: #11161d; stroke: #30363d; } .band { fill: #9198a1; }
  .grid { stroke: #262c34; } .one { stroke: #9198a1; }
  .mark { stroke: #11161d; }
  .f32 { fill: #6cabf2; } .f16 { fill: #f0a95a; } .bf16 { fill: #5cc795; }
}"""


@dataclass(frozen=True)
class _Panel:
    """An axis: where a value is between 0 and 1, and what is written at its ticks."""

    title: str
    left: float
    place: Callable[[float], float]
    ticks: Sequence[float]
    value: Callable[[Row], float | None]

    def x(self, value: float) -> float:
        return self.left + _PANEL * self.place(value)


def draw(results: Results) -> str:
    """The plot, or one with no marks where nothing was measured."""
    largest = max((row.elements for row in results.rows), default=1)
    rows = [row for row in results.rows if row.elements == largest and not row.failure]
    # A dtype may lack some ops, so the order is that of the dtype with the most of them.
    by_dtype = sorted(([row.op for row in rows if row.dtype == dtype] for dtype in ITEM_SIZES), key=len, reverse=True)
    ops = list(dict.fromkeys(op for group in by_dtype for op in group))
    bottom = _TOP + _LINE * len(ops)
    height = bottom + 40
    gpu = results.environment.get("GPU", "")
    panels = _panels(results, rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">tallow beside a copy and PyTorch, {size_text(largest)} elements, {escape(gpu)}</title>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="head" x="20" y="30">{size_text(largest)} elements, {escape(gpu)}</text>',
        *_legend(),
    ]
    for index in range(0, len(ops), 2):
        lines.append(f'<rect class="band" x="12" y="{_TOP + _LINE * index}" width="{_WIDTH - 24}" height="{_LINE}"/>')
    for panel in panels:
        lines += _axis(panel, bottom)
    for index, op in enumerate(ops):
        middle = _TOP + _LINE * (index + 0.5)
        lines.append(f'<text class="right" x="{_NAMES - 14}" y="{middle + 4.5:g}">{escape(op)}</text>')
        for panel in panels:
            lines += [_value_mark(panel, row, middle) for row in rows if row.op == op]
    return "\n".join(line for line in [*lines, "</svg>"] if line) + "\n"


def _panels(results: Results, rows: Sequence[Row]) -> tuple[_Panel, _Panel]:
    most = max([1.1, *(share for row in rows if (share := results.share(row)) is not None)])
    logarithms = [math.log2(ratio) for row in rows if (ratio := row.ratio("torch"))]
    # Whole powers of two around all ratios, and one on each side of 1 at least.
    low, high = math.floor(min([-1, *logarithms])), math.ceil(max([1, *logarithms]))
    return (
        _Panel("share of the copy ceiling", _NAMES, lambda share: share / most, _SHARE_TICKS, results.share),
        _Panel(
            "speed relative to PyTorch",
            _NAMES + _PANEL + _GAP,
            lambda ratio: (math.log2(ratio) - low) / (high - low),
            [2.0**power for power in range(low, high + 1)],
            lambda row: row.ratio("torch"),
        ),
    )


def _axis(panel: _Panel, bottom: float) -> list[str]:
    lines = [f'<text class="head" x="{panel.left:g}" y="{_TOP - 32}">{panel.title}</text>']
    for tick in panel.ticks:
        x = panel.x(tick)
        kind = "one" if tick == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom + 4}"/>')
        for y in (_TOP - 12, bottom + 20):
            lines.append(f'<text class="small middle" x="{x:.1f}" y="{y}">{tick:g}</text>')
    return lines


def _legend() -> list[str]:
    lines = []
    for index, dtype in enumerate(ITEM_SIZES):
        x = _WIDTH - 190 + 62 * index
        lines += [_mark(dtype, x, 26), f'<text x="{x + 10}" y="30">{dtype}</text>']
    return lines


def _value_mark(panel: _Panel, row: Row, y: float) -> str:
    value = panel.value(row)
    if not value:
        return ""
    return _mark(row.dtype, panel.x(value), y, f"{row.op} {row.dtype}: {value:.2f}")


def _mark(dtype: str, x: float, y: float, title: str = "") -> str:
    text = f"<title>{escape(title)}</title>" if title else ""
    kind = f'class="mark {dtype}"'
    match dtype:
        case "f32":
            return f'<circle {kind} cx="{x:.1f}" cy="{y:g}" r="5">{text}</circle>'
        case "f16":
            return f'<rect {kind} x="{x - 4.5:.1f}" y="{y - 4.5:g}" width="9" height="9">{text}</rect>'
        case _:
            return f'<path {kind} d="M{x:.1f} {y - 6:g}l6 6-6 6-6-6z">{text}</path>'
