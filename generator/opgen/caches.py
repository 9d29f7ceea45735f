"""The files that a run leaves to the next ones, in a folder of the user's own.

What others could have written is not read, nor what another generator has left.
"""

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Files of projects that were read longest ago are removed.
_MOST_FILES = 32


def read(root: Path, ending: str) -> bytes | None:
    """What the same generator, with the same packages beside it, has left of a project; None where it left nothing."""
    file = _file(root, ending)
    with contextlib.suppress(OSError):
        if file is not None and _is_own(file):
            mark, content = _mark(), file.read_bytes()
            return content[len(mark) :] if content.startswith(mark) else None
    return None


def write(root: Path, ending: str, make: Callable[[], bytes]) -> None:
    """Leave to later runs what `make` gives, where there is a place for it: elsewhere it is not made."""
    from opgen.write import write_atomically

    file = _file(root, ending)
    if file is not None:
        with contextlib.suppress(OSError):
            if not file.exists():
                _remove_old(file.parent)
            write_atomically(file, _mark() + make())


def _file(root: Path, ending: str) -> Path | None:
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
    return folder / f"{name}{ending}"


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
    for file in files[_MOST_FILES - 1 :]:
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
