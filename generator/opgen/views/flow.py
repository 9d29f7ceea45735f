"""The view of flow.svg, the picture of how a spec becomes a package and how a call finds its backend."""

import math
from html import escape
from typing import NamedTuple

from opgen.model import Backend, Spec

# Where the first backend's row begins, the pixels from row to row, and those of a row.
_TOP, _STEP, _ROW = 208, 38, 30
# Where rows begin, their margin inside, and the least width of the picture with its margin.
_LEFT, _PADDING, _WIDTH, _MARGIN = 464, 14, 880, 24
# A picture is read in whichever font its reader has: no letter of these is wider, on average over a word, in the sizes
# of the template.
_CODE_LETTER, _SMALL_LETTER = 13 * 0.62, 12 * 0.6


class BackendRow(NamedTuple):
    """A backend's storage: what it is called, what does its work, and where that is drawn."""

    storage: str
    words: str
    style: str
    top: int
    baseline: int
    arrow: int


class FlowView(NamedTuple):
    """The picture. Of the coordinates, those that depend on how many backends there are, and on their words."""

    width: int
    height: int
    frame_width: int
    frame_height: int
    line_width: int
    tip: int
    left: int
    row_width: int
    storages: int
    words: int
    rows: tuple[BackendRow, ...]


def flow(spec: Spec, _: str | None) -> FlowView:
    """The picture, with a row for each backend."""
    rows = []
    for number, backend in enumerate(spec.backends):
        top = _TOP + number * _STEP
        rows.append(
            BackendRow(
                storage=f"{backend.class_prefix}Storage",
                words=escape(_words(spec, backend)),
                style="absent" if backend.package is None else "made",
                top=top,
                baseline=top + 20,
                arrow=top + _ROW // 2,
            )
        )
    storages = _LEFT + _PADDING
    words = storages + _PADDING + math.ceil(_CODE_LETTER * max(len(row.storage) for row in rows))
    end = words + _PADDING + math.ceil(_SMALL_LETTER * max(len(row.words) for row in rows))
    width = max(_WIDTH, end + _MARGIN)
    height = _TOP + len(rows) * _STEP + 12
    return FlowView(
        width=width,
        height=height,
        frame_width=width - 2,
        frame_height=height - 2,
        line_width=width - 2 * _MARGIN,
        tip=_LEFT - 2,
        left=_LEFT,
        row_width=width - _MARGIN - _LEFT,
        storages=storages,
        words=words,
        rows=tuple(rows),
    )


def _words(spec: Spec, backend: Backend) -> str:
    """The package whose ops do a backend's work and the libraries beside it, or that nothing does it."""
    if backend.package is None:
        return "unsupported, and says so"
    return ", ".join([spec.packages[backend.name][-1], *(library.name for library in backend.libraries)])
