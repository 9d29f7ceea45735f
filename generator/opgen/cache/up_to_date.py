"""The record that a project is up to date: until one of its files changes, the next run has nothing to read.

A file is known to be unchanged by its size, its times and its inode, as Git knows it. Within one tick of a file
system's clock a file may change twice without a new time. So a record counts once a later run, at least one tick after
it, has read the same files again. No time of a file is compared with the clock of this machine, which may differ.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgen.cache import files

if TYPE_CHECKING:
    from opgen.base import Base

_SUFFIX = ".up_to_date"
# The bytecode of Python.
_SKIPPED = "__pycache__"
# Of the coarsest file system, in nanoseconds.
_TICK = 2 * 10**9


@dataclass(frozen=True)
class Outputs:
    """How many outputs a project has, and what else a run has to say of one that is up to date."""

    count: int
    remarks: Sequence[str]


class Run:
    """A run that looks at a project, from before it reads a file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun = time.monotonic_ns()
        self._record = _load(root)
        self._is_unchanged = self._record is not None and _is_of(self._record)

    @property
    def outputs(self) -> Outputs | None:
        """Return the result of an earlier run if no file has changed since; else None."""
        record = self._record
        return Outputs(**record["outputs"]) if record is not None and self._is_unchanged and record["counts"] else None

    def finish(self, folders: Iterable[Path], base: "Base | None", outputs: Outputs) -> None:
        """Record that a project is up to date, which depends on the files in `folders` and on the package `base`."""
        names = [str(folder.absolute()) for folder in folders]
        state = _state(names)
        if state is None:
            return
        new = {"folders": names, "base": _identity(base), "state": state, "outputs": asdict(outputs)}
        since, counts = time.monotonic_ns(), False
        record = self._record if self._is_unchanged else None
        # The clock begins anew when the machine does.
        if record is not None and record["state"] == state and record["since"] <= self._begun:
            since, counts = record["since"], self._begun - record["since"] >= _TICK
        files.save(self._root, _SUFFIX, json.dumps({**new, "since": since, "counts": counts}).encode)


def _load(root: Path) -> dict[str, Any] | None:
    content = files.load(root, _SUFFIX)
    record: dict[str, Any] | None = None if content is None else json.loads(content)
    return record


def _is_of(record: dict[str, Any]) -> bool:
    """Whether the files of a project are those that are recorded."""
    if record["base"] is not None:
        # Most projects build on no package.
        from opgen.base import find_base

        if _identity(find_base(record["base"][0])) != record["base"]:
            return False
    state: str = record["state"]
    return _state(record["folders"]) == state


def _identity(base: "Base | None") -> list[str] | None:
    return None if base is None else [base.package, str(base.folder)]


def _state(folders: Iterable[str]) -> str | None:
    """A checksum of what the system says of all files in some folders; None where it refuses that."""
    hasher = hashlib.sha256()
    walked: set[tuple[int, int]] = set()
    try:
        for folder in folders:
            for path, facts in _walk(folder, walked):
                hasher.update(f"{path!r} {facts}\n".encode(errors="surrogateescape"))
    except OSError:
        return None
    return hasher.hexdigest()


def _walk(folder: str, walked: set[tuple[int, int]]) -> Iterator[tuple[str, object]]:
    """Yield the files of a folder, also those that its links lead to, with their stamps; each folder once."""
    top = Path(folder)
    # Python makes bytecode in folders of sources, so that their times say nothing.
    yield folder, top.is_dir()
    state = (top if top.is_dir() else top.parent).stat()
    identity = state.st_dev, state.st_ino
    if not top.is_dir() or identity in walked:
        return
    walked.add(identity)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_symlink():
            yield entry.path, _facts(entry.stat(follow_symlinks=False))
        if entry.is_dir():
            if entry.name != _SKIPPED:
                yield from _walk(entry.path, walked)
        elif entry.is_file() or not entry.is_symlink():
            yield entry.path, _facts(entry.stat())


def _facts(state: os.stat_result) -> tuple[int, ...]:
    return state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino
