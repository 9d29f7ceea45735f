"""The view of support_table.py: the support matrix, cells that differ in backend, op or dtype alone in one row."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace as View
from typing import TypeAlias

from opgen.matrix import Cell, cells_by_op
from opgen.memory import once_for
from opgen.model import Spec
from opgen.problem import Location
from opgen.views.python import LINE_LENGTH, in_triple_quotes


def support_table(spec: Spec) -> View:
    """The matrix."""
    return _table(spec, cells_by_op(spec))


@once_for(lambda spec, by_op: (spec.known_dtypes, spec.formats, *spec.backends, *by_op), size=1)
def _table(spec: Spec, by_op: Sequence[Sequence[Cell]]) -> View:
    named = {frozenset(members): name for name, members in reversed([*spec.sets.items()])}
    places: dict[tuple[str, str], dict[Location, None]] = {}
    ops_of: dict[tuple[str, str, str, str, str], list[str]] = {}
    for own in by_op:
        for (name, backend, status, via, reason), (dtypes, sources) in _alike(own).items():
            key = (backend, status, named.get(frozenset(dtypes), " ".join(dtypes)), via or "-", reason or "-")
            ops_of.setdefault(key, []).append(name)
            places.setdefault((backend, name), {}).update(sources)
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


_Alike: TypeAlias = tuple[str, str, str, str | None, str | None]


@once_for(lambda cells: (cells,), size=1024)
def _alike(cells: Sequence[Cell]) -> Mapping[_Alike, tuple[Sequence[str], Mapping[Location, None]]]:
    """Cells of an op that differ in dtype alone: their dtypes, and where the spec says so."""
    found: dict[_Alike, tuple[list[str], dict[Location, None]]] = {}
    for cell in cells:
        key = (cell.name, cell.backend, cell.status, cell.via and _of_any(cell.method, cell.via), cell.reason)
        dtypes, sources = found.setdefault(key, ([], {}))
        dtypes.append(cell.dtype or "-")
        sources[cell.source] = None
    return found


@lru_cache(maxsize=4096)
def _of_any(method: str, via: str) -> str:
    """What is called for a method: a function whose name begins as the method is said alike of all methods."""
    return re.sub(rf"\.{method}(?![a-zA-Z0-9])", ".~", via)


def _lines(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(textwrap.wrap(" ".join(names), LINE_LENGTH - 4, break_long_words=False, break_on_hyphens=False))
