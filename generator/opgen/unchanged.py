"""A project that a run found to be up to date: until one of its files changes, the next run has nothing to read.

A file is known to be as it was by its size, its times and its inode, as Git knows it.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opgen import caches

if TYPE_CHECKING:
    from opgen.base import Base

_ENDING = ".unchanged"
# What Python makes beside the sources.
_SKIPPED = "__pycache__"
# Within one tick of the coarsest file system a file may change twice, and not show it: what is younger is not trusted.
_TICK = 2 * 10**9


@dataclass(frozen=True)
class Outputs:
    """How many outputs a project has, and what else a run has to say of one that is up to date."""

    count: int
    remarks: Sequence[str]


def recall(root: Path) -> Outputs | None:
    """What the last run said of a project of which nothing has changed since."""
    content = caches.read(root, _ENDING)
    if content is None:
        return None
    left = json.loads(content)
    if left["base"] is not None:
        # Most projects stand on no package.
        from opgen.base import find_base

        if _identity(find_base(left["base"][0])) != left["base"]:
            return None
    state = _state(left["folders"])
    return Outputs(**left["found"]) if state is not None and state[0] == left["state"] else None


def leave(root: Path, begun: int, folders: Iterable[Path], base: "Base | None", found: Outputs) -> None:
    """Leave what was found of the files in `folders`, which were read after the time `begun` in nanoseconds.

    `base` is the package that the project stands on.
    """
    names = [str(folder.absolute()) for folder in folders]
    state = _state(names)
    # Else what was read may be older than what is there now.
    if state is not None and state[1] < begun - _TICK:
        left = {"folders": names, "base": _identity(base), "state": state[0], "found": asdict(found)}
        caches.write(root, _ENDING, json.dumps(left).encode)


def _identity(base: "Base | None") -> list[str] | None:
    return None if base is None else [base.package, str(base.folder)]


def _state(folders: Iterable[str]) -> tuple[str, int] | None:
    """What tells the files in some folders from others, and when the last of them changed, in nanoseconds.

    None where something cannot be looked at.
    """
    found = hashlib.sha256()
    latest = 0
    try:
        for folder in folders:
            for path, facts, changed in _walk(folder):
                found.update(f"{path!r} {facts}\n".encode())
                latest = max(latest, changed)
    except OSError:
        return None
    return found.hexdigest(), latest


def _walk(folder: str) -> Iterator[tuple[str, object, int]]:
    """What is in a folder: the path and what tells one state from another, and when that changed."""
    top = Path(folder)
    # Python makes bytecode in folders of sources, so that their times tell nothing alone.
    yield folder, top.is_dir(), _changed((top if top.is_dir() else top.parent).stat())
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if top.is_dir() else ():
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _SKIPPED:
                yield from _walk(entry.path)
            continue
        states = [entry.stat(follow_symlinks=False)]
        if entry.is_symlink() and entry.is_file():
            states.append(entry.stat())
        facts = [(it.st_mode, it.st_size, it.st_mtime_ns, it.st_ctime_ns, it.st_ino) for it in states]
        yield entry.path, facts, max(map(_changed, states))


def _changed(state: os.stat_result) -> int:
    return max(state.st_mtime_ns, state.st_ctime_ns)
