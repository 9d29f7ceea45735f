"""What a run leaves to the next one: all that opgen keeps within a process, in a file of the user's own.

It is read by the same generator alone, with the same packages beside it. What it holds of files that changed since is
found anew, as in a process that goes on.
"""

import contextlib
import copyreg
import hashlib
import io
import os
import pickle
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opgen import memory
from opgen.kept import Memory
from opgen.loader import Document
from opgen.sources import Sources
from opgen.write import write_atomically

# Files of projects that were read longest ago are removed.
_MOST_PROJECTS = 16


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
    file = _file(root)
    with contextlib.suppress(OSError):
        if file is not None and _is_own(file):
            content = file.read_bytes()
            mark = _mark()
            if content.startswith(mark):
                recalled, state = pickle.loads(memoryview(content)[len(mark) :])
                memory.remember(state)
                found: Recalled = recalled
                return found
    return Recalled()


def leave(root: Path, recalled: Recalled) -> None:
    """Keep what this run has found for the next one, where there is a place for it."""
    file = _file(root)
    if file is None:
        return
    buffer = io.BytesIO()
    buffer.write(_mark())
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table | _REDUCED
    pickler.dump((recalled, memory.recalled()))
    with contextlib.suppress(OSError):
        if not file.exists():
            _remove_old(file.parent)
        write_atomically(file, buffer.getvalue())


def _proxy(content: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(content)


# How objects are pickled that cannot be by themselves.
_REDUCED: dict[type, Any] = {MappingProxyType: lambda proxy: (_proxy, (dict(proxy),))}


def _file(root: Path) -> Path | None:
    """Where the file of a project is; None where no folder is the user's alone."""
    if not hasattr(os, "getuid"):
        return None
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(caches or Path.home() / ".cache", "opgen")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return None
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    except (OSError, RuntimeError):
        return None
    return folder / name


def _is_own(path: Path) -> bool:
    """Whether nobody else can have written it: what is pickled could do anything."""
    state = path.lstat()
    return (
        state.st_uid == os.getuid()
        and not stat.S_ISLNK(state.st_mode)
        and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _remove_old(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[_MOST_PROJECTS - 1 :]:
        file.unlink(missing_ok=True)


@cache
def _mark() -> bytes:
    """The checksum of the generator's sources, of its Python, and of the names of all distributions beside it."""
    own = Path(__file__).parent
    made_of = hashlib.sha256(sys.version.encode())
    for file in sorted(own.rglob("*.py")):
        made_of.update(f"\0{file.relative_to(own)}\0".encode())
        made_of.update(file.read_bytes())
    for folder in map(Path, sys.path):
        if folder.name in ("site-packages", "dist-packages") and folder.is_dir():
            made_of.update(repr(sorted(file.name for file in folder.glob("*-info"))).encode())
    return made_of.digest()
