"""Stage 6: the tree on disk. Only what changed is written, each file at once or not at all, and orphans go.

Links mount the runtime in the package, and the folders that other projects share. Where links cannot be created, copies
replace them.
"""

import contextlib
import difflib
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opgen.banner import GENERATE, Banner, digest
from opgen.problem import Refusal

if sys.platform != "win32":
    import fcntl

_TEMPORARY = ".opgen-"
# The outputs of Python and `opgen compile` among the sources.
_SKIPPED = ("__pycache__", "build", "code")
# The files of a copy of the runtime when it was written: anything else that the runtime lacks is an edit.
_RECORD = ".opgen-copy"
_EDITED_COPY = "a copy that was edited by hand\n"


class WriteError(Refusal):
    """The output tree cannot be written to."""


@dataclass(frozen=True)
class Mount:
    """Where a folder of the project is in the package."""

    path: PurePosixPath  # below generated/
    source: Path


@dataclass(frozen=True)
class Change:
    """A change to one file that makes the tree the output of the spec. None stands for no file."""

    path: PurePosixPath
    old: str | None
    new: str | None
    mount: Mount | None = None  # of a link to a folder, whose texts say where it leads
    banner: Banner = GENERATE

    @property
    def is_edit_lost(self) -> bool:
        """Whether the change would lose a manual edit."""
        if self.mount is not None:
            return self.old == _EDITED_COPY
        return self.old is not None and self.banner.is_own_work(self.old)

    def diff(self) -> str:
        """The change as a unified diff."""
        old = [] if self.old is None else self.old.splitlines(keepends=True)
        new = [] if self.new is None else self.new.splitlines(keepends=True)
        before = "/dev/null" if self.old is None else f"a/{self.path}"
        after = "/dev/null" if self.new is None else f"b/{self.path}"
        lines = difflib.unified_diff(old, new, before, after)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@contextlib.contextmanager
