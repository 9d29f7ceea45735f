"""What a process that goes on keeps of the last spec: views, and the texts that they were rendered to.

A view is kept while nothing changes of what its function has looked at in the spec.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from opgen.model import Spec
from opgen.sources import Sources

# What a view has asked of a spec: an attribute, or a method with what it was given; by these, the answers.
_Question: TypeAlias = tuple[str, tuple[object, ...] | None]


class _Watched(Spec):
    """A spec that notes what it is asked."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        known = super().__getattribute__("__dict__")
        if inspect.isfunction(getattr(Spec, name, None)):
            return partial(_asked, known["_spec"], known["_seen"], name)
        value = getattr(known["_spec"], name)
        known["_seen"][_key(name, None)] = ((name, None), value)
        return value


def _asked(spec: Spec, seen: dict[Hashable, tuple[_Question, object]], name: str, *given: object) -> object:
    key = _key(name, given)
    if key not in seen:
        seen[key] = ((name, given), _answer(spec, (name, given)))
    return seen[key][1]


def _key(name: str, given: tuple[object, ...] | None) -> Hashable:
    """By the identities of what is given, which is kept with them: much of that has no hash."""
    return (name, None) if given is None else (name, *map(id, given))


def _answer(spec: Spec, question: _Question) -> object:
    name, given = question
    found = getattr(spec, name)
    if given is None:
        return found
    answer = found(*given)
    return tuple(answer) if isinstance(answer, Iterator) else answer


def _watched(spec: Spec) -> tuple[Spec, dict[Hashable, tuple[_Question, object]]]:
    """A spec that is `spec`, and what is asked of it."""
    watched = object.__new__(_Watched)
    seen: dict[Hashable, tuple[_Question, object]] = {}
    object.__getattribute__(watched, "__dict__").update(_spec=spec, _seen=seen)
    return watched, seen


@dataclass(frozen=True)
class _View:
    seen: dict[Hashable, tuple[_Question, object]]
    member: object
    view: object


class Memory:
    """The views of the last spec and the texts of its outputs."""

    def __init__(self) -> None:
        self._views: dict[Hashable, _View] = {}
        self._texts: dict[PurePosixPath, tuple[object, Sources, str]] = {}
        self._spec: Spec | None = None
        self._same: dict[Hashable, bool] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_views": self._views, "_texts": self._texts, "_spec": None, "_same": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # What was given has other identities now.
        for key, kept in self._views.items():
            asked = ((question[0], question[1], answer) for question, answer in kept.seen.values())
            seen = {_key(name, given): ((name, given), answer) for name, given, answer in asked}
            self._views[key] = _View(seen, kept.member, kept.view)

    def begin(self, spec: Spec) -> None:
        """Keep what is the same in `spec`."""
        self._spec = spec
        self._same.clear()

    def view(self, key: Hashable, member: object, make: Callable[[Spec], object]) -> object:
        """The view of a member of the spec, or of the spec itself."""
        assert self._spec is not None
        kept = self._views.get(key)
        if kept is None or kept.member != member or not all(self._is_same(*it) for it in kept.seen.items()):
            watched, seen = _watched(self._spec)
            kept = self._views[key] = _View(seen, member, make(watched))
        return kept.view

    def _is_same(self, key: Hashable, asked: tuple[_Question, object]) -> bool:
        assert self._spec is not None
        question, before = asked
        # Views that were made of one spec have seen the same objects.
        known = (key, id(before))
        if known not in self._same:
            now = _answer(self._spec, question)
            self._same[known] = now is before or now == before
        return self._same[known]

    def text(self, path: PurePosixPath, view: object, sources: Sources) -> str | None:
        """The text of an output that was rendered from the same view and the same templates."""
        kept = self._texts.get(path)
        return kept[2] if kept is not None and kept[0] is view and kept[1] is sources else None

    def keep(self, path: PurePosixPath, view: object, sources: Sources, text: str) -> None:
        """Keep the text of an output."""
        self._texts[path] = (view, sources, text)
