"""A plot of ops as SVG: a line for each op, a panel for each measure, a mark for each dtype.

It is written out here, without a plotting library, so that the machine that is measured needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 884
_LINE = 24
# Each dtype has its own height in the line of an op, so that no mark hides another.
_LANE = 7
_TOP = 92
_NARROWEST_PANEL = 180
_GAP = 44
_MARGIN = 40
_LEGEND = 62
# A page is read in whichever font its reader has: no letter of these is wider, on average over a word.
_LETTER = 0.6
_BOLD_LETTER = 0.68
_SIZE = 13

# A border around each mark keeps marks apart that overlap; shapes tell dtypes apart where colours do not.
_STYLE = """\
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
.small { font-size: 12px; fill: #57606a; }
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
class Mark:
    """The measurements of an op in a dtype."""

    op: str
    dtype: str
    value: float


@dataclass(frozen=True)
class Axis:
    """Where a value is between 0 and 1, and the values that have a line."""

    fraction: Callable[[float], float]
    ticks: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """The marks of one measure on their axis."""

    title: str
    axis: Axis
    marks: Sequence[Mark]


def ratio_axis(ratios: Iterable[float]) -> Axis:
    """A logarithmic axis with whole powers of two around all ratios, and one on each side of 1 at least."""
    logarithms = [math.log2(ratio) for ratio in ratios]
    low, high = math.floor(min([-1, *logarithms])), math.ceil(max([1, *logarithms]))
    # More than six numbers would run into each other.
    step = 1 + (high - low) // 6
    ticks = [2.0**power for power in range(low, high + 1) if power % step == 0]
    return Axis(lambda ratio: (math.log2(ratio) - low) / (high - low), ticks)


def draw(title: str, heading: str, ops: Sequence[str], dtypes: Sequence[str], panels: Sequence[Panel]) -> str:
    """The plot of the ops in this order. `title` is what a reader of the page hears, `heading` stands at the top."""
    bottom = _TOP + _LINE * len(ops)
    height = bottom + 40
    names = math.ceil(_MARGIN + _SIZE * _LETTER * max(map(len, ops), default=0))
    gaps = (len(panels) - 1) * _GAP
    panel_width = max(_NARROWEST_PANEL, (_WIDTH - names - gaps - _MARGIN) // len(panels))
    width = max(
        names + len(panels) * panel_width + gaps + _MARGIN,
        math.ceil(_MARGIN + _SIZE * _BOLD_LETTER * len(heading)) + _LEGEND * len(dtypes),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="head" x="20" y="30">{escape(heading)}</text>',
        *_legend(dtypes, width),
    ]
    for index in range(0, len(ops), 2):
        lines.append(f'<rect class="band" x="12" y="{_TOP + _LINE * index}" width="{width - 24}" height="{_LINE}"/>')
    placed = [(names + index * (panel_width + _GAP), panel) for index, panel in enumerate(panels)]
    for left, panel in placed:
        lines += _axis(panel, left, panel_width, bottom)
    for index, op in enumerate(ops):
        middle = _TOP + _LINE * (index + 0.5)
        lines.append(f'<text class="right" x="{names - 14}" y="{middle + 4.5:g}">{escape(op)}</text>')
        for left, panel in placed:
            for mark in panel.marks:
                if mark.op == op:
                    x = left + panel_width * panel.axis.fraction(mark.value)
                    y = middle + _LANE * (dtypes.index(mark.dtype) - (len(dtypes) - 1) / 2)
                    lines.append(_shape(mark.dtype, x, y, f"{op} {mark.dtype}: {mark.value:.2f}"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _axis(panel: Panel, left: float, width: float, bottom: float) -> list[str]:
    lines = [f'<text class="head" x="{left:g}" y="{_TOP - 32}">{escape(panel.title)}</text>']
    for tick in panel.axis.ticks:
        x = left + width * panel.axis.fraction(tick)
        kind = "one" if tick == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom + 4}"/>')
        for y in (_TOP - 12, bottom + 20):
            lines.append(f'<text class="small middle" x="{x:.1f}" y="{y}">{tick:g}</text>')
    return lines


def _legend(dtypes: Sequence[str], width: float) -> list[str]:
    lines = []
    for index, dtype in enumerate(dtypes):
        x = width - 4 - _LEGEND * (len(dtypes) - index)
        lines += [_shape(dtype, x, 26), f'<text x="{x + 10}" y="30">{dtype}</text>']
    return lines


def _shape(dtype: str, x: float, y: float, title: str = "") -> str:
    text = f"<title>{escape(title)}</title>" if title else ""
    kind = f'class="mark {dtype}"'
    match dtype:
        case "f32":
            return f'<circle {kind} cx="{x:.1f}" cy="{y:g}" r="3.5">{text}</circle>'
        case "f16":
            return f'<rect {kind} x="{x - 3.5:.1f}" y="{y - 3.5:g}" width="7" height="7">{text}</rect>'
        case _:
            return f'<path {kind} d="M{x:.1f} {y - 4.5:g}l4.5 4.5-4.5 4.5-4.5-4.5z">{text}</path>'
