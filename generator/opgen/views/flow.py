"""The view of flow.svg, the picture of how a spec becomes a package and how a call finds its backend."""

from dataclasses import dataclass
from html import escape

from opgen.matrix import Cell, cells
from opgen.model import Backend, Spec

# Where the first backend's row begins, the pixels from row to row, and those of a row.
_TOP, _STEP, _ROW = 208, 38, 30
# How the picture calls what is no library.
_KINDS = {"numpy": "NumPy", "kernel": "kernels"}


@dataclass(frozen=True)
class BackendRow:
    """A backend's storage: what it is called, what does its work, and where that is drawn."""

    storage: str
    words: str
    style: str
    top: int
    baseline: int
    arrow: int


@dataclass(frozen=True)
class FlowView:
    """The picture. Of the coordinates, those that depend on how many backends there are."""

    height: int
    frame: int
    rows: tuple[BackendRow, ...]


def flow(spec: Spec, _: str | None) -> FlowView:
    """The picture, with a row for each backend."""
    every = cells(spec)
    rows = []
    for number, backend in enumerate(spec.backends):
        top = _TOP + number * _STEP
        of_backend = [cell for cell in every if cell.backend == backend.name]
        rows.append(
            BackendRow(
                storage=f"{backend.class_prefix}Storage",
                words=escape(_words(backend, of_backend)),
                style="absent" if backend.runtime is None else "made",
                top=top,
                baseline=top + 20,
                arrow=top + _ROW // 2,
            )
        )
    height = _TOP + len(rows) * _STEP + 12
    return FlowView(height, height - 2, tuple(rows))


def _words(backend: Backend, of_backend: list[Cell]) -> str:
    """What does a backend's work, or that nothing does."""
    vias = [cell.via for cell in of_backend if cell.via is not None]
    if not vias:
        return "unsupported, and says so"
    if backend.runtime is None:
        return "lowered, no runtime yet"
    ways = {tuple(way.split(" ", 1)) for via in vias for way in via.split(" or ")}
    kinds = {kind for kind, _ in ways}
    libraries = sorted(name for kind, name in ways if kind == "library")
    return ", ".join([*(word for kind, word in _KINDS.items() if kind in kinds), *libraries])
