"""Where the files of a project are."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

PACKAGE_FILE = Path("spec", "package.yaml")
FOLDERS = ("spec", "templates", "runtime")
"""Those on whose files what is emitted depends."""
# Folders of bytecode, and of git in a submodule.
_SKIPPED = ("__pycache__", ".git")
OUTPUT = "generated"


def root_above(folder: Path) -> Path | None:
    """The project that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / PACKAGE_FILE).is_file()), None)


def walk(top: Path, on_error: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the files below a folder, also through links to folders: their relative paths, with slashes.

    What cannot be read, or leads nowhere or back to a folder that holds it, goes to `on_error`.
    """
    return _walk(os.fspath(top), "", (), on_error)


def _walk(folder: str, inside: str, above: tuple[str, ...], on_error: Callable[[OSError], None]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in above:
        on_error(OSError(errno.ELOOP, "it leads to a folder that holds it", folder))
        return
    try:
        entries = sorted((it for it in os.scandir(folder) if it.name not in _SKIPPED), key=lambda entry: entry.name)
    except OSError as error:
        on_error(error)
        return
    for entry in entries:
        try:
            if entry.is_symlink():
                entry.stat()
            is_folder = entry.is_dir()
        except OSError as error:
            # Editors lock files by hidden links that lead nowhere.
            if not entry.name.startswith("."):
                reason = f"it leads to {Path(entry.path).readlink()}: {error.strerror}"
                on_error(OSError(error.errno, reason, entry.path))
            continue
        if is_folder:
            yield from _walk(entry.path, f"{inside}{entry.name}/", (*above, real), on_error)
        else:
            yield f"{inside}{entry.name}"


TEMPLATES, RUNTIME = PurePosixPath("templates"), PurePosixPath("runtime")
# The rooms of the runtime that the spec refers to: errors, checks, backends, headers of kernels.
BASE, CORE, BACKENDS, HEADERS = (RUNTIME / name for name in ("base", "core", "backends", "kernels"))
# What expressions over arrays may call.
NUMERICS = RUNTIME / "numerics"
