"""The view of support_table.py: the support matrix, cells that differ in backend, op or dtype alone in one row."""

import re
import textwrap
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain
from types import SimpleNamespace as View

from opgen.cache.memo import memoize
from opgen.matrix import Alike, alike_by_op
from opgen.model.spec import Spec
from opgen.problem import Location
from opgen.views.python import LINE_LENGTH, in_triple_quotes


def support_table(spec: Spec) -> View:
    """The matrix."""
    return _table(spec, alike_by_op(spec))


@memoize(lambda spec, by_op: (spec.known_dtypes, spec.formats, *spec.backends, *by_op), size=1)
def _table(spec: Spec, by_op: Sequence[Sequence[Alike]]) -> View:
    named = {frozenset(members): name for name, members in reversed([*spec.sets.items()])}
    dtypes_of = cache(lambda dtypes: named.get(frozenset(dtypes), " ".join(dtype or "-" for dtype in dtypes)))
    locations: dict[tuple[str, str], dict[Location, None]] = {}
    ops_of: dict[tuple[str, str, str, str, str], list[str]] = {}
    for own in chain.from_iterable(by_op):
        via = _of_any(own.method, own.via) if own.via else "-"
        ops_of.setdefault((own.backend, own.status, dtypes_of(own.dtypes), via, own.reason or "-"), []).append(own.name)
        locations.setdefault((own.backend, own.name), {}).update(
            dict.fromkeys({id(source): source for source in own.sources}.values())
        )
    order = [owner.name for owner in spec.backends]
    backends_of: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for key in sorted(ops_of, key=lambda key: order.index(key[0])):
        backends_of.setdefault((key[1:], tuple(ops_of[key])), []).append(key[0])
    used = {said[1] for said, _ in backends_of}
    rows = []
    for (said, names), backends in backends_of.items():
        head = in_triple_quotes(" | ".join((" ".join(backends), *said)))  # backends | status | dtypes | via | reason
        made_from = dict.fromkeys(location for each in backends for name in names for location in locations[each, name])
        rows.append(View(made_from=tuple(made_from), head=head, ops=_lines(names)))
    return View(groups={name: " ".join(members) for name, members in spec.sets.items() if name in used}, rows=rows)


@lru_cache(maxsize=4096)
def _of_any(method: str, via: str) -> str:
    """Abbreviate a function whose name begins with that of its method, so that all methods share the text."""
    return re.sub(rf"\.{method}(?![a-zA-Z0-9])", ".~", via) if f".{method}" in via else via


def _lines(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(textwrap.wrap(" ".join(names), LINE_LENGTH - 4, break_long_words=False, break_on_hyphens=False))
