"""The views of the last spec, and the texts that were rendered from them.

While a view is built, what its function reads of the spec is recorded. The view is used again as long as another spec
gives exactly the same answers.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from opgen.cache.exact import Comparison
from opgen.model.spec import Spec
from opgen.sources import Sources

_METHODS = frozenset(name for name, _ in inspect.getmembers(Spec, inspect.isfunction))


class _Query(NamedTuple):
    """An attribute of a spec, or a method with its arguments, and the answer."""

    name: str
    arguments: tuple[object, ...] | None
    answer: object


def _key(name: str, arguments: tuple[object, ...] | None) -> Hashable:
    """By identities, as many arguments have no hash; the query holds them."""
    return name if arguments is None else (name, *map(id, arguments))


def _answer(spec: Spec, name: str, arguments: tuple[object, ...] | None) -> object:
    attribute = getattr(spec, name)
    if arguments is None:
        return attribute
    answer = attribute(*arguments)
    return tuple(answer) if isinstance(answer, Iterator) else answer


class _RecordingSpec(Spec):
    """A spec whose queries are recorded."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        ask = super().__getattribute__("__dict__")["_ask"]
        return (lambda *arguments: ask(name, arguments)) if name in _METHODS else ask(name, None)


class _View:
    """A view, the member of the spec that it shows, and the queries of its function."""

    content: object = None
    has_content = False

    def __init__(self, member: object, queries: tuple[_Query, ...]) -> None:
        self.member, self.queries = member, queries

    def __getstate__(self) -> dict[str, object]:
        # The content is large, and not needed while the rendered text is known.
        return {"member": self.member, "queries": self.queries}


class ViewCache:
    """The views of the last spec and the texts of its outputs."""

    def __init__(self) -> None:
        self._views: dict[Hashable, _View] = {}
        self._texts: dict[PurePosixPath, tuple[object, Sources, str]] = {}
        # The queries of this spec, and whether it answers those of another one alike; views share them.
        self._spec: Spec | None = None
        self._queries: dict[Hashable, _Query] = {}
        self._unchanged: dict[int, tuple[_Query, bool]] = {}
        self._comparison = Comparison()

    def __getstate__(self) -> dict[str, object]:
        return {**ViewCache().__dict__, "_views": self._views, "_texts": self._texts}

    def begin(self, spec: Spec) -> None:
        """Start to serve another spec."""
        self._spec = spec
        self._queries.clear()
        self._unchanged.clear()
        self._comparison = Comparison()

    def find(self, key: Hashable, member: object) -> _View | None:
        """Return the identity of a view as long as it is unchanged; None if it has to be computed."""
        view = self._views.get(key)
        is_valid = view is not None and self._comparison.same(view.member, member)
        return view if view is not None and is_valid and all(map(self._is_unchanged, view.queries)) else None

    def view(self, key: Hashable, member: object, make: Callable[[Spec], object]) -> object:
        """The view of a member of the spec, or of the spec itself."""
        view = self.find(key, member)
        if view is None or not view.has_content:
            queries: dict[int, _Query] = {}

            def ask(name: str, arguments: tuple[object, ...] | None) -> object:
                query = self._ask(name, arguments)
                queries[id(query)] = query
                return query.answer

            recording = object.__new__(_RecordingSpec)
            object.__getattribute__(recording, "__dict__")["_ask"] = ask
            content = make(recording)
            if view is None:
                view = self._views[key] = _View(member, tuple(queries.values()))
            view.content, view.has_content = content, True
        return view.content

    def _ask(self, name: str, arguments: tuple[object, ...] | None) -> _Query:
        assert self._spec is not None
        key = _key(name, arguments)
        if key not in self._queries:
            query = self._queries[key] = _Query(name, arguments, _answer(self._spec, name, arguments))
            self._unchanged[id(query)] = query, True
        return self._queries[key]

    def _is_unchanged(self, query: _Query) -> bool:
        if id(query) not in self._unchanged:
            answer = self._ask(query.name, query.arguments).answer
            self._unchanged[id(query)] = query, self._comparison.same(answer, query.answer)
        return self._unchanged[id(query)][1]

    def text(self, path: PurePosixPath, view: object, sources: Sources) -> str | None:
        """The text of an output, if it was rendered from this view and the same templates."""
        entry = self._texts.get(path)
        return entry[2] if entry is not None and entry[0] is view and entry[1] is sources else None

    def put(self, path: PurePosixPath, view: object, sources: Sources, text: str) -> None:
        """Store the text of an output."""
        self._texts[path] = (view, sources, text)
