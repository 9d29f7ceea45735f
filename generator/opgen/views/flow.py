"""The view of flow.svg, the picture of how a spec becomes a package and how a call finds its backend."""

import math
from html import escape
from types import SimpleNamespace as View

from opgen.model.backends import Backend
from opgen.model.spec import Spec
from opgen.problem import Location

# Where the first backend's row begins, the pixels from row to row, and those of a row.
_TOP, _STEP, _ROW = 208, 38, 30
# Where rows begin, their margin inside, and the least width of the picture with its margin.
_LEFT, _PADDING, _WIDTH, _MARGIN = 464, 14, 880, 24
# A picture is read in whichever font its reader has: no letter of these is wider, on average over a word, in the sizes
# of the template.
_CODE_LETTER, _SMALL_LETTER = 13 * 0.62, 12 * 0.6


def docs_flow(spec: Spec) -> View:
    """The picture, with a row for each backend: what of it depends on how many there are, and on their words."""
    names = [f"{backend.class_prefix}Storage" for backend in spec.backends]
    texts = [escape(_words(spec, backend)) for backend in spec.backends]
    words = _LEFT + 2 * _PADDING + math.ceil(_CODE_LETTER * max(map(len, names)))
    width = max(_WIDTH, words + _PADDING + math.ceil(_SMALL_LETTER * max(map(len, texts))) + _MARGIN)
    height = _TOP + len(names) * _STEP + 12
    rows = []
    for top, backend, name, text in zip(range(_TOP, height, _STEP), spec.backends, names, texts, strict=False):
        style = "absent" if backend.package is None else "made"
        made_from = (Location(backend.path),)
        rows.append(View(made_from=made_from, storage=name, words=text, style=style, top=top, baseline=top + 20,
                         arrow=top + _ROW // 2))  # fmt: skip
    return View(
        width=width,
        height=height,
        frame_width=width - 2,
        frame_height=height - 2,
        line_width=width - 2 * _MARGIN,
        tip=_LEFT - 2,
        left=_LEFT,
        row_width=width - _MARGIN - _LEFT,
        storages=_LEFT + _PADDING,
        words=words,
        rows=rows,
    )


def _words(spec: Spec, backend: Backend) -> str:
    """Return the package whose ops do a backend's work and its libraries, or a note that it has no runtime."""
    if backend.package is None:
        return "unsupported, and says so"
    return ", ".join([spec.packages[backend.name][-1], *(library.name for library in backend.libraries)])
