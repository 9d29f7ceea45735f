"""What a run leaves to the next one: all that opgen keeps within a process, in a file of the user's own.

What it holds of files that changed since is found anew, as in a process that goes on.
"""

import copyreg
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opgen import caches, memory
from opgen.kept import Memory
from opgen.loader import Document
from opgen.sources import Sources

_ENDING = ".kept"


@dataclass(frozen=True)
class Recalled:
    """The files of a project as they were, and what was made of them."""

    documents: Mapping[Path, Document] = field(default_factory=dict)
    sources: Sources | None = None
    memory: Memory = field(default_factory=Memory)

    def is_all(self, documents: Mapping[Path, Document], sources: Sources) -> bool:
        """Whether nothing has changed."""
        return sources is self.sources and documents == self.documents


def recall(root: Path) -> Recalled:
    """What the last run has left of a project; nothing where there is no file, or nobody's but the user's may be it."""
    content = caches.read(root, _ENDING)
    if content is None:
        return Recalled()
    recalled, state = pickle.loads(content)
    memory.remember(state)
    found: Recalled = recalled
    return found


def leave(root: Path, recalled: Recalled) -> None:
    """Keep what this run has found for the next one, where there is a place for it."""
    caches.write(root, _ENDING, lambda: _pickled(recalled))


def _pickled(recalled: Recalled) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table | _REDUCED
    pickler.dump((recalled, memory.recalled()))
    return buffer.getvalue()


def _proxy(content: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(content)


# How objects are pickled that cannot be by themselves.
_REDUCED: dict[type, Any] = {MappingProxyType: lambda proxy: (_proxy, (dict(proxy),))}
