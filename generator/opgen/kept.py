"""What a process that goes on keeps of the last spec: views, and the texts that they were rendered to.

A view is kept while nothing changes of what its function has looked at in the spec.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from opgen.model import Spec
from opgen.sources import Sources


class _Asked(NamedTuple):
    """What was asked of a spec: an attribute, or a method with what it was given; and the answer."""

    name: str
    given: tuple[object, ...] | None
    answer: object


def _key(name: str, given: tuple[object, ...] | None) -> Hashable:
    """By the identities of what is given, which is kept with them: much of that has no hash."""
    return name if given is None else (name, *map(id, given))


def _answer(spec: Spec, name: str, given: tuple[object, ...] | None) -> object:
    found = getattr(spec, name)
    if given is None:
        return found
    answer = found(*given)
    return tuple(answer) if isinstance(answer, Iterator) else answer


class _Watched(Spec):
    """A spec that notes what it is asked."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        ask = super().__getattribute__("__dict__")["_ask"]
        return (lambda *given: ask(name, given)) if name in _METHODS else ask(name, None)


_METHODS = frozenset(name for name, _ in inspect.getmembers(Spec, inspect.isfunction))


class _View:
    """A view, what it is of, and what its function has asked of the spec."""

    content: object = None
    is_made = False

    def __init__(self, member: object, seen: tuple[_Asked, ...]) -> None:
        self.member, self.seen = member, seen

    def __getstate__(self) -> dict[str, object]:
        # It is large, and nobody asks for it while what it was rendered to is kept.
        return {"member": self.member, "seen": self.seen}


class Memory:
    """The views of the last spec and the texts of its outputs."""

    def __init__(self) -> None:
        self._views: dict[Hashable, _View] = {}
        self._texts: dict[PurePosixPath, tuple[object, Sources, str]] = {}
        # What this spec was asked, and whether it answers as another one did: views ask the same.
        self._spec: Spec | None = None
        self._asked: dict[Hashable, _Asked] = {}
        self._same: dict[int, tuple[_Asked, bool]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**Memory().__dict__, "_views": self._views, "_texts": self._texts}

    def begin(self, spec: Spec) -> None:
        """Keep what is the same in `spec`."""
        self._spec = spec
        self._asked.clear()
        self._same.clear()

    def known(self, key: Hashable, member: object) -> _View | None:
        """What a view is known by, as long as it is the same; None where it is to be made."""
        kept = self._views.get(key)
        return kept if kept is not None and kept.member == member and all(map(self._is_same, kept.seen)) else None

    def view(self, key: Hashable, member: object, make: Callable[[Spec], object]) -> object:
        """The view of a member of the spec, or of the spec itself."""
        known = self.known(key, member)
        if known is None or not known.is_made:
            seen: dict[int, _Asked] = {}

            def ask(name: str, given: tuple[object, ...] | None) -> object:
                asked = self._ask(name, given)
                seen[id(asked)] = asked
                return asked.answer

            watched = object.__new__(_Watched)
            object.__getattribute__(watched, "__dict__")["_ask"] = ask
            content = make(watched)
            if known is None:
                known = self._views[key] = _View(member, tuple(seen.values()))
            known.content, known.is_made = content, True
        return known.content

    def _ask(self, name: str, given: tuple[object, ...] | None) -> _Asked:
        assert self._spec is not None
        key = _key(name, given)
        if key not in self._asked:
            asked = self._asked[key] = _Asked(name, given, _answer(self._spec, name, given))
            self._same[id(asked)] = asked, True
        return self._asked[key]

    def _is_same(self, before: _Asked) -> bool:
        if id(before) not in self._same:
            now = self._ask(before.name, before.given)
            self._same[id(before)] = before, now.answer is before.answer or now.answer == before.answer
        return self._same[id(before)][1]

    def text(self, path: PurePosixPath, known: object, sources: Sources) -> str | None:
        """The text of an output that was rendered from the view that is known so, and from the same templates."""
        kept = self._texts.get(path)
        return kept[2] if kept is not None and kept[0] is known and kept[1] is sources else None

    def keep(self, path: PurePosixPath, known: object, sources: Sources, text: str) -> None:
        """Keep the text of an output."""
        self._texts[path] = (known, sources, text)
