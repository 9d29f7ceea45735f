"""Folders and files that only their user, and root, can change or replace."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

try:
    import grp
    import pwd
except ImportError:  # Windows, where the user's folders are the user's alone
    grp = pwd = None  # type: ignore[assignment]

# What keeps `open` from following a link, from waiting for the other end of a pipe, and from changing line ends.
_SAFELY: Final = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))


def private_folder(folder: Path) -> Path:
    """Create the folder, and what is missing above it, with mode 0700; return its path without links.

    Raises PermissionError where another user owns the folder or one above it, or can write there and so replace it: all
    but the entries of their owners in a sticky folder such as /tmp. Raises OSError where it cannot be created.
    """
    folder = Path(os.path.realpath(folder))
    # From the root down, so that each is known to be private before the next one is checked.
    for path in (*reversed(folder.parents), folder):
        try:
            status = path.lstat()
        except FileNotFoundError:
            with suppress(FileExistsError):  # another process may be faster
                path.mkdir(0o700)
            status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(path))
        _require_owned(path, status)
        if path == folder or not status.st_mode & stat.S_ISVTX:
            _require_unshared(path, status)
    return folder


def open_private(file: Path, flags: int) -> int:
    """Open a plain file, created with mode 0600 if `flags` say so; neither follows a link nor waits for a pipe.

    Raises PermissionError where it is no plain file, or another user owns it or can write to it.
    """
    descriptor = os.open(file, flags | _SAFELY, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "it is no plain file; remove it", str(file))
        _require_owned(file, status)
        _require_unshared(file, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_owned(path: Path, status: os.stat_result) -> None:
    if pwd is not None and status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"it belongs to another user, number {status.st_uid}", str(path))


def _require_unshared(path: Path, status: os.stat_result) -> None:
    shared = status.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
    if pwd is not None and (shared & stat.S_IWOTH or (shared and not _is_own_group(status.st_gid))):
        raise PermissionError(errno.EPERM, f"others can write to it; run 'chmod go-w {path}'", str(path))


def _is_own_group(number: int) -> bool:
    """Return True for the group that many systems create for each user, without other members."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}
