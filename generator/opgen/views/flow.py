"""The view of flow.svg, the picture of how a spec becomes a package and how a call finds its backend."""

from html import escape
from typing import NamedTuple

from opgen.model import Backend, Spec

# Where the first backend's row begins, the pixels from row to row, and those of a row.
_TOP, _STEP, _ROW = 208, 38, 30


class BackendRow(NamedTuple):
    """A backend's storage: what it is called, what does its work, and where that is drawn."""

    storage: str
    words: str
    style: str
    top: int
    baseline: int
    arrow: int


class FlowView(NamedTuple):
    """The picture. Of the coordinates, those that depend on how many backends there are."""

    height: int
    frame: int
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
    height = _TOP + len(rows) * _STEP + 12
    return FlowView(height, height - 2, tuple(rows))


def _words(spec: Spec, backend: Backend) -> str:
    """The package whose ops do a backend's work and the libraries beside it, or that nothing does it."""
    if backend.package is None:
        return "unsupported, and says so"
    return ", ".join([spec.packages[backend.name][-1], *(library.name for library in backend.libraries)])
