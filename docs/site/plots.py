"""Plots of elementwise ops and their derivatives, as SVG that takes the colours of its page."""

import io
import re
from collections.abc import Iterator, Mapping

import matplotlib as mpl
import numpy as np
import tallow as tl
from matplotlib.figure import Figure
from numpy.typing import NDArray
from opgen.model.functors import Functor
from opgen.model.spec import Spec
from opgen.scopes import is_differentiable

Points = NDArray[np.float64]
# Both are at least 3:1 on a white and on a dark page.
_COLOURS = ("#3b82f6", "#d97706", "#8b5cf6")
_SPAN, _HEIGHT, _COUNT = 4.0, 4.5, 1601
# What the second operand of a binary op is.
_OTHER = 1.5
# From one point to the next a curve that is drawn rises less.
_JUMP = 0.4


def plotted(spec: Spec) -> Iterator[Functor]:
    """The ops of one or two real numbers that are tensor methods and give numbers."""
    for functor in spec.every_functor:
        is_method = functor.kind in ("unary", "binary") and functor.has_front
        if is_method and functor.result is None and "f64" in spec.resolve(functor.dtypes):
            yield functor


def curves(spec: Spec, functor: Functor, parameters: Mapping[str, float]) -> dict[str, tuple[Points, Points]]:
    """The points of an op and of its derivatives, computed by tallow in f64 on the CPU, by what they are called."""
    # No point is at an integer, where many ops jump.
    x = np.linspace(-_SPAN, _SPAN, _COUNT) + 1e-4
    own = [tl.Var(tl.Tensor(x, "f64")), tl.Var(tl.Tensor(np.full_like(x, _OTHER), "f64"))][: len(functor.operands)]
    numbers = [*{**functor.parameters, **parameters}.values()]
    result = getattr(own[0], functor.name)(*own[1:], *numbers)
    y = result.numpy()
    others = [f"{number:g}" for number in (*[_OTHER] * (len(own) - 1), *numbers)]
    points = {f"{functor.name}({', '.join(['x', *others])})": (x, y)}
    if is_differentiable(spec, functor):
        gradients = result.sum().backward()
        for operand, variable in zip(functor.operands, own, strict=False):
            gradient = gradients.get(variable)
            slope = np.zeros_like(x) if gradient is None else gradient.numpy()
            # Where the op has no value, neither has its derivative.
            points[f"its derivative by {operand}"] = (x, np.where(np.isnan(y), np.nan, slope))
    return points


def picture(functor: Functor, curves: Mapping[str, tuple[Points, Points]]) -> str:
    """The curves as an SVG element; the same curves give the same text."""
    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": functor.name, "font.family": "sans-serif", "font.size": 12}
    ):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for colour, (name, (x, y)) in zip(_COLOURS, curves.items(), strict=False):
            axes.plot(
                x, _broken(y), color=colour, label=name, linewidth=2, dashes=[] if colour == _COLOURS[0] else [5, 2]
            )
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -_HEIGHT), min(high, _HEIGHT))
        axes.set_xlim(-_SPAN, _SPAN)
        axes.set_xlabel("x")
        axes.grid(alpha=0.2, color="black")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()[text.getvalue().index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Texts, ticks and axes are black, which is what matplotlib leaves out of texts.
    svg = re.sub(r"#000000", "currentColor", svg).replace("<text ", '<text fill="currentColor" ')
    # It is as wide as its page allows.
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", f'<svg class="plot" role="img" aria-label="{functor.name} and its derivatives" ', 1)


def _broken(y: Points) -> Points:
    """The values with a gap wherever a line would not be part of the curve."""
    y = np.where(np.isfinite(y) & (np.abs(y) < 4 * _HEIGHT), y, np.nan)
    jumps = np.flatnonzero(np.abs(np.diff(y)) > _JUMP)
    y[jumps] = np.nan
    return y
