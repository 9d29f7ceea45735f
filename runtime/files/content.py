"""The bytes of files that tensors are read from and written to, in whichever format."""

from __future__ import annotations

import errno
import os
import stat
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, TypeVar

import numpy as np

from ...dtype import Array
from ..base.error import FileError, FileFormatError, InvalidArgument, MissingFile, MissingTensor, describe
from ..core.layout import Layout
from ..helpers.atomic import replacing
from ..helpers.closing import Closing

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A file: its path, or its bytes."""

# What to do where the system refuses.
_CHOOSE_ANOTHER: Final = "choose another path"
_ADVICE: Final = {
    errno.EISDIR: "give the path of a file",
    errno.ENOSPC: "free space on the disk, or choose another one",
    errno.EDQUOT: "free space on the disk, or choose another one",
}
# The number of bytes read at once of elements that are not contiguous, between the first and the last.
_LARGEST_SPAN: Final = 1 << 16

T = TypeVar("T")


class Content:
    """The bytes of one file, which several threads may read at once."""

    def __init__(self, operation: str, name: str, size: int) -> None:
        self.operation = operation
        self.name = name
        """The file's name in errors."""
        self.size = size

    @abstractmethod
    def read_into(self, target: memoryview, begin: int) -> None:
        """Fill `target` with the bytes from `begin` on."""

    def read_strided(self, begin: int, layout: Layout, itemsize: int) -> Array:
        """Read the elements of a layout without negative strides, whose storage begins at a byte, as bytes of rows."""
        elements = np.empty((*layout.shape, itemsize), np.uint8)
        strides = *(stride * itemsize for stride in layout.strides), 1
        if elements.size:
            self._read_strided(elements, begin + layout.start_offset * itemsize, strides)
        return elements

    def _read_strided(self, target: Array, begin: int, strides: tuple[int, ...]) -> None:
        """Fill an array whose elements lie with strides in the file, by pieces between the first and the last."""
        span = 1 + sum((size - 1) * stride for size, stride in zip(target.shape, strides, strict=True))
        if span == target.size:
            self.read_into(target.reshape(-1).data, begin)
        elif span <= _LARGEST_SPAN:
            piece = np.empty(span, np.uint8)
            self.read_into(piece.data, begin)
            target[...] = np.ndarray(target.shape, np.uint8, piece, 0, strides)
        else:
            # As many rows at once as lie in a piece, else one, which has a dim less.
            rows = _LARGEST_SPAN // max(strides[0], 1)
            for first in range(0, len(target), max(rows, 1)):
                offset = begin + first * strides[0]
                if rows > 1:
                    self._read_strided(target[first : first + rows], offset, strides)
                else:
                    self._read_strided(target[first], offset, strides[1:])

    def close(self) -> None:
        """Give up what holds the bytes, as soon as nothing reads them."""

    def require_open(self) -> None:
        """Raise InvalidArgument after `close`."""

    def refused(self, reason: str) -> FileFormatError:
        """The error that the file is wrong."""
        return FileFormatError(self.operation, f"{self.name}: {reason}")


class TensorFile(Closing, Mapping[str, T]):
    """The contents of one or several files, by name. Closed by `close` or at the end of a `with` block."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._contents: list[Content] = []
        self._tensors: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        """Return the tensor of a name; MissingTensor where there is none."""
        try:
            return self._tensors[name]
        except (KeyError, TypeError):
            raise MissingTensor.among(self._operation, name, self._tensors) from None

    def __contains__(self, name: object) -> bool:
        # Mapping's own asks for the tensor, and an error looks for names that are like the one that is missing.
        return isinstance(name, str) and name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        """Close the files. What was read stays."""
        for content in self._contents:
            content.close()


class _Memory(Content):
    """A file whose bytes are in memory."""

    def __init__(self, operation: str, name: str, content: bytes | bytearray | memoryview) -> None:
        self._bytes = np.frombuffer(content, np.uint8)
        super().__init__(operation, name, self._bytes.size)

    def read_into(self, target: memoryview, begin: int) -> None:
        np.copyto(np.frombuffer(target, np.uint8), self._bytes[begin : begin + target.nbytes])


class _File(Content):
    """A file on a disk. It is read, not mapped: a process dies of a mapped file that another one cuts short."""

    def __init__(self, operation: str, path: str) -> None:
        self._path = path
        with translate_errors(operation, path):
            self._stream = Path(path).open("rb", buffering=0)  # noqa: SIM115 - until `close`
            super().__init__(operation, f"path '{path}'", os.fstat(self._stream.fileno()).st_size)
        self._lock = threading.Lock()
        # Of the position in the file, where a read cannot name one.
        self._position_lock = threading.Lock()
        self._readers = 0
        self._is_closed = False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep the descriptor open: once closed, its number may be that of another file."""
        with self._lock:
            self.require_open()
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._is_closed and not self._readers:
                    self._stream.close()

    def read_into(self, target: memoryview, begin: int) -> None:
        with self._reading(), translate_errors(self.operation, self._path):
            while target:
                count = self._read(target, begin)
                if not count:
                    raise self.refused("it was cut short while it was read; write it again, then read it")
                target, begin = target[count:], begin + count

    def _read(self, target: memoryview, begin: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._stream.fileno(), [target], begin)
        with self._position_lock:
            self._stream.seek(begin)
            return self._stream.readinto(target) or 0

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if not self._readers:
                self._stream.close()

    def require_open(self) -> None:
        if self._is_closed:
            reason = "it is closed; read it before close() or inside its with block"
            raise InvalidArgument(self.operation, f"{self.name}: {reason}")