def locked(output: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Keep every other opgen from writing below `output`, which is created if it is missing.

    Where another one does so already, `wait` is called, and then its end is waited for.
    """
    if sys.platform == "win32":  # where a folder has no descriptor
        yield
        return
    handle = _lock(output, wait)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            output.rmdir()  # if nothing came of it
        os.close(handle)


def _lock(output: Path, wait: Callable[[], None]) -> int:
    """The descriptor of `output`, locked: it lets go of the lock when it is closed, or when opgen is killed."""
    while True:
        try:
            output.mkdir(exist_ok=True)
            handle = os.open(output, os.O_RDONLY | os.O_DIRECTORY)
        except FileExistsError:
            raise WriteError(f"{output} blocks the output; remove it") from None
        except OSError as error:
            raise WriteError(f"{output}: {error.strerror}; nothing was written") from None
        try:
            _wait_for_lock(handle, wait)
            # The holder of the lock may have removed the folder, and others created it anew.
            if os.path.samestat(os.fstat(handle), output.stat()):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait_for_lock(handle: int, wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        wait()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        pass  # some file systems have no locks


def changes(
    texts: Mapping[PurePosixPath, str], output: Path, mounts: Sequence[Mount] = (), banner: Banner = GENERATE
) -> list[Change]:
    """How the tree below `output` differs from `texts`: files to write, and files with the same banner to remove."""
    changed = []
    mounts = [mount for mount in mounts if mount.source.is_dir()]
    for mount in mounts:
        old, new = _mounted(output, mount), f"{_target(output, mount)}\n"
        if old != new:
            changed.append(Change(mount.path, old, new, mount))
    mounted = {mount.path for mount in mounts}
    for folder in {mount.path.parent for mount in mounts}:
        for link in sorted((output / folder).iterdir()) if (output / folder).is_dir() else ():
            path = PurePosixPath(link.relative_to(output).as_posix())
            if link.is_symlink() and path not in mounted and _is_mount(output, link):
                changed.append(Change(path, f"{link.readlink().as_posix()}\n", None, Mount(path, link)))
    real = output.resolve()
    leading = {folder for folder in {path.parent for path in texts} if (output / folder).resolve() != real / folder}
    for path, new in texts.items():
        file = output / path
        # Elsewhere in the tree it would be an orphan, or another output.
        if path.parent in leading or file.is_symlink():
            raise WriteError(f"{file} leads to {file.resolve()}; remove the link")
        old = _read(file)
        if old != new:
            changed.append(Change(path, old, new, banner=banner))
    for file in _files(output):
        path = PurePosixPath(file.relative_to(output).as_posix())
        # A killed run may leave an incomplete copy, which is not an edit; `write` removes it.
        if path not in texts and mounted.isdisjoint((path, *path.parents)) and not _is_temporary(file):
            old = _read(file)
            if old is not None and banner.is_in(old):
                changed.append(Change(path, old, None, banner=banner))
    return sorted(changed, key=lambda change: change.path)


def write(changed: Sequence[Change], output: Path, *, force: bool = False) -> None:
    """Make the changes. A file that was edited by hand stops everything before the first write, unless `force`."""
    edited = [change for change in changed if change.is_edit_lost]
    if edited and not force:
        names = "\n".join(f"  {output / change.path}" for change in edited)
        raise WriteError(f"edited by hand, not overwritten:\n{names}\n{edited[0].banner.fix}")
    for file in _files(output):
        if _is_temporary(file):  # left by a run that was killed
            file.unlink(missing_ok=True)
    for change in changed:
        file = output / change.path
        try:
            if change.mount is not None and change.new is not None:
                _make_mount(output, change.mount)
            elif change.new is None:
                file.unlink(missing_ok=True)
                _remove_empty(file.parent, output)
            else:
                write_atomically(file, change.new.encode())
        except OSError as error:
            raise WriteError(
                f"{file}: {error.strerror}; every file is complete, the old or the new one: "
                f"run '{change.banner.command}' again once that is fixed"
            ) from error


def _is_mount(output: Path, link: Path) -> bool:
    """Return True if a link leads to a sibling of `output`, as those of opgen do."""
    return Path(os.path.normpath(link.parent / link.readlink())).parent == Path(os.path.normpath(output.parent))


def _target(output: Path, mount: Mount) -> str:
    """Return the target of a link to a folder."""
    return Path(os.path.relpath(mount.source, (output / mount.path).parent)).as_posix()


def _mounted(output: Path, mount: Mount) -> str | None:
    """Return the target of the link to the runtime; that of a new link if a copy instead is up to date."""
    link = output / mount.path
    if link.is_symlink():
        return f"{link.readlink().as_posix()}\n"
    if not link.is_dir():
        return _read(link)
    recorded, copies, originals = _recorded(link), _contents(link), _contents(mount.source)
    if any(originals.get(name) != content and recorded.get(name) != content for name, content in copies.items()):
        return _EDITED_COPY
    return f"{_target(output, mount)}\n" if copies == originals else "a copy that is out of date\n"


def _make_mount(output: Path, mount: Mount) -> None:
    link = output / mount.path
    link.parent.mkdir(parents=True, exist_ok=True)
    new, old = temporary_of(link), temporary_of(link.with_name(f"{link.name}.old"))
    for left in (new, old):  # by a run that was killed
        _remove(left)
    try:
        new.symlink_to(_target(output, mount), target_is_directory=True)
    except (OSError, NotImplementedError):
        shutil.copytree(mount.source, new, ignore=shutil.ignore_patterns(*_SKIPPED))
        lines = [f"{content} {name}\n" for name, content in _contents(new).items()]
        (new / _RECORD).write_text("".join(lines), encoding="utf-8")
    # No call replaces a folder with another. A run that is killed here leaves none, and the next creates it.
    if link.is_symlink() or link.exists():
        link.rename(old)
    new.rename(link)
    _remove(old)


def _contents(folder: Path) -> dict[str, str]:
    """A checksum of each file below a folder."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in _files(folder)
        if file.name != _RECORD
    }


def _recorded(copy: Path) -> dict[str, str]:
    """Return the checksums of the files of a copy when it was written."""
    lines = (_read(copy / _RECORD) or "").splitlines()
    return {name: content for content, _, name in (line.partition(" ") for line in lines)}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(file: Path) -> str | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise IsADirectoryError  # or another kind, whose reading may never end
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")  # which git may write at a checkout
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""  # not a text of ours: it counts as edited
    except (IsADirectoryError, NotADirectoryError):
        # Of what should be folders, the first that is none; else the file, which is a folder.
        blocking = next((parent for parent in reversed(file.parents) if not parent.is_dir()), file)
        raise WriteError(f"{blocking} blocks the output; remove it") from None
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> WriteError:
    return WriteError(f"{error.filename} cannot be read: {error.strerror}; nothing was written")


def _files(output: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise _unreadable(error)

    for folder, names, files in os.walk(output, onerror=fail):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.endswith(".egg-info"))
        yield from filter(_is_regular, (Path(folder, name) for name in sorted(files)))


def _is_regular(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:  # a link that leads nowhere
        return False
    except OSError as error:
        raise _unreadable(error) from None


def temporary_of(file: Path) -> Path:
    """Return the temporary file of `file`. The checksum distinguishes it from other files."""
    # No stage reads a file of this ending.
    return file.with_name(f"{_TEMPORARY}{digest(file.name)}-{file.name}.tmp")


def _is_temporary(file: Path) -> bool:
    checksum, _, name = file.name.removeprefix(_TEMPORARY).removesuffix(".tmp").partition("-")
    return file.name.startswith(_TEMPORARY) and checksum == digest(name)


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file at once or not at all. No other opgen may write it at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_of(file)
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as stream:
            stream.write(content)
        temporary.chmod(0o644)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_empty(folder: Path, output: Path) -> None:
    while folder != output and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
