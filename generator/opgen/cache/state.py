"""The state that a run saves for the next one: all that opgen memoizes within a process.

What follows from files that changed since is computed again, as in a process that goes on.
"""

import copyreg
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opgen.cache import files, memo
from opgen.cache.views import ViewCache
from opgen.loader import Document
from opgen.sources import Sources

_SUFFIX = ".state"


@dataclass(frozen=True)
class State:
    """The files of a project as they were, and the views of its spec."""

    documents: Mapping[Path, Document] = field(default_factory=dict)
    sources: Sources | None = None
    views: ViewCache = field(default_factory=ViewCache)

    def is_of(self, documents: Mapping[Path, Document], sources: Sources) -> bool:
        """Return True if these are its files."""
        return sources is self.sources and documents == self.documents


def load(root: Path) -> State:
    """Load the state that the last run saved for a project, and memoize its results; empty if there is none."""
    content = files.load(root, _SUFFIX)
    if content is None:
        return State()
    try:
        state, results = pickle.loads(content)
        memo.restore(results)
    except Exception:  # of classes that are not what they were, anything may come
        memo.forget()
        return State()
    return state if isinstance(state, State) else State()


def save(root: Path, state: State) -> None:
    """Save a state, and all that is memoized, for the next run."""
    files.save(root, _SUFFIX, lambda: _pickled(state))


def _pickled(state: State) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table | _REDUCED
    pickler.dump((state, memo.snapshot()))
    return buffer.getvalue()


def _proxy(content: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(content)


# How objects are pickled that cannot be by themselves.
_REDUCED: dict[type, Any] = {MappingProxyType: lambda proxy: (_proxy, (dict(proxy),))}
