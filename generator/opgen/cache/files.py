"""Files that a run saves for the next ones, in a folder of the user's own.

A file that others could have written is not read, nor one of another generator. What is wrong with a file is never an
error: it is as if there were none.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

# The files of projects that were saved longest ago are removed.
_MAX_FILES = 32
_DIGEST = hashlib.sha256
_DIGEST_SIZE = _DIGEST().digest_size


def load(root: Path, suffix: str) -> bytes | None:
    """Return what the same generator with the same packages saved for a project; None if there is nothing."""
    file = _file(root, suffix)
    with contextlib.suppress(OSError):
        if file is not None and _is_own(file):
            header, content = _generator(), file.read_bytes()
            body = content[len(header) + _DIGEST_SIZE :]
            # An incomplete file may be read as something else.
            return body if content.startswith(header + _DIGEST(body).digest()) else None
    return None


def save(root: Path, suffix: str, make: Callable[[], bytes]) -> None:
    """Save the output of `make`, which is not called if there is no folder for it."""
    file = _file(root, suffix)
    if file is None:
        return
    # Of a formula that is nested too deep nothing can be pickled.
    with contextlib.suppress(OSError, RecursionError):
        if not file.exists():
            _remove_oldest(file.parent)
        body = make()
        _replace(file, _generator() + _DIGEST(body).digest() + body)


def _replace(file: Path, content: bytes) -> None:
    """Write a file at once or not at all, whoever else does so at the same time."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise


def _file(root: Path, suffix: str) -> Path | None:
    """Where a file of a project is; None where no folder is the user's alone."""
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
    return folder / f"{name}{suffix}"


def _is_own(path: Path) -> bool:
    """Return True if no other user can have written the file: a pickle may run any code."""
    state = path.lstat()
    return (
        state.st_uid == os.getuid()
        and not stat.S_ISLNK(state.st_mode)
        and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[_MAX_FILES - 1 :]:
        file.unlink(missing_ok=True)


@cache
def _generator() -> bytes:
    """Return a checksum of the generator's sources, of its Python, and of the names of all installed distributions."""
    package = Path(__file__).parent.parent
    hasher = hashlib.sha256(sys.version.encode())
    for file in sorted(package.rglob("*.py")):
        hasher.update(f"\0{file.relative_to(package)}\0".encode())
        hasher.update(file.read_bytes())
    for folder in map(Path, sys.path):
        if folder.name in ("site-packages", "dist-packages") and folder.is_dir():
            hasher.update(repr(sorted(file.name for file in folder.glob("*-info"))).encode())
    return hasher.digest()
