"""The view of support_table.py: the support matrix, cells that differ in backend, op or dtype alone in one row."""

import re
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace as View

from opgen.matrix import Cell, cells
from opgen.memory import once_for
from opgen.model import Spec
from opgen.problem import Location
from opgen.views.python import LINE_LENGTH, in_triple_quotes


def support_table(spec: Spec) -> View:
    """The matrix."""
    return _table(spec, cells(spec))


@once_for(lambda spec, every: (spec.known_dtypes, spec.formats, *spec.backends, *every), size=1)
def _table(spec: Spec, every: Sequence[Cell]) -> View:
    places: dict[tuple[str, str], dict[Location, None]] = {}
    dtypes_of: dict[tuple[str, tuple[str, str, str | None, str | None]], list[str]] = {}
    for cell in every:
        alike = (cell.backend, cell.status, cell.via and _of_any(cell.method, cell.via), cell.reason)
        dtypes_of.setdefault((cell.name, alike), []).append(cell.dtype or "-")
        places.setdefault((cell.backend, cell.name), {})[cell.source] = None
    ops_of: dict[tuple[str, str, str, str, str], list[str]] = {}
    for (name, (backend, status, via, reason)), dtypes in dtypes_of.items():
        key = (backend, status, _dtypes(spec, dtypes), via or "-", reason or "-")
        ops_of.setdefault(key, []).append(name)
    order = [owner.name for owner in spec.backends]
    backends_of: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for key in sorted(ops_of, key=lambda key: order.index(key[0])):
        backends_of.setdefault((key[1:], tuple(ops_of[key])), []).append(key[0])
    used = {said[1] for said, _ in backends_of}
    rows = []
    for (said, names), backends in backends_of.items():
        head = in_triple_quotes(" | ".join((" ".join(backends), *said)))  # backends | status | dtypes | via | reason
        made_from = dict.fromkeys(place for each in backends for name in names for place in places[each, name])
        rows.append(View(made_from=tuple(made_from), head=head, ops=_lines(names)))
    return View(groups={name: " ".join(members) for name, members in spec.sets.items() if name in used}, rows=rows)


@lru_cache(maxsize=4096)
def _of_any(method: str, via: str) -> str:
    """What is called for a method: a function that is called as the method is said alike of all methods."""
    return re.sub(rf"\.{method}\b", ".~", via)


def _dtypes(spec: Spec, dtypes: list[str]) -> str:
    """The name of the group that has these dtypes, or the dtypes."""
    names = (name for name, members in spec.sets.items() if set(members) == set(dtypes))
    return next(names, " ".join(dtypes))


def _lines(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(textwrap.wrap(" ".join(names), LINE_LENGTH - 4, break_long_words=False, break_on_hyphens=False))
