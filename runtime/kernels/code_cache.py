"""Compiled kernels on disk, so that each is compiled once on a machine."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from ..helpers.atomic import replacing
from ..helpers.checksum import sha256
from ..helpers.private import open_private, private_folder

try:
    import fcntl
except ImportError:  # Windows: processes may then compile one kernel twice, and leave the same bytes
    fcntl = None  # type: ignore[assignment]

Loaded = TypeVar("Loaded")

# An entry is this mark, the key of the code object's sources, a checksum of the code object, and that itself.
_MARK: Final = b"tallow code 2\n"
_CODE: Final = len(_MARK) + 2 * 32

_HOMELESS: Final = "this user has no home folder"

# The folders of which a warning was raised.
_warned: Final[set[Path | None]] = set()


def cache_folder() -> Path | None:
    """Return the folder of compiled kernels: $TALLOW_CACHE, or tallow's folder in the user's cache folder.

    None where the user has no home folder, as in containers that run under any user's number.
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
    """Code objects by their sources. Processes may use one folder at the same time.

    Code runs with the rights of the user, so an entry is read only if no one else can have written it: the folder and
    those above it belong to the user or root, and others cannot write there. A cache that cannot be used stores
    nothing, and one warning says so. `refuses` says whether an error means that code is refused, which other code may
    not be.
    """

    def __init__(self, folder: Path | None, refuses: Callable[[Exception], bool] = lambda _: False) -> None:
        self._folder = folder
        self._refuses = refuses

    def trouble(self) -> str | None:
        """Return why nothing can be stored, and what to do; None where it can."""
        try:
            if self._folder is not None and os.access(private_folder(self._folder), os.W_OK | os.X_OK):
                return None
            return self._advice(_HOMELESS if self._folder is None else "it is not writable")
        except OSError as error:
            return self._advice(_reason(error))

    def find(self, made_of: Sequence[str]) -> bytes | None:
        """Return the code object of these texts if it is stored."""
        key = _key(made_of)
        folder = self._open(key)
        return None if folder is None else _read(folder / _name(key), key)

    def get(self, made_of: Sequence[str], compile_code: Callable[[], bytes], load: Callable[[bytes], Loaded]) -> Loaded:
        """Load the code object of these texts (source, flags, target, compiler version) by `load`.

        It is compiled where it is missing. An entry that is cut short, changed, of another key or of another user is
        compiled again, and so is a complete entry that `load` refuses.
        """
        key = _key(made_of)
        folder = self._open(key)
        if folder is None:
            return load(compile_code())
        entry = folder / _name(key)
        stored = _read(entry, key)
        if stored is not None:
            try:
                return load(stored)
            except Exception as error:
                if not self._refuses(error):
                    raise
        with self._alone(folder):
            code = _read(entry, key)
            if code is None or code == stored:
                with suppress(OSError):
                    entry.unlink(missing_ok=True)
                code = compile_code()
                self._write(entry, _head(key, code) + code)
        return load(code)

    def put(self, made_of: Sequence[str], code: bytes) -> None:
        """Store an entry, which replaces one that is there."""
        key = _key(made_of)
        folder = self._open(key)
        if folder is not None:
            self._write(folder / _name(key), _head(key, code) + code)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[bool]:
        """Hold the lock of this name during the block; whether no other process does. It does not wait for one."""
        with ExitStack() as opened:
            is_alone = True
            if self._folder is not None and fcntl is not None:
                lock = open_private(private_folder(self._folder) / name, os.O_RDWR | os.O_CREAT)
                opened.callback(os.close, lock)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    is_alone = False
                except OSError:  # where files have no locks, two may work at once
                    pass
            yield is_alone

    def _open(self, key: bytes) -> Path | None:
        """The folder of an entry; None where there is none that only the user can write to."""
        if self._folder is None:
            self._warn(_HOMELESS)
            return None
        try:
            return private_folder(self._folder / key.hex()[:2])
        except OSError as error:
            self._warn(_reason(error))
            return None

    def _write(self, entry: Path, content: bytes) -> None:
        try:
            with replacing(entry, 0o600) as stream:
                stream.write(content)
        except OSError as error:
            self._warn(f"{entry.parent}: {error.strerror}")

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """Let one process at a time compile for a folder, so that those that wait find what the first one left."""
        with ExitStack() as opened:
            try:
                lock = open_private(folder / "lock", os.O_RDWR | os.O_CREAT)
            except OSError as error:
                self._warn(_reason(error))
            else:
                opened.callback(os.close, lock)
                if fcntl is not None:
                    with suppress(OSError):  # where files have no locks, two may compile one kernel
                        fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _warn(self, reason: str) -> None:
        if self._folder not in _warned:
            _warned.add(self._folder)
            warnings.warn(self._advice(reason), RuntimeWarning, stacklevel=2)

    def _advice(self, reason: str) -> str:
        where = "" if self._folder is None else f" in {self._folder}"
        fix = "fix that, or set TALLOW_CACHE to a folder of your own"
        return f"compiled kernels are not stored{where}: {reason}; {fix}"


def _key(made_of: Sequence[str]) -> bytes:
    lengths = " ".join(str(len(text)) for text in made_of)
    return sha256("\n".join((lengths, *made_of)).encode())


def _name(key: bytes) -> str:
    return f"{key.hex()}.co"


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"


def _head(key: bytes, code: bytes) -> bytes:
    return _MARK + key + sha256(code)


def _read(entry: Path, key: bytes) -> bytes | None:
    try:
        with os.fdopen(open_private(entry, os.O_RDONLY), "rb") as stream:
            data = stream.read()
    except OSError:
        return None
    code = data[_CODE:]
    return code if data[:_CODE] == _head(key, code) else None