def open_content(operation: str, source: object, *, takes_pipe: bool = True) -> Content:
    """Open a file: InvalidArgument for what is none, FileError where it cannot be read, MissingFile where it is not.

    A pipe is read into memory, or refused before anything waits for its writer.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _Memory(operation, f"path, {memoryview(source).nbytes} bytes", source)
    path = checked_path(operation, source)
    with translate_errors(operation, path):
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            if not takes_pipe:
                reason = "is a pipe, which cannot be read at any offset"
                raise InvalidArgument(operation, f"path '{path}' {reason}; give the path of a file")
            # It can be read once, and in order.
            return _Memory(operation, f"path '{path}'", Path(path).read_bytes())
    return _File(operation, path)


def checked_path(operation: str, path: object) -> str:
    """The text of a path; InvalidArgument for what is none."""
    try:
        name = os.fspath(path)  # type: ignore[call-overload]
        is_path = isinstance(name, str) and b"\0" not in os.fsencode(name)
    except (TypeError, UnicodeEncodeError):
        is_path = False
    if not is_path:
        raise InvalidArgument(operation, f"path: {describe(path)} names no file; give a str or a pathlib.Path")
    return str(name)


@contextmanager
def translate_errors(operation: str, name: str) -> Iterator[None]:
    """Translate the errors of the system to those of this package, with the path that was passed."""
    try:
        yield
    except FileNotFoundError:
        folder = Path(name).resolve().parent
        advice = _CHOOSE_ANOTHER if folder.is_dir() else f"make the folder '{folder}' first"
        raise MissingFile(operation, name, errno.ENOENT, advice) from None
    except OSError as error:
        number = error.errno or errno.EIO
        raise FileError(operation, name, number, _ADVICE.get(number, _CHOOSE_ANOTHER)) from None


class Appending:
    """A stream without positions, as devices and pipes are."""

    def __init__(self, stream: BinaryIO | Appending) -> None:
        self.write: Callable[[bytes | memoryview], int] = stream.write
        self.flush: Callable[[], None] = stream.flush
        self.close: Callable[[], None] = stream.close


@contextmanager
def written(operation: str, name: str) -> Iterator[BinaryIO | Appending]:
    """Open a file that is replaced at once, or whatever else the path names (a pipe, say) as it is. FileError."""
    with translate_errors(operation, name), _written(name) as stream:
        yield stream


@contextmanager
def _written(name: str) -> Iterator[BinaryIO | Appending]:
    try:
        old = Path(name).stat()
    except FileNotFoundError:
        old = None
    if name.endswith((os.sep, "/")) or (old is not None and stat.S_ISDIR(old.st_mode)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if old is not None and not stat.S_ISREG(old.st_mode):
        with Path(name).open("wb") as stream:
            yield Appending(stream)
        return
    # Until it has its owner, group and mode, only this user may open what replaces a file.
    with replacing(Path(name).resolve(), 0o666 if old is None else 0o600) as stream:
        if old is not None and hasattr(os, "fchmod"):
            for owner in (old.st_uid, -1):  # the user may set the group alone, if a member of it
                with suppress(PermissionError):
                    os.chown(stream.fileno(), owner, old.st_gid)
                    break
            os.fchmod(stream.fileno(), stat.S_IMODE(old.st_mode))
        yield stream
