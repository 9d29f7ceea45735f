"""Compiled kernels on disk, so that each is compiled once on a machine."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows: processes may then compile one kernel twice, and leave the same bytes
    fcntl = None  # type: ignore[assignment]

# An entry is this mark, the checksum of the code object, and the code object.
_MARK: Final = b"tallow code 1\n"
_CODE: Final = len(_MARK) + hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Where compiled kernels are kept: $TALLOW_CACHE, or tallow's folder in the user's cache folder.

    None where nobody knows the user's home, as in containers that run under any user's number.
    """
    chosen = os.environ.get("TALLOW_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path("~/.cache").expanduser()) / "tallow"
    except RuntimeError:
        return None


class CodeCache:
    """Code objects by what they were made of. Several processes may use one folder at once; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, made_of: Sequence[str], compile_code: Callable[[], bytes]) -> bytes:
        """The code object made of these texts (source, flags, target, compiler version); compiled where it is missing.

        An entry that was truncated or changed is compiled again. Where the folder cannot be written, nothing is kept.
        """
        if self._folder is None:
            return compile_code()
        lengths = " ".join(str(len(text)) for text in made_of)
        key = hashlib.sha256("\n".join((lengths, *made_of)).encode()).hexdigest()
        entry = self._folder / key[:2] / f"{key}.co"
        code = _read(entry)
        if code is None:
            with _alone(entry.parent):
                code = _read(entry)
                if code is None:
                    code = compile_code()
                    _write(entry, code)
        return code


def _read(entry: Path) -> bytes | None:
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    code = data[_CODE:]
    is_intact = data[:_CODE] == _MARK + hashlib.sha256(code).digest()
    return code if is_intact else None


def _write(entry: Path, code: bytes) -> None:
    # Written aside and renamed: a reader sees the whole entry or none, also where the machine stops in between.
    try:
        handle, temporary = tempfile.mkstemp(dir=entry.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(_MARK + hashlib.sha256(code).digest() + code)
        Path(temporary).replace(entry)
    except OSError:
        Path(temporary).unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time compile for a folder, so that those that wait find what the first one left."""
    with ExitStack() as opened:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            stream = opened.enter_context((folder / "lock").open("wb"))
            if fcntl is not None:
                fcntl.flock(stream, fcntl.LOCK_EX)
        yield
